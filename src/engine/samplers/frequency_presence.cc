// frequency and presence penalties (OpenAI's API): logit -= count * frequency + (count > 0) * presence,
// count: occurrences in the output only, as OpenAI and vLLM do (llama.cpp counts the prompt too).
// Window: penalty_last_n.
#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) {
  return (params.frequency_penalty != 0 || params.presence_penalty != 0) && params.penalty_last_n != 0;
}

void Apply(const SamplingParams& params, SamplerState* state, Candidates* candidates) {
  ForEachSeen(candidates, state->history.CountsOfLast(params.penalty_last_n),
              [&](Candidate& candidate, const TokenHistory::Count& count) {
                if (count.output == 0) return;
                const double penalty = double{params.frequency_penalty} * count.output + params.presence_penalty;
                candidate.logit = MovedLogit(candidate.logit, candidate.logit - penalty);
              });
}

}  // namespace

const Sampler kFrequencyPresenceSampler = {"frequency_presence", Enabled, Apply};

}  // namespace hone
