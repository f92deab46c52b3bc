// Gated activations of feed-forward layers: y = act(gate) * up, element by element.
//   silu(x) = x / (1 + exp(-x));  gelu_tanh(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));  gelu_erf(x) = 0.5 x (1 + erf(x/sqrt 2))
// exp and tanh are within 2 ulp-scale errors (1e-6 relative) of the exact value at every ISA.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace hone {

enum class Activation : uint8_t { kSilu, kGeluTanh, kGeluErf };

// One thread, pure. y may be gate or up. REQUIRES: n >= 0.
void GatedActivation(Activation activation, const float* gate, const float* up, float* y, int64_t n, Isa isa);

}  // namespace hone
