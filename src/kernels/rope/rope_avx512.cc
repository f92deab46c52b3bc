// Rotary embedding for avx512.
#include "kernels/simd/avx512.h"
#include "kernels/rope/rope_body.h"

namespace hone {

void RopeAvx512(const RopeArgs& args) noexcept { RotateRows(args); }

}  // namespace hone
