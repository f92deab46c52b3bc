// Parts that both kinds of answers share: usage, the head of a chunk, logprob numbers.
#pragma once

#include <chrono>
#include <cmath>
#include <string>
#include <string_view>

#include "serve/generation.h"
#include "serve/json_writer.h"

namespace hone {

inline constexpr std::string_view kFingerprint = "hone-" HONE_VERSION;
inline constexpr double kLowestLogprob = -9999;  // what OpenAI sends for minus infinity, which JSON cannot hold

struct AnswerHead {
  std::string id;      // the same on all chunks
  std::string object;  // of a chunk, and of a whole answer without ".chunk"
  std::string model;
  int64_t created = 0;
};

inline int64_t UnixNow() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Opens the object and writes all that stands before "choices".
inline void WriteHead(JsonWriter& json, const AnswerHead& head, std::string_view object) {
  json.BeginObject().Field("id", head.id).Field("object", object).Field("created", head.created);
  json.Field("model", head.model).Field("system_fingerprint", kFingerprint);
}

inline void WriteUsage(JsonWriter& json, const Usage& usage) {
  json.Key("usage").BeginObject();
  json.Field("prompt_tokens", usage.prompt_tokens).Field("completion_tokens", usage.completion_tokens);
  json.Field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.Key("prompt_tokens_details").BeginObject().Field("cached_tokens", usage.cached_tokens).EndObject();
  json.EndObject();
}

// The effective seed beside a finish_reason, as a request may send it: a negative one comes back negative.
inline void WriteSeed(JsonWriter& json, uint64_t seed) { json.Field("seed", static_cast<int64_t>(seed)); }

inline double JsonLogprob(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : kLowestLogprob; }

}  // namespace hone
