// Float accumulators of the few-rows kernels of AVX-512 VNNI. For few_rows_vnni.cc and its headers only.
#pragma once

#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/tile.h"

namespace hone {
namespace {

// Float accumulators of kPanels x kRows: registers if they are few, else where they lie.
template <int kRows, int kPanels>
struct Accumulators {
  static constexpr bool kInRegisters = kRows * kPanels <= 8;
  float* out;
  __m512 held[kInRegisters ? kPanels : 1][kInRegisters ? kRows : 1];

  float* Place(int p, int r) const { return out + r * kTileColumns + p * kPanelRows; }
  explicit Accumulators(float* to) : out(to) {
    for (int p = 0; kInRegisters && p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) held[p][r] = _mm512_loadu_ps(Place(p, r));
    }
  }
  __m512 Get(int p, int r) const { return kInRegisters ? held[p][r] : _mm512_loadu_ps(Place(p, r)); }
  void Set(int p, int r, __m512 sum) {
    if (kInRegisters) {
      held[p][r] = sum;
    } else {
      _mm512_storeu_ps(Place(p, r), sum);
    }
  }
  // Before each group: the compiler no longer sees that the places are the same, or it would keep them in registers that it lacks.
  void Next() {
    if (!kInRegisters) asm("" : "+r"(out));
  }
  void Store() const {
    for (int p = 0; kInRegisters && p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(Place(p, r), held[p][r]);
    }
  }
};

}  // namespace
}  // namespace hone
