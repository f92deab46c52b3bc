// CompletionRequest: the body of POST /v1/completions, checked.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/openai/generation_fields.h"

namespace hone {

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  GenerationFields fields;
  std::vector<Prompt> prompts;     // texts, or token ids below the vocabulary
  bool add_special = true;         // texts get the tokenizer's BOS
  bool echo = false;               // the prompt stands before its completion, with its log-probabilities if any are wanted
};

inline constexpr int kDefaultCompletionTokens = 16;  // max_tokens if it is not given, as OpenAI documents

std::optional<ApiError> ParseCompletionRequest(std::string_view body, const RequestRules& rules, CompletionRequest* out);

// The member `name` of a document: a text, up to `most` texts, token ids, or up to `most` arrays of token ids.
std::optional<ApiError> ReadPrompts(const Json& document, const std::string& name, int most, const RequestRules& rules,
                                    std::vector<Prompt>* out);

}  // namespace hone
