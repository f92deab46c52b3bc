// SamplingParams: how the next token of a sequence is chosen. The default of every field but temperature is "off".
// Order, formulas and definitions where implementations differ: docs/sampling.md. The samplers:
// engine/samplers/samplers.inc.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"

namespace hone {

// Order: logit_bias, penalties, min_tokens/bans, then temperature, top_k, typical, top_p, min_p (docs/sampling.md).
struct SamplingParams {
  float temperature = 1;                              // 0: greedy
  int top_k = 0;                                      // 0: off
  float top_p = 1;                                    // 1: off
  float min_p = 0;                                    // 0: off
  float typical = 1;                                  // 1: off
  float repetition_penalty = 1;                       // over prompt and output
  float frequency_penalty = 0, presence_penalty = 0;  // over output only
  int penalty_last_n = -1;  // the penalties above look at the last n tokens, prompt or output; -1: at all
  std::map<int32_t, float> logit_bias;
  std::optional<uint64_t> seed;  // none: random

  int min_keep = 1;                                 // top_p and typical leave at least so many
  float top_n_sigma = 0;                            // 0: off
  float xtc_probability = 0, xtc_threshold = 0.1f;  // probability 0: off
  float epsilon_cutoff = 0, eta_cutoff = 0;         // 0: off
  float dynatemp_range = 0, dynatemp_exponent = 1;  // range 0: temperature is fixed
  bool mirostat = false;                            // version 2
  float mirostat_tau = 5, mirostat_eta = 0.1f;
  float dry_multiplier = 0, dry_base = 1.75f;   // multiplier 0: off
  int dry_allowed_length = 2, dry_last_n = -1;  // -1: the whole sequence
  std::vector<int32_t> dry_breakers;            // token ids
  int no_repeat_ngram = 0;                      // 0: off
};

// Values out of range, NaN, ids beyond the vocabulary: an error that names the field, its value and what is allowed.
Result<void> CheckSamplingParams(const SamplingParams& params, int vocab);

}  // namespace hone
