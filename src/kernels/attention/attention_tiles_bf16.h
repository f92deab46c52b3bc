// The tile loops of attention with VDPBF16PS: scores, sums of weights and weighted values of one or two tiles of 16 rows, as
// attention_tiles.h asks for them; only rows that there are. No unit beside the vectors waits for work, so nothing is done aside.
//
// Products: up to 8 rows by two vectors, 16 sums in registers; a pair of numbers takes two loads, eight broadcasts and 16 VDPBF16PS,
// two a cycle. A sum adds its pairs in order, whatever rows stand beside it.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/attention/attention_shared.h"

namespace hone {
namespace {

constexpr int kTileRows = 16, kTileFloats = 256;
constexpr int kScoreBuffers = 2;
constexpr int kProductRows = 8;     // at most, of a product
constexpr bool kAsksAside = false;  // what comes is asked for by products

inline void TilesSeeMemory() {}

// What a mantissa is above 2^f (attention_shared.h), for f / 2 in the low six bits of each 16.
struct Curve {
  __m512i low = _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(kCurve)));
  __m512i high = _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(kCurve + 32)));
  __m512i Of(__m512i half) const { return _mm512_permutex2var_epi16(low, half, high); }
};

// acc[row][vector] += the 16 pairs of each row of x (32 numbers apart) by 16 vectors of w, `stride` bytes apart. What is
// ahead is asked for line by line: Zen 5 made little of bursts (docs/kernels-attention.md).
template <int kRows, int kVectors, bool kAsks>
inline __attribute__((always_inline)) void AddStep(const uint16_t* x, const std::byte* w, int64_t stride, __m512 (&acc)[kRows][kVectors],
                                                   Ahead* ahead) {
  for (int pair = 0; pair < 16; ++pair, x += 2, w += stride) {
    if constexpr (kAsks) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead->keys), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(ahead->values), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(ahead->keys + 64), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(ahead->values + 64), _MM_HINT_T0);
      ahead->keys += 128, ahead->values += 128;
    }
    __m512bh vectors[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) vectors[v] = (__m512bh)_mm512_loadu_si512(w + 64 * v);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int two;
      memcpy(&two, x + 32 * r, 4);
      const __m512bh broadcast = (__m512bh)_mm512_set1_epi32(two);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], broadcast, vectors[v]);
    }
  }
}

// Calls work<height>(first row) for rows [0, rows) in parts of up to kProductRows.
template <int kHeight, typename Work>
inline void LastRows(int rows, int row, Work work) {
  if constexpr (kHeight > 0) {
    if (rows == kHeight) return work.template operator()<kHeight>(row);
    LastRows<kHeight - 1>(rows, row, work);
  }
}
template <typename Work>
inline void InParts(int rows, Work work) {
  int row = 0;
  for (; row + kProductRows <= rows; row += kProductRows) work.template operator()<kProductRows>(row);
  LastRows<kProductRows - 1>(rows - row, row, work);
}

// s[row][32] = start[row] + q keys for `rows` rows and the 32 tokens of a block. q: [kTiles][steps] tiles; keys: [32 steps / 2][32][2];
// start: [kTiles] tiles of sums.
template <int kTiles, typename Aside>
inline void ScoreTiles(const uint16_t* q, int steps, const std::byte* keys, Ahead ahead, const float* start, int rows, float* s, Aside) {
  InParts(rows, [&]<int kRows>(int row) {
    const uint16_t* x = q + row / kTileRows * int64_t{steps} * 512 + row % kTileRows * 32;
    __m512 acc[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_load_ps(start + (row + r) * 16);
    if (row == 0 && ahead.keys != nullptr) {
      for (int step = 0; step < steps; ++step) AddStep<kRows, 2, true>(x + step * 512, keys + step * 2048, 128, acc, &ahead);
    } else {
      for (int step = 0; step < steps; ++step) AddStep<kRows, 2, false>(x + step * 512, keys + step * 2048, 128, acc, nullptr);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < 2; ++v) _mm512_store_ps(s + (row + r) * 32 + v * 16, acc[r][v]);
    }
  });
}

template <int kTiles>
inline void StoreScoreTiles(float*) {}

// to[row] = from[row] (or 0) + the sum of the row's weights over `blocks` blocks, in all 16 columns. weights: [blocks][2] tiles.
template <int kTiles>
inline void SumTiles(const uint16_t* weights, int blocks, const uint16_t* ones, const float* from, float* to, int rows) {
  const __m512bh one = (__m512bh)_mm512_load_si512(ones);
  for (int r = 0; r < rows; ++r, weights += 32, to += 16) {
    __m512 sum = _mm512_setzero_ps();
    for (int b = 0; b < blocks; ++b) sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_load_si512(weights + b * 1024), one);
    sum = _mm512_set1_ps(_mm512_reduce_add_ps(sum));
    if (from != nullptr) sum = _mm512_add_ps(sum, _mm512_load_ps(from + r * 16));
    _mm512_store_ps(to, sum);
  }
}

// acc[row][column] += weights values, for kColumns neighbouring tiles of 16 columns. acc: tiles of rows `row_tile` floats apart;
// values[b]: [16][columns][2], rows `stride` bytes apart, the first column wanted at byte `column_bytes`. `fresh`: acc holds nothing yet.
template <int kTiles, int kColumns, typename Aside>
inline void ValueTiles(const uint16_t* weights, int blocks, const std::byte* const* values, int64_t column_bytes, int64_t stride,
                       float* acc, int64_t row_tile, bool fresh, int rows, Aside) {
  constexpr int kVectors = kColumns < 2 ? 1 : 2;
  for (int column = 0; column < kColumns; column += kVectors) {
    InParts(rows, [&]<int kRows>(int row) {
      float* at = acc + row / kTileRows * row_tile + column * kTileFloats + row % kTileRows * 16;
      __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) sums[r][v] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(at + v * kTileFloats + r * 16);
      }
      for (int b = 0; b < blocks; ++b) {
        AddStep<kRows, kVectors, false>(weights + b * 1024 + row * 32, values[b] + column_bytes + column * 64, stride, sums, nullptr);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < kVectors; ++v) _mm512_store_ps(at + v * kTileFloats + r * 16, sums[r][v]);
      }
    });
  }
}

}  // namespace
}  // namespace hone
