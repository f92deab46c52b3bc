// Element-wise ops in plain code, in double: the definition that the other kernels are tested against.
#include <cmath>

#include "kernels/elementwise/elementwise.h"

namespace hone {

void AddScaledScalar(float* y, const float* x, float scale, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(y[i] + static_cast<double>(x[i]) * scale);
}

void ScaleScalar(float* y, float scale, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

void SoftCapScalar(float* y, float cap, int64_t n) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(cap * std::tanh(static_cast<double>(y[i]) / cap));
}

void SoftmaxScalar(float* y, int64_t n) noexcept {
  float max = y[0];
  for (int64_t i = 1; i < n; ++i) max = y[i] > max ? y[i] : max;
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double e = std::exp(static_cast<double>(y[i]) - max);
    sum += e;
    y[i] = static_cast<float>(e);
  }
  const double factor = 1.0 / sum;
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(y[i] * factor);
}

double DivergenceScalar(const float* base, const float* other, int64_t n) noexcept {
  constexpr double kLeast = -20;
  float max_base = base[0], max = other[0];
  for (int64_t i = 1; i < n; ++i) {
    max_base = base[i] > max_base ? base[i] : max_base;
    max = other[i] > max ? other[i] : max;
  }
  double sum_base = 0, sum = 0, product = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double b = static_cast<double>(base[i]) - max_base, o = static_cast<double>(other[i]) - max;
    if (!(b <= kLeast)) {  // NaN stays
      const double p = std::exp(b);
      sum_base += p;
      product += p * (b - o);
    }
    if (!(o <= kLeast)) sum += std::exp(o);
  }
  const double divergence = product / sum_base + std::log(sum) - std::log(sum_base);
  return divergence < 0 ? 0 : divergence;
}

}  // namespace hone
