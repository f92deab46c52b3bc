// The fields that both endpoints share, read in the order of docs/server.md; the first that is wrong is the error.
#include "serve/openai/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "serve/limits.h"

namespace hone {
namespace {

void ReadStop(FieldReader& reader, std::vector<std::string>* out) {
  const Json* stop = reader.Get("stop");
  if (stop == nullptr) return;
  const std::string wanted = "a string or an array of at most " + std::to_string(kMaxStops) + " strings";
  if (stop->is_string()) {
    out->push_back(stop->get<std::string>());
  } else if (stop->is_array() && stop->size() <= static_cast<size_t>(kMaxStops)) {
    for (const Json& item : *stop) {
      if (!item.is_string()) return reader.Fail(BadValue("stop", item, "strings"));
      out->push_back(item.get<std::string>());
    }
  } else {
    return reader.Fail(BadValue("stop", *stop, wanted));
  }
  for (const std::string& text : *out) {
    if (text.empty() || text.size() > static_cast<size_t>(kMaxStopBytes)) {
      return reader.Fail({400, "stop: found a string of " + std::to_string(text.size()) + " bytes, wanted 1 to " +
                                   std::to_string(kMaxStopBytes), "stop", "invalid_value"});
    }
  }
}

void ReadLogitBias(FieldReader& reader, int vocab, std::map<int32_t, float>* out) {
  const Json* bias = reader.Get("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object() || bias->size() > static_cast<size_t>(kMaxLogitBias)) {
    return reader.Fail(BadValue("logit_bias", *bias, "an object of at most " + std::to_string(kMaxLogitBias) +
                                                         " token ids and biases"));
  }
  for (const auto& [key, value] : bias->items()) {
    int32_t id = -1;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0 || id >= vocab) {
      return reader.Fail(BadValue("logit_bias", Json(key), "token ids in [0, " + std::to_string(vocab - 1) + "] as keys"));
    }
    const double number = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    if (!(number >= -100 && number <= 100)) return reader.Fail(BadValue("logit_bias", value, "a number in [-100, 100]"));
    (*out)[id] = static_cast<float>(number);
  }
}

void ReadStreamOptions(FieldReader& reader, const RequestRules& rules, GenerationFields* out) {
  reader.Bool("stream", &out->stream);
  const Json* options = reader.Get("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return reader.Fail(BadValue("stream_options", *options, "an object"));
  if (!out->stream) {
    return reader.Fail({400, "stream_options: only allowed when stream is true", "stream_options", "invalid_value"});
  }
  constexpr std::string_view kKnown[] = {"include_usage", "include_obfuscation"};
  if (auto error = CheckNames(*options, "stream_options", kKnown, rules.policy)) return reader.Fail(std::move(*error));
  FieldReader inner(*options);
  bool obfuscation = false;
  inner.Bool("include_usage", &out->include_usage);
  inner.Bool("include_obfuscation", &obfuscation);
  if (inner.error()) {
    inner.error()->param = "stream_options." + inner.error()->param;
    inner.error()->message.insert(0, "stream_options.");
    return reader.Fail(std::move(*inner.error()));
  }
  if (obfuscation && !rules.policy.lenient) {
    reader.Fail({400, "stream_options.include_obfuscation: not supported", "stream_options.include_obfuscation",
                 "unsupported_field"});
  }
}

void ReadResponseFormat(FieldReader& reader) {
  const Json* format = reader.Get("response_format");
  if (format == nullptr) return;
  if (!format->is_object() || !format->contains("type") || !format->at("type").is_string()) {
    return reader.Fail(BadValue("response_format", *format, "{\"type\": \"text\"}"));
  }
  const Json& type = format->at("type");
  if (type == Json("text")) return;
  reader.Fail({400, "response_format.type: " + Found(type) + " is not supported yet; supported: \"text\"",
               "response_format.type", "unsupported_value"});
}

}  // namespace

void CheckModel(FieldReader& reader, const RequestRules& rules) {
  const Json* model = reader.Get("model");
  if (model == nullptr) return;
  if (!model->is_string()) return reader.Fail(BadValue("model", *model, "a string"));
  if (model->get_ref<const std::string&>() != rules.model) {
    reader.Fail({404, "model: " + Found(*model) + " does not exist; this server has \"" + rules.model + "\"", "model",
                 "model_not_found"});
  }
}

void ReadGenerationFields(FieldReader& reader, const RequestRules& rules, GenerationFields* out) {
  if (!reader.Has("model")) {
    reader.Fail({400, "model: missing; this server has \"" + rules.model + "\"", "model", "missing_field"});
  }
  CheckModel(reader, rules);
  SequenceRequest& sequence = out->sequence;
  SamplingParams& sampling = sequence.sampling;
  ReadStreamOptions(reader, rules, out);
  ReadResponseFormat(reader);
  reader.Int("n", 1, kMaxN, &out->n);
  reader.Float("temperature", 0, false, kMaxTemperature, &sampling.temperature);
  reader.Float("top_p", 0, false, 1, &sampling.top_p);
  // "The tokens that make up the top 0 of the mass" is the best token alone.
  sampling.top_p = std::max(sampling.top_p, std::numeric_limits<float>::min());
  reader.Float("min_p", 0, false, 1, &sampling.min_p);
  reader.Float("typical_p", 0, true, 1, &sampling.typical);
  reader.Int("top_k", -1, std::numeric_limits<int>::max(), &sampling.top_k);
  sampling.top_k = std::max(sampling.top_k, 0);  // -1 is off, as in vLLM
  reader.Float("repetition_penalty", 0, true, kMaxRepetitionPenalty, &sampling.repetition_penalty);
  reader.Float("frequency_penalty", -kMaxPenalty, false, kMaxPenalty, &sampling.frequency_penalty);
  reader.Float("presence_penalty", -kMaxPenalty, false, kMaxPenalty, &sampling.presence_penalty);
  ReadLogitBias(reader, rules.vocab, &sampling.logit_bias);
  reader.Seed("seed", &sampling.seed);
  ReadStop(reader, &sequence.stop);
  reader.Ids("stop_token_ids", kMaxStopTokenIds, rules.vocab, &sequence.stop_ids);
  reader.Bool("include_stop_str_in_output", &sequence.include_stop);
  reader.Bool("ignore_eos", &sequence.ignore_end);
  reader.Bool("skip_special_tokens", &sequence.skip_special);
  reader.Int("min_tokens", 0, std::numeric_limits<int>::max(), &sequence.min_tokens);
  std::string user;
  reader.String("user", &user);
}

std::optional<ApiError> MakeSequences(const GenerationFields& fields, std::vector<int32_t> prompt, const RequestRules& rules,
                                      const std::string& param, std::vector<SequenceRequest>* out) {
  const int64_t size = static_cast<int64_t>(prompt.size());
  if (size == 0) return ApiError{400, param + ": found no tokens, wanted at least one", param, "invalid_value"};
  if (size >= rules.context) {
    return ApiError{400, param + ": found " + std::to_string(size) + " tokens, but the context holds " +
                             std::to_string(rules.context) + " with the answer; shorten the prompt, or start the server with a "
                             "larger --ctx", param, "context_length_exceeded"};
  }
  const int room = rules.context - static_cast<int>(size);
  SequenceRequest sequence = fields.sequence;
  const int limit = sequence.max_tokens > 0 ? std::min(sequence.max_tokens, room) : room;
  if (sequence.min_tokens > limit) {
    return ApiError{400, "min_tokens: found " + std::to_string(sequence.min_tokens) + ", wanted at most the " +
                             std::to_string(limit) + " tokens that the answer may have", "min_tokens", "invalid_value"};
  }
  sequence.max_tokens = limit;
  sequence.prompt = std::move(prompt);
  for (int i = 0; i < fields.n; ++i) {
    out->push_back(sequence);
    // Choices of one request must differ, and each be repeatable.
    if (sequence.sampling.seed) out->back().sampling.seed = *sequence.sampling.seed + static_cast<uint64_t>(i);
  }
  return std::nullopt;
}

}  // namespace hone
