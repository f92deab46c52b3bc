// Element-wise ops and softmax for avx2.
#include "kernels/simd/avx2.h"
#include "kernels/simd/functions.h"
#include "kernels/elementwise/elementwise_body.h"

namespace hone {

void AddScaledAvx2(float* y, const float* x, float scale, int64_t n) noexcept { AddScaledElements(y, x, scale, n); }
void ScaleAvx2(float* y, float scale, int64_t n) noexcept { ScaleElements(y, scale, n); }
void SoftCapAvx2(float* y, float cap, int64_t n) noexcept { SoftCapElements(y, cap, n); }
void SoftmaxAvx2(float* y, int64_t n) noexcept { SoftmaxElements(y, n); }
double DivergenceAvx2(const float* base, const float* other, int64_t n) noexcept { return DivergenceElements(base, other, n); }

}  // namespace hone
