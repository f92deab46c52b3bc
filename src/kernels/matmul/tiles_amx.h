// AMX tiles: the configuration that every AMX kernel shares. For *_amx.cc files only.
//
// All eight tiles are full, 16 rows of 64 bytes: 0-3 sums of 16 x 16 F32 or int32, 4-5 rows of x, 6-7 columns of W.
//
// The configuration is a constant. g++ 12 believes that LDTILECFG reads 8 of its 64 bytes and drops the stores that fill a local
// struct; constants have no stores. Its TILELOADD names no memory either, so whoever has just written what tiles will load calls
// TilesSeeMemory first.
#pragma once

#include <stdint.h>

#include "kernels/matmul/intrinsics.h"

namespace hone {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
constexpr TileConfig kFullTiles;

// Configures the tiles of this thread while alive, and gives them back so that the thread's state is cheap to save again.
class TilesInUse {
 public:
  TilesInUse() { _tile_loadconfig(&kFullTiles); }
  ~TilesInUse() { _tile_release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

inline void TilesSeeMemory() { asm volatile("" ::: "memory"); }

}  // namespace
}  // namespace hone
