// See sampling_flags.h.
#include "cli/sampling_flags.h"

#include <cmath>
#include <cstdlib>
#include <limits>

namespace hone {

void SamplingFlags::Add(Flags& flags) {
  const char* group = "Sampling";
  flags.Add("-n,--max-tokens", max_tokens, "most tokens to generate (default: until the model ends)")
      ->range(1, std::numeric_limits<int>::max())->group(group);
  flags.Add("--temperature", temperature, "0 is greedy (default: the model's suggestion, else 0.7)")->group(group);
  flags.Add("--top-k", top_k, "keep the k most probable tokens; 0 is off")->group(group);
  flags.Add("--top-p", top_p, "keep the smallest set with this probability; 1 is off (default: 0.95)")->group(group);
  flags.Add("--min-p", min_p, "drop tokens below this share of the best one's probability")->group(group);
  flags.Add("--typical", typical, "locally typical sampling; 1 is off")->group(group);
  flags.Add("--repetition-penalty", repetition_penalty, "over prompt and output; 1 is off")->group(group);
  flags.Add("--frequency-penalty", frequency_penalty, "per occurrence in the output")->group(group);
  flags.Add("--presence-penalty", presence_penalty, "for tokens that are in the output")->group(group);
  flags.Add("--logit-bias", logit_bias, "ID=V: add V to the logit of token ID (repeatable)")->group(group);
  flags.Add("--stop", stop, "end before this text (repeatable)")->one_value_each()->group(group);
  flags.AddSwitch("--ignore-eos", ignore_eos, "go on after the model's end token")->group(group);
}

Result<void> SamplingFlags::Apply(const CommonFlags& flags, SamplingParams suggested, SequenceRequest* request) const {
  SamplingParams sampling = std::move(suggested);
  if (temperature) sampling.temperature = *temperature;
  if (top_k) sampling.top_k = *top_k;
  if (top_p) sampling.top_p = *top_p;
  if (min_p) sampling.min_p = *min_p;
  if (typical) sampling.typical = *typical;
  if (repetition_penalty) sampling.repetition_penalty = *repetition_penalty;
  if (frequency_penalty) sampling.frequency_penalty = *frequency_penalty;
  if (presence_penalty) sampling.presence_penalty = *presence_penalty;
  sampling.seed = flags.seed;
  for (const std::string& entry : logit_bias) {
    char* end = nullptr;
    const long id = std::strtol(entry.c_str(), &end, 10);
    char* value_end = end;
    const float value = *end == '=' ? std::strtof(end + 1, &value_end) : 0;
    if (end == entry.c_str() || *end != '=' || value_end == end + 1 || *value_end != '\0' || id < 0 ||
        id > std::numeric_limits<int32_t>::max() || std::isnan(value)) {
      return UsageError("--logit-bias '" + entry + "': wanted ID=VALUE, for example 42=-1.5");
    }
    sampling.logit_bias[static_cast<int32_t>(id)] = value;
  }
  // What no model would allow is wrong usage; the engine checks the rest, with its vocabulary, again.
  if (const auto checked = CheckSamplingParams(sampling, std::numeric_limits<int>::max()); !checked) {
    return UsageError(checked.error().message);
  }
  for (const std::string& text : stop) {
    if (text.empty()) return UsageError("--stop is empty; every text begins with that");
  }
  request->sampling = std::move(sampling);
  request->stop = stop;
  request->ignore_end = ignore_eos;
  request->max_tokens = max_tokens;
  return {};
}

}  // namespace hone
