// Picks the best listed RMSNorm kernel of at most the wanted ISA level.
#include "kernels/norm/norm.h"

namespace hone {

#define HONE_NORM_KERNEL(name, level) void RmsNorm##name(const RmsNormArgs& args) noexcept;
#include "kernels/norm/kernels.inc"
#undef HONE_NORM_KERNEL

void RmsNorm(const RmsNormArgs& args, Isa isa) {
#define HONE_NORM_KERNEL(name, level) \
  if (isa >= Isa::level) return RmsNorm##name(args);
#include "kernels/norm/kernels.inc"
#undef HONE_NORM_KERNEL
}

}  // namespace hone
