// Attention of one query of a sequence with VDPBF16PS, for several KV heads at once: what decoding does. Included by
// attention_bf16.cc after attention_tiles.h, whose algorithm this is: the same products, in the same order, for the same bits.
//
// It is about reading keys and values at the pace of memory. A block's heads are neighbours in memory, so a task takes as many
// of them as make 32 KiB, block by block, and asks for the next 32 KiB while it multiplies: two lines of each of eight pieces
// in turn, as read_ahead.h does for weights, and as lines that are read once. Sums stay in registers during a block; values are
// added at once, and not a group later, from a copy of the sums that a group began with (should its m have been too small).
#pragma once

#include "kernels/attention/attention_tiles.h"

namespace hone {
namespace {

constexpr int kStreams = 8;

// What a task reads, in the order of memory: for each block the keys of its heads, then their values; in pieces of 4 KiB (2 KiB where
// a head is no multiple of that), eight at a time.
class Asker {
 public:
  Asker(const AttentionTask& task, int block, int end_block)
      : task_(task), bytes_(static_cast<int64_t>(KvHeadBlockBytes(task.type, task.head_width)) * task.heads),
        piece_(bytes_ / task.heads % 4096 == 0 ? 4096 : 2048), block_(block), end_block_(end_block) {
    Next();
  }
  bool active() const { return active_; }
  // Two lines of streams [kBegin, kEnd).
  template <int kBegin, int kEnd>
  inline __attribute__((always_inline)) void Ask() const {
#pragma GCC unroll 8
    for (int i = kBegin; i < kEnd; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(at_[i] + done_), _MM_HINT_NTA);
      _mm_prefetch(reinterpret_cast<const char*>(at_[i] + done_ + 64), _MM_HINT_NTA);
    }
  }
  // After all eight were asked.
  inline __attribute__((always_inline)) void Advance() {
    done_ += 128;
    if (done_ == piece_) Next();
  }
  // All lines of the streams.
  void AskAll() {
    for (int64_t i = 0; active_ && i < piece_; i += 128) {
      Ask<0, kStreams>();
      Advance();
    }
  }

 private:
  void Next() {
    active_ = block_ < end_block_;
    done_ = 0;
    for (int i = 0; active_ && i < kStreams; ++i) {
      if (block_ < end_block_) last_ = At(in_values_ ? task_.values : task_.keys, task_, block_) + offset_;
      at_[i] = last_;
      offset_ += piece_;
      if (offset_ < bytes_) continue;
      offset_ = 0;
      if (in_values_) ++block_;
      in_values_ = !in_values_;
    }
  }

  const AttentionTask& task_;
  const int64_t bytes_;  // of the keys (or values) of the task's heads in a block
  const int64_t piece_;
  int block_;
  const int end_block_;
  bool in_values_ = false, active_ = false;
  int64_t offset_ = 0, done_ = 0;
  const std::byte* last_ = nullptr;
  const std::byte* at_[kStreams];
};

// What a thread works in; arrays of rows lie as close as the task's shape allows.
struct alignas(64) QueryMemory {
  static constexpr int kNumbers = kQueryTaskHeads * kQueryTaskRows;     // rows
  uint16_t q[kNumbers * kWidest];                             // [head][pair of elements][row][2]
  float acc[kNumbers * kWidest];                              // [head][row][width]
  float before[kNumbers * kWidest];                           // acc when the group began
  float values[kNumbers * kWidest];                           // of earlier chunks
  float start[kNumbers][16];                                  // 128 (127 - m)
  float lanes[kNumbers][16];                                  // sums of the group's weights, a pair of tokens a lane
  float sums[kNumbers], max[kNumbers], first_max[kNumbers];
  Total totals[kNumbers];
  float s[2][kQueryTaskRows * kBlock];                             // of two heads of up to four rows, or one
  uint16_t weights[kQueryTaskRows * 32];                           // likewise
  uint16_t row[kWidest];
  std::byte edge[kWidest * kBlock * 2];
};

template <int kRows>
class Query {
 public:
  Query(const AttentionTask& task, QueryMemory& memory)
      : task_(task), memory_(memory), width_(task.head_width), position_(task.first_position),
        first_(MaxOf(0, position_ - (task.window - 1))), head_bytes_(static_cast<int64_t>(KvHeadBlockBytes(task.type, width_))),
        cap_(task.soft_cap * kLog2E * kUnit),
        asker_(task, MaxOf(first_ / kBlock, task.chunk_begin * kChunkBlocks),
               MinOf(position_ / kBlock + 1, task.chunk_end * kChunkBlocks)) {}

  void Attend() {
    asker_.AskAll();
    PackQueries();
    FindFirstMaxima();
    const bool alone = task_.chunk_end - task_.chunk_begin == 1 && task_.sinks == nullptr;
    const bool merges = task_.partials == nullptr && !alone;
    for (int i = 0; merges && i < Rows(); ++i) memory_.totals[i] = StartTotalOf(i);
    if (merges) Clear(memory_.values);
    for (int chunk = task_.chunk_begin; chunk < task_.chunk_end; ++chunk) {
      const int begin = MaxOf(first_ / kBlock, chunk * kChunkBlocks), end = MinOf(position_ / kBlock + 1, (chunk + 1) * kChunkBlocks);
      if (begin >= end) continue;
      AttendChunk(begin, end);
      for (int i = 0; i < Rows(); ++i) Deliver(i, chunk, alone);
    }
    for (int i = 0; merges && i < Rows(); ++i) WriteRowOf(i, memory_.totals[i].sum, memory_.values + Number(i));
  }

 private:
  int Rows() const { return task_.heads * kRows; }              // of all heads
  int64_t Number(int row) const { return int64_t{row} * width_; }
  uint32_t Seen(int b) const { return SeenBits(first_, position_, b); }

  void Clear(float* numbers) {
    for (int64_t i = 0; i < Number(Rows()); i += 16) Vec::Zero().Store(numbers + i);
  }

  // The task of one head alone, as the functions of attention_body.h take it.
  AttentionTask TaskOf(int head) const {
    AttentionTask task = task_;
    task.out += int64_t{head} * kRows * width_;
    if (task.sinks != nullptr) task.sinks += int64_t{head} * kRows;
    return task;
  }
  Total StartTotalOf(int i) const { return StartTotal(TaskOf(i / kRows), i % kRows); }
  void WriteRowOf(int i, float sum, const float* values) const { WriteRow(TaskOf(i / kRows), i % kRows, sum, values); }

  void PackQueries() {
    const float scale = task_.soft_cap > 0 ? task_.scale / task_.soft_cap : task_.scale * kLog2E * kUnit;
    for (int i = 0; i < Rows(); ++i) {
      const float* from = task_.q + Number(i);
      for (int e = 0; e < width_; e += 16) StoreRounded(_mm512_mul_ps(_mm512_loadu_ps(from + e), _mm512_set1_ps(scale)), memory_.row + e);
      uint16_t* to = memory_.q + Number(i / kRows * kRows) + i % kRows * 2;
      for (int e = 0; e < width_; e += 2) __builtin_memcpy(to + int64_t{e} * kRows, memory_.row + e, 4);
    }
  }

  void SetMax(int i, float max) {
    memory_.max[i] = max;
    Vec::Set(kBias - max).Store(memory_.start[i]);
  }

  // s[head][row][32] = start[row] (or 0) + q keys, of kHeads neighbours: sixteen sums hide what a product takes.
  template <int kHeads, bool kAsks, bool kFromStart>
  void ScoresOf(int head, int b, float* s) {
    const std::byte* keys = At(task_.keys, task_, b) + head * head_bytes_;
    const uint16_t* q = memory_.q + Number(head * kRows);
    const int64_t q_step = Number(kRows);
    __m512 acc[kHeads][kRows][2];
#pragma GCC unroll 2
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        acc[h][r][0] = acc[h][r][1] = kFromStart ? _mm512_load_ps(memory_.start[(head + h) * kRows + r]) : _mm512_setzero_ps();
      }
    }
    for (int e = 0; e < width_; e += 16) {  // 8 pairs, 1 KiB a head
      const auto pair = [&]<int kPair>() __attribute__((always_inline)) {
        if constexpr (kAsks) asker_.Ask<kPair * kHeads % kStreams, kPair * kHeads % kStreams + kHeads>();
#pragma GCC unroll 2
        for (int h = 0; h < kHeads; ++h) {
          const std::byte* at = keys + h * head_bytes_ + kPair * 128;
          const __m512bh low = (__m512bh)_mm512_loadu_si512(at), high = (__m512bh)_mm512_loadu_si512(at + 64);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            int two;
            __builtin_memcpy(&two, q + h * q_step + (kPair * kRows + r) * 2, 4);
            const __m512bh broadcast = (__m512bh)_mm512_set1_epi32(two);
            acc[h][r][0] = _mm512_dpbf16_ps(acc[h][r][0], broadcast, low);
            acc[h][r][1] = _mm512_dpbf16_ps(acc[h][r][1], broadcast, high);
          }
        }
        if constexpr (kAsks && (kPair + 1) * kHeads % kStreams == 0) asker_.Advance();
      };
      pair.template operator()<0>(), pair.template operator()<1>(), pair.template operator()<2>(), pair.template operator()<3>();
      pair.template operator()<4>(), pair.template operator()<5>(), pair.template operator()<6>(), pair.template operator()<7>();
      keys += 1024, q += 16 * kRows;
    }
#pragma GCC unroll 2
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r, s += kBlock) {
        _mm512_store_ps(s, acc[h][r][0]);
        _mm512_store_ps(s + 16, acc[h][r][1]);
      }
    }
  }
  template <int kHeads>
  void Scores(int head, int b, float* s) {
    if (cap_ > 0) return asker_.active() ? ScoresOf<kHeads, true, false>(head, b, s) : ScoresOf<kHeads, false, false>(head, b, s);
    asker_.active() ? ScoresOf<kHeads, true, true>(head, b, s) : ScoresOf<kHeads, false, true>(head, b, s);
  }

  void FindFirstMaxima() {
    const int b = first_ / kBlock;
    for (int head = 0; head < task_.heads; ++head) {
      ScoresOf<1, false, false>(head, b, memory_.s[0]);
      for (int r = 0; r < kRows; ++r) {
        const float most = LargestFiniteOf(memory_.s[0] + r * kBlock, Seen(b), cap_);
        memory_.first_max[head * kRows + r] = most - most == 0 ? most : 0;
      }
    }
  }

  template <bool kCapped, bool kEdge>
  void WeighRows(int head, int b, const float* s, uint16_t* to) {
    const Weigher<kCapped, kEdge> weigher(cap_);
    const __m512bh one = (__m512bh)_mm512_set1_epi16(0x3f80);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i weights = weigher.Of(s + r * kBlock, kCapped ? _mm512_load_ps(memory_.start[head * kRows + r]) : _mm512_setzero_ps(),
                                         kEdge ? Seen(b) : 0);
      _mm512_store_si512(to + r * 32, weights);
      float* lanes = memory_.lanes[head * kRows + r];
      _mm512_store_ps(lanes, _mm512_dpbf16_ps(_mm512_load_ps(lanes), (__m512bh)weights, one));
    }
  }
  void Weigh(int head, int b, const float* s, uint16_t* to) {
    const bool edge = Seen(b) != ~0u;
    if (cap_ > 0) return edge ? WeighRows<true, true>(head, b, s, to) : WeighRows<true, false>(head, b, s, to);
    edge ? WeighRows<false, true>(head, b, s, to) : WeighRows<false, false>(head, b, s, to);
  }

  // acc += weights values, for kVectors x 16 of the width.
  template <int kVectors, bool kAsks>
  inline __attribute__((always_inline)) void AddColumns(const uint16_t* weights, const std::byte* values, float* acc) {
    constexpr int kPairs = 16 / kVectors;  // of tokens, 1 KiB
    const int64_t stride = int64_t{width_} * 4;
    __m512 sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_loadu_ps(acc + Number(r) + v * 16);
    }
    for (int part = 0; part < kVectors; ++part, weights += 2 * kPairs) {
      const auto pair = [&]<int kPair>() __attribute__((always_inline)) {
        if constexpr (kAsks) asker_.Ask<kPair * kStreams / kPairs, (kPair + 1) * kStreams / kPairs>();
        __m512bh vectors[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) vectors[v] = (__m512bh)_mm512_loadu_si512(values + v * 64);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          int two;
          __builtin_memcpy(&two, weights + r * 32 + kPair * 2, 4);
          const __m512bh broadcast = (__m512bh)_mm512_set1_epi32(two);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], broadcast, vectors[v]);
        }
        values += stride;
      };
      pair.template operator()<0>(), pair.template operator()<1>(), pair.template operator()<2>(), pair.template operator()<3>();
      if constexpr (kPairs == 8) {
        pair.template operator()<4>(), pair.template operator()<5>(), pair.template operator()<6>(), pair.template operator()<7>();
      }
      if constexpr (kAsks) asker_.Advance();
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(acc + Number(r) + v * 16, sums[r][v]);
    }
  }
  template <bool kAsks>
  void AddValuesOf(int head, const uint16_t* weights, const std::byte* values) {
    float* acc = memory_.acc + Number(head * kRows);
    int e = 0;
    if constexpr (kRows <= 4) {
      for (; e + 64 <= width_; e += 64) AddColumns<4, kAsks>(weights, values + e * 4, acc + e);
    }
    for (; e < width_; e += 32) AddColumns<2, kAsks>(weights, values + e * 4, acc + e);
  }
  void AddValues(int head, int b, const uint16_t* weights) {
    const std::byte* values = At(task_.values, task_, b) + head * head_bytes_;
    if (Seen(b) != ~0u) values = WithoutUnseen(values, b);
    asker_.active() ? AddValuesOf<true>(head, weights, values) : AddValuesOf<false>(head, weights, values);
  }

  // A copy of the block with zeros where nothing may be seen, since 0 times what lies there could be NaN.
  const std::byte* WithoutUnseen(const std::byte* values, int b) {
    const uint32_t seen = Seen(b);
    std::byte* to = memory_.edge;
    for (int t = 0; t < kBlock; t += 2) {
      const __m512i mask = _mm512_set1_epi32(static_cast<int>((seen >> t & 1 ? 0xffffu : 0) | (seen >> (t + 1) & 1 ? 0xffff0000u : 0)));
      for (int64_t end = int64_t{t / 2 + 1} * width_ * 4, i = end - int64_t{width_} * 4; i < end; i += 64) {
        _mm512_store_si512(to + i, _mm512_and_si512(mask, _mm512_loadu_si512(values + i)));
      }
    }
    return to;
  }

  void AttendChunk(int begin, int end) {
    for (int i = 0; i < Rows(); ++i) {
      SetMax(i, memory_.first_max[i]);
      memory_.sums[i] = 0;
    }
    Clear(memory_.acc);
    for (int b = begin; b < end;) {
      const int group_end = MinOf(end, (b / kGroup + 1) * kGroup);
      BeginGroup(0, task_.heads);
      AddGroup(b, group_end);
      for (int head = 0; head < task_.heads; ++head) FinishGroup(head, b, group_end);
      b = group_end;
    }
  }

  void BeginGroup(int begin_head, int end_head) {
    const int begin = begin_head * kRows, end = end_head * kRows;
    for (int i = begin; i < end; ++i) Vec::Zero().Store(memory_.lanes[i]);
    for (int64_t n = Number(begin); n < Number(end); n += 16) Vec::Load(memory_.acc + n).Store(memory_.before + n);
  }

  // Heads two by two, where scores of both fit the registers. Scores of the next are multiplied between the weights and the values of
  // these: weights wait for scores and values for weights, but by then both are there.
  void AddGroup(int b, int end) {
    constexpr int kHeads = kRows <= 4 ? 2 : 1;
    const auto scores = [this](int head, int block, float* s) {
      if constexpr (kHeads == 2) {
        if (head + 1 < task_.heads) return Scores<2>(head, block, s);
      }
      Scores<1>(head, block, s);
    };
    int head = 0, turn = 0;
    scores(head, b, memory_.s[turn]);
    while (b < end) {
      const int count = MinOf(kHeads, task_.heads - head);
      for (int h = 0; h < count; ++h) Weigh(head + h, b, memory_.s[turn] + h * kRows * kBlock, memory_.weights + h * kRows * 32);
      const bool last = head + count == task_.heads;
      const int next_head = last ? 0 : head + count, next = last ? b + 1 : b;
      turn ^= 1;
      if (next < end) scores(next_head, next, memory_.s[turn]);
      for (int h = 0; h < count; ++h) AddValues(head + h, b, memory_.weights + h * kRows * 32);
      head = next_head, b = next;
    }
  }

  void FinishGroup(int head, int begin, int end) {
    float added[kRows];
    if (!AddSums(head, added)) {
      Redo(head, begin, end, added);
      AddSums(head, added);
    }
    for (int r = 0; r < kRows; ++r) memory_.sums[head * kRows + r] = added[r];
  }

  bool AddSums(int head, float* added) const {
    bool small = true;
    for (int r = 0; r < kRows; ++r) {
      const int i = head * kRows + r;
      added[r] = _mm512_reduce_add_ps(_mm512_load_ps(memory_.lanes[i])) + memory_.sums[i];
      small &= added[r] <= kMaxSum;
    }
    return small;
  }

  // Blocks [begin, end) again, as Pair::Redo does.
  void Redo(int head, int begin, int end, const float* added) {
    float most[kRows];
    for (int r = 0; r < kRows; ++r) most[r] = memory_.max[head * kRows + r];
    for (int b = begin; b < end; ++b) {
      ScoresOf<1, false, false>(head, b, memory_.s[0]);
      for (int r = 0; r < kRows; ++r) most[r] = __builtin_fmaxf(most[r], LargestOf(memory_.s[0] + r * kBlock, Seen(b), cap_));
    }
    for (int r = 0; r < kRows; ++r) {
      const int i = head * kRows + r;
      const bool grows = added[r] > kMaxSum, finite = most[r] < kInfinity;
      Vec factor = Vec::Set(1);
      if (grows) factor = finite ? Exp2OfNegative(Vec::Set((memory_.max[i] - most[r]) / kUnit)) : Vec::Set(__builtin_nanf(""));
      if (grows && finite) SetMax(i, most[r]);
      memory_.sums[i] *= factor.First();
      for (int64_t n = Number(i); n < Number(i + 1); n += 16) (Vec::Load(memory_.before + n) * factor).Store(memory_.acc + n);
    }
    BeginGroup(head, head + 1);
    for (int b = begin; b < end; ++b) {
      Scores<1>(head, b, memory_.s[0]);
      Weigh(head, b, memory_.s[0], memory_.weights);
      AddValues(head, b, memory_.weights);
    }
  }

  void Deliver(int i, int chunk, bool alone) {
    const float max = memory_.max[i] / kUnit, sum = memory_.sums[i];
    const float* acc = memory_.acc + Number(i);
    if (task_.partials != nullptr) {
      float* partial = task_.partials + i / kRows * task_.partials_stride +
                       (int64_t{chunk - task_.partials_chunk} * kRows + i % kRows) * AttentionPartialFloats(width_);
      partial[0] = max;
      partial[1] = sum;
      for (int e = 0; e < width_; e += 16) Vec::Load(acc + e).Store(partial + 16 + e);
    } else if (alone) {
      WriteRowOf(i, sum, acc);
    } else {
      MergeChunk(&memory_.totals[i], memory_.values + Number(i), max, sum, acc, width_, chunk == first_ / kAttentionChunk);
    }
  }

  const AttentionTask& task_;
  QueryMemory& memory_;
  const int width_, position_, first_;
  const int64_t head_bytes_;
  const float cap_;  // y = cap tanh(s) + start; 0: no soft cap
  Asker asker_;
};

template <int kRows>
void AttendQueryOf(const AttentionTask& task, QueryMemory& memory) {
  if constexpr (kRows > 0) {
    if (task.group == kRows) return Query<kRows>(task, memory).Attend();
    AttendQueryOf<kRows - 1>(task, memory);
  }
}

// REQUIRES: as AttentionTask::heads says.
void AttendQuery(const AttentionTask& task) {
  QueryMemory memory;
  AttendQueryOf<kQueryTaskRows>(task, memory);
}

}  // namespace
}  // namespace hone
