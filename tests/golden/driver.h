// What whole-model tests stand on: a machine with every ISA of this CPU, and sequences with a paged F32 cache that are
// fed in chunks of any cut.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/runtime.h"
#include "cache/kv_cache.h"
#include "models/model.h"

namespace hone::golden {

// Runtime for a test. Quiet; `threads` threads.
class Machine {
 public:
  explicit Machine(int threads = 2);
  Runtime runtime(Isa isa);
  std::vector<Isa> isas() const;  // all that this CPU has, scalar first

 private:
  CpuFacts cpu_;
  Log log_;
  Clock clock_;
  ThreadPool threads_;
};

// Tokens of one sequence in a step.
struct Chunk {
  int sequence = 0;
  std::vector<int32_t> tokens;
  const Adapter* adapter = nullptr;
};

// Sequences of one model. Blocks are handed out in a scrambled order, so that neighbours in a sequence are none in
// memory.
class Sequences {
 public:
  Sequences(Model& model, int blocks, KvType type = KvType::kF32);
  // The length a sequence will reach, if it matters (longrope).
  void SetFinalLength(int sequence, int length) { final_length_[sequence] = length; }
  // One step; logits of every row, [rows][V].
  std::vector<std::vector<float>> Feed(const std::vector<Chunk>& chunks, const StateObserver* states = nullptr);
  // One step; logits of the rows in `wanted` alone.
  std::vector<std::vector<float>> Feed(const std::vector<Chunk>& chunks, const std::vector<int32_t>& wanted,
                                       const StateObserver* states = nullptr);

 private:
  Model& model_;
  KvCache cache_;
  std::vector<int32_t> free_blocks_;
  std::map<int, std::vector<int32_t>> blocks_;
  std::map<int, int> length_, final_length_;
};

std::unique_ptr<Model> LoadModel(const std::string& path, const Runtime& runtime, const LoadOptions& options = {});

int ArgMax(const std::vector<float>& logits);

}  // namespace hone::golden
