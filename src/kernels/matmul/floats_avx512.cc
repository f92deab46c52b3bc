// F32 arithmetic with AVX-512: products of F32 weights and rows, rounding rows to int8, codes to F32 weights, float unpacking.
//
// Products: 12 rows by 32 columns, 24 accumulators; each broadcast of x serves two FMAs, each load of weights twelve. Up to
// three rows run both chains of a stretch at once, since two chains alone wait for the four cycles of an FMA.
#include <string.h>

#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/tile.h"
#include "kernels/matmul/wide_groups.h"

namespace hone {
namespace {

// kChains chains side by side, from element `begin`, each of `length` elements.
template <int kRows, int kChains>
inline void Chains(const FloatTile& t, int row, int begin, int length) {
  const float* x = t.x + row * t.x_stride + begin;
  const float* w0 = t.weights[0] + begin * kPanelRows;
  const float* w1 = t.weights[1] + begin * kPanelRows;
  constexpr int kNext = kFloatChain * kPanelRows;  // weights from chain to chain
  __m512 acc[kChains][kRows][2];
  for (int c = 0; c < kChains; ++c) {
    for (int r = 0; r < kRows; ++r) acc[c][r][0] = acc[c][r][1] = _mm512_setzero_ps();
  }
  for (int k = 0; k < length; ++k, w0 += kPanelRows, w1 += kPanelRows) {
    const int ahead = 64 * (begin + kChains * k);
    if (row == 0 && ahead < t.ahead_bytes) Prefetch(t.ahead + ahead, 64 * kChains);
#pragma GCC unroll 2
    for (int c = 0; c < kChains; ++c) {
      const __m512 a = _mm512_loadu_ps(w0 + c * kNext), b = _mm512_loadu_ps(w1 + c * kNext);
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r) {
        const __m512 xk = _mm512_set1_ps(x[r * t.x_stride + c * kFloatChain + k]);
        acc[c][r][0] = _mm512_fmadd_ps(a, xk, acc[c][r][0]);
        acc[c][r][1] = _mm512_fmadd_ps(b, xk, acc[c][r][1]);
      }
    }
  }
  float* out = t.accumulator + row * kTileColumns;
  for (int r = 0; r < kRows; ++r, out += kTileColumns) {
    __m512 low = _mm512_loadu_ps(out), high = _mm512_loadu_ps(out + 16);
    for (int c = 0; c < kChains; ++c) low = _mm512_add_ps(low, acc[c][r][0]), high = _mm512_add_ps(high, acc[c][r][1]);
    _mm512_storeu_ps(out, low);
    _mm512_storeu_ps(out + 16, high);
  }
}

template <int kRows>
inline void Rows(const FloatTile& t, int row) {
  if (kRows <= 3 && t.k == 2 * kFloatChain) return Chains<kRows, 2>(t, row, 0, kFloatChain);
  for (int k = 0; k < t.k; k += kFloatChain) {
    Chains<kRows, 1>(t, row, k, t.k - k < kFloatChain ? t.k - k : kFloatChain);
  }
}

inline void RowsOf(const FloatTile& t, int row, int rows) {
  switch (rows) {
    case 12: return Rows<12>(t, row);
    case 11: return Rows<11>(t, row);
    case 10: return Rows<10>(t, row);
    case 9: return Rows<9>(t, row);
    case 8: return Rows<8>(t, row);
    case 7: return Rows<7>(t, row);
    case 6: return Rows<6>(t, row);
    case 5: return Rows<5>(t, row);
    case 4: return Rows<4>(t, row);
    case 3: return Rows<3>(t, row);
    case 2: return Rows<2>(t, row);
    default: return Rows<1>(t, row);
  }
}

// 16 codes to bytes; returns their sum.
inline int32_t StoreCodes(__m512i q, int8_t* to) {
  const __m128i codes = _mm512_cvtsepi32_epi8(q);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), codes);
  // + 128 each makes signed bytes unsigned for VPSADBW.
  const __m128i sums = _mm_sad_epu8(_mm_xor_si128(codes, _mm_set1_epi8(-128)), _mm_setzero_si128());
  return _mm_cvtsi128_si32(sums) + _mm_extract_epi32(sums, 2) - 16 * 128;
}

inline __m256i LoadHalves(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

}  // namespace

void MultiplyFloatsAvx512(const FloatTile& t) {
  const int tiles = (t.rows + 11) / 12;
  for (int tile = 0; tile < tiles; ++tile) {
    const int row = t.rows * tile / tiles;
    RowsOf(t, row, t.rows * (tile + 1) / tiles - row);
  }
}

void RoundRowAvx512(const float* x, int64_t k, const RoundedRow& to) {
  for (int64_t g = 0; g < k / 32; ++g) {
    const __m512 a = _mm512_loadu_ps(x + 32 * g), b = _mm512_loadu_ps(x + 32 * g + 16);
    // The largest magnitude by its bits: a NaN is larger than infinity, so it is not lost.
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    const int32_t bits = _mm512_reduce_max_epi32(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), magnitude),
                                                                  _mm512_and_si512(_mm512_castps_si512(b), magnitude)));
    memcpy(to.scales + g, &bits, 4);
  }
  FindWideGroups(x, to, k);
  for (int64_t g = 0; g < k / 32; ++g, x += 32) {
    const float amax = to.scales[g], steps = StepsOf(to, g);
    const bool zero = amax < kSmallestAmax;
    to.scales[g] = zero ? 0.0f : amax / steps;
    const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : steps / amax);
    for (int half = 0; half < 2; ++half) {
      __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * half), inverse));
      const int64_t at = 2 * g + half;
      if (to.second != nullptr) {
        const __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(q), _mm512_set1_ps(1.0f / kDigits)));
        to.second_sums[at] = StoreCodes(_mm512_sub_epi32(q, _mm512_mullo_epi32(high, _mm512_set1_epi32(kDigits))), to.second + 16 * at);
        q = high;
      }
      to.sums[at] = StoreCodes(q, to.codes + 16 * at);
    }
  }
}

void DequantizeCodesAvx512(const uint8_t* codes, const float* scales, const float* mins, int k, int group, int offset,
                           float* weights) {
  const __m512i byte = _mm512_set1_epi32(255), bias = _mm512_set1_epi32(offset);
  for (int quad = 0; quad < k / 4; ++quad, codes += 64, weights += 4 * kPanelRows) {
    const int g = 4 * quad / group;
    const __m512 s = _mm512_loadu_ps(scales + g * kPanelRows);
    const __m512 m = mins != nullptr ? _mm512_loadu_ps(mins + g * kPanelRows) : _mm512_setzero_ps();
    const __m512i words = _mm512_loadu_si512(codes);
    const __m512i c[4] = {_mm512_and_si512(words, byte), _mm512_and_si512(_mm512_srli_epi32(words, 8), byte),
                          _mm512_and_si512(_mm512_srli_epi32(words, 16), byte), _mm512_srli_epi32(words, 24)};
    for (int i = 0; i < 4; ++i) {
      _mm512_storeu_ps(weights + i * kPanelRows, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(c[i], bias)), s, m));
    }
  }
}

void UnpackF32Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, float* weights) {
  for (int i = 0; i < k; ++i, chunks += 64) {
    if (i % 2 == 0) Prefetch(ahead + 32 * i, 64);
    _mm512_storeu_ps(weights + i * kPanelRows, _mm512_loadu_ps(chunks));
  }
}

void UnpackF16Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, float* weights) {
  for (int i = 0; i < k; ++i, chunks += 32) {
    if (i % 4 == 0) Prefetch(ahead + 16 * i, 64);
    _mm512_storeu_ps(weights + i * kPanelRows, _mm512_cvtph_ps(LoadHalves(chunks)));
  }
}

void UnpackBF16Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, float* weights) {
  const __m512i odd = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  for (int i = 0; i + 1 < k; i += 2, chunks += 64, weights += 2 * kPanelRows) {
    if (i % 4 == 0) Prefetch(ahead + 16 * i, 64);
    const __m512i pairs = _mm512_loadu_si512(chunks);
    _mm512_storeu_si512(weights, _mm512_slli_epi32(pairs, 16));
    _mm512_storeu_si512(weights + kPanelRows, _mm512_and_si512(pairs, odd));
  }
  if (k % 2 != 0) _mm512_storeu_si512(weights, _mm512_slli_epi32(_mm512_cvtepu16_epi32(LoadHalves(chunks)), 16));
}

}  // namespace hone
