// Element-wise ops on Vecs: included by elementwise_avx2.cc and elementwise_avx512.cc after their Vec and simd/functions.h.
#pragma once

#include <cstdint>

namespace hone {
namespace {

// y[i] = function(y[i], i) for whole Vecs, then for the rest.
template <typename Function>
inline void ForEachVec(float* y, int64_t n, Function function) {
  constexpr int kLanes = Vec::kLanes;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) function(Vec::Load(y + i), i, kLanes).Store(y + i);
  if (i < n) {
    const int count = static_cast<int>(n - i);
    function(Vec::LoadFirst(y + i, count), i, count).StoreFirst(y + i, count);
  }
}

inline void AddScaledElements(float* y, const float* x, float scale, int64_t n) {
  const Vec factor = Vec::Set(scale);
  ForEachVec(y, n, [&](Vec v, int64_t i, int count) { return Vec::Fma(Vec::LoadFirst(x + i, count), factor, v); });
}

inline void ScaleElements(float* y, float scale, int64_t n) {
  const Vec factor = Vec::Set(scale);
  ForEachVec(y, n, [&](Vec v, int64_t, int) { return v * factor; });
}

inline void SoftCapElements(float* y, float cap, int64_t n) {
  const Vec limit = Vec::Set(cap);
  ForEachVec(y, n, [&](Vec v, int64_t, int) { return limit * Tanh(v / limit); });
}

inline void SoftmaxElements(float* y, int64_t n) {
  constexpr int kLanes = Vec::kLanes;
  Vec largest = Vec::Set(y[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = Vec::Max(Vec::Load(y + i), largest);
  float max = largest.Largest();
  for (; i < n; ++i) max = y[i] > max ? y[i] : max;
  const Vec shift = Vec::Set(max);
  DoubleSum sum;
  ForEachVec(y, n, [&](Vec v, int64_t, int count) {
    const Vec e = Exp(v - shift);
    if (count == kLanes) {
      sum.Add(e);
    } else {  // lanes beyond the end hold exp(0 - max)
      float rest[kLanes] = {};
      e.StoreFirst(rest, count);
      sum.Add(Vec::Load(rest));
    }
    return e;
  });
  const double total = sum.Total();
  ScaleElements(y, static_cast<float>(1.0 / total), n);
}

}  // namespace
}  // namespace hone
