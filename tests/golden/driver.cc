// See driver.h.
#include "golden/driver.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "engine/cache_layers.h"

namespace hone::golden {

Machine::Machine(int threads) : cpu_(ReadCpuFacts()), log_(LogLevel::kOff), threads_(threads) {}

Runtime Machine::runtime(Isa isa) {
  return {.cpu = &cpu_, .isa = isa, .threads = &threads_, .log = &log_, .clock = &clock_};
}

std::vector<Isa> Machine::isas() const {
  std::vector<Isa> isas;
  for (const Isa isa : AllIsas()) {
    if (cpu_.Supports(isa)) isas.push_back(isa);
  }
  return isas;
}

namespace {

KvCacheShape ShapeOf(const ModelConfig& config, int blocks, KvType type) {
  return {.type = type,
          .layers = config.layers,
          .kv_heads = config.kv_heads,
          .head_width = config.head_width,
          .blocks = blocks};
}

}  // namespace

Sequences::Sequences(Model& model, int blocks, KvType type)
    : model_(model), cache_(ShapeOf(model.config(), blocks, type)) {
  for (int i = 0; i < blocks; ++i) free_blocks_.push_back(i);
  Rng rng(7);
  for (size_t i = free_blocks_.size(); i > 1; --i) std::swap(free_blocks_[i - 1], free_blocks_[rng.Below(i)]);
}

std::vector<std::vector<float>> Sequences::Feed(const std::vector<Chunk>& chunks, const StateObserver* states) {
  std::vector<int32_t> wanted;
  for (const Chunk& chunk : chunks) {
    for (size_t i = 0; i < chunk.tokens.size(); ++i) wanted.push_back(static_cast<int32_t>(wanted.size()));
  }
  return Feed(chunks, wanted, states);
}

std::vector<std::vector<float>> Sequences::Feed(const std::vector<Chunk>& chunks, const std::vector<int32_t>& wanted,
                                                const StateObserver* states) {
  std::vector<int32_t> tokens;
  std::vector<SequenceRows> rows;
  for (const Chunk& chunk : chunks) {
    const int first = length_[chunk.sequence], count = static_cast<int>(chunk.tokens.size());
    std::vector<int32_t>& blocks = blocks_[chunk.sequence];
    while (static_cast<int>(blocks.size()) * kKvBlockTokens < first + count) {
      HONE_CHECK(!free_blocks_.empty());
      blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
    rows.push_back({.first_row = static_cast<int>(tokens.size()),
                    .rows = count,
                    .first_position = first,
                    .final_length = std::max(final_length_[chunk.sequence], first + count),
                    .blocks = blocks.data(),
                    .adapter = chunk.adapter});
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
    length_[chunk.sequence] = first + count;
  }
  const size_t vocab = model_.config().vocab;
  std::vector<float> logits(wanted.size() * vocab);
  model_.Forward({.tokens = tokens, .sequences = rows, .logit_rows = wanted}, CacheLayers(cache_), logits.data(),
                 states);
  std::vector<std::vector<float>> result;
  for (size_t i = 0; i < wanted.size(); ++i) result.emplace_back(&logits[i * vocab], &logits[i * vocab] + vocab);
  return result;
}

std::unique_ptr<Model> LoadModel(const std::string& path, const Runtime& runtime, const LoadOptions& options) {
  auto checkpoint = Checkpoint::Open(path);
  if (!checkpoint.has_value()) {
    ADD_FAILURE() << checkpoint.error().message;
    return nullptr;
  }
  auto model = Model::Load(*checkpoint, runtime, options);
  if (!model.has_value()) {
    ADD_FAILURE() << model.error().message;
    return nullptr;
  }
  return std::move(model).value();
}

int ArgMax(const std::vector<float>& logits) {
  return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace hone::golden
