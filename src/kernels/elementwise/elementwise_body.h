// Element-wise ops on Vecs: included by elementwise_avx2.cc and elementwise_avx512.cc after their Vec and simd/functions.h.
#pragma once

#include <cmath>
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

inline Vec LargestOf(const float* x, int64_t n) {
  constexpr int kLanes = Vec::kLanes;
  Vec largest = Vec::Set(x[0]);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = Vec::Max(Vec::Load(x + i), largest);
  float max = largest.Largest();
  for (; i < n; ++i) max = x[i] > max ? x[i] : max;
  return Vec::Set(max);
}

inline void SoftmaxElements(float* y, int64_t n) {
  constexpr int kLanes = Vec::kLanes;
  const Vec shift = LargestOf(y, n);
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

inline double DivergenceElements(const float* base, const float* other, int64_t n) {
  constexpr int kLanes = Vec::kLanes;
  const Vec max_base = LargestOf(base, n), max = LargestOf(other, n), least = Vec::Set(-20.0f), zero = Vec::Zero();
  DoubleSum sum_base, sum, product;
  const auto add = [&](Vec base_logits, Vec logits) {
    const Vec b = base_logits - max_base, o = logits - max;
    // An infinity that does not count must not meet its zero; NaN is never less, and stays.
    const auto few_base = Vec::Less(b, least), few = Vec::Less(o, least);
    const Vec p = Vec::Select(few_base, zero, Exp(b));
    sum_base.Add(p);
    sum.Add(Vec::Select(few, zero, Exp(o)));
    product.Add(Vec::Select(few_base, zero, p * (b - o)));
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add(Vec::Load(base + i), Vec::Load(other + i));
  if (i < n) {
    float last_base[kLanes], last[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {  // lanes beyond the end do not count
      last_base[lane] = i + lane < n ? base[i + lane] : -HUGE_VALF;
      last[lane] = i + lane < n ? other[i + lane] : -HUGE_VALF;
    }
    add(Vec::Load(last_base), Vec::Load(last));
  }
  const double divergence = product.Total() / sum_base.Total() + std::log(sum.Total()) - std::log(sum_base.Total());
  return divergence < 0 ? 0 : divergence;  // NaN stays
}

}  // namespace
}  // namespace hone
