// Codes of 8 bits x rows of words (both terms of x in one 16-bit number) with VPMADDWD, for few_rows_avx2.cc only.
//
// By bytes such a code takes five instructions a term (magnitudes and signs apart, and no two products fit into 16 bits), by words four
// for both terms, of which the two that widen codes serve all rows. The same integers, so the same bits.
#pragma once

#include <string.h>

#include "kernels/matmul/few_rows_formats_avx2.h"
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

// kRows rows, whose words and scales are given, against the stretches of `k` of kBlocks blocks of eight columns, from half a panel on. Asks
// for `ask` bytes a group.
template <typename F, int kRows, int kBlocks>
HONE_FLATTEN void StretchOfWords(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int k, const int16_t* x, const float* x_scales,
                           int half, int ask, float* out) {
  static_assert(F::kBits == 8 && F::kGroup == 32 && !F::kMin);
  constexpr int kPanels = kBlocks > 2 ? 2 : 1;
  __m256 acc[kBlocks][kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) acc[b][r] = _mm256_loadu_ps(out + r * kTileColumns + 8 * b);
  }
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    typename F::Scales scales[kPanels];
    for (int p = 0; p < kPanels; ++p) scales[p].Read(F::ScalesOf(chunk + p * panel_bytes));
    for (int g = 0; g < F::kGroups; ++g, x += 32, ++x_scales) {
      AskAhead(t.ahead, ask);
      const uint8_t* first = chunk + g * F::kGroupBytes + 32 * half;
      const uint8_t* panels[2] = {first, first + (kPanels - 1) * panel_bytes};
      __m256i sum[kBlocks][kRows];
#pragma GCC unroll 4
      for (int pair = 0; pair < 4; ++pair) {
        __m256i codes[kBlocks][2];
        for (int b = 0; b < kBlocks; ++b) F::Pair(panels[b / 2] + 32 * (b % 2), pair, codes[b]);
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          __m256i even[kBlocks], odd[kBlocks];
          for (int b = 0; b < kBlocks; ++b) {
            even[b] = _mm256_srai_epi16(_mm256_slli_epi16(codes[b][j], 8), 8), odd[b] = _mm256_srai_epi16(codes[b][j], 8);
          }
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const int16_t* words = x + r * kCodeStretch + 8 * pair + 4 * j;
            const __m256i evens = BroadcastPair(words), odds = BroadcastPair(words + 2);
#pragma GCC unroll 4
            for (int b = 0; b < kBlocks; ++b) {
              __m256i& s = sum[b][r];
              const __m256i product = _mm256_madd_epi16(even[b], evens);
              s = pair + j == 0 ? product : _mm256_add_epi32(s, product);
              asm volatile("" : "+x"(s));  // in this order, or compilers keep products in memory
              s = _mm256_add_epi32(s, _mm256_madd_epi16(odd[b], odds));
              asm volatile("" : "+x"(s));
            }
          }
        }
      }
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        const __m256 s = scales[b / 2].Scale(g, half + b % 2);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const __m256 xs = _mm256_set1_ps(x_scales[r * t.x_scale_stride]);
          acc[b][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[b][r]), _mm256_mul_ps(s, xs), acc[b][r]);
        }
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
  constexpr int kBlocks = F::kWholeBytes ? (kRows == 1 ? 4 : 2) : (kRows == 1 ? 2 : 1);  // whose sums and codes registers hold
  const int bytes = first ? t.panels * F::kChunkBytes / F::kGroups : 0;  // of a group of the tile
  if (kBlocks == 4 && t.panels == 2) return StretchOfWords<F, kRows, kBlocks>(t, chunk, panel_bytes, k, x, x_scales, 0, bytes, out);
  constexpr int kOfPanel = kBlocks == 1 ? 1 : 2;
  for (int column = 0; column < t.panels * kPanelRows; column += 8 * kOfPanel) {
    const uint8_t* panel = chunk + column / kPanelRows * panel_bytes;
    const int passes = 2 * t.panels / kOfPanel;
    StretchOfWords<F, kRows, kOfPanel>(t, panel, 0, k, x, x_scales, column % kPanelRows / 8, bytes / passes, out + column);
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
