// ModelRunner: a model with a KV cache of its own, driven step by step. What bench and eval run: the same Forward, the
// same chunks and the same kernels as the engine's steps, without queues and text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/runtime.h"
#include "cache/kv_cache.h"
#include "models/model.h"

namespace hone {

// Where the first of the largest numbers is; -1 if one is not finite. REQUIRES: not empty.
int32_t FirstLargest(std::span<const float> x);

class ModelRunner {
 public:
  // Room for `sequences` sequences of `length` tokens each, and for the logits of `logit_rows` rows of one step.
  ModelRunner(Model& model, const Runtime& runtime, KvType kv, int sequences, int length, int logit_rows);

  static uint64_t KvBytes(const ModelConfig& config, KvType kv, int sequences, int length);

  struct Rows {
    int sequence = 0;
    int first_position = 0;
    std::span<const int32_t> tokens;
    int logits = 1;  // for how many of the last rows logits are wanted
  };
  // One forward pass. Logits of all wanted rows lie one after another in logits(), in order. REQUIRES: rows of all
  // together at most the model's max_rows, positions inside `length`, logits asked for at most `logit_rows`.
  void Forward(std::span<const Rows> batch);
  std::span<const float> logits(int row) const {
    return {logits_.as<float>() + static_cast<size_t>(row) * vocab_, vocab_};
  }

  // All of `tokens` for one sequence from position 0 on, in steps of at most max_rows; logits of the last row. `stop`,
  // if given, is asked between steps; false if it said so.
  bool Prefill(int sequence, std::span<const int32_t> tokens, bool (*stop)() = nullptr);

  // Sequence `to` gets the first `tokens` positions of the context of sequence 0, whose first `filled` are computed and
  // repeat from there on: values that a model made, at no cost. For timing only; the copied keys have the positions of
  // the originals.
  void FillByCopy(int to, int tokens, int filled);

  // Sequence `to` gets the keys and values of the first `tokens` positions of `from`, as they are.
  void Fork(int from, int to, int tokens);

  // The first of the highest logits of each of the last step's rows; -1 where one is not finite.
  std::vector<int32_t> Greedy(int rows) const;

  Model& model() { return model_; }
  const Runtime& runtime() const { return runtime_; }

 private:
  Model& model_;
  const Runtime runtime_;
  const int length_, blocks_per_sequence_, logit_rows_;
  const size_t vocab_;
  KvCache cache_;
  std::vector<int32_t> tables_;  // [sequences][blocks_per_sequence_]
  Buffer logits_;
  std::vector<int32_t> tokens_, wanted_;
  std::vector<SequenceRows> rows_;
};

}  // namespace hone
