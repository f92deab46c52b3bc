// mirostat, version 2 (Basu et al. 2020): candidates with surprise -log2 p > mu are cut, the most probable always
// stays; after the draw, mu -= eta * (surprise of the chosen token among those left - tau). mu starts at 2 tau.
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.mirostat; }

void Apply(const SamplingParams&, SamplerState* state, Candidates* candidates) {
  double total = 0;
  const std::span<const float> weights = candidates->Weights(&total);
  if (total == 0) return;
  candidates->KeepIfIndex(
      [&](size_t i) { return weights[i] == 1 || -std::log2(weights[i] / total) <= state->mirostat_mu; });
}

void Chosen(const SamplingParams& params, SamplerState* state, double probability) {
  const double surprise = -std::log2(probability);
  state->mirostat_mu -= params.mirostat_eta * static_cast<float>(surprise - params.mirostat_tau);
}

}  // namespace

const Sampler kMirostatSampler = {"mirostat", Enabled, Apply, Chosen};

}  // namespace hone
