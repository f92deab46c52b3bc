// See gated_product.h. A thread takes units: a block of rows by eight tiles of gate and the same eight of up, whose sums together
// take the room of one block of many_rows.h; then, after a barrier, blocks of down.
#include "kernels/matmul/gated_product.h"

#include <algorithm>

#include "base/check.h"
#include "base/memory.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/many_rows.h"

namespace hone {
namespace {

constexpr int64_t kTilesOfUnit = ManyRowsBuffer::kTiles / 2;

int64_t CeilDiv(int64_t n, int64_t d) { return (n + d - 1) / d; }

}  // namespace

struct GatedProduct::State {
  TiledInputs inputs;
  Buffer buffers;  // ManyRowsBuffer a thread
};

GatedProduct::GatedProduct(int64_t max_rows, int64_t max_k, int64_t max_f) : state_(std::make_unique<State>()) {
  if (max_f > 0) state_->inputs.Reserve(max_rows, CeilDiv(max_k, kStepK) * kStepK + max_f);
}
GatedProduct::~GatedProduct() = default;
GatedProduct::GatedProduct(GatedProduct&&) noexcept = default;
GatedProduct& GatedProduct::operator=(GatedProduct&&) noexcept = default;

bool GatedProduct::Run(const GatedJob& job, ThreadPool& threads) {
  const PackedMatrix &gate = *job.gate, &up = *job.up, &down = *job.down;
  HONE_CHECK(gate.n() == up.n() && gate.k() == up.k() && down.k() == gate.n());
  if (job.m == 0 || gate.n() % kTileColumns != 0 || !TakesTiles(gate, job.m) || !TakesTiles(up, job.m) || !TakesTiles(down, job.m)) {
    return false;
  }
  const Bf16Arithmetic& bf16 = *gate.many_rows();
  if (up.many_rows() != &bf16 || down.many_rows() != &bf16) return false;

  TiledInputs& inputs = state_->inputs;
  inputs.Clear();
  const int x = inputs.Find({.weight = &gate, .x = job.x, .x_stride = job.x_stride, .m = job.m});
  const int hidden = inputs.Add(job.m, gate.n());
  inputs.Place();
  const size_t stride = CeilDiv(sizeof(ManyRowsBuffer), 4096) * 4096;
  if (state_->buffers.size() < stride * threads.count()) state_->buffers = Buffer(stride * threads.count());

  const auto unit = [&](int64_t tile, int64_t row, ManyRowsBuffer& buffer) {
    const int64_t tile_end = std::min(gate.tile_count(), tile + kTilesOfUnit), tiles = tile_end - tile;
    const int64_t row_end = std::min(job.m, row + ManyRowsBuffer::kRows);
    const BlockOfRows blocks[] = {{gate, job.gate_bias, x, tile, tile_end, row, row_end},
                                  {up, job.up_bias, x, tile, tile_end, row, row_end}};
    SumBlocks(blocks, inputs, buffer);
    constexpr int64_t kFloats = kRowsOfBlock * kTileColumns;
    for (int64_t i = 0; i < tiles; ++i) {
      for (int64_t at = 0; at < CeilDiv(row_end - row, kRowsOfBlock); ++at) {
        float* sums = buffer.sums[i] + at * kFloats;
        (*job.activate)(sums, buffer.sums[tiles + i] + at * kFloats, kFloats);
        RoundSums(sums, inputs.TileAt(hidden, row / kRowsOfBlock + at, tile + i));
      }
    }
  };

  const MatmulJob last{&down, nullptr, 0, job.y, job.y_stride, job.m, job.down_bias};
  threads.Run([&](int worker) {
    ManyRowsBuffer& buffer = *reinterpret_cast<ManyRowsBuffer*>(state_->buffers.data() + stride * worker);
    const auto rows = threads.Range(inputs.row_blocks(), 1, worker);
    inputs.Round(rows.first, rows.second);
    threads.Barrier();
    bf16.configure();
    const auto [begin, end] = threads.Range(gate.tile_count(), 1, worker);
    for (int64_t row = 0; row < job.m; row += ManyRowsBuffer::kRows) {
      for (int64_t tile = begin; tile < static_cast<int64_t>(end); tile += kTilesOfUnit) unit(tile, row, buffer);
    }
    bf16.release();
    threads.Barrier();
    const auto tiles = threads.Range(down.tile_count(), 1, worker);
    if (tiles.first < tiles.second) RunManyRows(last, inputs, hidden, tiles.first, tiles.second, 0, job.m, buffer);
  });
  return true;
}

}  // namespace hone
