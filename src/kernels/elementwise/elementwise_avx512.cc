// Element-wise ops and softmax for avx512.
#include "kernels/simd/avx512.h"
#include "kernels/simd/functions.h"
#include "kernels/elementwise/elementwise_body.h"

namespace hone {

void AddScaledAvx512(float* y, const float* x, float scale, int64_t n) noexcept { AddScaledElements(y, x, scale, n); }
void ScaleAvx512(float* y, float scale, int64_t n) noexcept { ScaleElements(y, scale, n); }
void SoftCapAvx512(float* y, float cap, int64_t n) noexcept { SoftCapElements(y, cap, n); }
void SoftmaxAvx512(float* y, int64_t n) noexcept { SoftmaxElements(y, n); }
double DivergenceAvx512(const float* base, const float* other, int64_t n) noexcept { return DivergenceElements(base, other, n); }

}  // namespace hone
