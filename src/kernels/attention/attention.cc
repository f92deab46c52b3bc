// The plan of attention: which kernel, and how sequences x KV heads x query tiles (x chunks of keys) are shared by the threads.
// No arithmetic on values here: results are the same for every plan (task.h says why).
#include "kernels/attention/attention.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <vector>

#include "base/check.h"
#include "kernels/attention/task.h"

namespace hone {

#define HONE_ATTENTION_KERNEL(name, level, tile_rows, splits, heads) \
  void Attention##name(const AttentionTask& task) noexcept;          \
  void AttentionMerge##name(const AttentionTask& task) noexcept;     \
  void KvStore##name(const KvStoreTask& task) noexcept;
#include "kernels/attention/kernels.inc"
#undef HONE_ATTENTION_KERNEL

namespace {

struct Kernels {
  Isa level;
  int tile_rows;
  bool splits, heads;
  AttentionKernel attention;
  AttentionMergeKernel merge;
  KvStoreKernel store;
};

constexpr Kernels kKernels[] = {
#define HONE_ATTENTION_KERNEL(name, level, tile_rows, splits, heads) \
  {Isa::level, tile_rows, splits, heads, Attention##name, AttentionMerge##name, KvStore##name},
#include "kernels/attention/kernels.inc"
#undef HONE_ATTENTION_KERNEL
};

// Kernels on BF16 tiles round q and weights, so they take neither exact calls nor F32 caches; wide heads would not fit their memory.
bool OnTiles(Isa level) { return level >= Isa::kBf16; }
bool TakesTiles(const KvView& kv, bool exact) {
  return !exact && kv.type != KvType::kF32 && kv.head_width <= kTilesHeadWidth;
}

// Tiles read a copy of an I8 cache in BF16, made once a call: for so few flat rows of all sequences F32 arithmetic, which widens
// codes in registers, takes half the time.
constexpr int kFewFlatRows = 8;
bool FewRowsOfCodes(std::span<const AttentionJob> jobs, int heads) {
  return std::all_of(jobs.begin(), jobs.end(), [heads](const AttentionJob& job) {
    return job.kv.type == KvType::kI8 && job.rows * (heads / job.kv.kv_heads) <= kFewFlatRows;
  });
}

const Kernels& Choose(Isa isa, bool tiles) {
  for (const Kernels& kernels : kKernels) {
    if (isa >= kernels.level && (tiles || !OnTiles(kernels.level))) return kernels;
  }
  HONE_CHECK(false, "the scalar kernel is always listed");
  return kKernels[0];
}

// Below this many multiply-adds (about two microseconds of one core) waking other threads costs more than it gives.
constexpr int64_t kInlineWork = 64 * 1024;
// A row costs at least as much as reading the keys and values: tiles with few rows are charged for this many.
constexpr int kLeastCostRows = 8;

// Tasks of several heads read so many bytes of a block, which are asked for ahead (attention_query_bf16.h), at most, ...
constexpr size_t kTaskBlockBytes = 32 * 1024;
// ... and a thread has so many tasks where there are heads enough.
constexpr int kTasksOfThread = 2;

int Blocks(int tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

// One sequence of the call: its tiles, or, where it has too few of them for the threads, its chunks.
struct JobPlan {
  int flat_rows = 0, tiles = 0;
  int chunk_begin = 0, chunk_end = 0;  // that its rows see
  bool of_a_query = false;             // tasks are those of one query with `heads` KV heads (the last may have fewer)
  int heads = 1;
  int64_t items_per_head = 0;          // (or for so many): tiles, or chunks where split
  float* partials = nullptr;           // not nullptr: split
  int64_t partial_floats_per_head = 0;
};

class Plan {
 public:
  Plan(std::span<const AttentionJob> jobs, const AttentionParams& params, const Kernels& kernels)
      : jobs_(jobs), params_(params), kernels_(kernels), window_(params.window > 0 ? params.window : INT_MAX),
        tile_rows_(kernels.tile_rows) {}

  // Tasks on tiles share each read of keys and values among as many rows as their memory holds, while every thread has a few tasks.
  void SizeTiles(int threads) {
    if (!OnTiles(kernels_.level)) return;
    int64_t heads_rows = 0, widest = 1;
    for (const AttentionJob& job : jobs_) {
      heads_rows += int64_t{job.rows} * params_.heads;
      widest = std::max<int64_t>(widest, job.kv.head_width);
    }
    const int64_t most = kTilesTaskNumbers / ((widest + 31) / 32 * 32) / 32 * 32;
    tile_rows_ = static_cast<int>(std::min<int64_t>(tile_rows_, most));
    while (tile_rows_ > 64 && heads_rows < int64_t{tile_rows_} * threads * 4) tile_rows_ = (tile_rows_ / 2 + 31) / 32 * 32;
  }

  // Tasks of one query take several heads, which lie side by side in a block, while every thread has a few tasks.
  void SizeHeads(int threads) {
    if (!kernels_.heads) return;
    for (task_heads_ = kQueryTaskHeads; task_heads_ > 1; task_heads_ /= 2) {
      int64_t tasks = 0;
      for (const AttentionJob& job : jobs_) tasks += Parts(job, Shape(job));
      if (tasks >= int64_t{threads} * kTasksOfThread) return;
    }
  }

  int64_t work() const { return work_; }

  // Counts tiles and their cost. Of any plan, the values are the same; this one keeps `threads` threads equally busy.
  void Measure() {
    for (const AttentionJob& job : jobs_) {
      const JobPlan plan = Shape(job);
      int64_t head_cost = 0;
      for (int tile = 0; tile < plan.tiles; ++tile) {
        const int64_t cost = TileCost(job, plan, tile);
        head_cost += cost;
        largest_cost_ = std::max(largest_cost_, cost * plan.heads);
      }
      total_cost_ += head_cost * job.kv.kv_heads;
      work_ += head_cost * job.kv.kv_heads * kKvBlockTokens * 2 * job.kv.head_width;
    }
  }

  // Splits decoding sequences by chunks where their tasks are too long for an even share.
  void SplitFor(int threads) {
    threads_ = threads;
    split_ = kernels_.splits && threads > 1 && largest_cost_ * threads * 8 > total_cost_ * 9;
    if (!split_) return;
    size_t floats = 0;
    for (const AttentionJob& job : jobs_) floats += PartialFloats(job, Shape(job));
    if (floats == 0) {
      split_ = false;
      return;
    }
    partials_.resize(floats);
  }

  void Run(ThreadPool& threads) {
    std::atomic<int64_t> next{0}, next_merge{0};
    threads.Run([&](int) {
      Drain(&next, [&](const AttentionJob& job, const JobPlan& plan, int head, int64_t item) {
        kernels_.attention(Task(job, plan, head, item));
      });
      if (!split_) return;
      threads.Barrier();
      DrainMerges(&next_merge);
    });
  }

  void RunInline() {
    std::atomic<int64_t> next{0};
    Drain(&next, [&](const AttentionJob& job, const JobPlan& plan, int head, int64_t item) {
      kernels_.attention(Task(job, plan, head, item));
    });
  }

 private:
  JobPlan Shape(const AttentionJob& job) const {
    JobPlan plan;
    plan.flat_rows = job.rows * (params_.heads / job.kv.kv_heads);
    plan.tiles = (plan.flat_rows + tile_rows_ - 1) / tile_rows_;
    plan.chunk_begin = FirstSeen(job.first_position) / kAttentionChunk;
    plan.chunk_end = (job.first_position + std::max(job.rows, 1) - 1) / kAttentionChunk + 1;
    plan.items_per_head = plan.tiles;
    // task.h says which tasks may have several heads.
    const int width = job.kv.head_width;
    if (task_heads_ > 0 && job.rows == 1 && job.kv.type == KvType::kBF16 && width % 32 == 0 && plan.flat_rows <= kQueryTaskRows) {
      const int most = static_cast<int>(kTaskBlockBytes / (2 * KvHeadBlockBytes(job.kv.type, width)));
      const int heads = std::clamp(most, 1, std::min(task_heads_, job.kv.kv_heads));
      const int parts = (job.kv.kv_heads + heads - 1) / heads;
      plan.heads = (job.kv.kv_heads + parts - 1) / parts;
      plan.of_a_query = true;
    }
    return plan;
  }

  // Tasks side by side that take all heads.
  static int Parts(const AttentionJob& job, const JobPlan& plan) { return (job.kv.kv_heads + plan.heads - 1) / plan.heads; }

  int FirstSeen(int position) const { return window_ > position ? 0 : position - (window_ - 1); }

  int TileBegin(int tile) const { return tile * tile_rows_; }
  int TileEnd(const JobPlan& plan, int tile) const { return std::min(plan.flat_rows, (tile + 1) * tile_rows_); }

  // In rows x blocks.
  int64_t TileCost(const AttentionJob& job, const JobPlan& plan, int tile) const {
    const int group = params_.heads / job.kv.kv_heads;
    const int first = job.first_position + TileBegin(tile) / group;
    const int last = job.first_position + (TileEnd(plan, tile) - 1) / group;
    const int blocks = Blocks(last + 1) - FirstSeen(first) / kKvBlockTokens;
    return int64_t{blocks} * std::max(kLeastCostRows, TileEnd(plan, tile) - TileBegin(tile));
  }

  // Floats of partial results where the job is worth splitting, else 0.
  size_t PartialFloats(const AttentionJob& job, const JobPlan& plan) const {
    const int chunks = plan.chunk_end - plan.chunk_begin;
    if (plan.tiles != 1 || chunks < 2 || TileCost(job, plan, 0) * threads_ * 2 < total_cost_) return 0;
    return static_cast<size_t>(job.kv.kv_heads) * chunks * plan.flat_rows * AttentionPartialFloats(job.kv.head_width);
  }

  // The job's plan with its share of the partials, which start `*offset` floats in.
  JobPlan Place(const AttentionJob& job, size_t* offset) {
    JobPlan plan = Shape(job);
    const size_t floats = split_ ? PartialFloats(job, plan) : 0;
    if (floats > 0) {
      plan.partials = partials_.data() + *offset;
      plan.partial_floats_per_head = static_cast<int64_t>(floats) / job.kv.kv_heads;
      plan.items_per_head = plan.chunk_end - plan.chunk_begin;
      *offset += floats;
    }
    return plan;
  }

  // Takes items from the shared counter until none is left. Items are numbered by job, KV head, then tile; a head's last
  // tiles, which see most keys, come first, so that the last items of the call are short.
  template <typename Work>
  void Drain(std::atomic<int64_t>* next, Work work) {
    int64_t item = next->fetch_add(1, std::memory_order_relaxed), first = 0;
    size_t offset = 0;
    for (const AttentionJob& job : jobs_) {
      const JobPlan plan = Place(job, &offset);
      const int64_t items = plan.items_per_head * Parts(job, plan);
      while (item < first + items) {
        const int64_t local = item - first;
        const int64_t in_head = plan.items_per_head - 1 - local % plan.items_per_head;
        work(job, plan, static_cast<int>(local / plan.items_per_head) * plan.heads, in_head);
        item = next->fetch_add(1, std::memory_order_relaxed);
      }
      first += items;
    }
  }

  void DrainMerges(std::atomic<int64_t>* next) {
    int64_t item = next->fetch_add(1, std::memory_order_relaxed), first = 0;
    size_t offset = 0;
    for (const AttentionJob& job : jobs_) {
      const JobPlan plan = Place(job, &offset);
      if (plan.partials == nullptr) continue;
      while (item < first + job.kv.kv_heads) {
        AttentionTask task = Task(job, plan, static_cast<int>(item - first), 0);
        task.chunk_begin = plan.chunk_begin;
        task.chunk_end = plan.chunk_end;
        kernels_.merge(task);
        item = next->fetch_add(1, std::memory_order_relaxed);
      }
      first += job.kv.kv_heads;
    }
  }

  AttentionTask Task(const AttentionJob& job, const JobPlan& plan, int head, int64_t item) const {
    const int width = job.kv.head_width, group = params_.heads / job.kv.kv_heads;
    const size_t head_bytes = KvHeadBlockBytes(job.kv.type, width);
    AttentionTask task;
    task.q = job.q + int64_t{head} * group * width;
    task.q_stride = job.q_stride;
    task.out = job.out + int64_t{head} * group * width;
    task.out_stride = job.out_stride;
    task.group = group;
    task.head_width = width;
    task.first_position = job.first_position;
    task.type = job.kv.type;
    task.keys = job.kv.keys + head * head_bytes;
    task.values = job.kv.values + head * head_bytes;
    task.block_stride = job.kv.block_stride;
    task.blocks = job.kv.blocks;
    task.scale = params_.scale;
    task.soft_cap = params_.soft_cap;
    task.window = window_;
    task.sinks = params_.sinks != nullptr ? params_.sinks + int64_t{head} * group : nullptr;
    if (plan.of_a_query) task.heads = std::min(plan.heads, job.kv.kv_heads - head);
    task.partials_stride = plan.partial_floats_per_head;
    if (plan.partials != nullptr) {
      task.row_end = plan.flat_rows;
      task.chunk_begin = plan.chunk_begin + static_cast<int>(item);
      task.chunk_end = task.chunk_begin + 1;
      task.partials = plan.partials + head * plan.partial_floats_per_head;
      task.partials_chunk = plan.chunk_begin;
    } else {
      task.row_begin = TileBegin(static_cast<int>(item));
      task.row_end = TileEnd(plan, static_cast<int>(item));
      task.chunk_begin = FirstSeen(job.first_position + task.row_begin / group) / kAttentionChunk;
      task.chunk_end = (job.first_position + (task.row_end - 1) / group) / kAttentionChunk + 1;
    }
    return task;
  }

  const std::span<const AttentionJob> jobs_;
  const AttentionParams& params_;
  const Kernels& kernels_;
  const int window_;
  int tile_rows_;
  int task_heads_ = 0;  // at most, of a task of one query; 0: the kernel takes one by one
  int threads_ = 1;
  int64_t total_cost_ = 0, largest_cost_ = 0, work_ = 0;
  bool split_ = false;
  std::vector<float> partials_;  // [job][KV head][chunk][flat row][AttentionPartialFloats]
};

void Store(const KvStoreJob& job, int head, int block, KvStoreKernel kernel) {
  const int width = job.kv.head_width;
  const int begin = std::max(job.first_position, block * kKvBlockTokens);
  const int end = std::min(job.first_position + job.rows, (block + 1) * kKvBlockTokens);
  KvStoreTask task;
  task.k = job.k + int64_t{begin - job.first_position} * job.k_stride + int64_t{head} * width;
  task.k_stride = job.k_stride;
  task.v = job.v + int64_t{begin - job.first_position} * job.v_stride + int64_t{head} * width;
  task.v_stride = job.v_stride;
  task.rows = end - begin;
  task.place = begin - block * kKvBlockTokens;
  task.head_width = width;
  task.type = job.kv.type;
  task.keys = job.kv.KeyBlock(head, block);
  task.values = job.kv.ValueBlock(head, block);
  kernel(task);
}

}  // namespace

void StoreKv(std::span<const KvStoreJob> jobs, Isa isa, ThreadPool& threads) {
  const KvStoreKernel kernel = Choose(isa, true).store;
  int64_t numbers = 0, items = 0;
  for (const KvStoreJob& job : jobs) {
    HONE_CHECK(job.kv.head_width >= 1 && job.kv.head_width <= kMaxHeadWidth && job.first_position >= 0);
    if (job.rows <= 0) continue;
    numbers += int64_t{2} * job.rows * job.kv.kv_heads * job.kv.head_width;
    items += int64_t{job.kv.kv_heads} * (Blocks(job.first_position + job.rows) - job.first_position / kKvBlockTokens);
  }
  const auto store_items = [&](size_t begin, size_t end) {
    int64_t first = 0;
    for (const KvStoreJob& job : jobs) {
      if (job.rows <= 0) continue;
      const int first_block = job.first_position / kKvBlockTokens;
      const int blocks = Blocks(job.first_position + job.rows) - first_block;
      const int64_t count = int64_t{job.kv.kv_heads} * blocks;
      const int64_t from = std::max<int64_t>(begin, first) - first, to = std::min<int64_t>(end, first + count) - first;
      for (int64_t item = from; item < to; ++item) {
        Store(job, static_cast<int>(item / blocks), first_block + static_cast<int>(item % blocks), kernel);
      }
      first += count;
    }
  };
  if (numbers < kInlineWork / 2) return store_items(0, static_cast<size_t>(items));
  threads.ParallelFor(static_cast<size_t>(items), 1, store_items);
}

void Attention(std::span<const AttentionJob> jobs, const AttentionParams& params, Isa isa, ThreadPool& threads) {
  bool tiles = true;
  for (const AttentionJob& job : jobs) {
    HONE_CHECK(job.kv.head_width >= 1 && job.kv.head_width <= kMaxHeadWidth && job.first_position >= 0);
    HONE_CHECK(job.kv.kv_heads >= 1 && params.heads % job.kv.kv_heads == 0);
    tiles = tiles && TakesTiles(job.kv, params.exact);
  }
  tiles = tiles && !(params.fastest_for_few && FewRowsOfCodes(jobs, params.heads));
  Plan plan(jobs, params, Choose(isa, tiles));
  plan.SizeTiles(threads.count());
  plan.SizeHeads(threads.count());
  plan.Measure();
  if (threads.count() == 1 || plan.work() < kInlineWork) return plan.RunInline();
  plan.SplitFor(threads.count());
  plan.Run(threads);
}

}  // namespace hone
