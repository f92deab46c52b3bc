// The fields that both endpoints share, read in the order of docs/server.md; the first that is wrong is the error.
#include "serve/openai/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "serve/limits.h"
#include "serve/openai/answer_fields.h"

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
  constexpr std::string_view kKnown[] = {"include_usage", "continuous_usage_stats", "include_obfuscation"};
  if (auto error = CheckNames(*options, "stream_options", kKnown, rules.policy)) return reader.Fail(std::move(*error));
  FieldReader inner(*options);
  bool obfuscation = false;
  inner.Bool("include_usage", &out->include_usage);
  inner.Bool("continuous_usage_stats", &out->continuous_usage);
  inner.Bool("include_obfuscation", &obfuscation);
  if (inner.error()) {
    inner.error()->param = "stream_options." + inner.error()->param;
    inner.error()->message.insert(0, "stream_options.");
    return reader.Fail(std::move(*inner.error()));
  }
  if (out->continuous_usage && !out->include_usage) {
    return reader.Fail({400, "stream_options.continuous_usage_stats: only with include_usage", "stream_options.continuous_usage_stats", "invalid_value"});
  }
  if (obfuscation && !rules.policy.lenient) {
    reader.Fail({400, "stream_options.include_obfuscation: not supported", "stream_options.include_obfuscation",
                 "unsupported_field"});
  }
}

void ReadResponseFormat(FieldReader& reader, const RequestRules& rules, AnswerForm* out) {
  const Json* format = reader.Get("response_format");
  if (format == nullptr) return;
  if (auto error = ReadTextFormat(*format, "response_format", /*flat=*/false, rules.policy, out)) reader.Fail(std::move(*error));
}

// Samplers beyond OpenAI's, under the names that llama.cpp and others gave them. Their definitions: docs/sampling.md.
void ReadMoreSamplers(FieldReader& reader, SamplingParams* sampling) {
  constexpr double kLargest = 1e6;
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  reader.Float("top_n_sigma", -1, false, kLargest, &sampling->top_n_sigma);
  sampling->top_n_sigma = std::max(sampling->top_n_sigma, 0.0f);  // -1 is off, as in llama.cpp
  reader.Float("xtc_probability", 0, false, 1, &sampling->xtc_probability);
  reader.Float("xtc_threshold", 0, false, 1, &sampling->xtc_threshold);
  reader.Float("dry_multiplier", 0, false, kLargest, &sampling->dry_multiplier);
  reader.Float("dry_base", 0, true, kLargest, &sampling->dry_base);
  reader.Int("dry_allowed_length", 0, kMost, &sampling->dry_allowed_length);
  reader.Int("dry_penalty_last_n", -1, kMost, &sampling->dry_last_n);
  int mirostat = 0;
  reader.Int("mirostat", 0, 2, &mirostat);
  if (mirostat == 1) reader.Fail({400, "mirostat: found 1, supported: 0 (off), 2", "mirostat", "unsupported_value"});
  sampling->mirostat = mirostat == 2;
  reader.Float("mirostat_tau", 0, false, kLargest, &sampling->mirostat_tau);
  reader.Float("mirostat_eta", 0, false, kLargest, &sampling->mirostat_eta);
  reader.Float("dynatemp_range", 0, false, kLargest, &sampling->dynatemp_range);
  reader.Float("dynatemp_exponent", 0, false, kLargest, &sampling->dynatemp_exponent);
  reader.Int("repeat_last_n", -1, kMost, &sampling->penalty_last_n);
  reader.Int("no_repeat_ngram_size", 0, kMaxNoRepeatNgram, &sampling->no_repeat_ngram);
  reader.Float("epsilon_cutoff", 0, false, 1, &sampling->epsilon_cutoff);
  reader.Float("eta_cutoff", 0, false, 1, &sampling->eta_cutoff);
}

void ReadLogprobsMode(FieldReader& reader, SequenceRequest* sequence) {
  std::string mode = "raw";
  reader.String("logprobs_mode", &mode);
  if (mode == "processed") sequence->logprobs_kind = LogprobsKind::kProcessed;
  else if (mode != "raw") reader.Fail(BadValue("logprobs_mode", Json(mode), "\"raw\" or \"processed\""));
}

// The names that `model` may be, not all of many.
std::string KnownModels(const RequestRules& rules) {
  constexpr size_t kMost = 8;
  std::string names = "\"" + rules.model + "\"";
  if (rules.adapters == nullptr) return names;
  size_t count = 0;
  for (const auto& [name, adapter] : *rules.adapters) {
    if (++count > kMost) return names + " and more (GET /v1/models)";
    names += ", \"" + name + "\"";
  }
  return names;
}

}  // namespace

void ReadScheduling(FieldReader& reader, const RequestRules& rules, SequenceRequest* out) {
  reader.Int("priority", rules.min_priority, kMaxPriority, &out->priority);
  if (!reader.Has("cache_salt")) return;
  reader.String("cache_salt", &out->salt);
  if (out->salt.empty() || out->salt.size() > static_cast<size_t>(kMaxCacheSaltBytes)) {
    reader.Fail({400, "cache_salt: found a string of " + std::to_string(out->salt.size()) + " bytes, wanted 1 to " +
                          std::to_string(kMaxCacheSaltBytes), "cache_salt", "invalid_value"});
  }
}

void CheckModel(FieldReader& reader, const RequestRules& rules, GenerationFields* out) {
  const Json* model = reader.Get("model");
  if (model == nullptr) return;
  if (!model->is_string()) return reader.Fail(BadValue("model", *model, "a string"));
  const std::string& name = model->get_ref<const std::string&>();
  if (out != nullptr) out->model = name;
  if (name == rules.model) return;
  if (rules.adapters != nullptr) {
    if (const auto it = rules.adapters->find(name); it != rules.adapters->end()) {
      if (out != nullptr) out->sequence.adapter = it->second, out->sequence.adapter_name = name;
      return;
    }
  }
  reader.Fail({404, "model: " + Found(*model) + " does not exist; this server has " + KnownModels(rules), "model", "model_not_found"});
}

void ReadGenerationFields(FieldReader& reader, const RequestRules& rules, GenerationFields* out) {
  if (!reader.Has("model")) {
    reader.Fail({400, "model: missing; this server has " + KnownModels(rules), "model", "missing_field"});
  }
  CheckModel(reader, rules, out);
  SequenceRequest& sequence = out->sequence;
  SamplingParams& sampling = sequence.sampling;
  ReadStreamOptions(reader, rules, out);
  ReadResponseFormat(reader, rules, &out->form);
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
  ReadMoreSamplers(reader, &sampling);
  ReadLogprobsMode(reader, &sequence);
  ReadScheduling(reader, rules, &sequence);
  reader.Int("prompt_logprobs", 0, kMaxLogprobs, &sequence.prompt_logprobs);
  if (sequence.prompt_logprobs >= 0 && out->stream) {
    reader.Fail({400, "prompt_logprobs: not available when stream is true", "prompt_logprobs", "invalid_value"});
  }
  std::string user;
  reader.String("user", &user);
}

std::optional<ApiError> FindGrammar(GrammarCache& grammars, const AnswerMarks& marks, GenerationFields* fields) {
  if (!fields->form.constrains()) return std::nullopt;
  if (fields->sequence.sampling.no_repeat_ngram > 0) {  // it could ban the only way on
    return ApiError{400, "no_repeat_ngram_size: not together with an answer that must be JSON or a call", "no_repeat_ngram_size",
                    "unsupported_value"};
  }
  return grammars.Find(fields->form, marks, &fields->sequence.grammar);
}

std::optional<ApiError> MakeChoices(const GenerationFields& fields, std::vector<int32_t> prompt, const RequestRules& rules,
                                    const std::string& param, std::vector<PromptChoices>* out) {
  const int64_t size = static_cast<int64_t>(prompt.size());
  if (size == 0) return ApiError{400, param + ": found no tokens, wanted at least one", param, "invalid_value"};
  if (rules.limits.prompt_tokens > 0 && size > rules.limits.prompt_tokens) {
    return ApiError{400, param + ": found " + std::to_string(size) + " tokens, this server takes prompts of at most " +
                             std::to_string(rules.limits.prompt_tokens), param, "context_length_exceeded"};
  }
  SequenceRequest sequence = fields.sequence;
  if (size >= rules.context + (sequence.prompt_only ? 1 : 0)) {
    return ApiError{400, param + ": found " + std::to_string(size) + " tokens, but the context holds " +
                             std::to_string(rules.context) + " with the answer; shorten the prompt, or start the server with a "
                             "larger --ctx", param, "context_length_exceeded"};
  }
  const int most = rules.limits.output_tokens;
  if (most > 0 && sequence.max_tokens > most) {
    return ApiError{400, "max_tokens: found " + std::to_string(sequence.max_tokens) + ", this server makes at most " +
                             std::to_string(most), "max_tokens", "invalid_value"};
  }
  const int room = rules.context - static_cast<int>(size);
  int limit = sequence.max_tokens > 0 ? std::min(sequence.max_tokens, room) : room;
  if (most > 0) limit = std::min(limit, most);
  if (sequence.min_tokens > limit) {
    return ApiError{400, "min_tokens: found " + std::to_string(sequence.min_tokens) + ", wanted at most the " +
                             std::to_string(limit) + " tokens that the answer may have", "min_tokens", "invalid_value"};
  }
  sequence.max_tokens = sequence.prompt_only ? 1 : limit;
  sequence.prompt = std::move(prompt);
  out->push_back({std::move(sequence), std::max(fields.n, fields.best_of)});
  return std::nullopt;
}

}  // namespace hone
