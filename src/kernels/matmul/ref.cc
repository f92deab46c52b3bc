// See ref.h.
#include "kernels/matmul/ref.h"

#include <cmath>
#include <vector>

#include "kernels/dequantize/dequantize.h"

namespace hone {

void MatmulReference(const TensorView& weight, const float* x, int64_t x_stride, int64_t rows, const float* bias, double* y,
                     double* magnitude) {
  const int64_t n_count = weight.shape[0], k_count = weight.shape[1];
  std::vector<float> w(k_count);
  for (int64_t n = 0; n < n_count; ++n) {
    DequantizeRow(weight.type, weight.data + n * weight.row_bytes(), k_count, w.data());
    for (int64_t m = 0; m < rows; ++m) {
      double sum = bias != nullptr ? bias[n] : 0.0, absolute = std::fabs(sum);
      for (int64_t k = 0; k < k_count; ++k) {
        const double product = double{x[m * x_stride + k]} * w[k];
        sum += product;
        absolute += std::fabs(product);
      }
      y[m * n_count + n] = sum;
      if (magnitude != nullptr) magnitude[m * n_count + n] = absolute;
    }
  }
}

}  // namespace hone
