// eta cut (Hewitt et al. 2022): keeps p_i >= min(e, sqrt(e) * exp(-H)), H the entropy in nats; the most probable always
// stays.
#include <algorithm>
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.eta_cutoff > 0; }

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  double total = 0, sum = 0;
  const std::span<const float> weights = candidates->Weights(&total);
  if (total == 0) return;
  for (const float weight : weights) {
    if (weight > 0) sum += weight * std::log(double{weight});
  }
  const double entropy = std::log(total) - sum / total;
  const double e = params.eta_cutoff;
  const double least = std::min(e, std::sqrt(e) * std::exp(-entropy));
  candidates->KeepIfIndex([&](size_t i) { return weights[i] == 1 || weights[i] / total >= least; });
}

}  // namespace

const Sampler kEtaSampler = {"eta", Enabled, Apply};

}  // namespace hone
