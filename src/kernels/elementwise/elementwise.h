// Small element-wise ops, softmax and what it tells apart. One thread, pure.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace hone {

void AddScaled(float* y, const float* x, float scale, int64_t n, Isa isa);  // y += scale * x
void Scale(float* y, float scale, int64_t n, Isa isa);                      // y *= scale
void SoftCap(float* y, float cap, int64_t n, Isa isa);                      // y = cap * tanh(y / cap)
// y = exp(x - max) / sum, in place; sums in double. -inf entries become 0. REQUIRES: n >= 1 and a finite maximum.
void Softmax(float* y, int64_t n, Isa isa);
// KL divergence of softmax(other) from softmax(base), nats, not below 0. Entries that are e^-20 of the largest or less are left out of
// each. Infinite or NaN where logits are. REQUIRES: n >= 1.
double Divergence(const float* base, const float* other, int64_t n, Isa isa);

}  // namespace hone
