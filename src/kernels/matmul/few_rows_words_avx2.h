// Codes of 8 bits x rows of words (both terms of x in one 16-bit number) with VPMADDWD, for few_rows_avx2.cc only.
//
// By bytes such a code takes five instructions a term (magnitudes and signs apart, and no two products fit into 16 bits), by words four
// for both terms, of which the two that widen codes serve all rows. The same integers, so the same bits.
#pragma once

#include <string.h>

#include "kernels/matmul/codes_avx2.h"
#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/read_ahead.h"

namespace hone {
namespace {

// A stretch of rows of x: of four neighbours first 0 and 2, then 1 and 3, as the bytes of a plane widen.
struct StretchWords {
  alignas(32) int16_t rows[kFewRows][kCodeStretch];
};

inline void MakeWords(const FewRowsTile& t, int64_t k0, int k, StretchWords* to) {
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  const auto words_of = [](const int8_t* codes) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  };
  for (int r = 0; r < t.rows; ++r) {
    const int8_t *codes = t.x + r * t.x_stride + k0, *second = codes + t.term_rows * t.x_stride;
    for (int i = 0; i < k; i += 16) {
      __m256i words = words_of(codes + i);
      if (t.terms == 2) words = _mm256_add_epi16(_mm256_mullo_epi16(words, _mm256_set1_epi16(kDigits)), words_of(second + i));
      _mm256_store_si256(reinterpret_cast<__m256i*>(to->rows[r] + i), _mm256_shuffle_epi8(words, order));
    }
  }
}

inline __m256i BroadcastPair(const int16_t* x) {
  int pair;
  memcpy(&pair, x, 4);
  return _mm256_set1_epi32(pair);
}

// kRows rows, whose words and scales are given, against the stretches of `k` of kPanels panels, panel_bytes apart. Asks for what was read
// if `first`.
template <typename F, int kRows, int kPanels>
inline void StretchOfWords(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int k, const int16_t* x, const float* x_scales,
                           bool first, float* out) {
  static_assert(F::kBits == 8 && F::kGroups == 1 && F::kGroup == 32 && !F::kMin);
  constexpr int kBlocks = 2 * kPanels;  // of eight columns
  __m256 acc[kBlocks][kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) acc[b][r] = _mm256_loadu_ps(out + r * kTileColumns + 8 * b);
  }
  for (; k > 0; k -= 32, chunk += F::kChunkBytes, x += 32, ++x_scales) {
    AskAhead(t.ahead, first ? kPanels * F::kChunkBytes : 0);
    const uint8_t* panels[2] = {chunk, chunk + (kPanels - 1) * panel_bytes};
    __m256i sum[kBlocks][kRows];
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad) {
      __m256i even[kBlocks], odd[kBlocks];
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        __m256i plane = LoadPlane(panels[b / 2] + 64 * quad + 32 * (b % 2));
        asm("" : "+x"(plane));
        even[b] = _mm256_srai_epi16(_mm256_slli_epi16(plane, 8), 8), odd[b] = _mm256_srai_epi16(plane, 8);
      }
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const int16_t* words = x + r * kCodeStretch + 4 * quad;
        const __m256i evens = BroadcastPair(words), odds = BroadcastPair(words + 2);
#pragma GCC unroll 4
        for (int b = 0; b < kBlocks; ++b) {
          __m256i& s = sum[b][r];
          const __m256i product = _mm256_madd_epi16(even[b], evens);
          s = quad == 0 ? product : _mm256_add_epi32(s, product);
          asm volatile("" : "+x"(s));  // in this order, or compilers keep products in memory
          s = _mm256_add_epi32(s, _mm256_madd_epi16(odd[b], odds));
          asm volatile("" : "+x"(s));
        }
      }
    }
    typename F::Scales scales[kPanels];
    for (int p = 0; p < kPanels; ++p) scales[p].Read(F::ScalesOf(chunk + p * panel_bytes));
#pragma GCC unroll 4
    for (int b = 0; b < kBlocks; ++b) {
      const __m256 s = scales[b / 2].Scale(0, b % 2);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256 xs = _mm256_set1_ps(x_scales[r * t.x_scale_stride]);
        acc[b][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[b][r]), _mm256_mul_ps(s, xs), acc[b][r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) _mm256_storeu_ps(out + r * kTileColumns + 8 * b, acc[b][r]);
  }
}

template <typename F, int kRows>
inline void PanelsOfWords(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int k, const int16_t* x, const float* x_scales,
                          bool first, float* out) {
  constexpr int kTogether = kRows == 1 ? 2 : 1;  // panels whose sums registers hold
  if (kTogether == 2 && t.panels == 2) return StretchOfWords<F, kRows, kTogether>(t, chunk, panel_bytes, k, x, x_scales, first, out);
  for (int p = 0; p < t.panels; ++p) {
    StretchOfWords<F, kRows, 1>(t, chunk + p * panel_bytes, panel_bytes, k, x, x_scales, first, out + p * kPanelRows);
  }
}

// All rows against the stretch [k0, k0 + k) of the tile, whose bytes begin at `chunk`.
template <typename F>
inline void TileOfWords(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int64_t k0, int k) {
  constexpr int kMost = 4;  // rows at once
  StretchWords words;
  MakeWords(t, k0, k, &words);
  for (int r = 0; r < t.rows; r += kMost) {
    const auto run = [&](auto panels) {
      panels(t, chunk, panel_bytes, k, words.rows[r], t.x_scales + r * t.x_scale_stride + k0 / 32, r == 0, t.accumulator + r * kTileColumns);
    };
    switch (t.rows - r) {
      case 1: run(PanelsOfWords<F, 1>); break;
      case 2: run(PanelsOfWords<F, 2>); break;
      case 3: run(PanelsOfWords<F, 3>); break;
      default: run(PanelsOfWords<F, kMost>);
    }
  }
}

}  // namespace
}  // namespace hone
