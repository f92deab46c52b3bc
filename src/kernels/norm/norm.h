// RMSNorm (Zhang and Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * w, per row.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace hone {

struct RmsNormArgs {
  const float* x = nullptr;  // row i at x + i * x_stride
  int64_t x_stride = 0;
  float* y = nullptr;        // may be x itself
  int64_t y_stride = 0;
  const float* weight = nullptr;  // [width]; nullptr: ones. Gemma's (1 + w) is folded in when weights are loaded
  float eps = 0;
  int64_t rows = 0;
  int64_t width = 0;
};

// One thread, pure. The sum of squares is accumulated in at least F32 with 16 partial sums. Row values do not depend on `rows`.
void RmsNorm(const RmsNormArgs& args, Isa isa);

}  // namespace hone
