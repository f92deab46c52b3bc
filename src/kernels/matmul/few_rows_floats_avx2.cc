// F32, F16 and BF16 weights x one to eight F32 rows with AVX2 and FMA, weights widened in registers. One or two rows run the
// two chains of a stretch side by side; more than four rows are two passes over a stretch, the second in L1.
#include <string.h>

#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/read_ahead.h"

namespace hone {
namespace {

constexpr int kMostRows = 4;  // of a pass

// One element of K of 8 rows, and two neighbours: `half` picks the rows.
struct F32Weights {
  static constexpr int kBytes = 64;  // of 16 rows
  static void Pair(const uint8_t* p, int half, __m256* a, __m256* b) { *a = One(p, half), *b = One(p + 64, half); }
  static __m256 One(const uint8_t* p, int half) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p) + 8 * half); }
};
struct F16Weights {
  static constexpr int kBytes = 32;
  static void Pair(const uint8_t* p, int half, __m256* a, __m256* b) { *a = One(p, half), *b = One(p + 32, half); }
  static __m256 One(const uint8_t* p, int half) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + half));
  }
};
struct BF16Weights {
  static constexpr int kBytes = 32;
  static void Pair(const uint8_t* p, int half, __m256* a, __m256* b) {
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p) + half);
    *a = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    *b = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000))));
  }
  static __m256 One(const uint8_t* p, int half) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p) + half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};

// kChains parts of K of one panel side by side, each `length` elements; x and out point at the first row of the pass.
template <typename F, int kRows, int kChains>
inline void Chains(const FewRowsTile& t, const uint8_t* weights, const float* x, int length, float* out) {
  __m256 acc[kChains][kRows][2];
  for (int c = 0; c < kChains; ++c) {
    for (int r = 0; r < kRows; ++r) acc[c][r][0] = acc[c][r][1] = _mm256_setzero_ps();
  }
  int k = 0;
  for (; k + 2 <= length; k += 2) {
    AskAhead(t.ahead, out == t.accumulator || out == t.accumulator + kPanelRows ? kChains * 2 * F::kBytes : 0);
#pragma GCC unroll 2
    for (int c = 0; c < kChains; ++c) {
      const uint8_t* from = weights + (c * kFloatChain + k) * F::kBytes;
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256 a, b;
        F::Pair(from, half, &a, &b);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const float* xk = x + r * t.x_floats_stride + c * kFloatChain + k;
          acc[c][r][half] = _mm256_fmadd_ps(a, _mm256_broadcast_ss(xk), acc[c][r][half]);
          acc[c][r][half] = _mm256_fmadd_ps(b, _mm256_broadcast_ss(xk + 1), acc[c][r][half]);
        }
      }
    }
  }
  if (k < length) {  // only the last element of an odd K
    for (int half = 0; half < 2; ++half) {
      const __m256 a = F::One(weights + k * F::kBytes, half);
      for (int r = 0; r < kRows; ++r) {
        acc[0][r][half] = _mm256_fmadd_ps(a, _mm256_broadcast_ss(x + r * t.x_floats_stride + k), acc[0][r][half]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) {
      float* to = out + r * kTileColumns + 8 * half;
      __m256 sum = _mm256_loadu_ps(to);
      for (int c = 0; c < kChains; ++c) sum = _mm256_add_ps(sum, acc[c][r][half]);
      _mm256_storeu_ps(to, sum);
    }
  }
}

template <typename F, int kRows>
inline void Panel(const FewRowsTile& t, const uint8_t* weights, const float* x, int k, float* out) {
  if (kRows <= 2 && k == 2 * kFloatChain) {
    return Chains<F, kRows, kRows <= 2 ? 2 : 1>(t, weights, x, kFloatChain, out);
  }
  for (int first = 0; first < k; first += kFloatChain) {
    Chains<F, kRows, 1>(t, weights + first * F::kBytes, x + first, k - first < kFloatChain ? k - first : kFloatChain, out);
  }
}

template <typename F>
void Tile(const FewRowsTile& t) {
  memset(t.accumulator, 0, sizeof(float) * kTileColumns * t.rows);
  const uint8_t* weights = t.chunks;
  for (int64_t k0 = 0; k0 < t.k; k0 += kFloatStretch) {
    const int k = static_cast<int>(t.k - k0 < kFloatStretch ? t.k - k0 : kFloatStretch);
    for (int panel = 0; panel < t.panels; ++panel, weights += k * F::kBytes) {
      for (int first = 0; first < t.rows; first += kMostRows) {
        const float* x = t.x_floats + first * t.x_floats_stride + k0;
        float* out = t.accumulator + first * kTileColumns + panel * kPanelRows;
        switch (t.rows - first) {
          case 1: Panel<F, 1>(t, weights, x, k, out); break;
          case 2: Panel<F, 2>(t, weights, x, k, out); break;
          case 3: Panel<F, 3>(t, weights, x, k, out); break;
          default: Panel<F, 4>(t, weights, x, k, out); break;
        }
      }
    }
  }
}

}  // namespace

void FewRowsF32Avx2(const FewRowsTile& t) { Tile<F32Weights>(t); }
void FewRowsF16Avx2(const FewRowsTile& t) { Tile<F16Weights>(t); }
void FewRowsBF16Avx2(const FewRowsTile& t) { Tile<BF16Weights>(t); }

}  // namespace hone
