// StepWork: one step as the model and the samplers see it: rows of all sequences, which logits and hidden states are
// wanted, and by whom. All memory is reserved once; belongs to the thread that steps.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "engine/step_controller.h"
#include "models/model.h"

namespace hone {

class StepWork {
 public:
  // `logit_rows`: the most rows of a step whose logits are wanted.
  StepWork(int step_tokens, int max_sequences, int logit_rows, int vocab, int threads);

  using Lookup = std::function<Sequence&(uint64_t id)>;
  void Build(const StepBatch& batch, const Scheduler& scheduler, const Lookup& find);
  // One forward pass, then what each sequence chooses from its logits. Each sequence looks at its own logits with its
  // own state, so it does not matter which thread does it.
  void Run(Model& model, const KvLayers& kv, ThreadPool* threads);

  struct Chosen {
    Sequence* sequence = nullptr;
    int prompt_position = -1;  // of the token that the logits are for; -1: the next one was sampled
    TokenResult token;
  };
  // By rows, so the prompt tokens of a sequence come in order.
  std::vector<Chosen>& chosen() { return chosen_; }
  int sequences() const { return static_cast<int>(rows_.size()); }
  const StepCost& cost() const { return cost_; }  // without its time

 private:
  void Order(const StepBatch& batch, const Lookup& find);
  void Add(const StepSequence& step, const Scheduler& scheduler, Sequence* sequence);
  void Want(Sequence* sequence, int row, int prompt_position);
  void Pool(const float* states, int width) const;
  void Choose(size_t begin, size_t end, const float* logits, Candidates* scratch);

  const int vocab_;
  std::vector<int32_t> tokens_;
  std::vector<SequenceRows> rows_;
  std::vector<Sequence*> sequences_;  // one an entry of rows_
  std::vector<std::pair<const StepSequence*, Sequence*>> order_;  // of the step: those of one adapter together
  std::vector<int32_t> logit_rows_;
  std::vector<Chosen> chosen_;  // one a logit row
  std::vector<Candidates> scratch_;  // one a thread
  Buffer logits_;                    // [logit_rows][V]
  bool pools_ = false;
  StepCost cost_;
};

}  // namespace hone
