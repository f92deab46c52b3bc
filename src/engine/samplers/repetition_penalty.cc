// repetition penalty r (Keskar et al. 2019, CTRL): once for each token that occurred in prompt or output,
//   logit <= 0: logit * r        logit > 0: logit / r
// Window: penalty_last_n (transformers: everything; llama.cpp: the last n).
#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) {
  return params.repetition_penalty != 1 && params.penalty_last_n != 0;
}

void Apply(const SamplingParams& params, SamplerState* state, Candidates* candidates) {
  const double r = params.repetition_penalty;
  ForEachSeen(candidates, state->history.CountsOfLast(params.penalty_last_n),
              [r](Candidate& candidate, const TokenHistory::Count&) {
                const float logit = candidate.logit;
                candidate.logit = MovedLogit(logit, logit <= 0 ? logit * r : logit / r);
              });
}

}  // namespace

const Sampler kRepetitionPenaltySampler = {"repetition_penalty", Enabled, Apply};

}  // namespace hone
