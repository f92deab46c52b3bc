// no_repeat_ngram n (transformers): a token that would complete an n-gram that is already in prompt or output gets
// -inf. n = 1 bans every token seen. If everything is banned, sampling fails as such: the rule is never bent.
#include <algorithm>
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.no_repeat_ngram > 0; }

void Apply(const SamplingParams& params, SamplerState* state, Candidates* candidates) {
  const std::span<const int32_t> tokens = state->history.tokens();
  const size_t before = static_cast<size_t>(params.no_repeat_ngram) - 1;  // tokens of the n-gram before the new one
  if (tokens.size() <= before) return;
  const auto tail = tokens.last(before);
  for (size_t i = 0; i + before < tokens.size(); ++i) {
    if (!std::equal(tail.begin(), tail.end(), tokens.begin() + i)) continue;
    if (Candidate* candidate = candidates->Find(tokens[i + before])) candidate->logit = -INFINITY;
  }
  candidates->LogitsChanged();
}

}  // namespace

const Sampler kNoRepeatNgramSampler = {"no_repeat_ngram", Enabled, Apply};

}  // namespace hone
