// The chain, and the draw at its end: candidates are walked in their order until the cumulative weight passes u *
// total.
#include "engine/samplers/sampler.h"

#include <emmintrin.h>

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

constexpr const Sampler* kDefaultOrder[] = {
#define HONE_SAMPLER(Name) &k##Name##Sampler,
#include "engine/samplers/samplers.inc"
#undef HONE_SAMPLER
};

// The largest logit, of equal ones the lowest id; -1 if there is none above -inf. Sixteen at a time: a vocabulary of 128k takes
// some ten microseconds. MAXPS gives its second operand where the first is NaN, so NaN is passed over.
int32_t ArgMax(std::span<const float> logits) {
  const size_t whole = logits.size() / 16 * 16;
  __m128 most[4];
  for (__m128& m : most) m = _mm_set1_ps(-INFINITY);
  for (size_t i = 0; i < whole; i += 16) {
    for (int j = 0; j < 4; ++j) most[j] = _mm_max_ps(_mm_loadu_ps(&logits[i + 4 * j]), most[j]);
  }
  alignas(16) float lanes[4];
  _mm_store_ps(lanes, _mm_max_ps(_mm_max_ps(most[0], most[1]), _mm_max_ps(most[2], most[3])));
  float largest = std::max(std::max(lanes[0], lanes[1]), std::max(lanes[2], lanes[3]));
  for (size_t i = whole; i < logits.size(); ++i) largest = logits[i] > largest ? logits[i] : largest;
  if (largest == -INFINITY) return -1;
  const __m128 wanted = _mm_set1_ps(largest);
  size_t first = 0;
  while (first < whole && _mm_movemask_ps(_mm_cmpeq_ps(_mm_loadu_ps(&logits[first]), wanted)) == 0) first += 4;
  while (!(logits[first] == largest)) ++first;
  return static_cast<int32_t>(first);
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
