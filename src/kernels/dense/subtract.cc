// Picks the best listed kernel of at most the wanted ISA level.
#include "kernels/dense/subtract.h"

namespace hone {

#define HONE_SUBTRACT_KERNEL(name, level)                                  \
  void SubtractProduct##name(const SubtractArgs<float>& args) noexcept;    \
  void SubtractProduct##name(const SubtractArgs<double>& args) noexcept;
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

}  // namespace hone
