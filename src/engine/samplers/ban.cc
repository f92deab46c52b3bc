// ban: ids that the engine forbids in this position (end ids before min_tokens) get -inf.
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams&, const SamplerState& state) { return !state.banned.empty(); }

void Apply(const SamplingParams&, SamplerState* state, Candidates* candidates) {
  for (const int32_t id : state->banned) {
    if (Candidate* candidate = candidates->Find(id)) candidate->logit = -INFINITY;
  }
  candidates->LogitsChanged();
}

}  // namespace

const Sampler kBanSampler = {"ban", Enabled, Apply};

}  // namespace hone
