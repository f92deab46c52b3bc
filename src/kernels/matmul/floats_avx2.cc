// F32 arithmetic with AVX2 and FMA: products of F32 weights and rows, rounding rows to int8, codes to F32 weights, float
// unpacking. Products: six rows by 16 columns, 12 accumulators of 16 registers; one or two rows run both chains of a stretch
// at once.
#include <string.h>

#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/tile.h"
#include "kernels/matmul/wide_groups.h"

namespace hone {
namespace {

// kChains chains side by side, from element `begin`, each of `length` elements.
template <int kRows, int kChains>
inline void Chains(const FloatTile& t, int row, int panel, int begin, int length) {
  const float* x = t.x + row * t.x_stride + begin;
  const float* w = t.weights[panel] + begin * kPanelRows;
  __m256 acc[kChains][kRows][2];
  for (int c = 0; c < kChains; ++c) {
    for (int r = 0; r < kRows; ++r) acc[c][r][0] = acc[c][r][1] = _mm256_setzero_ps();
  }
  for (int k = 0; k < length; ++k, w += kPanelRows) {
    const int ahead = 64 * (begin + kChains * k);
    if (row == 0 && panel == 0 && ahead < t.ahead_bytes) Prefetch(t.ahead + ahead, 64 * kChains);
#pragma GCC unroll 2
    for (int c = 0; c < kChains; ++c) {
      const float* wc = w + c * kFloatChain * kPanelRows;
      const __m256 a = _mm256_loadu_ps(wc), b = _mm256_loadu_ps(wc + 8);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m256 xk = _mm256_set1_ps(x[r * t.x_stride + c * kFloatChain + k]);
        acc[c][r][0] = _mm256_fmadd_ps(a, xk, acc[c][r][0]);
        acc[c][r][1] = _mm256_fmadd_ps(b, xk, acc[c][r][1]);
      }
    }
  }
  float* out = t.accumulator + row * kTileColumns + panel * kPanelRows;
  for (int r = 0; r < kRows; ++r, out += kTileColumns) {
    __m256 low = _mm256_loadu_ps(out), high = _mm256_loadu_ps(out + 8);
    for (int c = 0; c < kChains; ++c) low = _mm256_add_ps(low, acc[c][r][0]), high = _mm256_add_ps(high, acc[c][r][1]);
    _mm256_storeu_ps(out, low);
    _mm256_storeu_ps(out + 8, high);
  }
}

template <int kRows>
inline void Rows(const FloatTile& t, int row, int panel) {
  if (kRows <= 2 && t.k == 2 * kFloatChain) return Chains<kRows, 2>(t, row, panel, 0, kFloatChain);
  for (int k = 0; k < t.k; k += kFloatChain) {
    Chains<kRows, 1>(t, row, panel, k, t.k - k < kFloatChain ? t.k - k : kFloatChain);
  }
}

inline void RowsOf(const FloatTile& t, int row, int rows, int panel) {
  switch (rows) {
    case 6: return Rows<6>(t, row, panel);
    case 5: return Rows<5>(t, row, panel);
    case 4: return Rows<4>(t, row, panel);
    case 3: return Rows<3>(t, row, panel);
    case 2: return Rows<2>(t, row, panel);
    default: return Rows<1>(t, row, panel);
  }
}

inline __m128i LoadHalves(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

inline __m256i Magnitude(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

// Sum of 16 signed bytes: + 128 each makes them unsigned for VPSADBW.
inline int32_t SumOfBytes(__m128i codes) {
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(codes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}

// 32 codes to bytes, and the sums of the two halves.
inline void StoreCodes(const __m256i q[4], int8_t* to, int32_t* sums) {
  // Packing works within 128-bit lanes; the permutation puts the 32-bit pieces back in order.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i ordered = _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), ordered);
  sums[0] = SumOfBytes(_mm256_castsi256_si128(ordered));
  sums[1] = SumOfBytes(_mm256_extracti128_si256(ordered, 1));
}

}  // namespace

void MultiplyFloatsAvx2(const FloatTile& t) {
  const int tiles = (t.rows + 5) / 6;
  for (int panel = 0; panel < 2; ++panel) {
    for (int tile = 0; tile < tiles; ++tile) {
      const int row = t.rows * tile / tiles;
      RowsOf(t, row, t.rows * (tile + 1) / tiles - row, panel);
    }
  }
}

void RoundRowAvx2(const float* x, int64_t k, const RoundedRow& to) {
  for (int64_t g = 0; g < k / 32; ++g) {
    const float* v = x + 32 * g;
    // The largest magnitude by its bits: a NaN is larger than infinity, so it is not lost.
    const __m256i most = _mm256_max_epi32(_mm256_max_epi32(Magnitude(_mm256_loadu_ps(v)), Magnitude(_mm256_loadu_ps(v + 8))),
                                          _mm256_max_epi32(Magnitude(_mm256_loadu_ps(v + 16)), Magnitude(_mm256_loadu_ps(v + 24))));
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    to.scales[g] = _mm_cvtss_f32(_mm_castsi128_ps(m));
  }
  FindWideGroups(x, to, k);
  for (int64_t g = 0; g < k / 32; ++g, x += 32) {
    const float amax = to.scales[g], steps = StepsOf(to, g);
    const bool zero = amax < kSmallestAmax;
    to.scales[g] = zero ? 0.0f : amax / steps;
    const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : steps / amax);
    __m256i q[4];
    for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse));
    if (to.second == nullptr) {
      StoreCodes(q, to.codes + 32 * g, to.sums + 2 * g);
      continue;
    }
    __m256i high[4];
    for (int i = 0; i < 4; ++i) {
      high[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(q[i]), _mm256_set1_ps(1.0f / kDigits)));
      q[i] = _mm256_sub_epi32(q[i], _mm256_mullo_epi32(high[i], _mm256_set1_epi32(kDigits)));
    }
    StoreCodes(high, to.codes + 32 * g, to.sums + 2 * g);
    StoreCodes(q, to.second + 32 * g, to.second_sums + 2 * g);
  }
}

void DequantizeCodesAvx2(const uint8_t* codes, const float* scales, const float* mins, int k, int group, int offset,
                         float* weights) {
  const __m256i byte = _mm256_set1_epi32(255), bias = _mm256_set1_epi32(offset);
  for (int quad = 0; quad < k / 4; ++quad, codes += 64, weights += 4 * kPanelRows) {
    const int g = 4 * quad / group;
    for (int half = 0; half < 2; ++half) {
      const __m256 s = _mm256_loadu_ps(scales + g * kPanelRows + 8 * half);
      const __m256 m = mins != nullptr ? _mm256_loadu_ps(mins + g * kPanelRows + 8 * half) : _mm256_setzero_ps();
      const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 32 * half));
      const __m256i c[4] = {_mm256_and_si256(words, byte), _mm256_and_si256(_mm256_srli_epi32(words, 8), byte),
                            _mm256_and_si256(_mm256_srli_epi32(words, 16), byte), _mm256_srli_epi32(words, 24)};
      for (int i = 0; i < 4; ++i) {
        _mm256_storeu_ps(weights + i * kPanelRows + 8 * half,
                         _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(c[i], bias)), s, m));
      }
    }
  }
}

void UnpackF32Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, float* weights) {
  for (int i = 0; i < k; ++i, chunks += 64, weights += kPanelRows) {
    if (i % 2 == 0) Prefetch(ahead + 32 * i, 64);
    memcpy(weights, chunks, 64);
  }
}

void UnpackF16Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, float* weights) {
  for (int i = 0; i < k; ++i, chunks += 32, weights += kPanelRows) {
    if (i % 4 == 0) Prefetch(ahead + 16 * i, 64);
    _mm256_storeu_ps(weights, _mm256_cvtph_ps(LoadHalves(chunks)));
    _mm256_storeu_ps(weights + 8, _mm256_cvtph_ps(LoadHalves(chunks + 16)));
  }
}

void UnpackBF16Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, float* weights) {
  const __m256i odd = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  const auto store = [](float* p, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); };
  for (int i = 0; i + 1 < k; i += 2, chunks += 64, weights += 2 * kPanelRows) {
    if (i % 4 == 0) Prefetch(ahead + 16 * i, 64);
    for (int half = 0; half < 2; ++half) {
      const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunks) + half);
      store(weights + 8 * half, _mm256_slli_epi32(pairs, 16));
      store(weights + kPanelRows + 8 * half, _mm256_and_si256(pairs, odd));
    }
  }
  if (k % 2 == 0) return;
  for (int half = 0; half < 2; ++half) {
    store(weights + 8 * half, _mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalves(chunks + 16 * half)), 16));
  }
}

}  // namespace hone
