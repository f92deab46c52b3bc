// Many rows of x against a tile of W as BF16: what passes between the plan (many_rows.cc) and its kernels. Plain structs and
// functions, no STL, as in tile.h. What multiplies is a line of bf16_tiles.inc; the other functions take AVX-512 BF16 and serve all lines.
//
// A stretch of K of two panels is unpacked to BF16 with scales and minimums folded in, 32 KiB in L1, and multiplied with all rows
// of a block. Everything lies in tiles of 16 rows by 64 bytes, as TDPBF16PS reads them, and VDPBF16PS row by row, a *step* being 32 elements of K:
//
//   x        [row block][step][16 rows][32 of K]              a row block is 16 rows
//   weights  [part of 4 steps][panel][step of the part][16 pairs of K][16 columns][2]
//   sums     [row block][panel][16 rows][16 columns] F32
//
// which is how BF16 weights lie in memory anyway when K is a multiple of 128 (panel_format.h): they are multiplied from there.
// Each product of two BF16 is exact in F32; an output sums pairs of K in order, so its bits depend on its row of x alone.
#pragma once

#include <stdint.h>

#include "kernels/matmul/tile.h"

namespace hone {

constexpr int kBf16Stretch = 512;
constexpr int kStepK = 32;
constexpr int kTileBytes = 1024;
constexpr int kRowsOfBlock = 16;
constexpr int kStepsOfPart = kFloatStretch / kStepK;

// Offset of a step's tile of panel 0 in unpacked weights; that of panel 1 is kStepsOfPart tiles further.
constexpr int WeightTile(int step) { return (step / kStepsOfPart * 2 * kStepsOfPart + step % kStepsOfPart) * kTileBytes; }

// `rows` rows (at most 16; the others become zero) of `k` F32, rounded to the nearest BF16, to [ceil(k / 32)] tiles. K past k is zero.
void RoundBf16(const float* x, int64_t x_stride, int rows, int k, uint8_t* tiles);

// Unpacked codes of one panel (UnpackCodesFn) to BF16 tiles at tiles + WeightTile(step). k is a multiple of 32. mins may be null.
//   weight = scale * (code - offset) + min in F32, times kBf16Nudge, upper 16 bits
void Bf16OfCodes(const uint8_t* codes, const float* scales, const float* mins, int k, int group, int offset, uint8_t* tiles);

// Packed chunks of Q4_0 or Q4_K to the same tiles, codes never leaving registers. k is a multiple of the chunk. Weights before the
// cut are within 0.02 % of a scale and of itself from those of Bf16OfCodes; a weight of 0 in Q4_0 is exactly 0.
void Bf16OfQ4_0(const uint8_t* chunks, int k, uint8_t* tiles);
void Bf16OfQ4_K(const uint8_t* chunks, int k, uint8_t* tiles);

// Packed chunks of a float format to at most kStepsOfPart tiles that follow each other; K past k becomes zero.
void Bf16OfF16(const uint8_t* chunks, int k, uint8_t* tiles);
void Bf16OfBf16(const uint8_t* chunks, int k, uint8_t* tiles);

// Cutting a float to its upper half loses up to a unit of BF16, always towards zero. A factor of 1 + 2^-8.5 before the cut centres
// that loss over a mantissa from 1 to 2: at most 0.7 units and 0.31 rms, where rounding to nearest has 0.5 and 0.29, for no
// instruction. Values that are BF16 already stay what they are.
constexpr float kBf16Nudge = 1.00276f;

struct Bf16Tile {
  const uint8_t* x;         // of this stretch; row blocks are `steps` tiles apart
  const uint8_t* weights;
  int steps;
  int row_blocks;
  int rows;                 // of the row blocks, from the first; what sums hold past them means nothing
  float* sums;              // [row block][panel][256], what all stretches so far add up to
  const float* bias;        // [32], where the first stretch starts; nullptr: start from sums
  const uint8_t* ahead;     // ask for these bytes while multiplying: packed weights
  int ahead_bytes;
  const uint8_t* x_ahead;   // and for these, of the next stretch
  int x_ahead_bytes;
};
using MultiplyBf16Fn = void (*)(const Bf16Tile& tile);

// Writes sums to rows of y. Those of columns [32 i, 32 i + 32) begin at sums + i * tile_stride.
struct Bf16Sums {
  const float* sums;
  int64_t tile_stride;
  int rows, columns;
  float* y;
  int64_t y_stride;
};
void StoreBf16(const Bf16Sums& sums);

// Sums of one row block and two panels, [panel][16][16], rounded to the nearest BF16: one tile of x for the next product.
void RoundSums(const float* sums, uint8_t* tile);

// What a thread does before its first product and after its last.
using ConfigureTilesFn = void (*)();

#define HONE_BF16_TILES(isa, from, from_of_groups) \
  void MultiplyTiles##isa(const Bf16Tile& tile); \
  void ConfigureTiles##isa();                    \
  void ReleaseTiles##isa();
#include "kernels/matmul/bf16_tiles.inc"
#undef HONE_BF16_TILES

}  // namespace hone
