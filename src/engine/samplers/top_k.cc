// top-k (Fan et al. 2018): keeps exactly the k best; of equal logits the lower ids (transformers keeps all that equal
// the k-th).
#include <algorithm>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.top_k > 0; }

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  const size_t k = static_cast<size_t>(params.top_k);
  if (k >= candidates->size()) return;
  candidates->SortTop(k);
  candidates->Truncate(k);
}

}  // namespace

const Sampler kTopKSampler = {"top_k", Enabled, Apply};

}  // namespace hone
