// Rotary embedding in plain code, in double: the definition that the other kernels are tested against.
#include "kernels/rope/rope.h"

namespace hone {

void RopeScalar(const RopeArgs& args) noexcept {
  const int pairs = args.rotary_width / 2;
  const bool half = args.order == RopeOrder::kHalf;
  for (int64_t i = 0; i < args.rows; ++i) {
    const float* cos = args.cos + int64_t{args.positions[i]} * pairs;
    const float* sin = args.sin + int64_t{args.positions[i]} * pairs;
    for (int h = 0; h < args.heads; ++h) {
      float* x = args.x + i * args.x_stride + int64_t{h} * args.head_width;
      for (int j = 0; j < pairs; ++j) {
        float* a = half ? x + j : x + 2 * j;
        float* b = half ? x + j + pairs : x + 2 * j + 1;
        const double x0 = *a, x1 = *b, c = cos[j], s = sin[j];
        *a = static_cast<float>(x0 * c - x1 * s);
        *b = static_cast<float>(x1 * c + x0 * s);
      }
    }
  }
}

}  // namespace hone
