// RMSNorm on Vecs: included by norm_avx2.cc and norm_avx512.cc after their Vec. Four Vecs of partial sums; a row's order of
// sums depends on its width alone.
#pragma once

#include "kernels/norm/norm.h"

namespace hone {
namespace {

inline float SumOfSquares(const float* x, int64_t n) {
  constexpr int kLanes = Vec::kLanes;
  Vec sum[4] = {Vec::Zero(), Vec::Zero(), Vec::Zero(), Vec::Zero()};
  int64_t j = 0;
  for (; j + 4 * kLanes <= n; j += 4 * kLanes) {
    for (int u = 0; u < 4; ++u) {
      const Vec v = Vec::Load(x + j + u * kLanes);
      sum[u] = Vec::Fma(v, v, sum[u]);
    }
  }
  for (; j < n; j += kLanes) {
    const Vec v = Vec::LoadFirst(x + j, static_cast<int>(n - j < kLanes ? n - j : kLanes));
    sum[0] = Vec::Fma(v, v, sum[0]);
  }
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])).Sum();
}

inline void NormRows(const RmsNormArgs& args) {
  constexpr int kLanes = Vec::kLanes;
  const int64_t n = args.width;
  for (int64_t i = 0; i < args.rows; ++i) {
    const float* x = args.x + i * args.x_stride;
    float* y = args.y + i * args.y_stride;
    const double mean = static_cast<double>(SumOfSquares(x, n)) / static_cast<double>(n);
    const Vec factor = Vec::Set(static_cast<float>(1.0 / __builtin_sqrt(mean + args.eps)));
    for (int64_t j = 0; j < n; j += kLanes) {
      const int count = static_cast<int>(n - j < kLanes ? n - j : kLanes);
      Vec v = Vec::LoadFirst(x + j, count) * factor;
      if (args.weight != nullptr) v = v * Vec::LoadFirst(args.weight + j, count);
      v.StoreFirst(y + j, count);
    }
  }
}

}  // namespace
}  // namespace hone
