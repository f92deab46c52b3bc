// epsilon cut (Hewitt et al. 2022): keeps p_i >= epsilon; the most probable always stays.
#include <algorithm>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.epsilon_cutoff > 0; }

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  double total = 0;
  const std::span<const float> weights = candidates->Weights(&total);
  if (total == 0) return;
  candidates->KeepIfIndex([&](size_t i) { return weights[i] == 1 || weights[i] / total >= params.epsilon_cutoff; });
}

}  // namespace

const Sampler kEpsilonSampler = {"epsilon", Enabled, Apply};

}  // namespace hone
