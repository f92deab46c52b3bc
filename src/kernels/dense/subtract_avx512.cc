// SubtractProduct and SubtractScaled with vectors of 64 bytes.
#define HONE_DENSE_BYTES 64
#define HONE_DENSE_ROWS 8
#include "kernels/dense/subtract_body.h"

namespace hone {

void SubtractProductAvx512(const SubtractArgs<float>& args) noexcept;
void SubtractProductAvx512(const SubtractArgs<double>& args) noexcept;
void SubtractScaledAvx512(float x, const float* b, int64_t n, float* c) noexcept;

void SubtractProductAvx512(const SubtractArgs<float>& args) noexcept { Subtract(args); }
void SubtractProductAvx512(const SubtractArgs<double>& args) noexcept { Subtract(args); }
void SubtractScaledAvx512(float x, const float* b, int64_t n, float* c) noexcept { SubtractRow(x, b, n, c); }

}  // namespace hone
