// The tile loops of attention on AMX: scores, sums of weights and weighted values of one or two tiles of 16 rows. For
// attention_tiles.h, which says what they are for.
//
// Tiles 0-3 hold sums (16 x 16 F32), 4-5 left operands (16 rows x 32 BF16), 6-7 right operands (16 pairs x 16 columns). With one
// tile of rows ("kTiles == 1") only 0-3 and 4 are as high as there are rows: TDPBF16PS costs by rows.
//
// Keys and values come from L2 and are loaded past L1, where weights and sums stay. `aside` is called after the products of each
// step or block: vector work that is to run beside them.
//
// g++ 12 believes that LDTILECFG reads 8 bytes and TILELOADD none: the configurations are constants, and whoever writes what tiles
// will load calls TilesSeeMemory first.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/attention/attention_shared.h"

namespace hone {
namespace {

constexpr int kTileRows = 16, kTileFloats = 256;
constexpr int kScoreBuffers = 1;   // the next block's scores wait in tiles
constexpr bool kAsksAside = true;  // between products

// What a mantissa is above 2^f (attention_shared.h), for f / 2 in the low six bits of each 16.
struct Curve {
  __m512i table = _mm512_load_si512(kCurve);
  __m512i Of(__m512i half) const { return _mm512_maskz_permutexvar_epi8(0x5555555555555555u, half, table); }
};

struct alignas(64) RowsConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(RowsConfig) == 64);

constexpr std::array<RowsConfig, kTileRows + 1> MakeConfigs() {
  std::array<RowsConfig, kTileRows + 1> configs;
  for (int rows = 1; rows <= kTileRows; ++rows) {
    for (int tile = 0; tile <= 4; ++tile) configs[rows].rows[tile] = static_cast<uint8_t>(rows);
  }
  return configs;
}
constexpr std::array<RowsConfig, kTileRows + 1> kConfigs = MakeConfigs();

inline void ConfigureTiles(int rows) { _tile_loadconfig(&kConfigs[rows < kTileRows ? rows : kTileRows]); }
inline void TilesSeeMemory() { asm volatile("" ::: "memory"); }

// Tiles 0-3 = start[row] + q keys, for 16 kTiles rows and the 32 tokens of a block. q: [kTiles][steps] tiles; keys:
// [32 steps / 2][32][2]; start: [kTiles] tiles of sums.
template <int kTiles, typename Aside>
inline void ScoreTiles(const uint16_t* q, int steps, const std::byte* keys, Ahead, const float* start, int, float*, Aside aside) {
  _tile_loadd(0, start, 64);
  _tile_loadd(1, start, 64);
  if constexpr (kTiles == 2) {
    _tile_loadd(2, start + kTileFloats, 64);
    _tile_loadd(3, start + kTileFloats, 64);
  }
  const uint16_t* q1 = q + int64_t{steps} * 512;
  for (int step = 0; step < steps; ++step, q += 512, q1 += 512, keys += 2048) {
    _tile_loadd(4, q, 64);
    _tile_stream_loadd(6, keys, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_stream_loadd(7, keys + 64, 128);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kTiles == 2) {
      _tile_loadd(5, q1, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    aside();
  }
}

// Tiles 0-3 to s[row][32].
template <int kTiles>
inline void StoreScoreTiles(float* s) {
  _tile_stored(0, s, 128);
  _tile_stored(1, s + 16, 128);
  if constexpr (kTiles == 2) {
    _tile_stored(2, s + 512, 128);
    _tile_stored(3, s + 528, 128);
  }
}

// to[tile] = from[tile] (or 0) + the sums of each row of weights over `blocks` blocks, in all 16 columns. weights: [blocks][2]
// tiles; ones: a right operand of ones.
template <int kTiles>
inline void SumTiles(const uint16_t* weights, int blocks, const uint16_t* ones, const float* from, float* to, int) {
  _tile_loadd(6, ones, 64);
  if (from != nullptr) {
    _tile_loadd(0, from, 64);
    if constexpr (kTiles == 2) _tile_loadd(1, from + kTileFloats, 64);
  } else {
    _tile_zero(0);
    if constexpr (kTiles == 2) _tile_zero(1);
  }
  for (int b = 0; b < blocks; ++b, weights += 1024) {
    _tile_loadd(4, weights, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTiles == 2) {
      _tile_loadd(5, weights + 512, 64);
      _tile_dpbf16ps(1, 5, 6);
    }
  }
  _tile_stored(0, to, 64);
  if constexpr (kTiles == 2) _tile_stored(1, to + kTileFloats, 64);
}

// acc[tile][column] += weights values, for kColumns neighbouring tiles of 16 columns (2 where kTiles is 2, else up to 4).
// acc: tiles of rows `row_tile` floats apart; values[b]: [16][columns][2], rows `stride` bytes apart, the first column wanted at
// byte `column_bytes`. `fresh`: acc holds nothing yet.
template <int kTiles, int kColumns, typename Aside>
inline void ValueTiles(const uint16_t* weights, int blocks, const std::byte* const* values, int64_t column_bytes, int64_t stride,
                       float* acc, int64_t row_tile, bool fresh, int, Aside aside) {
  static_assert(kTiles * kColumns <= 4);
  if (fresh) {
    _tile_zero(0);
    if constexpr (kColumns > 1 || kTiles > 1) _tile_zero(1);
    if constexpr (kColumns > 2 || kTiles * kColumns == 4) _tile_zero(2);
    if constexpr (kTiles * kColumns == 4) _tile_zero(3);
  } else {
    _tile_loadd(0, acc, 64);
    if constexpr (kTiles == 2) {
      if constexpr (kColumns == 2) {
        _tile_loadd(1, acc + kTileFloats, 64);
        _tile_loadd(2, acc + row_tile, 64);
        _tile_loadd(3, acc + row_tile + kTileFloats, 64);
      } else {
        _tile_loadd(1, acc + row_tile, 64);
      }
    } else {
      if constexpr (kColumns > 1) _tile_loadd(1, acc + kTileFloats, 64);
      if constexpr (kColumns > 2) _tile_loadd(2, acc + 2 * kTileFloats, 64);
      if constexpr (kColumns > 3) _tile_loadd(3, acc + 3 * kTileFloats, 64);
    }
  }
  for (int b = 0; b < blocks; ++b, weights += 1024) {
    const std::byte* v = values[b] + column_bytes;
    _tile_loadd(4, weights, 64);
    _tile_stream_loadd(6, v, stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kTiles == 2) {
      _tile_loadd(5, weights + 512, 64);
      if constexpr (kColumns == 2) {
        _tile_stream_loadd(7, v + 64, stride);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      } else {
        _tile_dpbf16ps(1, 5, 6);
      }
    } else {
      if constexpr (kColumns > 1) {
        _tile_stream_loadd(7, v + 64, stride);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (kColumns > 2) {
        _tile_loadd(6, v + 128, stride);
        _tile_dpbf16ps(2, 4, 6);
      }
      if constexpr (kColumns > 3) {
        _tile_loadd(7, v + 192, stride);
        _tile_dpbf16ps(3, 4, 7);
      }
    }
    aside();
  }
  _tile_stored(0, acc, 64);
  if constexpr (kTiles == 2) {
    if constexpr (kColumns == 2) {
      _tile_stored(1, acc + kTileFloats, 64);
      _tile_stored(2, acc + row_tile, 64);
      _tile_stored(3, acc + row_tile + kTileFloats, 64);
    } else {
      _tile_stored(1, acc + row_tile, 64);
    }
  } else {
    if constexpr (kColumns > 1) _tile_stored(1, acc + kTileFloats, 64);
    if constexpr (kColumns > 2) _tile_stored(2, acc + 2 * kTileFloats, 64);
    if constexpr (kColumns > 3) _tile_stored(3, acc + 3 * kTileFloats, 64);
  }
}

}  // namespace
}  // namespace hone
