// The definition of matmul: scalar, double accumulation over dequantised weights. For tests and benchmarks' self-checks.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace hone {

// y[m][n] = bias[n] + sum_k x[m][k] * W[n][k] for n in [0, N), m in [0, rows); y [rows][N] densely. bias may be null.
// magnitude (if not null, [rows][N]) gets sum_k |x[m][k] * W[n][k]|, what rounding errors are relative to.
void MatmulReference(const TensorView& weight, const float* x, int64_t x_stride, int64_t rows, const float* bias, double* y,
                     double* magnitude = nullptr);

}  // namespace hone
