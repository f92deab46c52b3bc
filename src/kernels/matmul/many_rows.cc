// See many_rows.h. Order of the work of a thread:
//
//   blocks of 512 rows > 16 tiles of W > stretches of 512 of K > the 16 tiles > pairs of row blocks
//
// so that a stretch of x (512 KiB) and the sums of 16 tiles (1 MiB) stay in L2, a stretch of a tile of W is unpacked once for all
// rows of the block and stays in L1, and tile registers sum 512 of K before they are stored.
#include "kernels/matmul/many_rows.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/matmul.h"

namespace hone {
namespace {

constexpr Bf16Arithmetic kBf16Arithmetics[] = {
#define HONE_BF16_TILES(isa, from, from_of_groups) {Isa::k##isa, from, from_of_groups, MultiplyTiles##isa, ConfigureTiles##isa, ReleaseTiles##isa},
#include "kernels/matmul/bf16_tiles.inc"
#undef HONE_BF16_TILES
};

int64_t Ceil(int64_t n, int64_t d) { return (n + d - 1) / d; }

// Bytes of x in tiles.
int64_t TiledBytes(int64_t m, int64_t k) { return Ceil(m, kRowsOfBlock) * Ceil(k, kStepK) * kTileBytes; }

// The bytes of one stretch of one tile of W: panel 0, panel 1.
struct StretchBytes {
  const uint8_t* begin;
  int64_t bytes;
};
StretchBytes BytesOf(const PackedMatrix& w, int64_t tile, int64_t k0) {
  const PanelFormat& format = *w.kernel().format;
  const int64_t k = std::min<int64_t>(w.k() - k0, kBf16Stretch);
  return {reinterpret_cast<const uint8_t*>(w.Find(tile, 0, k0)),
          w.panels_of(tile) * k / format.chunk * static_cast<int64_t>(format.chunk_bytes())};
}

// The stretch at k0 of a tile as BF16 tiles: in the buffer, or where it lies.
const uint8_t* Unpack(const PackedMatrix& w, int64_t tile, int64_t k0, ManyRowsBuffer& buffer) {
  const MatmulKernel& kernel = w.kernel();
  const PanelFormat& format = *kernel.format;
  const int64_t end = std::min<int64_t>(w.k(), k0 + kBf16Stretch);
  if (format.type == DType::kBF16 && w.k() % kFloatStretch == 0 && w.panels_of(tile) == 2) {
    return reinterpret_cast<const uint8_t*>(w.Find(tile, 0, k0));
  }
  for (int panel = 0; panel < w.panels_of(tile); ++panel) {
    for (int64_t at = k0; at < end; at += format.stretch()) {
      const int k = static_cast<int>(std::min<int64_t>(end - at, format.stretch()));
      const uint8_t* chunks = reinterpret_cast<const uint8_t*>(w.Find(tile, panel, at));
      uint8_t* tiles = buffer.weights + WeightTile(static_cast<int>(at - k0) / kStepK) + panel * kStepsOfPart * kTileBytes;
      if (format.is_float()) {
        (format.type == DType::kBF16 ? Bf16OfBf16 : Bf16OfF16)(chunks, k, tiles);
        continue;
      }
      if (format.type == DType::kQ4_0 || format.type == DType::kQ4_K) {
        (format.type == DType::kQ4_0 ? Bf16OfQ4_0 : Bf16OfQ4_K)(chunks, k, tiles);
        continue;
      }
      kernel.unpack->codes(chunks, k, chunks, buffer.codes, buffer.scales, buffer.mins);
      Bf16OfCodes(buffer.codes, buffer.scales, format.has_min ? buffer.mins : nullptr, k, format.group, format.offset, tiles);
    }
  }
  return buffer.weights;
}

}  // namespace

ComputeUnit UnitOf(const Bf16Arithmetic& arithmetic) {
  return arithmetic.isa >= Isa::kAmx ? ComputeUnit::kAmxBf16 : ComputeUnit::kBf16Avx512;
}

std::span<const Bf16Arithmetic> Bf16Arithmetics() { return kBf16Arithmetics; }

const Bf16Arithmetic* FindBf16Arithmetic(DType type, Isa isa) {
  if (type == DType::kF32) return nullptr;
  for (const Bf16Arithmetic& arithmetic : kBf16Arithmetics) {
    if (arithmetic.isa <= isa) return &arithmetic;
  }
  return nullptr;
}

bool TakesTiles(const PackedMatrix& weight, int64_t m) {
  const Bf16Arithmetic* arithmetic = weight.many_rows();
  if (arithmetic == nullptr) return false;
  const MatmulKernel& kernel = weight.kernel();
  return m >= (kernel.format->is_float() ? kManyRowsOfFloats : kernel.few_rows_groups ? arithmetic->from_rows_of_groups : arithmetic->from_rows);
}

void TiledInputs::Reserve(int64_t rows, int64_t k) {
  const int64_t bytes = TiledBytes(rows, k);
  if (static_cast<int64_t>(arena_.size()) < bytes) arena_ = Buffer(bytes);
}

void TiledInputs::Clear() {
  inputs_.clear();
  row_blocks_ = elements_ = 0;
}

int TiledInputs::Find(const MatmulJob& job) {
  constexpr size_t kLatest = 8;
  const int64_t k = job.weight->k();
  for (size_t i = inputs_.size(); i > 0 && inputs_.size() - i < kLatest; --i) {
    const Input& input = inputs_[i - 1];
    if (input.x == job.x && input.x_stride == job.x_stride && input.m == job.m && input.k == k) {
      return static_cast<int>(i - 1);
    }
  }
  inputs_.push_back({job.x, job.x_stride, job.m, k, nullptr});
  row_blocks_ += Ceil(job.m, kRowsOfBlock);
  elements_ += job.m * k;
  return static_cast<int>(inputs_.size() - 1);
}

int TiledInputs::Add(int64_t m, int64_t k) {
  HONE_CHECK(k % kStepK == 0);
  inputs_.push_back({nullptr, 0, m, k, nullptr});
  return static_cast<int>(inputs_.size() - 1);
}

void TiledInputs::Place() {
  int64_t bytes = 0;
  for (const Input& input : inputs_) bytes += TiledBytes(input.m, input.k);
  if (static_cast<int64_t>(arena_.size()) < bytes) arena_ = Buffer(bytes);
  uint8_t* at = arena_.as<uint8_t>();
  for (Input& input : inputs_) {
    input.tiles = at;
    at += TiledBytes(input.m, input.k);
  }
}

void TiledInputs::Round(int64_t begin, int64_t end) const {
  for (const Input& input : inputs_) {
    if (input.x == nullptr) continue;
    const int64_t blocks = Ceil(input.m, kRowsOfBlock);
    for (int64_t block = std::max<int64_t>(begin, 0); block < std::min(end, blocks); ++block) {
      const int64_t row = block * kRowsOfBlock;
      const int rows = static_cast<int>(std::min<int64_t>(kRowsOfBlock, input.m - row));
      for (int64_t k0 = 0; k0 < input.k; k0 += kBf16Stretch) {
        const int64_t k = std::min<int64_t>(kBf16Stretch, input.k - k0);
        uint8_t* tiles = input.tiles + (blocks * (k0 / kStepK) + block * Ceil(k, kStepK)) * kTileBytes;
        RoundBf16(input.x + row * input.x_stride + k0, input.x_stride, rows, static_cast<int>(k), tiles);
      }
    }
    begin -= blocks, end -= blocks;
  }
}

const uint8_t* TiledInputs::At(int index, int64_t k0, int64_t row_block) const {
  const Input& input = inputs_[index];
  const int64_t blocks = Ceil(input.m, kRowsOfBlock), steps = Ceil(std::min<int64_t>(kBf16Stretch, input.k - k0), kStepK);
  return input.tiles + (blocks * (k0 / kStepK) + row_block * steps) * kTileBytes;
}

uint8_t* TiledInputs::TileAt(int index, int64_t row_block, int64_t step) const {
  const int64_t k0 = step * kStepK / kBf16Stretch * kBf16Stretch;
  return const_cast<uint8_t*>(At(index, k0, row_block)) + (step - k0 / kStepK) * kTileBytes;
}

void SumBlocks(std::span<const BlockOfRows> blocks, const TiledInputs& inputs, ManyRowsBuffer& buffer) {
  const BlockOfRows& first = blocks.front();
  const int64_t k_all = first.weight.k(), k_end = std::max<int64_t>(k_all, 1);  // K of 0: y is the bias
  const int64_t row_blocks = Ceil(first.row_end - first.row_begin, kRowsOfBlock);
  int64_t tiles = 0;
  for (const BlockOfRows& block : blocks) tiles += block.tile_end - block.tile_begin;
  for (int64_t k0 = 0; k0 < k_end; k0 += kBf16Stretch) {
    const int steps = static_cast<int>(Ceil(std::min<int64_t>(kBf16Stretch, k_all - k0), kStepK));
    // x of the next stretch comes from L3, a part with each tile.
    const int64_t next_k0 = k0 + kBf16Stretch < k_all ? k0 + kBf16Stretch : 0;
    const int64_t x_part = row_blocks * Ceil(std::min<int64_t>(kBf16Stretch, k_all - next_k0), kStepK) * kTileBytes / tiles;
    const uint8_t* x = steps > 0 ? inputs.At(first.input, k0, first.row_begin / kRowsOfBlock) : nullptr;
    const uint8_t* x_ahead = x_part > 0 ? inputs.At(first.input, next_k0, first.row_begin / kRowsOfBlock) : nullptr;
    int64_t at = 0;
    for (const BlockOfRows& block : blocks) {
      const PackedMatrix& w = block.weight;
      for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile, ++at, x_ahead += x_part) {
        const uint8_t* weights = steps > 0 ? Unpack(w, tile, k0, buffer) : nullptr;
        StretchBytes next{nullptr, 0};
        if (tile + 1 < block.tile_end) {
          next = BytesOf(w, tile + 1, k0);
        } else if (&block != &blocks.back()) {
          next = BytesOf((&block + 1)->weight, (&block + 1)->tile_begin, k0);
        } else if (k0 + kBf16Stretch < k_all) {
          next = BytesOf(first.weight, first.tile_begin, k0 + kBf16Stretch);
        } else if (first.tile_end < first.weight.tile_count()) {
          next = BytesOf(first.weight, first.tile_end, 0);
        }
        alignas(64) float bias[kTileColumns] = {};
        const int64_t n0 = tile * kTileColumns;
        if (block.bias != nullptr) std::memcpy(bias, block.bias + n0, sizeof(float) * std::min<int64_t>(kTileColumns, w.n() - n0));
        w.many_rows()->multiply({.x = x,
                                 .weights = weights,
                                 .steps = steps,
                                 .row_blocks = static_cast<int>(row_blocks),
                                 .rows = static_cast<int>(first.row_end - first.row_begin),
                                 .sums = buffer.sums[at],
                                 .bias = k0 == 0 ? bias : nullptr,
                                 .ahead = next.begin,
                                 .ahead_bytes = static_cast<int>(next.bytes),
                                 .x_ahead = x_ahead,
                                 .x_ahead_bytes = static_cast<int>(x_part)});
      }
    }
  }
}

namespace {

// A block of a job. The sums go to y at the end, a kilobyte of a row at a time: rows of y often lie a power of two apart, so that
// the 32 of a tile would share sets of the cache.
void RunBlock(const MatmulJob& job, const TiledInputs& inputs, const BlockOfRows& block, ManyRowsBuffer& buffer) {
  SumBlocks({&block, 1}, inputs, buffer);
  const int64_t n0 = block.tile_begin * kTileColumns;
  StoreBf16(
      {.sums = buffer.sums[0],
       .tile_stride = ManyRowsBuffer::kRows * kTileColumns,
       .rows = static_cast<int>(block.row_end - block.row_begin),
       .columns = static_cast<int>(std::min((block.tile_end - block.tile_begin) * kTileColumns, job.weight->n() - n0)),
       .y = job.y + block.row_begin * job.y_stride + n0,
       .y_stride = job.y_stride});
}

}  // namespace

void RunManyRows(const MatmulJob& job, const TiledInputs& inputs, int input, int64_t tile_begin, int64_t tile_end, int64_t row_begin,
                 int64_t row_end, ManyRowsBuffer& buffer) {
  HONE_CHECK(row_begin % (2 * kRowsOfBlock) == 0);
  const Bf16Arithmetic& bf16 = *job.weight->many_rows();
  bf16.configure();
  for (int64_t row = row_begin; row < row_end; row += ManyRowsBuffer::kRows) {
    for (int64_t tile = tile_begin; tile < tile_end; tile += ManyRowsBuffer::kTiles) {
      RunBlock(job, inputs,
               {.weight = *job.weight,
                .bias = job.bias,
                .input = input,
                .tile_begin = tile,
                .tile_end = std::min(tile_end, tile + ManyRowsBuffer::kTiles),
                .row_begin = row,
                .row_end = std::min(row_end, row + ManyRowsBuffer::kRows)},
               buffer);
    }
  }
  bf16.release();
}

}  // namespace hone
