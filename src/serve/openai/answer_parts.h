// Parts that both kinds of answers share: usage, the head of a chunk, logprob numbers.
#pragma once

#include <chrono>
#include <cmath>
#include <string>
#include <string_view>

#include "serve/generation.h"
#include "serve/json_writer.h"

namespace hone {

inline constexpr double kLowestLogprob = -9999;  // what OpenAI sends for minus infinity, which JSON cannot hold

struct AnswerHead {
  std::string id;      // the same on all chunks
  std::string object;  // of a chunk, and of a whole answer without ".chunk"
  std::string model;
  std::string fingerprint;  // of the weights
  int64_t created = 0;
};

inline int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Opens the object and writes all that stands before "choices".
inline void WriteHead(JsonWriter& json, const AnswerHead& head, std::string_view object) {
  json.BeginObject().Field("id", head.id).Field("object", object).Field("created", head.created);
  json.Field("model", head.model).Field("system_fingerprint", head.fingerprint);
}

inline void WriteUsage(JsonWriter& json, const Usage& usage) {
  json.Key("usage").BeginObject();
  json.Field("prompt_tokens", usage.prompt_tokens).Field("completion_tokens", usage.completion_tokens);
  json.Field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.Key("prompt_tokens_details").BeginObject().Field("cached_tokens", usage.cached_tokens).EndObject();
  if (usage.reasoning_tokens >= 0) {
    json.Key("completion_tokens_details").BeginObject().Field("reasoning_tokens", usage.reasoning_tokens).EndObject();
  }
  json.EndObject();
}

// What a chunk of a stream with usage says of tokens: null, or with continuous_usage_stats those of its choice up to now.
inline void WriteChunkUsage(JsonWriter& json, bool continuous, const Usage& so_far) {
  if (continuous)
    WriteUsage(json, so_far);
  else
    json.NullField("usage");
}

inline Usage UsageOf(const SequenceEvent& event) {
  return {.prompt_tokens = event.prompt_tokens, .completion_tokens = event.output_tokens, .cached_tokens = event.cached_tokens};
}

// The effective seed beside a finish_reason, as a request may send it: a negative one comes back negative.
inline void WriteSeed(JsonWriter& json, uint64_t seed) { json.Field("seed", static_cast<int64_t>(seed)); }

inline double JsonLogprob(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : kLowestLogprob; }

// vLLM's shape: null for the first token, then {"id": {"logprob", "rank", "decoded_token"}, ...}: the prompt's token first,
// then the best. `rank` is left out where the token is not among those.
inline void WritePromptLogprobs(JsonWriter& json, const Tokenizer& tokenizer, const std::vector<TokenResult>& tokens) {
  json.Key("prompt_logprobs").BeginArray().Null();
  for (const TokenResult& token : tokens) {
    json.BeginObject();
    const auto write = [&](int32_t id, float logprob, size_t rank) {
      json.Key(std::to_string(id)).BeginObject().Key("logprob").Double(JsonLogprob(logprob));
      if (rank > 0) json.Field("rank", static_cast<int64_t>(rank));
      json.Field("decoded_token", tokenizer.TokenBytes(id)).EndObject();
    };
    size_t rank = 0;
    for (size_t i = 0; i < token.top.size() && rank == 0; ++i) rank = token.top[i].id == token.id ? i + 1 : 0;
    write(token.id, token.logprob, rank);
    for (size_t i = 0; i < token.top.size(); ++i) {
      if (token.top[i].id != token.id) write(token.top[i].id, token.top[i].logprob, i + 1);
    }
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace hone
