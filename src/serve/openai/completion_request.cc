// Reads a completion request: its prompt has four forms, and logprobs is a number here.
#include "serve/openai/completion_request.h"

#include <algorithm>
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

// OpenAI: best_of must be at least n, and results cannot be streamed; its default is n.
void ReadBestOf(FieldReader& reader, GenerationFields* fields) {
  fields->best_of = fields->n;
  reader.Int("best_of", 1, kMaxN, &fields->best_of);
  const std::string number = std::to_string(fields->best_of);
  if (fields->best_of < fields->n) {
    return reader.Fail({400, "best_of: found " + number + ", wanted at least n, which is " + std::to_string(fields->n), "best_of",
                        "invalid_value"});
  }
  if (fields->best_of == fields->n) return;
  if (fields->stream) {
    return reader.Fail({400, "best_of: found " + number + "; more than n is not possible when stream is true", "best_of",
                        "invalid_value"});
  }
}

}  // namespace

std::optional<ApiError> ReadPrompts(const Json& document, const std::string& name, int most, const RequestRules& rules,
                                    std::vector<Prompt>* out) {
  const auto it = document.find(name);
  if (it == document.end() || it->is_null()) {
    return ApiError{400, name + ": missing, wanted text or token ids", name, "missing_field"};
  }
  const std::string wanted = "a string, an array of strings, an array of token ids, or an array of arrays of token ids";
  if (it->is_string()) {
    out->emplace_back(it->get<std::string>());
    return std::nullopt;
  }
  if (!it->is_array() || it->empty()) return BadValue(name, *it, wanted);
  if (it->front().is_number()) {
    std::vector<int32_t> ids;
    if (auto error = ReadIds(*it, name, rules, &ids)) return error;
    out->emplace_back(std::move(ids));
    return std::nullopt;
  }
  if (it->size() > static_cast<size_t>(most)) {
    return BadValue(name, *it, "at most " + std::to_string(most) + " of them");
  }
  const bool texts = it->front().is_string();
  for (size_t i = 0; i < it->size(); ++i) {
    const Json& item = it->at(i);
    const std::string field = name + "[" + std::to_string(i) + "]";
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

std::optional<ApiError> ParseCompletionRequest(std::string_view body, const RequestRules& rules, CompletionRequest* out) {
  Json document;
  if (auto error = ParseBody(body, &document)) return error;
  if (auto error = CheckFields(document, &FieldRule::completion, rules.policy)) return error;
  FieldReader reader(document);
  ReadGenerationFields(reader, rules, &out->fields);
  SequenceRequest& sequence = out->fields.sequence;
  sequence.max_tokens = kDefaultCompletionTokens;
  reader.Bool("echo", &out->echo);
  // No tokens but the prompt's: what scoring asks for.
  reader.Int("max_tokens", out->echo ? 0 : 1, std::numeric_limits<int>::max(), &sequence.max_tokens);
  sequence.prompt_only = sequence.max_tokens == 0;
  // Some clients send the chat endpoint's false; it means none here too.
  if (const Json* logprobs = reader.Get("logprobs"); logprobs != nullptr && *logprobs != Json(false)) {
    reader.Int("logprobs", 0, kMaxLogprobs, &sequence.logprobs);
  }
  if (out->echo && sequence.logprobs >= 0) sequence.prompt_logprobs = std::max(sequence.prompt_logprobs, sequence.logprobs);
  reader.Bool("add_special_tokens", &out->add_special);
  ReadBestOf(reader, &out->fields);
  if (reader.error()) return reader.error();
  return ReadPrompts(document, "prompt", kMaxPrompts, rules, &out->prompts);
}

}  // namespace hone
