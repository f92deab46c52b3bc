// SubtractProduct and SubtractScaled with vectors of 32 bytes.
#define HONE_DENSE_BYTES 32
#define HONE_DENSE_ROWS 4
#include "kernels/dense/subtract_body.h"

namespace hone {

void SubtractProductAvx2(const SubtractArgs<float>& args) noexcept;
void SubtractProductAvx2(const SubtractArgs<double>& args) noexcept;
void SubtractScaledAvx2(float x, const float* b, int64_t n, float* c) noexcept;

void SubtractProductAvx2(const SubtractArgs<float>& args) noexcept { Subtract(args); }
void SubtractProductAvx2(const SubtractArgs<double>& args) noexcept { Subtract(args); }
void SubtractScaledAvx2(float x, const float* b, int64_t n, float* c) noexcept { SubtractRow(x, b, n, c); }

}  // namespace hone
