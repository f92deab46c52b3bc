// XTC, exclude top choices: with probability xtc_probability a token: of the candidates with p >= threshold all but the
// least probable are removed, if there are at least two. Off above a threshold of 0.5 (there cannot be two). Of equal
// ones the higher id is the less probable.
#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) {
  return params.xtc_probability > 0 && params.xtc_threshold <= 0.5f;
}

void Apply(const SamplingParams& params, SamplerState* state, Candidates* candidates) {
  if (state->rng.Uniform() >= params.xtc_probability) return;
  double total = 0;
  const std::span<const float> weights = candidates->Weights(&total);
  if (total == 0) return;
  const auto above = [&](size_t i) { return weights[i] > 0 && weights[i] / total >= params.xtc_threshold; };
  size_t count = 0;
  const Candidate* least = nullptr;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!above(i)) continue;
    ++count;
    if (least == nullptr || Better(*least, candidates->items()[i])) least = &candidates->items()[i];
  }
  if (count < 2) return;
  const int32_t stays = least->id;
  candidates->KeepIfIndex([&](size_t i) { return !above(i) || candidates->items()[i].id == stays; });
}

}  // namespace

const Sampler kXtcSampler = {"xtc", Enabled, Apply};

}  // namespace hone
