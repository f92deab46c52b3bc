// Attention on BF16 tiles: included by attention_amx.cc and attention_bf16.cc after their tile loops (attention_tiles_amx.h,
// attention_tiles_bf16.h). Keys and values that are BF16 (any other type is converted a chunk at a time), q rounded to BF16, sums in
// F32. Widths up to kTilesHeadWidth; attention.cc gives wider heads, F32 caches and exact calls to the AVX-512 kernel.
//
// Rows go through a chunk two tiles (32 rows) at a time; for each block of 32 tokens that one of them sees
//
//   y = 128 (127 + s - m)          tiles: the accumulators start as 128 (127 - m), q carries scale * log2 e * 128
//   weight = 2^(s - m) as BF16     y rounded to a whole number *is* the BF16 number but for the curve of its mantissa, which a
//                                  table of 64 corrects: within 0.73 % of 2^(s - m), 0.24 % rms (to nearest: 0.4 %, 0.17 %)
//   sums += weights 1, acc += weights v   tiles: 16 pairs of tokens a step; so numerator and denominator see the same weights
//
// m is not the row's maximum but its largest score in the first block that it sees: any m within 2^64 of the weights' size does,
// since BF16 and F32 reach to 2^127. So nothing is rescaled. Where a sum of weights passes 2^64 (or a score is NaN or infinite,
// which y's upper limit turns into the largest weight), the group of four blocks is done again with the true maximum.
//
// What a row computes depends on the row and on fixed places alone (its first block, groups of 128, chunks of 512 tokens, the
// order of products): its bits do not depend on the plan. A place that a row does not see has weight 0, and values beyond the
// last place of a tile's rows are zeroed; if a value that only some rows of a task see is not finite, each query goes alone.
#pragma once

#include "kernels/simd/avx512.h"
#include "kernels/simd/functions.h"
#include "kernels/attention/attention_body.h"

namespace hone {
namespace {

constexpr int kWidest = kTilesHeadWidth;
constexpr int kPairRows = 2 * kTileRows;
constexpr int kGroup = 4;                                    // blocks
constexpr int kChunkBlocks = kAttentionChunk / kBlock;
constexpr int kMaxRows = kTilesTaskRows;
constexpr int kRowsAside[2] = {8, 4};                        // that become weights beside a step of scores, a block of values
constexpr float kUnit = 128, kBias = 127 * kUnit;            // y in 1/128 of log2: the low bit of a BF16 mantissa
constexpr float kMaxY = 32639;                               // 0x7f7f, the largest finite BF16
constexpr float kMaxSum = 0x1.0p64f;

constexpr int RoundUp(int n, int to) { return (n + to - 1) / to * to; }

// What a thread works in. Floats of one row's width are padded to whole tiles.
struct alignas(64) Memory {
  uint16_t q[kTilesTaskNumbers + kMaxRows * 32];             // [tile][step][16][32]
  float start[kMaxRows / kTileRows][kTileFloats];          // 128 (127 - m), a row's in all 16 columns
  float first_max[kMaxRows];                               // m of the first block, 128 log2 units
  float max[kPairRows];                                    // m now
  float s[kScoreBuffers][kPairRows * kBlock];              // scores of a block, and of the next where tiles cannot hold them
  uint16_t weights[2][kGroup * 2 * 512];                   // [block][tile][16][32], of a group and of the one before
  float sums[2][2 * kTileFloats];                          // [tile][16][16]
  float acc[2 * kWidest / kTileRows * kTileFloats];        // [tile][column tile][16][16]
  uint16_t ones[512];
  float zeros[2 * kTileFloats];
  float row[kWidest];
  std::byte edge[2][kWidest * kTileRows * 4];              // value blocks with zeros in places that no row sees
  float values[kTilesTaskNumbers + kMaxRows * 16];           // [row][padded] of earlier chunks
  Total totals[kMaxRows];
  std::byte keys[kChunkBlocks][kWidest * kBlock * 2];      // converted blocks: [steps * 16][32][2]
  std::byte stored[kChunkBlocks][kWidest * kBlock * 2];    // and [16][columns * 16][2]
};

// Flat rows [begin, end) of a task at work.
struct Rows {
  const AttentionTask& task;
  Memory& memory;
  int begin, count;
  int width, steps, columns;  // steps of 32 of the width, tiles of 16 of it
  bool direct;                // tiles read the cache itself
  float cap;                  // y = cap tanh(s) + start; 0: no soft cap

  int Last(int r) const { return task.first_position + (begin + r) / task.group; }
  int First(int r) const { return MaxOf(0, Last(r) - (task.window - 1)); }
};

// Sixteen BF16 to nearest even; subnormal numbers become zero, as tiles would have it.
inline void StoreRounded(__m512 x, uint16_t* to) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

inline void PackRows(const Rows& rows) {
  const AttentionTask& task = rows.task;
  const float scale = task.soft_cap > 0 ? task.scale / task.soft_cap : task.scale * kLog2E * kUnit;
  const __m512 factor = _mm512_set1_ps(scale);
  uint16_t* q = rows.memory.q;
  for (int tile = 0; tile * kTileRows < RoundUp(rows.count, kPairRows); ++tile) {
    for (int r = 0; r < kTileRows; ++r) {
      const int row = tile * kTileRows + r, flat = rows.begin + row;
      uint16_t* to = q + static_cast<int64_t>(tile) * rows.steps * 512 + r * 32;
      const float* from = task.q + static_cast<int64_t>(flat / task.group) * task.q_stride +
                          static_cast<int64_t>(flat % task.group) * rows.width;
      for (int e = 0; e < rows.steps * 32; e += 16) {
        const int count = row < rows.count ? MaxOf(0, MinOf(16, rows.width - e)) : 0;
        const __m512 x = count == 16 ? _mm512_loadu_ps(from + e) : count > 0 ? Vec::LoadFirst(from + e, count).v : _mm512_setzero_ps();
        StoreRounded(_mm512_mul_ps(x, factor), to + e / 32 * 512 + e % 32);
      }
    }
  }
}

inline __m512i PairsOf(Vec first, Vec second) {
  const __m512i low = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(first.v)));
  const __m512i high = _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(second.v)));
  return _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
}

// Keys of a block as tiles want them: [16 steps][32][2], zeros beyond the width.
inline void ConvertKeys(const Rows& rows, const std::byte* from, std::byte* to) {
  const KvType type = rows.task.type;
  const std::byte* data = from + KvScaleBytes(type);
  const float* scales = reinterpret_cast<const float*>(from);
  for (int e = 0; e < rows.steps * 32; e += 2, to += kBlock * 4) {
    for (int t = 0; t < kBlock; t += 16) {
      __m512i pairs = _mm512_setzero_si512();
      if (type == KvType::kBF16) {
        if (e < rows.width) pairs = _mm512_loadu_si512(data + (e / 2 * kBlock + t) * 4);
      } else if (e < rows.width) {
        const int64_t a = static_cast<int64_t>(e) * kBlock + t;
        const int64_t b = a + kBlock;
        Vec x, y = Vec::Zero();
        if (type == KvType::kF16) {
          x = Vec::LoadF16(data + a * 2);
          if (e + 1 < rows.width) y = Vec::LoadF16(data + b * 2);
        } else {
          const Vec scale = Vec::Load(scales + t);
          x = Vec::LoadI8(data + a) * scale;
          if (e + 1 < rows.width) y = Vec::LoadI8(data + b) * scale;
        }
        pairs = PairsOf(x, y);
      }
      _mm512_storeu_si512(to + t * 4, pairs);
    }
  }
}

// Values of a block: [16][16 columns][2], zeros beyond the width.
inline void ConvertValues(const Rows& rows, const std::byte* from, std::byte* to) {
  const KvType type = rows.task.type;
  const std::byte* data = from + KvScaleBytes(type);
  const float* scales = reinterpret_cast<const float*>(from);
  for (int t = 0; t < kBlock; t += 2) {
    for (int e = 0; e < rows.columns * 16; e += 16, to += 64) {
      const int count = MinOf(16, rows.width - e);
      const int64_t a = static_cast<int64_t>(t) * rows.width + e, b = a + rows.width;
      __m512i pairs;
      if (type == KvType::kBF16) {
        const __mmask16 mask = static_cast<__mmask16>((1u << count) - 1);
        pairs = _mm512_maskz_loadu_epi32(mask, data + (static_cast<int64_t>(t / 2) * rows.width + e) * 4);
      } else if (type == KvType::kF16) {
        pairs = PairsOf(Vec::LoadFirstF16(data + a * 2, count), Vec::LoadFirstF16(data + b * 2, count));
      } else {
        pairs = PairsOf(Vec::LoadFirstI8(data + a, count) * Vec::Set(scales[t]),
                        Vec::LoadFirstI8(data + b, count) * Vec::Set(scales[t + 1]));
      }
      _mm512_storeu_si512(to, pairs);
    }
  }
}

// The blocks of a chunk as tiles read them.
struct Blocks {
  int begin = 0, end = 0;                      // that a row of the task sees
  const std::byte* keys[kChunkBlocks];         // of block b at b % kChunkBlocks
  const std::byte* values[kChunkBlocks];
};

inline const std::byte* At(const std::byte* base, const AttentionTask& task, int b) {
  return base + static_cast<size_t>(task.blocks[b]) * task.block_stride;
}

inline Blocks BlocksOfChunk(const Rows& rows, int chunk) {
  const AttentionTask& task = rows.task;
  Blocks blocks;
  blocks.begin = MaxOf(rows.First(0) / kBlock, chunk * kChunkBlocks);
  blocks.end = MinOf(rows.Last(rows.count - 1) / kBlock + 1, (chunk + 1) * kChunkBlocks);
  for (int b = blocks.begin; b < blocks.end; ++b) {
    const int i = b % kChunkBlocks;
    blocks.keys[i] = At(task.keys, task, b);
    blocks.values[i] = At(task.values, task, b);
    if (rows.direct) continue;
    if (b + 1 < blocks.end) {
      const size_t bytes = KvHeadBlockBytes(task.type, rows.width);
      for (size_t line = 0; line < bytes; line += 64) {
        __builtin_prefetch(At(task.keys, task, b + 1) + line, 0, 2);
        __builtin_prefetch(At(task.values, task, b + 1) + line, 0, 2);
      }
    }
    ConvertKeys(rows, blocks.keys[i], rows.memory.keys[i]);
    ConvertValues(rows, blocks.values[i], rows.memory.stored[i]);
    blocks.keys[i] = rows.memory.keys[i];
    blocks.values[i] = rows.memory.stored[i];
  }
  return blocks;
}

// Places of block b that a row sees whose first and last positions are these, a bit each.
inline uint32_t SeenBits(int first, int last, int b) {
  const int begin = MaxOf(0, first - b * kBlock), end = MinOf(kBlock, last + 1 - b * kBlock);
  if (begin >= end) return 0;
  return (end == kBlock ? ~0u : (1u << end) - 1) & ~((1u << begin) - 1);
}

// Of a row's scores that began at zero, in 128 log2 units. NaN or infinite where one is; -inf where none is seen.
inline float LargestOf(const float* scores, uint32_t seen, float cap) {
  Vec largest = Vec::Set(-kInfinity), check = Vec::Zero();
  for (int i = 0; i < 2; ++i) {
    Vec s = Vec::Load(scores + i * 16);
    const __mmask16 mask = static_cast<__mmask16>(seen >> (16 * i));
    if (cap > 0) s = Vec::Set(cap) * Tanh(s);
    check.v = _mm512_mask_sub_ps(check.v, mask, s.v, s.v);  // NaN where s is not finite
    largest.v = _mm512_mask_max_ps(largest.v, mask, s.v, largest.v);
  }
  const float most = largest.Largest();
  return check.Sum() == 0 ? most : kInfinity;
}

// The same without a look at what is not finite: NaN does not count.
inline float LargestFiniteOf(const float* scores, uint32_t seen, float cap) {
  Vec low = Vec::Load(scores), high = Vec::Load(scores + 16);
  if (cap > 0) low = Vec::Set(cap) * Tanh(low), high = Vec::Set(cap) * Tanh(high);
  const Vec none = Vec::Set(-kInfinity);
  const Vec most{_mm512_mask_max_ps(none.v, static_cast<__mmask16>(seen), low.v, none.v)};
  return Vec{_mm512_mask_max_ps(most.v, static_cast<__mmask16>(seen >> 16), high.v, most.v)}.Largest();
}

// A row's 32 scores of a block as weights: BF16, tokens in order. kCapped: y = cap tanh(s) + start; kEdge: 0 where not seen.
template <bool kCapped, bool kEdge>
struct Weigher {
  explicit Weigher(float soft_cap) : cap(_mm512_set1_ps(soft_cap)) {}

  __m512i Of(const float* s, __m512 start, uint32_t seen) const {
    __m512 y0 = _mm512_load_ps(s), y1 = _mm512_load_ps(s + 16);
    if constexpr (kCapped) {
      y0 = _mm512_fmadd_ps(cap, Tanh(Vec{y0}).v, start);
      y1 = _mm512_fmadd_ps(cap, Tanh(Vec{y1}).v, start);
    }
    y0 = _mm512_min_ps(y0, limit);  // the second operand where y is NaN
    y1 = _mm512_min_ps(y1, limit);
    __m512i low, high;
    if constexpr (kEdge) {
      low = _mm512_maskz_cvtps_epi32(static_cast<__mmask16>(seen), y0);
      high = _mm512_maskz_cvtps_epi32(static_cast<__mmask16>(seen >> 16), y1);
    } else {
      low = _mm512_cvtps_epi32(y0);
      high = _mm512_cvtps_epi32(y1);
    }
    const __m512i whole = _mm512_permutexvar_epi64(order, _mm512_packus_epi32(low, high));  // below 0: 0
    return _mm512_sub_epi16(whole, curve.Of(_mm512_srli_epi16(whole, 1)));
  }

  const __m512 limit = _mm512_set1_ps(kMaxY), cap;
  const Curve curve;
  const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
};

// Up to two tiles of rows: rows [first_row, first_row + count) of `rows`.
template <int kTiles>
class Pair {
 public:
  Pair(const Rows& rows, int first_row, int count) : rows_(rows), memory_(rows.memory), first_row_(first_row), count_(count) {}

  // m of each row: its largest score in the first block that it sees.
  void FindFirstMaxima() {
    const int begin = First(0) / kBlock, end = First(count_ - 1) / kBlock + 1;
    for (int b = begin; b < end; ++b) {
      const std::byte* keys = At(rows_.task.keys, rows_.task, b);
      if (!rows_.direct) {
        ConvertKeys(rows_, keys, memory_.keys[0]);
        keys = memory_.keys[0];
      }
      ScoresFromZero(keys);
      for (int r = 0; r < count_; ++r) {
        if (First(r) / kBlock != b) continue;
        const float most = LargestFinite(r, b);
        memory_.first_max[first_row_ + r] = most - most == 0 ? most : 0;
      }
    }
  }

  // The rows' sums and acc over their blocks of the chunk. False: they see none of it.
  bool Attend(const Blocks& blocks) {
    const int begin = MaxOf(blocks.begin, First(0) / kBlock), end = MinOf(blocks.end, Last(count_ - 1) / kBlock + 1);
    if (begin >= end) return false;
    started_ = false;
    pending_ = 0;
    SetStarts();
    LimitValues(blocks, begin, end);
    Scores(blocks, begin);
    StoreScores();
    for (int b = begin; b < end; ++b) {
      if (begin == b || b % kGroup == 0) group_begin_ = b;
      BeginWeigh(b);
      AskFor(b + 2, 0);
      for (int i = 0; i < rows_.columns; i += kGroup * (kTiles == 2 ? 2 : 4)) AddPending();  // all of it during a group
      AskFor(b + 2, 1);
      if (b + 1 < end) Scores(blocks, b + 1);
      AskFor(b + 2, 2);
      Weigh(count_);  // what is left; the stores of tiles come after its loads, which would wait for them
      AskFor(b + 2, 3);
      if (b + 1 < end) StoreScores();
      if (b % kGroup == kGroup - 1 || b + 1 == end) FinishGroup(blocks, b + 1, b + 1 < end);
    }
    while (pending_ > 0) AddPending();
    return true;
  }

  int Last(int r) const { return rows_.Last(first_row_ + r); }
  int First(int r) const { return rows_.First(first_row_ + r); }
  float Max(int r) const { return memory_.max[r] / kUnit; }  // log2 units
  float Sum(int r) const { return memory_.sums[sum_][r * kTileRows]; }
  void CopyRow(int r, float* to) const {
    const float* from = memory_.acc + static_cast<int64_t>(r / kTileRows) * rows_.columns * kTileFloats + r % kTileRows * 16;
    for (int c = 0; c < rows_.columns; ++c) Vec::Load(from + c * kTileFloats).Store(to + c * 16);
  }

  // What MergeChunk would do with row r of this chunk where its m is that of the chunks before, which is almost always: both
  // factors are then 1. False: nothing was done.
  bool AddTo(int r, Total* total, float* values, int chunk) const {
    const bool first = total->sum == 0 && chunk == First(r) / kAttentionChunk;
    if (!first && total->max != Max(r)) return false;
    const float* acc = memory_.acc + static_cast<int64_t>(r / kTileRows) * rows_.columns * kTileFloats + r % kTileRows * 16;
    for (int c = 0; c < rows_.columns; ++c, acc += kTileFloats, values += 16) {
      (first ? Vec::Load(acc) : Vec::Load(acc) + Vec::Load(values)).Store(values);
    }
    *total = {Max(r), first ? Sum(r) : total->sum + Sum(r)};
    return true;
  }

 private:
  float* Start(int r) { return memory_.start[(first_row_ + r) / kTileRows] + (r % kTileRows) * 16; }
  const uint16_t* Queries() const { return memory_.q + static_cast<int64_t>(first_row_ / kTileRows) * rows_.steps * 512; }
  uint16_t* Weights(int b) { return memory_.weights[b / kGroup % 2] + b % kGroup * 1024; }

  void SetMax(int r, float max) {
    memory_.max[r] = max;
    Vec::Set(kBias - max).Store(Start(r));
  }
  void SetStarts() {
    for (int r = 0; r < count_; ++r) SetMax(r, memory_.first_max[first_row_ + r]);
    for (int r = count_; r < kTiles * kTileRows; ++r) Vec::Zero().Store(Start(r));
  }

  // Whether this task comes to block b soon and nobody has asked memory for it.
  bool WorthAsking(int b) const {
    return first_row_ == 0 && rows_.direct && b <= rows_.Last(rows_.count - 1) / kBlock && b < rows_.task.chunk_end * kChunkBlocks;
  }

  // What to ask for beside the scores of block b: keys of the block after the next, and its own values, wanted when its group ends.
  Ahead AheadOf(int b) const {
    const AttentionTask& task = rows_.task;
    return WorthAsking(b + 2) ? Ahead{At(task.keys, task, b + 2), At(task.values, task, b)} : Ahead{};
  }

  // A quarter of the lines of block b, which this task comes to soon: for decoding the only work that matters. In quarters, between
  // other work, since requests beyond the core's buffers stop it; every other line, since L2 completes pairs of lines by itself.
  void AskFor(int b, int quarter) {
    const AttentionTask& task = rows_.task;
    if (!kAsksAside || !WorthAsking(b)) return;
    const int64_t bytes = int64_t{rows_.width} * kBlock * 2 / 4;
    const std::byte* keys = At(task.keys, task, b) + quarter * bytes;
    const std::byte* values = At(task.values, task, b) + quarter * bytes;
    for (int64_t line = 0; line < bytes; line += 128) __builtin_prefetch(keys + line, 0, 2);
    for (int64_t line = 0; line < bytes; line += 128) __builtin_prefetch(values + line, 0, 2);
  }

  void ScoresFromZero(const std::byte* keys) {
    ScoreTiles<kTiles>(Queries(), rows_.steps, keys, Ahead{}, memory_.zeros, count_, NextScores(), [] {});
    StoreScores();
  }

  // Leaves them in tiles, or in the next buffer.
  void Scores(const Blocks& blocks, int b) {
    TilesSeeMemory();
    ScoreTiles<kTiles>(Queries(), rows_.steps, blocks.keys[b % kChunkBlocks], AheadOf(b), rows_.cap > 0 ? memory_.zeros : Start(0),
                       count_, NextScores(), [this] { Weigh(kRowsAside[0]); });
  }
  float* NextScores() { return memory_.s[(scores_ + 1) % kScoreBuffers]; }
  void StoreScores() {
    scores_ = (scores_ + 1) % kScoreBuffers;
    StoreScoreTiles<kTiles>(memory_.s[scores_]);
  }
  const float* ScoresOf(int r) const { return memory_.s[scores_] + r * kBlock; }

  uint32_t Seen(int r, int b) const { return SeenBits(First(r), Last(r), b); }

  float LargestScore(int r, int b) const { return LargestOf(ScoresOf(r), Seen(r, b), rows_.cap); }
  float LargestFinite(int r, int b) const { return LargestFiniteOf(ScoresOf(r), Seen(r, b), rows_.cap); }

  template <bool kCapped, bool kEdge>
  void WeighRows(int begin, int end) {
    const int b = weigh_block_;
    const float* s = ScoresOf(begin);
    uint16_t* to = Weights(b) + begin * 32;
    const Weigher<kCapped, kEdge> weigher(rows_.cap);
    for (int r = begin; r < end; ++r, s += kBlock, to += 32) {
      _mm512_store_si512(to, weigher.Of(s, kCapped ? _mm512_load_ps(Start(r)) : _mm512_setzero_ps(), kEdge ? Seen(r, b) : 0));
    }
  }

  // Scores of block b become weights, some rows at a time beside the products of other blocks: a core overlaps tile and vector
  // instructions only where they take turns.
  void BeginWeigh(int b) {
    weigh_block_ = b, weighed_ = 0;
    weigh_edge_ = First(count_ - 1) > b * kBlock || Last(0) < (b + 1) * kBlock - 1;
  }
  // The next `rows` rows.
  void Weigh(int rows) {
    const int begin = weighed_, end = MinOf(count_, weighed_ + rows);
    weighed_ = end;
    if (rows_.cap > 0) return weigh_edge_ ? WeighRows<true, true>(begin, end) : WeighRows<true, false>(begin, end);
    return weigh_edge_ ? WeighRows<false, true>(begin, end) : WeighRows<false, false>(begin, end);
  }

  // Value blocks, those with places that no row of the pair sees with zeros there.
  void LimitValues(const Blocks& blocks, int begin, int end) {
    stride_ = rows_.direct ? int64_t{rows_.width} * 4 : int64_t{rows_.columns} * 64;
    for (int b = begin; b < end; ++b) {
      const int low = MaxOf(0, First(0) - b * kBlock), high = MinOf(kBlock, Last(count_ - 1) + 1 - b * kBlock);
      const std::byte* from = blocks.values[b % kChunkBlocks];
      values_[b % kChunkBlocks] = from;
      if (low == 0 && high == kBlock) continue;
      std::byte* to = memory_.edge[b == begin ? 0 : 1];  // with a window of less than a block there may be one block only
      values_[b % kChunkBlocks] = to;
      for (int t = 0; t < kBlock; t += 2) {
        uint32_t keep = (t >= low && t < high ? 0xffffu : 0) | (t + 1 >= low && t + 1 < high ? 0xffff0000u : 0);
        const __m512i mask = _mm512_set1_epi32(static_cast<int>(keep));
        for (int64_t i = 0; i < stride_; i += 64) {
          _mm512_store_si512(to + t / 2 * stride_ + i, _mm512_and_si512(mask, _mm512_loadu_si512(from + t / 2 * stride_ + i)));
        }
      }
    }
  }

  void FinishGroup(const Blocks& blocks, int end, bool more) {
    while (pending_ > 0) AddPending();
    if (!AddSums(end)) {
      Redo(blocks, end);
      if (more) {
        Scores(blocks, end);
        StoreScores();
      }
    }
    sum_ ^= 1;
    pending_group_ = group_begin_;
    pending_blocks_ = end - group_begin_;
    pending_ = rows_.columns;
    pending_fresh_ = !started_;
    started_ = true;
  }

  // Adds the group's sums to the rows' sums, in the other buffer. False: one is too large for its row's m.
  bool AddSums(int end) {
    TilesSeeMemory();
    SumTiles<kTiles>(Weights(group_begin_), end - group_begin_, memory_.ones, started_ ? memory_.sums[sum_] : nullptr,
                     memory_.sums[sum_ ^ 1], count_);
    __m512 most = _mm512_setzero_ps();
    for (int r = 0; r < count_; ++r) most = _mm512_max_ps(_mm512_load_ps(memory_.sums[sum_ ^ 1] + r * kTileRows), most);
    return Vec{most}.First() <= kMaxSum;
  }

  // Some columns of the weighted values of the group before.
  void AddPending() {
    if (pending_ == 0) return;
    const int column = rows_.columns - pending_;
    float* acc = memory_.acc + static_cast<int64_t>(column) * kTileFloats;
    const int64_t row_tile = static_cast<int64_t>(rows_.columns) * kTileFloats;
    const uint16_t* weights = Weights(pending_group_);
    const std::byte* const* values = values_ + pending_group_ % kChunkBlocks;
    const auto aside = [this] { Weigh(kRowsAside[1]); };
    TilesSeeMemory();
    constexpr int kColumns = 4 / kTiles;  // whose sums four tiles hold
    if (pending_ >= kColumns) {
      ValueTiles<kTiles, kColumns>(weights, pending_blocks_, values, column * 64, stride_, acc, row_tile, pending_fresh_, count_, aside);
      pending_ -= kColumns;
    } else {
      ValueTiles<kTiles, 1>(weights, pending_blocks_, values, column * 64, stride_, acc, row_tile, pending_fresh_, count_, aside);
      pending_ -= 1;
    }
  }

  // Blocks [group_begin_, end) again: rows whose sums were too large get the true maximum for m, and what they added so far is
  // scaled to it; where that maximum is not finite their sums become NaN.
  void Redo(const Blocks& blocks, int end) {
    float* sums = memory_.sums[sum_];
    if (!started_) {
      __builtin_memset(sums, 0, 2 * kTileFloats * sizeof(float));
      __builtin_memset(memory_.acc, 0, static_cast<size_t>(2 * rows_.columns) * kTileFloats * sizeof(float));
      started_ = true;
    }
    alignas(64) float most[kPairRows];
    for (int r = 0; r < count_; ++r) most[r] = memory_.max[r];
    for (int b = group_begin_; b < end; ++b) {
      ScoresFromZero(blocks.keys[b % kChunkBlocks]);
      for (int r = 0; r < count_; ++r) most[r] = __builtin_fmaxf(most[r], LargestScore(r, b));
    }
    for (int r = 0; r < count_; ++r) {
      if (!(memory_.sums[sum_ ^ 1][r * kTileRows] > kMaxSum)) continue;
      const bool finite = most[r] < kInfinity;
      const Vec factor = finite ? Exp2OfNegative(Vec::Set((memory_.max[r] - most[r]) / kUnit)) : Vec::Set(__builtin_nanf(""));
      (Vec::Load(sums + r * kTileRows) * factor).Store(sums + r * kTileRows);
      for (int c = 0; c < rows_.columns; ++c) {
        float* acc = memory_.acc + (static_cast<int64_t>(r / kTileRows) * rows_.columns + c) * kTileFloats + r % kTileRows * 16;
        (Vec::Load(acc) * factor).Store(acc);
      }
      if (finite) SetMax(r, most[r]);
    }
    for (int b = group_begin_; b < end; ++b) {
      BeginWeigh(b);
      weighed_ = count_;
      Scores(blocks, b);
      StoreScores();
      weighed_ = 0;
      Weigh(count_);
    }
    AddSums(end);
  }

  const Rows& rows_;
  Memory& memory_;
  const int first_row_, count_;
  int scores_ = 0;                           // which of memory_.s
  int weigh_block_ = 0, weighed_ = kPairRows;  // rows of the block at work whose scores are weights already
  bool weigh_edge_ = false;
  int64_t stride_ = 0;                       // bytes from a pair of tokens to the next in values_
  const std::byte* values_[kChunkBlocks];
  bool started_ = false;                     // sums and acc hold something
  int sum_ = 0;                              // which of memory_.sums
  int group_begin_ = 0;
  int pending_ = 0;                          // column tiles of the last finished group that acc still lacks
  int pending_group_ = 0, pending_blocks_ = 0;
  bool pending_fresh_ = false;
};

// A pair's result of a chunk to where it belongs.
template <int kTiles>
void Deliver(const Rows& rows, const Pair<kTiles>& pair, int first_row, int count, int chunk) {
  const AttentionTask& task = rows.task;
  const int padded = rows.columns * kTileRows;
  const bool alone = task.chunk_end - task.chunk_begin == 1 && task.sinks == nullptr;
  const bool merges = task.partials == nullptr && !alone;
  for (int r = 0; r < count; ++r) {
    if (!SeesChunk(pair.First(r), pair.Last(r), chunk)) continue;
    const int flat = rows.begin + first_row + r;
    float* values = rows.memory.values + static_cast<int64_t>(first_row + r) * padded;
    if (merges && pair.AddTo(r, &rows.memory.totals[first_row + r], values, chunk)) continue;
    pair.CopyRow(r, rows.memory.row);
    if (task.partials != nullptr) {
      const int64_t floats = AttentionPartialFloats(rows.width), count_of_task = task.row_end - task.row_begin;
      float* partial = task.partials + (static_cast<int64_t>(chunk - task.partials_chunk) * count_of_task + flat - task.row_begin) * floats;
      partial[0] = pair.Max(r);
      partial[1] = pair.Sum(r);
      for (int e = 0; e < padded; e += 16) Vec::Load(rows.memory.row + e).Store(partial + 16 + e);
    } else if (alone) {
      WriteRow(task, flat, pair.Sum(r), rows.memory.row);
    } else {
      MergeChunk(&rows.memory.totals[first_row + r], values, pair.Max(r), pair.Sum(r), rows.memory.row, padded,
                 chunk == pair.First(r) / kAttentionChunk);
    }
  }
}

template <int kTiles>
void AttendPair(const Rows& rows, int first_row, int count, const Blocks& blocks, int chunk) {
  Pair<kTiles> pair(rows, first_row, count);
  if (pair.Attend(blocks)) Deliver<kTiles>(rows, pair, first_row, count, chunk);
}

// Values of tokens [begin, end) are finite.
bool ValuesAreFinite(const Rows& rows, int begin, int end) {
  const AttentionTask& task = rows.task;
  for (int p = begin; p < end; ++p) {
    const std::byte* block = At(task.values, task, p / kBlock);
    const int place = p % kBlock;
    if (task.type == KvType::kI8) {
      if (!(reinterpret_cast<const float*>(block)[place] < kInfinity)) return false;
      continue;
    }
    Vec check = Vec::Zero();
    for (int e = 0; e < rows.width; e += 16) {
      const int count = MinOf(16, rows.width - e);
      Vec v, other;
      if (task.type == KvType::kF16) {
        v = Vec::LoadFirstF16(block + KvValueOffset(task.type, rows.width, place, e), count);
      } else {
        Vec::LoadFirstBf16Pairs(block + KvValueOffset(task.type, rows.width, place / 2 * 2, e), count, &v, &other);
        if (place % 2 != 0) v = other;
      }
      check = Vec::Fma(v, Vec::Zero(), check);
    }
    if (check.Sum() != 0) return false;
  }
  return true;
}

void AttendRows(const AttentionTask& task, Memory& memory, int begin, int end) {
  const int width = task.head_width;
  const bool direct = task.type == KvType::kBF16 && width % 32 == 0;
  const Rows rows{task, memory, begin, end - begin, width, (width + 31) / 32, (width + 15) / 16, direct,
                  task.soft_cap * kLog2E * kUnit};
  const int first_query = begin / task.group, last_query = (end - 1) / task.group;
  const bool several = first_query != last_query;
  if (several && !(ValuesAreFinite(rows, rows.First(0), rows.First(rows.count - 1)) &&
                   ValuesAreFinite(rows, rows.Last(0) + 1, rows.Last(rows.count - 1) + 1))) {
    for (int query = first_query; query <= last_query; ++query) {
      AttendRows(task, memory, MaxOf(begin, query * task.group), MinOf(end, (query + 1) * task.group));
    }
    return;
  }
  PackRows(rows);
  for (int r = 0; r < rows.count; r += kPairRows) {
    const int count = MinOf(kPairRows, rows.count - r);
    if (count > kTileRows) Pair<2>(rows, r, count).FindFirstMaxima(); else Pair<1>(rows, r, count).FindFirstMaxima();
  }
  const int padded = rows.columns * kTileRows;
  const bool merges = task.partials == nullptr && (task.chunk_end - task.chunk_begin > 1 || task.sinks != nullptr);
  if (merges) {
    for (int r = 0; r < rows.count; ++r) memory.totals[r] = StartTotal(task, begin + r);
    for (int64_t i = 0; i < int64_t{rows.count} * padded; i += 16) Vec::Zero().Store(memory.values + i);
  }
  for (int chunk = task.chunk_begin; chunk < task.chunk_end; ++chunk) {
    const Blocks blocks = BlocksOfChunk(rows, chunk);
    for (int r = 0; r < rows.count; r += kPairRows) {
      const int count = MinOf(kPairRows, rows.count - r);
      if (count > kTileRows) AttendPair<2>(rows, r, count, blocks, chunk); else AttendPair<1>(rows, r, count, blocks, chunk);
    }
  }
  if (!merges) return;
  for (int r = 0; r < rows.count; ++r) {
    WriteRow(task, begin + r, memory.totals[r].sum, memory.values + static_cast<int64_t>(r) * padded);
  }
}

// The whole task. The caller has configured its tiles.
void AttendOnTiles(const AttentionTask& task) {
  Memory memory;
  for (uint16_t& one : memory.ones) one = 0x3f80;
  for (float& zero : memory.zeros) zero = 0;
  TilesSeeMemory();
  AttendRows(task, memory, task.row_begin, task.row_end);
}

}  // namespace
}  // namespace hone
