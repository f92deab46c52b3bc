// Picks the best listed element-wise kernels of at most the wanted ISA level.
#include "kernels/elementwise/elementwise.h"

namespace hone {

#define HONE_ELEMENTWISE_KERNEL(name, level)                                           \
  void AddScaled##name(float* y, const float* x, float scale, int64_t n) noexcept;     \
  void Scale##name(float* y, float scale, int64_t n) noexcept;                         \
  void SoftCap##name(float* y, float cap, int64_t n) noexcept;                         \
  void Softmax##name(float* y, int64_t n) noexcept;                                    \
  double Divergence##name(const float* base, const float* other, int64_t n) noexcept;
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL

void AddScaled(float* y, const float* x, float scale, int64_t n, Isa isa) {
#define HONE_ELEMENTWISE_KERNEL(name, level) \
  if (isa >= Isa::level) return AddScaled##name(y, x, scale, n);
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
}

void Scale(float* y, float scale, int64_t n, Isa isa) {
#define HONE_ELEMENTWISE_KERNEL(name, level) \
  if (isa >= Isa::level) return Scale##name(y, scale, n);
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
}

void SoftCap(float* y, float cap, int64_t n, Isa isa) {
#define HONE_ELEMENTWISE_KERNEL(name, level) \
  if (isa >= Isa::level) return SoftCap##name(y, cap, n);
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
}

void Softmax(float* y, int64_t n, Isa isa) {
#define HONE_ELEMENTWISE_KERNEL(name, level) \
  if (isa >= Isa::level) return Softmax##name(y, n);
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
}

double Divergence(const float* base, const float* other, int64_t n, Isa isa) {
#define HONE_ELEMENTWISE_KERNEL(name, level) \
  if (isa >= Isa::level) return Divergence##name(base, other, n);
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
  return DivergenceScalar(base, other, n);
}

}  // namespace hone
