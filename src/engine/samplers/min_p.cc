// min-p (Nguyen et al. 2024): keeps p_i >= min_p * p_max, that is logit >= max + ln(min_p): no softmax is needed.
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.min_p > 0; }

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  const double most = candidates->MaxLogit();
  if (most == -INFINITY) return;
  const double least = std::log(double{params.min_p});
  candidates->KeepIf([&](const Candidate& item) { return item.logit - most >= least; });
}

}  // namespace

const Sampler kMinPSampler = {"min_p", Enabled, Apply};

}  // namespace hone
