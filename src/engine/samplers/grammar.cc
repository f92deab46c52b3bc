// grammar: tokens after which no string of the request's grammar could be completed get -inf (engine/grammar/). Ids that end the
// answer pass where the grammar lets it end.
#include <cmath>

#include "engine/grammar/token_grammar.h"
#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams&, const SamplerState& state) { return state.allowed != nullptr; }

void Apply(const SamplingParams&, SamplerState* state, Candidates* candidates) {
  const auto ends = [&](int32_t id) { return std::binary_search(state->allowed_ends.begin(), state->allowed_ends.end(), id); };
  const size_t known = state->allowed->bits.size() * 64;  // a model may have rows that no token names
  for (Candidate& item : candidates->items()) {
    const bool allowed = static_cast<size_t>(item.id) < known && state->allowed->has(item.id);
    if (!allowed && !ends(item.id)) item.logit = -INFINITY;
  }
  candidates->LogitsChanged();
}

}  // namespace

const Sampler kGrammarSampler = {"grammar", Enabled, Apply};

}  // namespace hone
