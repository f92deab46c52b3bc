// Gated activations for avx512.
#include "kernels/simd/avx512.h"
#include "kernels/simd/functions.h"
#include "kernels/activation/activation_body.h"

namespace hone {

void GatedActivationAvx512(Activation activation, const float* gate, const float* up, float* y, int64_t n) noexcept {
  GateElements(activation, gate, up, y, n);
}

}  // namespace hone
