// Rotary embedding for avx2.
#include "kernels/simd/avx2.h"
#include "kernels/rope/rope_body.h"

namespace hone {

void RopeAvx2(const RopeArgs& args) noexcept { RotateRows(args); }

}  // namespace hone
