// Log-probabilities of tokens: log-softmax over a set of candidates. Over all logits of the model, before any sampler,
// they are "raw", which is what the engine reports; over what samplers left they are "processed". OpenAI's fields:
// serve/.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/samplers/candidates.h"

namespace hone {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
};

struct Logprobs {
  float chosen = 0;               // of the chosen token; -inf if it is no candidate
  std::vector<TokenLogprob> top;  // the n best, best first, of equal ones the lower id; tokens with -inf are left out
};

// Changes only the order of `candidates`.
Logprobs LogprobsOf(Candidates* candidates, int32_t chosen, int top);

}  // namespace hone
