// fuzzes: serve
// Bodies of /v1/chat/completions, /v1/completions, /v1/responses and /v1/embeddings: any bytes give a request or a 400 whose JSON is valid UTF-8.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "serve/error.h"
#include "serve/json_writer.h"
#include "serve/openai/chat_request.h"
#include "serve/openai/completion_request.h"
#include "serve/openai/embedding_request.h"
#include "serve/openai/responses_request.h"

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
    std::vector<PromptChoices> choices;
    if (!MakeChoices(fields, {1, 2, 3}, rules, "prompt", &choices)) HONE_CHECK(choices.size() == 1 && choices[0].count >= fields.n);
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
  ResponsesRequest responses;
  const auto responses_error = ParseResponsesRequest(body, rules, "enable_thinking reasoning_effort", &responses);
  check(responses_error, responses.chat.fields);
  if (!responses_error) {
    HONE_CHECK(nlohmann::json::accept(responses.chat.messages_json));
    for (const std::string* part : {&responses.instructions_json, &responses.tools_json, &responses.tool_choice_json,
                                    &responses.metadata_json, &responses.effort_json, &responses.user_json}) {
      HONE_CHECK(nlohmann::json::accept(*part));
    }
  }
  EmbeddingRequest embedding;
  const auto embedding_error = ParseEmbeddingRequest(body, rules, 4, &embedding);
  check(embedding_error, embedding.fields);
  return 0;
}
