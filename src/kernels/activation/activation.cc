// Picks the best listed activation kernel of at most the wanted ISA level.
#include "kernels/activation/activation.h"

namespace hone {

#define HONE_ACTIVATION_KERNEL(name, level) \
  void GatedActivation##name(Activation activation, const float* gate, const float* up, float* y, int64_t n) noexcept;
#include "kernels/activation/kernels.inc"
#undef HONE_ACTIVATION_KERNEL

void GatedActivation(Activation activation, const float* gate, const float* up, float* y, int64_t n, Isa isa) {
#define HONE_ACTIVATION_KERNEL(name, level) \
  if (isa >= Isa::level) return GatedActivation##name(activation, gate, up, y, n);
#include "kernels/activation/kernels.inc"
#undef HONE_ACTIVATION_KERNEL
}

}  // namespace hone
