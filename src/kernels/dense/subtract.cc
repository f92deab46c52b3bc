// Picks the best listed kernel of at most the wanted ISA level.
#include "kernels/dense/subtract.h"

namespace hone {

#define HONE_SUBTRACT_KERNEL(name, level)                                \
  void SubtractProduct##name(const SubtractArgs<float>& args) noexcept;  \
  void SubtractProduct##name(const SubtractArgs<double>& args) noexcept; \
  void SubtractScaled##name(float x, const float* b, int64_t n, float* c) noexcept;
#include "kernels/dense/kernels.inc"
#undef HONE_SUBTRACT_KERNEL

void SubtractProduct(const SubtractArgs<float>& args, Isa isa) noexcept {
#define HONE_SUBTRACT_KERNEL(name, level) \
  if (isa >= Isa::level) return SubtractProduct##name(args);
#include "kernels/dense/kernels.inc"
#undef HONE_SUBTRACT_KERNEL
}

void SubtractProduct(const SubtractArgs<double>& args, Isa isa) noexcept {
#define HONE_SUBTRACT_KERNEL(name, level) \
  if (isa >= Isa::level) return SubtractProduct##name(args);
#include "kernels/dense/kernels.inc"
#undef HONE_SUBTRACT_KERNEL
}

void SubtractScaled(float x, const float* b, int64_t n, float* c, Isa isa) noexcept {
#define HONE_SUBTRACT_KERNEL(name, level) \
  if (isa >= Isa::level) return SubtractScaled##name(x, b, n, c);
#include "kernels/dense/kernels.inc"
#undef HONE_SUBTRACT_KERNEL
}

}  // namespace hone
