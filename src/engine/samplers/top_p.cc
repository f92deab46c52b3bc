// top-p, nucleus (Holtzman et al. 2019): candidates best first; the one whose addition makes the sum of probabilities
// >= p is the last kept; at least min_keep. Only as much of the order is sorted as the nucleus needs.
#include <algorithm>
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.top_p < 1; }

constexpr size_t kFirstSorted = 64;

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  double total = 0;
  candidates->Weights(&total);
  if (total == 0) return;
  const double wanted = double{params.top_p} * total;
  const float most = candidates->MaxLogit();
  double sum = 0;
  size_t i = 0;
  for (size_t sorted = kFirstSorted; i < candidates->size(); sorted *= 8) {
    candidates->SortTop(sorted);
    for (; i < std::min(sorted, candidates->size()); ++i) {
      sum += std::exp(candidates->items()[i].logit - most);
      if (sum >= wanted && i + 1 >= static_cast<size_t>(params.min_keep)) {
        candidates->Truncate(i + 1);
        return;
      }
    }
  }
}

}  // namespace

const Sampler kTopPSampler = {"top_p", Enabled, Apply};

}  // namespace hone
