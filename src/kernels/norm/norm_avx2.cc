// RMSNorm for avx2.
#include "kernels/simd/avx2.h"
#include "kernels/norm/norm_body.h"

namespace hone {

void RmsNormAvx2(const RmsNormArgs& args) noexcept { NormRows(args); }

}  // namespace hone
