// The path of Matmul for many rows: weights unpacked to BF16 tiles, x rounded to BF16, products in tiles (bf16_tiles.h has the
// layouts and the arithmetic). Matmul takes it for jobs of enough rows whose weight allows it; no intrinsics here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/cpu.h"
#include "base/memory.h"
#include "kernels/matmul/bf16_tiles.h"
#include "kernels/matmul/roof.h"
#include "tensor/dtype.h"

namespace hone {

class PackedMatrix;
struct MatmulJob;

struct Bf16Arithmetic {
  Isa isa;
  int64_t from_rows;            // of a job with codes: unpacking costs as much as so many rows of int8 products
  int64_t from_rows_of_groups;  // the same where kernels of few rows take groups (matmul.cc)
  MultiplyBf16Fn multiply;
  ConfigureTilesFn configure, release;
};

// The lines of bf16_tiles.inc, best first.
std::span<const Bf16Arithmetic> Bf16Arithmetics();

// The best of at most `isa` for weights of this type; nullptr if there is none (F32 weights keep their precision).
const Bf16Arithmetic* FindBf16Arithmetic(DType type, Isa isa);

// The unit that its products run on.
ComputeUnit UnitOf(const Bf16Arithmetic& arithmetic);

// Rows of a job with float weights from which this path is faster; the kernels of few rows (few_rows.h) come first.
constexpr int64_t kManyRowsOfFloats = 5;

// Whether a job of `m` rows takes this path.
bool TakesTiles(const PackedMatrix& weight, int64_t m);

// Rows of x as BF16 tiles, shared by the jobs that multiply them:
//   [stretch of K][row block][step][tile], row blocks of 16 rows
class TiledInputs {
 public:
  // Reserves for inputs of together `rows` rows of `k` elements.
  void Reserve(int64_t rows, int64_t k);
  void Clear();
  // Index of the input of `job`; the same for jobs with the same x, x_stride, m and k that stand close together.
  int Find(const MatmulJob& job);
  // An input of `m` rows of `k` elements, a multiple of 32, that has no x: its tiles are written with TileAt.
  int Add(int64_t m, int64_t k);
  void Place();  // after the last Find or Add

  int64_t row_blocks() const { return row_blocks_; }    // of all inputs, laid end to end
  int64_t elements() const { return elements_; }
  void Round(int64_t begin, int64_t end) const;         // those row blocks
  // Where the stretch at k0 of a row block lies; its row blocks follow each other.
  const uint8_t* At(int input, int64_t k0, int64_t row_block) const;
  uint8_t* TileAt(int input, int64_t row_block, int64_t step) const;

 private:
  struct Input {
    const float* x;
    int64_t x_stride, m, k;
    uint8_t* tiles;
  };
  std::vector<Input> inputs_;
  Buffer arena_;
  int64_t row_blocks_ = 0, elements_ = 0;
};

// What one thread needs: a stretch of two panels, codes on the way to it, sums between stretches.
struct ManyRowsBuffer {
  static constexpr int64_t kRows = 512;  // of a block: their stretch takes 512 KiB of L2
  static constexpr int64_t kTiles = 16;  // of W that one pass over K serves: sums of 1 MiB
  alignas(64) uint8_t weights[kBf16Stretch / kStepK * 2 * kTileBytes];
  alignas(64) uint8_t codes[kBf16Stretch * kPanelRows];
  alignas(64) float scales[kBf16Stretch / 16 * kPanelRows];
  alignas(64) float mins[kBf16Stretch / 16 * kPanelRows];
  alignas(64) float sums[kTiles][kRows * kTileColumns];
};

// A block: tiles of a weight by at most ManyRowsBuffer::kRows rows from row_begin, a multiple of 32, all of K.
struct BlockOfRows {
  const PackedMatrix& weight;
  const float* bias;  // or nullptr
  int input;
  int64_t tile_begin, tile_end, row_begin, row_end;
};
// Sums of blocks of the same input, rows and K, together at most ManyRowsBuffer::kTiles tiles: those of tile i of them all to
// buffer.sums[i], which lies as Bf16Tile::sums says. REQUIRES: the thread's tiles are configured.
void SumBlocks(std::span<const BlockOfRows> blocks, const TiledInputs& inputs, ManyRowsBuffer& buffer);

// Tiles [tile_begin, tile_end) of the job's weight by rows [row_begin, row_end). row_begin is a multiple of 32.
// The calling thread's tiles are configured on the way in and released on the way out.
void RunManyRows(const MatmulJob& job, const TiledInputs& inputs, int input, int64_t tile_begin, int64_t tile_end, int64_t row_begin,
                 int64_t row_end, ManyRowsBuffer& buffer);

}  // namespace hone
