// Sampler: one processor over candidates: a penalty, a cut, a temperature. Each is one file here and one line in
// samplers.inc, whose order is the default order. How to add one: docs/howto/add-a-sampler.md; all formulas:
// docs/sampling.md.
#pragma once

#include <span>
#include <string_view>

#include "base/random.h"
#include "engine/samplers/candidates.h"
#include "engine/samplers/token_history.h"
#include "engine/sampling_params.h"

namespace hone {

struct TokenMask;  // engine/grammar/token_grammar.h

// What a sequence carries from token to token. Nothing in it depends on other sequences, nor on how steps were cut.
struct SamplerState {
  TokenHistory history;
  Rng rng;
  std::span<const int32_t> banned;  // ids that cannot come next (end ids before min_tokens)
  float mirostat_mu = 0;            // 2 * mirostat_tau at the start
  const TokenMask* allowed = nullptr;     // of the grammar, for this position; null: none
  std::span<const int32_t> allowed_ends;  // sorted: beside those, as the grammar lets the answer end here
};

struct Sampler {
  std::string_view name;
  bool (*enabled)(const SamplingParams& params, const SamplerState& state);  // false: apply would change nothing
  // Pure but for the state given. At least one candidate with a finite logit is left if there was one, except by bans.
  void (*apply)(const SamplingParams& params, SamplerState* state, Candidates* candidates);
  // Told the probability that the chosen token had among those left; nullptr if it does not care.
  void (*chosen)(const SamplingParams& params, SamplerState* state, double probability) = nullptr;
};

#define HONE_SAMPLER(Name) extern const Sampler k##Name##Sampler;
#include "engine/samplers/samplers.inc"
#undef HONE_SAMPLER

// All samplers in their default order.
std::span<const Sampler* const> DefaultSamplerOrder();

// Applies the enabled samplers of `order`, then removes candidates with -inf.
void ApplySamplers(std::span<const Sampler* const> order, const SamplingParams& params, SamplerState* state,
                   Candidates* candidates);

// The next token after `logits` [V], or -1 if no token is left (every logit NaN or -inf, or all banned). One number is
// drawn from the state's rng a token (two with xtc), none if there is no choice. `scratch` is overwritten.
int32_t SampleToken(std::span<const Sampler* const> order, std::span<const float> logits, const SamplingParams& params,
                    SamplerState* state, Candidates* scratch);

}  // namespace hone
