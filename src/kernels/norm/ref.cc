// RMSNorm in plain code with double accumulation: the definition that the other kernels are tested against.
#include <cmath>

#include "kernels/norm/norm.h"

namespace hone {

void RmsNormScalar(const RmsNormArgs& args) noexcept {
  for (int64_t i = 0; i < args.rows; ++i) {
    const float* x = args.x + i * args.x_stride;
    float* y = args.y + i * args.y_stride;
    double sum = 0;
    for (int64_t j = 0; j < args.width; ++j) sum += static_cast<double>(x[j]) * x[j];
    const double factor = 1.0 / std::sqrt(sum / static_cast<double>(args.width) + args.eps);
    for (int64_t j = 0; j < args.width; ++j) {
      y[j] = static_cast<float>(x[j] * factor * (args.weight != nullptr ? args.weight[j] : 1.0f));
    }
  }
}

}  // namespace hone
