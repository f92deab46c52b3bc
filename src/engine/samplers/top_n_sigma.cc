// top-n-sigma (Tang et al. 2024): keeps logit >= max - n * sigma, sigma the population standard deviation of the finite
// logits. The set does not depend on the temperature.
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.top_n_sigma > 0; }

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  const double most = candidates->MaxLogit();
  if (most == -INFINITY) return;
  double sum = 0, squares = 0, count = 0;
  for (const Candidate& item : candidates->items()) {
    if (item.logit == -INFINITY) continue;
    const double below = item.logit - most;  // sums around the largest: no cancellation
    sum += below;
    squares += below * below;
    count += 1;
  }
  const double mean = sum / count;
  const double sigma = std::sqrt(std::max(0.0, squares / count - mean * mean));
  candidates->KeepIf([&](const Candidate& item) { return item.logit - most >= -params.top_n_sigma * sigma; });
}

}  // namespace

const Sampler kTopNSigmaSampler = {"top_n_sigma", Enabled, Apply};

}  // namespace hone
