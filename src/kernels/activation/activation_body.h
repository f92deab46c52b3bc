// Gated activations on Vecs: included by activation_avx2.cc and activation_avx512.cc after their Vec and simd/functions.h.
#pragma once

#include "kernels/activation/activation.h"

namespace hone {
namespace {

template <Vec (*kFunction)(Vec)>
inline void Gate(const float* gate, const float* up, float* y, int64_t n) {
  constexpr int kLanes = Vec::kLanes;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) (kFunction(Vec::Load(gate + i)) * Vec::Load(up + i)).Store(y + i);
  if (i < n) {
    const int count = static_cast<int>(n - i);
    (kFunction(Vec::LoadFirst(gate + i, count)) * Vec::LoadFirst(up + i, count)).StoreFirst(y + i, count);
  }
}

inline void GateElements(Activation activation, const float* gate, const float* up, float* y, int64_t n) {
  switch (activation) {
    case Activation::kSilu: return Gate<Silu>(gate, up, y, n);
    case Activation::kGeluTanh: return Gate<GeluTanh>(gate, up, y, n);
    case Activation::kGeluErf: return Gate<GeluErf>(gate, up, y, n);
  }
}

}  // namespace
}  // namespace hone
