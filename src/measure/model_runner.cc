// See model_runner.h.
#include "measure/model_runner.h"

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "cache/block_pool.h"
#include "engine/cache_layers.h"

namespace hone {

namespace {

KvCacheShape CacheShape(const ModelConfig& config, KvType kv, int sequences, int length) {
  return {.type = kv,
          .layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_width = config.head_width,
          .blocks = BlockPool::BlocksFor(length) * sequences};
}

}  // namespace

// Sixteen at a time, as samplers choose: with a vocabulary of 128k it is part of the step that is timed.
int32_t FirstLargest(std::span<const float> x) {
  const size_t whole = x.size() / 16 * 16;
  float largest = -INFINITY;
  bool finite = true;
  for (size_t i = whole; i < x.size(); ++i) finite &= std::isfinite(x[i]), largest = std::max(largest, x[i]);
  __m128 most[4], rest[4];  // the sum of x - x: NaN if one is not finite
  for (int j = 0; j < 4; ++j) most[j] = _mm_set1_ps(-INFINITY), rest[j] = _mm_setzero_ps();
  for (size_t i = 0; i < whole; i += 16) {
    for (int j = 0; j < 4; ++j) {
      const __m128 four = _mm_loadu_ps(&x[i + 4 * j]);
      most[j] = _mm_max_ps(four, most[j]);
      rest[j] = _mm_add_ps(rest[j], _mm_sub_ps(four, four));
    }
  }
  alignas(16) float lanes[8];
  _mm_store_ps(lanes, _mm_max_ps(_mm_max_ps(most[0], most[1]), _mm_max_ps(most[2], most[3])));
  _mm_store_ps(lanes + 4, _mm_add_ps(_mm_add_ps(rest[0], rest[1]), _mm_add_ps(rest[2], rest[3])));
  for (int j = 0; j < 4; ++j) largest = std::max(largest, lanes[j]), finite &= lanes[4 + j] == 0;
  if (!finite) return -1;
  const __m128 wanted = _mm_set1_ps(largest);
  size_t first = 0;
  while (first < whole && _mm_movemask_ps(_mm_cmpeq_ps(_mm_loadu_ps(&x[first]), wanted)) == 0) first += 4;
  while (x[first] != largest) ++first;
  return static_cast<int32_t>(first);
}

uint64_t ModelRunner::KvBytes(const ModelConfig& config, KvType kv, int sequences, int length) {
  return CacheShape(config, kv, 1, length).total_bytes() * static_cast<uint64_t>(sequences);
}

ModelRunner::ModelRunner(Model& model, const Runtime& runtime, KvType kv, int sequences, int length, int logit_rows)
    : model_(model),
      runtime_(runtime),
      length_(length),
      blocks_per_sequence_(BlockPool::BlocksFor(length)),
      logit_rows_(logit_rows),
      vocab_(static_cast<size_t>(model.config().vocab)),
      cache_(CacheShape(model.config(), kv, sequences, length)),
      tables_(static_cast<size_t>(sequences) * blocks_per_sequence_),
      logits_(sizeof(float) * vocab_ * static_cast<size_t>(logit_rows)) {
  std::iota(tables_.begin(), tables_.end(), 0);
}

void ModelRunner::Forward(std::span<const Rows> batch) {
  tokens_.clear();
  wanted_.clear();
  rows_.clear();
  for (const Rows& rows : batch) {
    const int count = static_cast<int>(rows.tokens.size());
    HONE_CHECK(rows.first_position + count <= length_ && rows.logits <= count, "outside of what was reserved");
    rows_.push_back({.first_row = static_cast<int>(tokens_.size()),
                     .rows = count,
                     .first_position = rows.first_position,
                     .final_length = length_,
                     .blocks = tables_.data() + static_cast<size_t>(rows.sequence) * blocks_per_sequence_});
    tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
    for (int i = rows.logits; i > 0; --i) wanted_.push_back(static_cast<int32_t>(tokens_.size()) - i);
  }
  HONE_CHECK(static_cast<int>(wanted_.size()) <= logit_rows_, "more logits than were reserved");
  model_.Forward({.tokens = tokens_, .sequences = rows_, .logit_rows = wanted_}, CacheLayers(cache_), logits_.as<float>());
}

bool ModelRunner::Prefill(int sequence, std::span<const int32_t> tokens, bool (*stop)()) {
  const size_t most = static_cast<size_t>(model_.options().max_rows);
  for (size_t first = 0; first < tokens.size(); first += most) {
    if (stop != nullptr && stop()) return false;
    const auto part = tokens.subspan(first, std::min(most, tokens.size() - first));
    const Rows rows{.sequence = sequence,
                    .first_position = static_cast<int>(first),
                    .tokens = part,
                    .logits = first + most >= tokens.size() ? 1 : 0};
    Forward({&rows, 1});
  }
  return true;
}

void ModelRunner::FillByCopy(int to, int tokens, int filled) {
  const int whole = std::max(1, filled / kKvBlockTokens), blocks = BlockPool::BlocksFor(tokens);
  for (int i = 0; i < blocks; ++i) {
    const int from_block = tables_[i % whole], to_block = tables_[static_cast<size_t>(to) * blocks_per_sequence_ + i];
    if (from_block != to_block) cache_.CopyBlock(from_block, to_block);
  }
}

void ModelRunner::Fork(int from, int to, int tokens) {
  for (int i = 0; i < BlockPool::BlocksFor(tokens); ++i) {
    cache_.CopyBlock(tables_[static_cast<size_t>(from) * blocks_per_sequence_ + i],
                     tables_[static_cast<size_t>(to) * blocks_per_sequence_ + i]);
  }
}

std::vector<int32_t> ModelRunner::Greedy(int rows) const {
  std::vector<int32_t> best(rows);
  runtime_.threads->ParallelFor(static_cast<size_t>(rows), 1, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) best[row] = FirstLargest(logits(static_cast<int>(row)));
  });
  return best;
}

}  // namespace hone
