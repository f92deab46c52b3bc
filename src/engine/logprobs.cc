// logprob(t) = logit(t) - max - ln(sum of exp(logit - max)).
#include "engine/logprobs.h"

#include <algorithm>
#include <cmath>

namespace hone {

Logprobs LogprobsOf(Candidates* candidates, int32_t chosen, int top) {
  Logprobs result;
  double total = 0;
  candidates->Weights(&total);
  const double most = candidates->MaxLogit(), log_total = std::log(total);
  const auto logprob = [&](float logit) { return static_cast<float>(logit - most - log_total); };
  const Candidate* found = candidates->Find(chosen);
  result.chosen = found != nullptr && found->logit > -INFINITY ? logprob(found->logit) : -INFINITY;
  if (top <= 0) return result;
  candidates->SortTop(static_cast<size_t>(top));
  for (size_t i = 0; i < std::min(static_cast<size_t>(top), candidates->size()); ++i) {
    const Candidate& item = candidates->items()[i];
    if (item.logit > -INFINITY) result.top.push_back({item.id, logprob(item.logit)});
  }
  return result;
}

}  // namespace hone
