// Rotary embedding on Vecs: included by rope_avx2.cc and rope_avx512.cc after their Vec.
#pragma once

#include "kernels/rope/rope.h"

namespace hone {
namespace {

inline void RotateHalf(float* x, const float* cos, const float* sin, int pairs) {
  constexpr int kLanes = Vec::kLanes;
  for (int j = 0; j < pairs; j += kLanes) {
    const int count = pairs - j < kLanes ? pairs - j : kLanes;
    const Vec x0 = Vec::LoadFirst(x + j, count), x1 = Vec::LoadFirst(x + pairs + j, count);
    const Vec c = Vec::LoadFirst(cos + j, count), s = Vec::LoadFirst(sin + j, count);
    Vec::FmaSub(x0, c, x1 * s).StoreFirst(x + j, count);
    Vec::Fma(x1, c, x0 * s).StoreFirst(x + pairs + j, count);
  }
}

inline void RotateInterleaved(float* x, const float* cos, const float* sin, int pairs) {
  constexpr int kPairs = Vec::kLanes / 2;
  int j = 0;
  for (; j + kPairs <= pairs; j += kPairs) {
    const Vec v = Vec::Load(x + 2 * j);
    const Vec c = Vec::LoadDoubled(cos + j), s = Vec::LoadDoubled(sin + j);
    Vec::FmaAlternate(v, c, v.SwapPairs() * s).Store(x + 2 * j);
  }
  for (; j < pairs; ++j) {  // the same operations: a pair's value does not depend on where it lies
    const float x0 = x[2 * j], x1 = x[2 * j + 1];
    x[2 * j] = __builtin_fmaf(x0, cos[j], -(x1 * sin[j]));
    x[2 * j + 1] = __builtin_fmaf(x1, cos[j], x0 * sin[j]);
  }
}

inline void RotateRows(const RopeArgs& args) {
  const int pairs = args.rotary_width / 2;
  for (int64_t i = 0; i < args.rows; ++i) {
    const float* cos = args.cos + int64_t{args.positions[i]} * pairs;
    const float* sin = args.sin + int64_t{args.positions[i]} * pairs;
    float* x = args.x + i * args.x_stride;
    for (int h = 0; h < args.heads; ++h, x += args.head_width) {
      if (args.order == RopeOrder::kHalf) {
        RotateHalf(x, cos, sin, pairs);
      } else {
        RotateInterleaved(x, cos, sin, pairs);
      }
    }
  }
}

}  // namespace
}  // namespace hone
