// What the plan in attention.cc hands to one kernel: plain structs and function types, so that kernel files for an ISA include
// nothing with code in it.
//
// The rows of a task are the flat rows of one KV head of one sequence: flat row r is query r / group with query head r % group
// of that KV head, so the heads that share keys and values are neighbours and rows are sorted by position.
//
// The rule that makes values independent of the plan: positions are cut into chunks of kAttentionChunk tokens at fixed places.
// A row's softmax runs over the 32-token blocks of a chunk in order, and the chunks' results (max, sum, weighted values) are
// merged in order of the chunks. A task may hold all chunks of its rows, or one chunk (its results then go to `partials` and
// are merged by the kernel's second function): the arithmetic is the same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/attention/kv_view.h"

namespace hone {

inline constexpr int kAttentionChunk = 512;     // tokens, a multiple of kKvBlockTokens
inline constexpr int kAttentionTileRows = 48;   // most flat rows of a task: whole panels of 12 (AVX-512) and 6 (AVX2) rows

inline constexpr int kTilesHeadWidth = 256;      // the largest E of a kernel on BF16 tiles
inline constexpr int kTilesTaskRows = 256;       // the most flat rows of one of its tasks
inline constexpr int kTilesTaskNumbers = 32768;  // and the most rows x E (E rounded up to 32)

inline constexpr int kQueryTaskHeads = 8;  // the most KV heads of a task of one query (AttentionTask::heads)
inline constexpr int kQueryTaskRows = 8;   // and the most rows of each

// Floats of one row's result of one chunk: max (of scores in log2 units), sum, 14 unused, then the values in whole vectors.
inline constexpr int AttentionPartialFloats(int head_width) { return 16 + (head_width + 15) / 16 * 16; }

struct AttentionTask {
  const float* q = nullptr;   // query i, head h of the group: q + i * q_stride + h * head_width
  int64_t q_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  int row_begin = 0, row_end = 0;  // flat rows
  int group = 1;                   // H / G
  int head_width = 0;
  int first_position = 0;          // position of query 0
  // 0: one KV head, any rows. Else all rows of the only query of so many neighbouring KV heads (kernels.inc says who takes such tasks);
  // q, out, keys, values, sinks and partials are then those of the first.
  // REQUIRES then: BF16, head_width a multiple of 32 up to kTilesHeadWidth, heads <= kQueryTaskHeads, group <= kQueryTaskRows.
  int heads = 0;

  KvType type = KvType::kF32;
  const std::byte* keys = nullptr;     // of this KV head in block id 0
  const std::byte* values = nullptr;
  size_t block_stride = 0;
  const int32_t* blocks = nullptr;

  float scale = 1, soft_cap = 0;
  int window = 0;                  // at least 1: how many positions a row sees, itself the last (INT_MAX: all)
  const float* sinks = nullptr;    // of the group's heads, or nullptr

  int chunk_begin = 0, chunk_end = 0;
  // nullptr: the task holds every chunk that its rows see, and writes `out`. Else the result of row r of chunk c goes to
  // partials + ((c - partials_chunk) * (row_end - row_begin) + r - row_begin) * AttentionPartialFloats(head_width).
  float* partials = nullptr;
  int partials_chunk = 0;
  int64_t partials_stride = 0;         // floats from a head's partials to the next one's, if there are several
};

using AttentionKernel = void (*)(const AttentionTask& task) noexcept;

// The task's rows from the partials of chunks [chunk_begin, chunk_end) to `out`.
using AttentionMergeKernel = void (*)(const AttentionTask& task) noexcept;

// I8: numbers of a token that are all smaller than this become 0 (127 / largest could overflow).
inline constexpr float kLeastI8Magnitude = 0x1.0p-100f;

// Stores rows [0, rows) of one KV head into one block, at places [place, place + rows), as kv_view.h lays it out.
struct KvStoreTask {
  const float* k = nullptr;
  int64_t k_stride = 0;
  const float* v = nullptr;
  int64_t v_stride = 0;
  int rows = 0, place = 0, head_width = 0;
  KvType type = KvType::kF32;
  std::byte* keys = nullptr;    // of this KV head in this block
  std::byte* values = nullptr;
};

using KvStoreKernel = void (*)(const KvStoreTask& task) noexcept;

}  // namespace hone
