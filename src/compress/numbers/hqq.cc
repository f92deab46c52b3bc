// See hqq.h.
#include "compress/numbers/hqq.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace hone {

HqqResult QuantizeHqq(const HqqOptions& options, const float* x, int64_t groups, int64_t n, ThreadPool* threads) {
  const float top = static_cast<float>((1 << options.bits) - 1);
  std::vector<float> inverse(groups);
  HqqResult out;
  out.codes.resize(static_cast<size_t>(groups * n));
  for (int64_t g = 0; g < groups; ++g) {
    const auto [low, high] = std::minmax_element(x + g * n, x + (g + 1) * n);
    const float range = *high - *low;
    inverse[g] = range <= 1e-4f ? 1.0f : std::min(top / range, 2e4f);
    const float zero = -*low * inverse[g];
    out.zero.push_back(options.round_zero ? std::nearbyint(zero) : zero);
    out.scale.push_back(1 / inverse[g]);
  }
  const auto code_of = [&](float w, int64_t g) {
    return std::clamp(std::nearbyint(w * inverse[g] + out.zero[g]), 0.0f, top);
  };
  float beta = static_cast<float>(options.beta);
  double best = HUGE_VAL;
  std::vector<double> errors(groups);
  const auto improve = [&](size_t begin, size_t end) {
    for (int64_t g = static_cast<int64_t>(begin); g < static_cast<int64_t>(end); ++g) {
      double sum = 0, error = 0;
      for (int64_t i = g * n; i < (g + 1) * n; ++i) {
        const float q = code_of(x[i], g), e = x[i] - (q - out.zero[g]) / inverse[g], magnitude = std::fabs(e);
        error += magnitude;
        // The part of the error that is allowed to stay: what a group of outliers keeps does not move the zero.
        const float kept =
            magnitude > 0 ? std::max(0.0f, magnitude - std::pow(magnitude, static_cast<float>(options.norm - 1)) / beta)
                          : 0.0f;
        sum += q - (x[i] - std::copysign(kept, e)) * inverse[g];
      }
      out.zero[g] = static_cast<float>(sum / static_cast<double>(n));
      errors[g] = error;
    }
  };
  for (int round = 0; round < options.rounds; ++round) {
    if (threads != nullptr) {
      threads->ParallelFor(static_cast<size_t>(groups), 64, improve);
    } else {
      improve(0, static_cast<size_t>(groups));
    }
    const double error = std::accumulate(errors.begin(), errors.end(), 0.0);
    beta *= static_cast<float>(options.kappa);
    if (!(error < best)) break;
    best = error;
  }
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t i = g * n; i < (g + 1) * n; ++i) out.codes[i] = static_cast<uint8_t>(code_of(x[i], g));
  }
  return out;
}

}  // namespace hone
