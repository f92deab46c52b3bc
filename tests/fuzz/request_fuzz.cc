// fuzzes: serve
// Bodies of /v1/chat/completions and /v1/completions: any bytes give a request or a 400 whose JSON is valid UTF-8.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "serve/error.h"
#include "serve/json_writer.h"
#include "serve/openai/chat_request.h"
#include "serve/openai/completion_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hone;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  RequestRules rules;
  rules.model = "m";
  rules.vocab = 1000;
  rules.context = 500;
  rules.policy.lenient = size % 2 == 1;
  const auto check = [&](const std::optional<ApiError>& error, const GenerationFields& fields) {
    if (error) {
      HONE_CHECK(error->status >= 400 && error->status < 500);
      HONE_CHECK(!error->message.empty());
      HONE_CHECK(FindInvalidUtf8(ErrorJson(*error)) == std::string_view::npos);
      return;
    }
    HONE_CHECK(fields.n >= 1);
    std::vector<SequenceRequest> sequences;
    if (!MakeSequences(fields, {1, 2, 3}, rules, "prompt", &sequences)) HONE_CHECK(sequences.size() == size_t(fields.n));
  };
  ChatRequest chat;
  const auto chat_error = ParseChatRequest(body, rules, "enable_thinking reasoning_effort", &chat);
  check(chat_error, chat.fields);
  if (!chat_error) {
    // What templates get is JSON again.
    HONE_CHECK(nlohmann::json::accept(chat.messages_json));
    HONE_CHECK(chat.tools_json.empty() || nlohmann::json::accept(chat.tools_json));
    HONE_CHECK(chat.variables_json.empty() || nlohmann::json::accept(chat.variables_json));
  }
  CompletionRequest completion;
  const auto completion_error = ParseCompletionRequest(body, rules, &completion);
  check(completion_error, completion.fields);
  return 0;
}
