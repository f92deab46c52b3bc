// Reads a completion request: its prompt has four forms, and logprobs is a number here.
#include "serve/openai/completion_request.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "serve/limits.h"

namespace hone {
namespace {

std::optional<ApiError> ReadIds(const Json& array, const std::string& field, const RequestRules& rules,
                                std::vector<int32_t>* out) {
  out->reserve(array.size());
  for (const Json& item : array) {
    const std::optional<int64_t> id = AsInt(item);
    if (!id || *id < 0 || *id >= rules.vocab) {
      return BadValue(field, item, "token ids in [0, " + std::to_string(rules.vocab - 1) + "]");
    }
    out->push_back(static_cast<int32_t>(*id));
  }
  return std::nullopt;
}

// A text, texts, token ids, or arrays of token ids.
std::optional<ApiError> ReadPrompts(const Json& document, const RequestRules& rules, std::vector<Prompt>* out) {
  const auto it = document.find("prompt");
  if (it == document.end() || it->is_null()) {
    return ApiError{400, "prompt: missing, wanted text or token ids", "prompt", "missing_field"};
  }
  const std::string wanted = "a string, an array of strings, an array of token ids, or an array of arrays of token ids";
  if (it->is_string()) {
    out->emplace_back(it->get<std::string>());
    return std::nullopt;
  }
  if (!it->is_array() || it->empty()) return BadValue("prompt", *it, wanted);
  if (it->front().is_number()) {
    std::vector<int32_t> ids;
    if (auto error = ReadIds(*it, "prompt", rules, &ids)) return error;
    out->emplace_back(std::move(ids));
    return std::nullopt;
  }
  if (it->size() > static_cast<size_t>(kMaxPrompts)) {
    return BadValue("prompt", *it, "at most " + std::to_string(kMaxPrompts) + " prompts");
  }
  const bool texts = it->front().is_string();
  for (size_t i = 0; i < it->size(); ++i) {
    const Json& item = it->at(i);
    const std::string field = "prompt[" + std::to_string(i) + "]";
    if (texts ? !item.is_string() : !item.is_array()) return BadValue(field, item, texts ? "a string" : "an array of token ids");
    if (texts) {
      out->emplace_back(item.get<std::string>());
      continue;
    }
    std::vector<int32_t> ids;
    if (auto error = ReadIds(item, field, rules, &ids)) return error;
    out->emplace_back(std::move(ids));
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ParseCompletionRequest(std::string_view body, const RequestRules& rules, CompletionRequest* out) {
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckFields(document, &FieldRule::completion, rules.policy)) return error;
  FieldReader reader(document);
  ReadGenerationFields(reader, rules, &out->fields);
  SequenceRequest& sequence = out->fields.sequence;
  sequence.max_tokens = kDefaultCompletionTokens;
  reader.Int("max_tokens", 1, std::numeric_limits<int>::max(), &sequence.max_tokens);
  // Some clients send the chat endpoint's false; it means none here too.
  if (const Json* logprobs = reader.Get("logprobs"); logprobs != nullptr && *logprobs != Json(false)) {
    reader.Int("logprobs", 0, kMaxLogprobs, &sequence.logprobs);
  }
  reader.Bool("add_special_tokens", &out->add_special);
  if (reader.error()) return reader.error();
  return ReadPrompts(document, rules, &out->prompts);
}

}  // namespace hone
