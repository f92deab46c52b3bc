// temperature T: logit / T (computed as (logit - max) / T, which softmax cannot tell apart and which cannot overflow
// upwards). T = 0: greedy, only the first largest logit stays. dynatemp (entropy-based temperature): with range r and
// exponent x, H the entropy of the candidates and n their number,
//   T = (T - r) + 2 r (H / ln n)^x, with T - r at least 0.
#include <algorithm>
#include <cmath>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) {
  return params.temperature != 1 || params.dynatemp_range > 0;
}

// The entropy of the candidates in nats over its largest possible value, in [0, 1].
double RelativeEntropy(Candidates* candidates) {
  double total = 0, sum = 0;
  size_t count = 0;
  for (const float weight : candidates->Weights(&total)) {
    if (weight == 0) continue;
    ++count;
    sum += weight * std::log(double{weight});
  }
  if (count < 2) return 0;
  return (std::log(total) - sum / total) / std::log(static_cast<double>(candidates->size()));
}

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  double t = params.temperature;
  if (params.dynatemp_range > 0) {
    const double low = std::max(0.0, t - params.dynatemp_range), high = t + params.dynatemp_range;
    t = low + (high - low) * std::pow(RelativeEntropy(candidates), double{params.dynatemp_exponent});
  }
  if (t == 0) {
    candidates->SortTop(1);
    candidates->Truncate(std::min<size_t>(1, candidates->size()));
    return;
  }
  const float most = candidates->MaxLogit();
  if (most == -INFINITY) return;
  for (Candidate& item : candidates->items()) item.logit = static_cast<float>((double{item.logit} - most) / t);
}

}  // namespace

const Sampler kTemperatureSampler = {"temperature", Enabled, Apply};

}  // namespace hone
