// Picks the best listed rotary kernel of at most the wanted ISA level.
#include "kernels/rope/rope.h"

namespace hone {

#define HONE_ROPE_KERNEL(name, level) void Rope##name(const RopeArgs& args) noexcept;
#include "kernels/rope/kernels.inc"
#undef HONE_ROPE_KERNEL

void Rope(const RopeArgs& args, Isa isa) {
#define HONE_ROPE_KERNEL(name, level) \
  if (isa >= Isa::level) return Rope##name(args);
#include "kernels/rope/kernels.inc"
#undef HONE_ROPE_KERNEL
}

}  // namespace hone
