// SubtractProduct and SubtractScaled with vectors of 16 bytes.
#define HONE_DENSE_BYTES 16
#define HONE_DENSE_ROWS 4
#include "kernels/dense/subtract_body.h"

namespace hone {

void SubtractProductScalar(const SubtractArgs<float>& args) noexcept;
void SubtractProductScalar(const SubtractArgs<double>& args) noexcept;
void SubtractScaledScalar(float x, const float* b, int64_t n, float* c) noexcept;

void SubtractProductScalar(const SubtractArgs<float>& args) noexcept { Subtract(args); }
void SubtractProductScalar(const SubtractArgs<double>& args) noexcept { Subtract(args); }
void SubtractScaledScalar(float x, const float* b, int64_t n, float* c) noexcept { SubtractRow(x, b, n, c); }

}  // namespace hone
