// F32, F16 and BF16 weights x one to eight F32 rows with AVX-512, weights widened in registers. The chains of 64 FMAs that a
// result is made of (tile.h) are long waits for one row, so up to four run side by side: two panels, two parts of K.
#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/read_ahead.h"

namespace hone {
namespace {

// Two neighbours in K of 16 rows, and a last one alone.
struct F32Weights {
  static constexpr int kBytes = 64;  // of 16 rows
  static void Pair(const uint8_t* p, __m512* a, __m512* b) { *a = One(p), *b = One(p + 64); }
  static __m512 One(const uint8_t* p) { return _mm512_loadu_ps(p); }
};
struct F16Weights {
  static constexpr int kBytes = 32;
  static void Pair(const uint8_t* p, __m512* a, __m512* b) { *a = One(p), *b = One(p + 32); }
  static __m512 One(const uint8_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
};
struct BF16Weights {
  static constexpr int kBytes = 32;
  static void Pair(const uint8_t* p, __m512* a, __m512* b) {
    const __m512i pairs = _mm512_loadu_si512(p);
    *a = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    *b = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static __m512 One(const uint8_t* p) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
};

// kChains parts of K side by side, each `length` elements, kFloatChain apart; x points at the first.
template <typename F, int kRows, int kPanels, int kChains>
inline void Chains(const FewRowsTile& t, const uint8_t* weights, int64_t panel_bytes, const float* x, int length) {
  __m512 acc[kChains][kPanels][kRows];
  for (int c = 0; c < kChains; ++c) {
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) acc[c][p][r] = _mm512_setzero_ps();
    }
  }
  int k = 0;
  for (; k + 2 <= length; k += 2) {
    AskAhead(t.ahead, kChains * kPanels * 2 * F::kBytes);
#pragma GCC unroll 2
    for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        const uint8_t* from = weights + p * panel_bytes + (c * kFloatChain + k) * F::kBytes;
        __m512 a, b;
        F::Pair(from, &a, &b);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const float* xk = x + r * t.x_floats_stride + c * kFloatChain + k;
          acc[c][p][r] = _mm512_fmadd_ps(a, _mm512_set1_ps(xk[0]), acc[c][p][r]);
          acc[c][p][r] = _mm512_fmadd_ps(b, _mm512_set1_ps(xk[1]), acc[c][p][r]);
        }
      }
    }
  }
  if (k < length) {  // only the last element of an odd K
    for (int p = 0; p < kPanels; ++p) {
      const __m512 a = F::One(weights + p * panel_bytes + k * F::kBytes);
      for (int r = 0; r < kRows; ++r) acc[0][p][r] = _mm512_fmadd_ps(a, _mm512_set1_ps(x[r * t.x_floats_stride + k]), acc[0][p][r]);
    }
  }
  for (int p = 0; p < kPanels; ++p) {
    for (int r = 0; r < kRows; ++r) {
      float* out = t.accumulator + r * kTileColumns + p * kPanelRows;
      __m512 sum = _mm512_loadu_ps(out);
      for (int c = 0; c < kChains; ++c) sum = _mm512_add_ps(sum, acc[c][p][r]);
      _mm512_storeu_ps(out, sum);
    }
  }
}

template <typename F, int kRows, int kPanels>
void Tile(const FewRowsTile& t) {
  for (int i = 0; i < kRows * kTileColumns; i += 16) _mm512_storeu_ps(t.accumulator + i, _mm512_setzero_ps());
  const uint8_t* weights = t.chunks;
  for (int64_t k0 = 0; k0 < t.k; k0 += kFloatStretch) {
    const int k = static_cast<int>(t.k - k0 < kFloatStretch ? t.k - k0 : kFloatStretch);
    const int64_t panel_bytes = int64_t{k} * F::kBytes;
    if (kRows <= 4 && k == 2 * kFloatChain) {
      Chains<F, kRows, kPanels, kRows <= 4 ? 2 : 1>(t, weights, panel_bytes, t.x_floats + k0, kFloatChain);
    } else {
      for (int first = 0; first < k; first += kFloatChain) {
        Chains<F, kRows, kPanels, 1>(t, weights + first * F::kBytes, panel_bytes, t.x_floats + k0 + first,
                                     k - first < kFloatChain ? k - first : kFloatChain);
      }
    }
    weights += t.panels * panel_bytes;
  }
}

template <typename F, int kRows>
inline void Panels(const FewRowsTile& t) {
  t.panels == 2 ? Tile<F, kRows, 2>(t) : Tile<F, kRows, 1>(t);
}

template <typename F>
inline void Rows(const FewRowsTile& t) {
  switch (t.rows) {
    case 1: return Panels<F, 1>(t);
    case 2: return Panels<F, 2>(t);
    case 3: return Panels<F, 3>(t);
    case 4: return Panels<F, 4>(t);
    case 5: return Panels<F, 5>(t);
    case 6: return Panels<F, 6>(t);
    case 7: return Panels<F, 7>(t);
    default: return Panels<F, 8>(t);
  }
}

}  // namespace

void FewRowsF32Avx512(const FewRowsTile& t) { Rows<F32Weights>(t); }
void FewRowsF16Avx512(const FewRowsTile& t) { Rows<F16Weights>(t); }
void FewRowsBF16Avx512(const FewRowsTile& t) { Rows<BF16Weights>(t); }

}  // namespace hone
