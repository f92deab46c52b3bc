// Gated activations in plain code, in double: the definition that the other kernels are tested against.
#include <cmath>

#include "kernels/activation/activation.h"

namespace hone {
namespace {

// x * sigmoid(t). Written so that neither 1 + exp overflows nor -inf times 0 appears: act(-inf) = -0, act(NaN) = NaN.
double TimesSigmoid(double x, double t) {
  if (t < -1000) return -0.0;
  const double z = std::exp(-std::fabs(t));
  return x * (t < 0 ? z : 1.0) / (1.0 + z);
}

double Silu(double x) { return TimesSigmoid(x, x); }

// 0.5 (1 + tanh(u)) = sigmoid(2u): no cancellation for negative x.
double GeluTanh(double x) { return TimesSigmoid(x, 2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x)); }

double GeluErf(double x) { return x < -1000 ? -0.0 : 0.5 * x * std::erfc(x * -0.70710678118654752440); }

}  // namespace

void GatedActivationScalar(Activation activation, const float* gate, const float* up, float* y, int64_t n) noexcept {
  switch (activation) {
    case Activation::kSilu:
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(Silu(gate[i]) * up[i]);
      break;
    case Activation::kGeluTanh:
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(GeluTanh(gate[i]) * up[i]);
      break;
    case Activation::kGeluErf:
      for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(GeluErf(gate[i]) * up[i]);
      break;
  }
}

}  // namespace hone
