// See low_rank.h.
#include "models/low_rank.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/elementwise/elementwise.h"

namespace hone {
namespace {

constexpr int64_t kInlineProducts = 32 * 1024;  // below, waking the other threads costs more than the sums

void Reserve(int64_t floats, Buffer* buffer) {
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  if (buffer->size() < bytes) *buffer = Buffer(bytes + bytes / 2);
}

}  // namespace

void FindAdapterRows(const ForwardBatch& batch, bool logits, std::vector<AdapterRows>* out) {
  out->clear();
  int64_t row = 0;  // of batch.logit_rows
  for (const SequenceRows& sequence : batch.sequences) {
    int64_t first = sequence.first_row, rows = sequence.rows;
    if (logits) {
      first = row;
      const int64_t end = sequence.first_row + sequence.rows;
      while (row < static_cast<int64_t>(batch.logit_rows.size()) && batch.logit_rows[row] < end) ++row;
      rows = row - first;
    }
    if (sequence.adapter == nullptr || rows == 0) continue;
    const auto* adapter = static_cast<const LowRankAdapter*>(sequence.adapter);
    if (!out->empty() && out->back().adapter == adapter && out->back().first + out->back().rows == first) {
      out->back().rows += rows;
    } else {
      out->push_back({adapter, first, rows});
    }
  }
}

void AddLowRank(std::span<const MatmulJob> jobs, std::span<const AdapterRows> rows, LowRankScratch& scratch, MatmulScratch& matmul,
                const Runtime& runtime) {
  scratch.sums.clear();
  int64_t low = 0, delta = 0;
  for (const AdapterRows& group : rows) {
    for (const MatmulJob& job : jobs) {
      const LowRankUpdate* update = group.adapter->Find(job.weight);
      if (update == nullptr) continue;
      HONE_CHECK(group.first + group.rows <= job.m, "an adapter has rows that the product lacks");
      scratch.sums.push_back({&job, update, group.first, group.rows, low, delta});
      low += (group.rows * update->a.n() + 15) / 16 * 16;
      delta += (group.rows * update->b.n() + 15) / 16 * 16;
    }
  }
  if (scratch.sums.empty()) return;
  Reserve(low, &scratch.low);
  Reserve(delta, &scratch.delta);
  float* const lows = scratch.low.as<float>();
  float* const deltas = scratch.delta.as<float>();

  scratch.jobs.clear();
  for (const LowRankScratch::Sum& sum : scratch.sums) {
    scratch.jobs.push_back({.weight = &sum.update->a,
                            .x = sum.job->x + sum.first * sum.job->x_stride,
                            .x_stride = sum.job->x_stride,
                            .y = lows + sum.low,
                            .y_stride = sum.update->a.n(),
                            .m = sum.rows});
  }
  Matmul(scratch.jobs, matmul, *runtime.threads);
  scratch.jobs.clear();
  for (const LowRankScratch::Sum& sum : scratch.sums) {
    scratch.jobs.push_back({.weight = &sum.update->b,
                            .x = lows + sum.low,
                            .x_stride = sum.update->a.n(),
                            .y = deltas + sum.delta,
                            .y_stride = sum.update->b.n(),
                            .m = sum.rows});
  }
  Matmul(scratch.jobs, matmul, *runtime.threads);
  for (const LowRankScratch::Sum& sum : scratch.sums) {
    const int64_t n = sum.update->b.n();
    const auto add = [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const int64_t row = static_cast<int64_t>(i);
        AddScaled(sum.job->y + (sum.first + row) * sum.job->y_stride, deltas + sum.delta + row * n, sum.update->scale, n, runtime.isa);
      }
    };
    if (sum.rows * n <= kInlineProducts) {
      add(0, static_cast<size_t>(sum.rows));
    } else {
      runtime.threads->ParallelFor(static_cast<size_t>(sum.rows), 1, add);
    }
  }
}

}  // namespace hone
