// The chain, and the draw at its end: candidates are walked in their order until the cumulative weight passes u *
// total.
#include "engine/samplers/sampler.h"

#include <cmath>

namespace hone {
namespace {

constexpr const Sampler* kDefaultOrder[] = {
#define HONE_SAMPLER(Name) &k##Name##Sampler,
#include "engine/samplers/samplers.inc"
#undef HONE_SAMPLER
};

// The largest logit, of equal ones the lowest id; -1 if none is finite.
int32_t ArgMax(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t id = 0; id < logits.size(); ++id) {
    const float logit = logits[id];
    if (best < 0 ? logit > -INFINITY : logit > logits[best]) best = static_cast<int32_t>(id);
  }
  return best;
}

size_t Draw(Candidates* candidates, Rng* rng, double* probability) {
  double total = 0;
  const std::span<const float> weights = candidates->Weights(&total);
  const double target = rng->Uniform() * total;
  double sum = 0;
  size_t chosen = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    chosen = i;  // rounding may leave the sum below the target: then the last one that can be chosen
    sum += weights[i];
    if (sum > target) break;
  }
  *probability = weights[chosen] / total;
  return chosen;
}

}  // namespace

std::span<const Sampler* const> DefaultSamplerOrder() { return kDefaultOrder; }

void ApplySamplers(std::span<const Sampler* const> order, const SamplingParams& params, SamplerState* state,
                   Candidates* candidates) {
  for (const Sampler* sampler : order) {
    if (sampler->enabled(params, *state)) sampler->apply(params, state, candidates);
  }
  candidates->KeepIf([](const Candidate& candidate) { return candidate.logit > -INFINITY; });
}

int32_t SampleToken(std::span<const Sampler* const> order, std::span<const float> logits, const SamplingParams& params,
                    SamplerState* state, Candidates* scratch) {
  if (params.temperature == 0) {  // greedy: what comes after the temperature has one candidate and cannot change it
    bool first = true;
    for (const Sampler* sampler : order) {
      if (sampler == &kTemperatureSampler) break;
      first = first && !sampler->enabled(params, *state);
    }
    if (first) return ArgMax(logits);
  }
  scratch->Fill(logits);
  ApplySamplers(order, params, state, scratch);
  if (scratch->size() == 0) return -1;
  double probability = 1;
  const size_t chosen = scratch->size() == 1 ? 0 : Draw(scratch, &state->rng, &probability);
  for (const Sampler* sampler : order) {
    if (sampler->chosen != nullptr && sampler->enabled(params, *state)) sampler->chosen(params, state, probability);
  }
  return scratch->items()[chosen].id;
}

}  // namespace hone
