// logit_bias: logit(t) += bias(t) for each token named. OpenAI's API field of that name; a bias of -100 or 100 in
// practice bans or forces a token.
#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return !params.logit_bias.empty(); }

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  for (const auto& [id, bias] : params.logit_bias) {
    if (Candidate* candidate = candidates->Find(id)) {
      candidate->logit = MovedLogit(candidate->logit, double{candidate->logit} + bias);
    }
  }
  candidates->LogitsChanged();
}

}  // namespace

const Sampler kLogitBiasSampler = {"logit_bias", Enabled, Apply};

}  // namespace hone
