// Attention on Vecs: included by attention_avx2.cc and attention_avx512.cc after their Vec and simd/functions.h.
//
// A task's rows (at most kAttentionTileRows) meet the keys one 32-token block at a time:
//
//   scores[r][t] = sum_e q[r][e] k[e][t]     lanes are tokens, e in order, one FMA each    (attention_panels.h)
//   online softmax of the row over the block: max, rescale, weights                        (here)
//   acc[r][e]   += sum_t weight[r][t] v[t][e]  lanes are widths, t in order, one FMA each  (attention_panels.h)
//
// Every row does exactly these operations for exactly the blocks that it sees, whichever rows share its tile: so a row's bits
// do not depend on the plan. Scores are in log2 units (log2 e is folded into q, or into the soft cap), weights are 2^x.
#pragma once

#include "kernels/attention/attention_panels.h"
#include "kernels/attention/task.h"

namespace hone {
namespace {

constexpr float kLog2E = 1.44269504088896340736f;
constexpr float kInfinity = __builtin_inff();
constexpr int kBlock = kKvBlockTokens;

inline int MinOf(int a, int b) { return a < b ? a : b; }
inline int MaxOf(int a, int b) { return a > b ? a : b; }

// A task at work: its rows, and the state of their softmax in the current chunk. Arrays lie in one stack buffer.
struct Tile {
  const AttentionTask& task;
  int rows, width, padded;   // padded: width in whole Vecs
  int last[kAttentionTileRows];    // position of each row, the last one that it sees; rising
  int first[kAttentionTileRows];   // the first one that it sees; rising
  alignas(64) float max[kAttentionTileRows];         // in the current chunk so far
  alignas(64) float correction[kAttentionTileRows];  // 2^(old max - new max) of the current block
  float* q;        // panels of kPanelRows: [panel][e][kPanelRows], scaled
  float* sums;     // [row][kLanes] of weights
  float* acc;      // [row][padded]
  float* scores;   // [row][32], later weights
  float* keys;     // [E][32] in F32, where a block is used by several panels
  float* values;   // [32][padded] in F32, likewise
  bool direct;     // one panel: keys and values are widened where they are used
  const float* key_scales;    // [32] of the current block, I8 only
  const float* value_scales;
};

// Rows [begin, end) of the tile that see block `b`.
struct RowRange { int begin, end; };

inline RowRange RowsThatSee(const Tile& tile, int b) {
  RowRange range{0, tile.rows};
  while (range.begin < tile.rows && tile.last[range.begin] < b * kBlock) ++range.begin;
  while (range.end > range.begin && tile.first[range.end - 1] >= (b + 1) * kBlock) --range.end;
  return range;
}

// 1 where no soft cap is set, else what a score is multiplied with after tanh.
inline float QueryScale(const AttentionTask& task) {
  return task.soft_cap > 0 ? task.scale / task.soft_cap : task.scale * kLog2E;
}

inline void PackQueries(Tile* tile) {
  const AttentionTask& task = tile->task;
  const float scale = QueryScale(task);
  for (int r = 0; r < tile->rows; ++r) {
    const int flat = task.row_begin + r, query = flat / task.group;
    tile->last[r] = task.first_position + query;
    tile->first[r] = MaxOf(0, tile->last[r] - (task.window - 1));
    const float* q = task.q + query * task.q_stride + static_cast<int64_t>(flat % task.group) * tile->width;
    float* packed = tile->q + static_cast<int64_t>(r / kPanelRows) * tile->width * kPanelRows + r % kPanelRows;
    for (int e = 0; e < tile->width; ++e) packed[static_cast<int64_t>(e) * kPanelRows] = q[e] * scale;
  }
}

inline void ResetChunk(Tile* tile) {
  for (int r = 0; r < kAttentionTileRows; ++r) tile->max[r] = -kInfinity;
  for (int i = 0; i < tile->rows * Vec::kLanes; i += Vec::kLanes) Vec::Zero().Store(tile->sums + i);
  for (int i = 0; i < tile->rows * tile->padded; i += Vec::kLanes) Vec::Zero().Store(tile->acc + i);
}

// Places [begin, end) of block `b` that row r sees.
inline RowRange PlacesSeen(const Tile& tile, int r, int b) {
  return {MaxOf(0, tile.first[r] - b * kBlock), MinOf(kBlock, tile.last[r] + 1 - b * kBlock)};
}

// The largest score of a row in block `b` to `largest`; places that the row does not see become -inf.
inline void LimitScores(Tile* tile, int r, int b, float* largest) {
  constexpr int kVecs = kBlock / Vec::kLanes;
  float* scores = tile->scores + r * kBlock;
  const RowRange seen = PlacesSeen(*tile, r, b);
  const bool edge = seen.begin > 0 || seen.end < kBlock, capped = tile->task.soft_cap > 0;
  const bool scaled = tile->key_scales != nullptr;
  Vec s[kVecs];
  for (int i = 0; i < kVecs; ++i) s[i] = Vec::Load(scores + i * Vec::kLanes);
  if (scaled) {
    for (int i = 0; i < kVecs; ++i) s[i] = s[i] * Vec::Load(tile->key_scales + i * Vec::kLanes);
  }
  if (capped) {
    const Vec cap = Vec::Set(tile->task.soft_cap * kLog2E);
    for (int i = 0; i < kVecs; ++i) s[i] = cap * Tanh(s[i]);
  }
  if (edge) {
    for (int i = 0; i < kVecs; ++i) {
      s[i] = Vec::Within(s[i], seen.begin - i * Vec::kLanes, seen.end - i * Vec::kLanes, Vec::Set(-kInfinity));
    }
  }
  if (capped || edge || scaled) {
    for (int i = 0; i < kVecs; ++i) s[i].Store(scores + i * Vec::kLanes);
  }
  Vec most = s[0];
  for (int i = 1; i < kVecs; ++i) most = Vec::Max(s[i], most);
  *largest = most.Largest();
}

// Scores of the rows that see block `b` to weights, in place; updates their maxima and sums, and sets the factors that their
// earlier values get. Three passes without branches on data: rows by themselves wait for their own sums across lanes.
inline void SoftmaxOfBlock(Tile* tile, RowRange rows, int b) {
  constexpr int kVecs = kBlock / Vec::kLanes;
  alignas(64) float largest[kAttentionTileRows + Vec::kLanes];
  const int first = rows.begin / Vec::kLanes * Vec::kLanes;
  const int end = MinOf(kAttentionTileRows, (rows.end + Vec::kLanes - 1) / Vec::kLanes * Vec::kLanes);
  for (int r = first; r < end; r += Vec::kLanes) Vec::Load(tile->max + r).Store(largest + r);  // rows that do not see b
  for (int r = rows.begin; r < rows.end; ++r) LimitScores(tile, r, b, largest + r);
  for (int r = first; r < end; r += Vec::kLanes) {
    const Vec before = Vec::Load(tile->max + r), after = Vec::Max(Vec::Load(largest + r), before);
    Exp2OfNegative(before - after).Store(tile->correction + r);
    after.Store(tile->max + r);
  }
  for (int r = rows.begin; r < rows.end; ++r) {
    float* scores = tile->scores + r * kBlock;
    const Vec shift = Vec::Set(tile->max[r]);
    Vec sum = Vec::Zero();
    for (int i = 0; i < kVecs; ++i) {
      const Vec weight = Exp2OfNegative(Vec::Load(scores + i * Vec::kLanes) - shift);
      weight.Store(scores + i * Vec::kLanes);
      sum = sum + weight;
    }
    if (tile->value_scales != nullptr) {
      for (int i = 0; i < kVecs; ++i) {
        (Vec::Load(scores + i * Vec::kLanes) * Vec::Load(tile->value_scales + i * Vec::kLanes)).Store(scores + i * Vec::kLanes);
      }
    }
    float* sums = tile->sums + r * Vec::kLanes;
    Vec::Fma(Vec::Load(sums), Vec::Set(tile->correction[r]), sum).Store(sums);
  }
}

inline void ScoresOfBlock(Tile* tile, RowRange rows, const std::byte* keys, const std::byte* next_keys,
                          const std::byte* next_values) {
  const KvType type = tile->task.type;
  const float* wide = reinterpret_cast<const float*>(keys);
  if (tile->direct) {
    ScorePanelOfType(type, tile->rows, tile->q, keys, tile->width, tile->scores, next_keys, next_values);
    return;
  }
  if (type != KvType::kF32) {
    WidenKeys(type, keys, tile->width, tile->keys);
    wide = tile->keys;
  }
  for (int begin = rows.begin / kPanelRows * kPanelRows; begin < rows.end; begin += kPanelRows) {
    ScorePanel<LoadF32, false>(MinOf(kPanelRows, tile->rows - begin), tile->q + static_cast<int64_t>(begin) * tile->width,
                               reinterpret_cast<const std::byte*>(wide), tile->width, tile->scores + begin * kBlock,
                               nullptr, nullptr);
  }
}

// acc of rows [rows.begin, rows.end) from places [seen.begin, seen.end) of values in F32 [32][padded].
inline void AddWideValues(Tile* tile, RowRange rows, RowRange seen, const float* values) {
  AddValues<LoadF32>(ValueTask{tile->acc, tile->padded, tile->scores, tile->correction,
                               reinterpret_cast<const std::byte*>(values), tile->padded, seen.begin, seen.end},
                     rows.begin, rows.end);
}

// Rows that see different places: all rows take all places (a place not seen has weight 0, which changes nothing), unless a
// value there is infinite or NaN, where 0 times it would: then each position's rows take their own places.
inline void AddEdgeValues(Tile* tile, RowRange rows, int b, const std::byte* values) {
  RowRange all = PlacesSeen(*tile, rows.begin, b);
  all.end = PlacesSeen(*tile, rows.end - 1, b).end;
  bool finite = WidenRows(tile->task.type, values, all.begin, all.end, tile->width, tile->padded, tile->values);
  for (int t = all.begin; tile->value_scales != nullptr && t < all.end; ++t) finite = finite && tile->value_scales[t] < kInfinity;
  if (finite) return AddWideValues(tile, rows, all, tile->values);
  for (int r = rows.begin; r < rows.end;) {
    int end = r + 1;
    while (end < rows.end && tile->last[end] == tile->last[r]) ++end;
    AddWideValues(tile, {r, end}, PlacesSeen(*tile, r, b), tile->values);
    r = end;
  }
}

inline void ValuesOfBlock(Tile* tile, RowRange rows, int b, const std::byte* values) {
  const KvType type = tile->task.type;
  const RowRange low = PlacesSeen(*tile, rows.begin, b), high = PlacesSeen(*tile, rows.end - 1, b);
  if (low.begin != high.begin || low.end != high.end) return AddEdgeValues(tile, rows, b, values);
  const bool whole_vecs = tile->width == tile->padded;
  if (whole_vecs && (tile->direct || type == KvType::kF32)) {
    AddValuesOfType(type, ValueTask{tile->acc, tile->padded, tile->scores, tile->correction, values, tile->width,
                                    low.begin, low.end}, rows.begin, rows.end);
    return;
  }
  WidenRows(type, values, low.begin, low.end, tile->width, tile->padded, tile->values);
  AddWideValues(tile, rows, low, tile->values);
}

// Adds block `b` to the state of the rows that see it.
inline void AddBlock(Tile* tile, int b, int end_block) {
  const RowRange rows = RowsThatSee(*tile, b);
  if (rows.begin >= rows.end) return;
  const AttentionTask& task = tile->task;
  const size_t offset = static_cast<size_t>(task.blocks[b]) * task.block_stride;
  const size_t next = b + 1 < end_block ? static_cast<size_t>(task.blocks[b + 1]) * task.block_stride : offset;
  const size_t scales = KvScaleBytes(task.type);
  if (scales > 0) {
    tile->key_scales = reinterpret_cast<const float*>(task.keys + offset);
    tile->value_scales = reinterpret_cast<const float*>(task.values + offset);
  }
  ScoresOfBlock(tile, rows, task.keys + offset + scales, task.keys + next, task.values + next);
  SoftmaxOfBlock(tile, rows, b);
  ValuesOfBlock(tile, rows, b, task.values + offset + scales);
}

inline bool SeesChunk(int first, int last, int chunk) {
  return last >= chunk * kAttentionChunk && first < (chunk + 1) * kAttentionChunk;
}

// A row's result over all chunks so far.
struct Total {
  float max, sum;
};

inline Total StartTotal(const AttentionTask& task, int flat) {
  if (task.sinks == nullptr) return {-kInfinity, 0};
  return {task.sinks[flat % task.group] * kLog2E, 1};
}

// Merges a chunk's (max, sum, acc) into `total` and `values`, which still hold nothing for the first chunk of a row.
inline void MergeChunk(Total* total, float* values, float max, float sum, const float* acc, int padded, bool first) {
  if (first && total->sum == 0) {
    *total = {max, sum};
    for (int e = 0; e < padded; e += Vec::kLanes) Vec::Load(acc + e).Store(values + e);
    return;
  }
  const float both = max <= total->max ? total->max : max;
  const Vec keep = Exp2OfNegative(Vec::Set(total->max - both)), add = Exp2OfNegative(Vec::Set(max - both));
  for (int e = 0; e < padded; e += Vec::kLanes) {
    Vec::Fma(Vec::Load(acc + e), add, Vec::Load(values + e) * keep).Store(values + e);
  }
  total->sum = __builtin_fmaf(sum, add.First(), total->sum * keep.First());
  total->max = both;
}

inline void WriteRow(const AttentionTask& task, int flat, float sum, const float* values) {
  float* out = task.out + flat / task.group * task.out_stride + static_cast<int64_t>(flat % task.group) * task.head_width;
  const Vec factor = Vec::Set(1.0f / sum);
  int e = 0;
  for (; e + Vec::kLanes <= task.head_width; e += Vec::kLanes) (Vec::Load(values + e) * factor).Store(out + e);
  if (e < task.head_width) (Vec::Load(values + e) * factor).StoreFirst(out + e, task.head_width - e);
}

constexpr int Padded(int width) { return (width + Vec::kLanes - 1) / Vec::kLanes * Vec::kLanes; }

inline float RowSum(const Tile& tile, int r) { return Vec::Load(tile.sums + r * Vec::kLanes).Sum(); }

inline void StorePartials(const Tile& tile, int chunk) {
  const AttentionTask& task = tile.task;
  const int64_t floats = AttentionPartialFloats(tile.width);
  float* partial = task.partials + static_cast<int64_t>(chunk - task.partials_chunk) * tile.rows * floats;
  for (int r = 0; r < tile.rows; ++r, partial += floats) {
    if (!SeesChunk(tile.first[r], tile.last[r], chunk)) continue;
    partial[0] = tile.max[r];
    partial[1] = RowSum(tile, r);
    for (int e = 0; e < tile.padded; e += Vec::kLanes) Vec::Load(tile.acc + r * tile.padded + e).Store(partial + 16 + e);
  }
}

inline void AttendTask(const AttentionTask& task) {
  constexpr int kRows = kAttentionTileRows, kWidth = kMaxHeadWidth;
  alignas(64) float floats[3 * kRows * kWidth + 2 * kBlock * (kWidth + 1) + kRows * (kBlock + Vec::kLanes)];  // touched as far as used
  alignas(64) Total totals[kRows];
  Tile tile{task, task.row_end - task.row_begin, task.head_width, Padded(task.head_width), {}, {}, {}, {},
            nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, false, nullptr, nullptr};
  float* next = floats;
  const auto take = [&next](int count) { float* taken = next; next += (count + 15) / 16 * 16; return taken; };
  tile.q = take((tile.rows + kPanelRows - 1) / kPanelRows * kPanelRows * tile.width);
  tile.scores = take(tile.rows * kBlock);
  tile.sums = take(tile.rows * Vec::kLanes);
  tile.acc = take(tile.rows * tile.padded);
  float* values = take(tile.rows * tile.padded);
  tile.keys = take((tile.width + 1) * kBlock);
  tile.values = take(tile.padded * kBlock);
  tile.direct = tile.rows <= kPanelRows;
  PackQueries(&tile);

  for (int r = 0; r < tile.rows; ++r) totals[r] = StartTotal(task, task.row_begin + r);
  for (int i = 0; i < tile.rows * tile.padded; i += Vec::kLanes) Vec::Zero().Store(values + i);
  constexpr int kChunkBlocks = kAttentionChunk / kBlock;
  const int first_block = tile.first[0] / kBlock, end_block = tile.last[tile.rows - 1] / kBlock + 1;
  for (int chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    ResetChunk(&tile);
    const int begin = MaxOf(first_block, chunk * kChunkBlocks), end = MinOf(end_block, (chunk + 1) * kChunkBlocks);
    for (int b = begin; b < end; ++b) AddBlock(&tile, b, end_block);
    if (task.partials != nullptr) {
      StorePartials(tile, chunk);
      continue;
    }
    if (task.chunk_end - task.chunk_begin == 1 && task.sinks == nullptr) {  // nothing to merge
      for (int r = 0; r < tile.rows; ++r) WriteRow(task, task.row_begin + r, RowSum(tile, r), tile.acc + r * tile.padded);
      return;
    }
    for (int r = 0; r < tile.rows; ++r) {
      if (!SeesChunk(tile.first[r], tile.last[r], chunk)) continue;
      MergeChunk(&totals[r], values + r * tile.padded, tile.max[r], RowSum(tile, r), tile.acc + r * tile.padded, tile.padded,
                 chunk == tile.first[r] / kAttentionChunk);
    }
  }
  if (task.partials != nullptr) return;
  for (int r = 0; r < tile.rows; ++r) WriteRow(task, task.row_begin + r, totals[r].sum, values + r * tile.padded);
}

inline void MergeTask(const AttentionTask& task) {
  alignas(64) float values[kMaxHeadWidth];
  const int padded = Padded(task.head_width), rows = task.row_end - task.row_begin;
  const int64_t floats = AttentionPartialFloats(task.head_width);
  for (int r = 0; r < rows; ++r) {
    const int flat = task.row_begin + r, last = task.first_position + flat / task.group;
    const int first = MaxOf(0, last - (task.window - 1));
    Total total = StartTotal(task, flat);
    for (int e = 0; e < padded; e += Vec::kLanes) Vec::Zero().Store(values + e);
    for (int chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
      if (!SeesChunk(first, last, chunk)) continue;
      const float* partial = task.partials + (static_cast<int64_t>(chunk - task.partials_chunk) * rows + r) * floats;
      MergeChunk(&total, values, partial[0], partial[1], partial + 16, padded, chunk == first / kAttentionChunk);
    }
    WriteRow(task, flat, total.sum, values);
  }
}

// Rounds kLanes numbers of each row at a time, then writes them out by columns.
template <typename Element, void (Vec::*kStore)(void*) const>
inline void StoreRows(const KvStoreTask& task) {
  constexpr int kLanes = Vec::kLanes;
  auto* keys = reinterpret_cast<Element*>(task.keys);
  auto* values = reinterpret_cast<Element*>(task.values);
  alignas(64) Element columns[kBlock * kLanes];
  for (int e = 0; e < task.head_width; e += kLanes) {
    const int count = MinOf(kLanes, task.head_width - e);
    for (int i = 0; i < task.rows; ++i) {
      (Vec::LoadFirst(task.k + i * task.k_stride + e, count).*kStore)(columns + i * kLanes);
      alignas(64) Element row[kLanes];
      (Vec::LoadFirst(task.v + i * task.v_stride + e, count).*kStore)(row);
      __builtin_memcpy(values + static_cast<int64_t>(task.place + i) * task.head_width + e, row, count * sizeof(Element));
    }
    for (int c = 0; c < count; ++c) {
      Element* column = keys + static_cast<int64_t>(e + c) * kBlock + task.place;
      for (int i = 0; i < task.rows; ++i) column[i] = columns[i * kLanes + c];
    }
  }
}

// One token's E numbers rounded to BF16, and zeros up to whole Vecs.
inline void RoundRow(const float* from, int width, uint16_t* to) {
  for (int e = 0; e < width; e += Vec::kLanes) Vec::LoadFirst(from + e, MinOf(Vec::kLanes, width - e)).StoreBf16(to + e);
}

inline void StorePairRows(const KvStoreTask& task) {
  const int width = task.head_width;
  alignas(64) uint16_t row[kMaxHeadWidth + 64];
  auto* values = reinterpret_cast<uint16_t*>(task.values);
  for (int i = 0; i < task.rows; ++i) {
    const int place = task.place + i;
    RoundRow(task.k + i * task.k_stride, width, row);
    if (width % 2 != 0) row[width] = 0;
    std::byte* keys = task.keys + static_cast<int64_t>(place) * 4;
    for (int e = 0; e < width; e += 2, keys += kBlock * 4) __builtin_memcpy(keys, row + e, 4);
    RoundRow(task.v + i * task.v_stride, width, row);
    uint16_t* to = values + static_cast<int64_t>(place / 2) * width * 2 + place % 2;
    for (int e = 0; e < width; ++e) to[2 * e] = row[e];
  }
}

// Codes of one token's E numbers to `to`, and their scale; see kv_view.h. A token with a number that is not finite is NaN.
inline float RoundToCodes(const float* from, int width, int8_t* to) {
  Vec most = Vec::Zero(), check = Vec::Zero();
  for (int e = 0; e < width; e += Vec::kLanes) {
    const Vec v = Vec::LoadFirst(from + e, MinOf(Vec::kLanes, width - e));
    most = Vec::Max(v.Abs(), most);
    check = Vec::Fma(v, Vec::Zero(), check);
  }
  if (check.Sum() != 0) {
    __builtin_memset(to, 1, width);
    return __builtin_nanf("");
  }
  float largest = most.Largest();
  if (largest < kLeastI8Magnitude) largest = 0;
  const Vec factor = Vec::Set(largest > 0 ? 127 / largest : 0);
  for (int e = 0; e < width; e += Vec::kLanes) {
    alignas(64) int8_t codes[Vec::kLanes];
    (Vec::LoadFirst(from + e, MinOf(Vec::kLanes, width - e)) * factor).StoreI8(codes);
    __builtin_memcpy(to + e, codes, MinOf(Vec::kLanes, width - e));
  }
  return largest / 127;
}

inline void StoreCodeRows(const KvStoreTask& task) {
  const int width = task.head_width;
  int8_t row[kMaxHeadWidth];
  for (int i = 0; i < task.rows; ++i) {
    const int place = task.place + i;
    const float key_scale = RoundToCodes(task.k + i * task.k_stride, width, row);
    __builtin_memcpy(task.keys + place * sizeof key_scale, &key_scale, sizeof key_scale);
    int8_t* keys = reinterpret_cast<int8_t*>(task.keys + KvScaleBytes(KvType::kI8)) + place;
    for (int e = 0; e < width; ++e) keys[e * kBlock] = row[e];
    int8_t* values = reinterpret_cast<int8_t*>(task.values + KvScaleBytes(KvType::kI8)) + static_cast<int64_t>(place) * width;
    const float value_scale = RoundToCodes(task.v + i * task.v_stride, width, values);
    __builtin_memcpy(task.values + place * sizeof value_scale, &value_scale, sizeof value_scale);
  }
}

inline void StoreTask(const KvStoreTask& task) {
  switch (task.type) {
    case KvType::kF32: return StoreRows<float, &Vec::StoreF32>(task);
    case KvType::kF16: return StoreRows<uint16_t, &Vec::StoreF16>(task);
    case KvType::kBF16: return StorePairRows(task);
    case KvType::kI8: return StoreCodeRows(task);
  }
}

}  // namespace
}  // namespace hone
