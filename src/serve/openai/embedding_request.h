// EmbeddingRequest: the body of POST /v1/embeddings, checked; and its answer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/generation.h"
#include "serve/openai/completion_request.h"

namespace hone {

struct EmbeddingRequest {
  GenerationFields fields;     // pooling, salt, priority
  std::vector<Prompt> inputs;  // texts, or token ids below the vocabulary
  bool add_special = true;     // texts get the tokenizer's BOS
  bool base64 = false;         // little-endian floats; otherwise an array of numbers
};

// `width`: of the model; the only value that `dimensions` may have.
std::optional<ApiError> ParseEmbeddingRequest(std::string_view body, const RequestRules& rules, int width,
                                              EmbeddingRequest* out);

std::unique_ptr<AnswerShape> MakeEmbeddingAnswer(const std::string& model, size_t inputs, bool base64);

std::string Base64(std::string_view bytes);

}  // namespace hone
