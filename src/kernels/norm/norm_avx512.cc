// RMSNorm for avx512.
#include "kernels/simd/avx512.h"
#include "kernels/norm/norm_body.h"

namespace hone {

void RmsNormAvx512(const RmsNormArgs& args) noexcept { NormRows(args); }

}  // namespace hone
