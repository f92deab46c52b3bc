// Half-quadratic quantisation (Badri and Shaji 2023, mobiusml/hqq): no data; only the zero points move, towards a
// robust (l_p, p < 1) norm of the error. The scale of a group is (max - min) / (2^b - 1) and stays.
#pragma once

#include <cstdint>
#include <vector>

#include "base/threads.h"

namespace hone {

struct HqqOptions {
  int bits = 4;
  bool round_zero = false;  // before the loop only, as the authors do for 4 bits: the final zero is a float
  double norm = 0.7, beta = 10, kappa = 1.01;
  int rounds = 20;
};

struct HqqResult {
  std::vector<uint8_t> codes;      // as x: w ~ (code - zero) * scale
  std::vector<float> scale, zero;  // a group
};

// x: [groups, n], a group a row; the loop ends when the mean error of all of x stops falling. REQUIRES: finite x, bits
// 1 .. 8. The result does not depend on `threads`.
HqqResult QuantizeHqq(const HqqOptions& options, const float* x, int64_t groups, int64_t n,
                      ThreadPool* threads = nullptr);

}  // namespace hone
