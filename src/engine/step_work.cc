// Hidden states are looked at only in steps in which somebody wants them.
#include "engine/step_work.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "models/op_times.h"

namespace hone {

StepWork::StepWork(int step_tokens, int max_sequences, int logit_rows, int vocab, int threads)
    : vocab_(vocab), scratch_(threads), logits_(sizeof(float) * logit_rows * static_cast<size_t>(vocab)) {
  tokens_.reserve(step_tokens);
  rows_.reserve(max_sequences);
  sequences_.reserve(max_sequences);
  order_.reserve(max_sequences);
  logit_rows_.reserve(logit_rows);
  chosen_.reserve(logit_rows);
  for (Candidates& scratch : scratch_) scratch.Reserve(vocab);
}

void StepWork::Build(const StepBatch& batch, const Scheduler& scheduler, const Lookup& find) {
  tokens_.clear();
  rows_.clear();
  sequences_.clear();
  logit_rows_.clear();
  chosen_.clear();
  pools_ = false;
  cost_ = {};
  Order(batch, find);
  for (const auto& [step, sequence] : order_) Add(*step, scheduler, sequence);
}

// Sequences with the same adapter stand together, so that its matrices are read once; those without one come first.
void StepWork::Order(const StepBatch& batch, const Lookup& find) {
  order_.clear();
  bool adapted = false;
  for (const StepSequence& step : batch.sequences) {
    order_.emplace_back(&step, &find(step.id));
    adapted = adapted || order_.back().second->request().adapter != nullptr;
  }
  if (!adapted) return;
  std::sort(order_.begin(), order_.end(), [](const auto& x, const auto& y) {
    const Adapter *a = x.second->request().adapter.get(), *b = y.second->request().adapter.get();
    return a != b ? std::less<const Adapter*>()(a, b) : x.first < y.first;
  });
}

void StepWork::Add(const StepSequence& step, const Scheduler& scheduler, Sequence* sequence) {
  const int first_row = static_cast<int>(tokens_.size());
  const auto ids = sequence->tokens().subspan(step.first_position, step.rows);
  rows_.push_back({.first_row = first_row,
                   .rows = step.rows,
                   .first_position = step.first_position,
                   .final_length = sequence->final_length(),
                   .blocks = scheduler.blocks(step.id).data(),
                   .adapter = sequence->request().adapter.get()});
  sequences_.push_back(sequence);
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  if (step.rows == 1 && step.samples) {
    ++cost_.decodes;
  } else {
    cost_.prompt_tokens += step.rows;
    cost_.positions += step.rows * (step.first_position + 0.5 * step.rows);
  }
  for (int i = 0; sequence->WantsPromptLogits() && i < step.rows; ++i) {
    const int position = step.first_position + i + 1;
    if (position >= sequence->next_prompt_logit() && position < sequence->prompt_tokens()) Want(sequence, first_row + i, position);
  }
  if (step.samples && !sequence->prompt_only()) Want(sequence, first_row + step.rows - 1, -1);
  pools_ = pools_ || sequence->request().pooling != Pooling::kNone;
}

void StepWork::Want(Sequence* sequence, int row, int prompt_position) {
  logit_rows_.push_back(row);
  chosen_.push_back({sequence, prompt_position, {}});
}

void StepWork::Run(Model& model, const KvLayers& kv, ThreadPool* threads) {
  HONE_CHECK(logits_.size() >= sizeof(float) * logit_rows_.size() * static_cast<size_t>(vocab_));
  const int last = model.config().layers + 1, width = model.config().width;
  const StateObserver observe = [&](int index, const float* states) {
    if (index == last) Pool(states, width);
  };
  model.Forward({.tokens = tokens_, .sequences = rows_, .logit_rows = logit_rows_}, kv, logits_.as<float>(),
                pools_ ? &observe : nullptr);
  const OpScope scope(model.op_times(), Op::kSample);
  const size_t count = chosen_.size();
  if (count <= 1 || threads == nullptr) return Choose(0, count, logits_.as<float>(), &scratch_[0]);
  threads->Run([&](int worker) {
    const auto [begin, end] = threads->Range(count, 1, worker);
    Choose(begin, end, logits_.as<float>(), &scratch_[worker]);
  });
}

void StepWork::Choose(size_t begin, size_t end, const float* logits, Candidates* scratch) {
  for (size_t i = begin; i < end; ++i) {
    const std::span<const float> row(logits + i * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_));
    Chosen& chosen = chosen_[i];
    chosen.token = chosen.prompt_position < 0 ? chosen.sequence->Choose(row, scratch)
                                              : chosen.sequence->Score(row, chosen.prompt_position, scratch);
  }
}

void StepWork::Pool(const float* states, int width) const {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (sequences_[i]->request().pooling == Pooling::kNone) continue;
    for (int row = 0; row < rows_[i].rows; ++row) {
      const float* state = states + static_cast<size_t>(rows_[i].first_row + row) * static_cast<size_t>(width);
      sequences_[i]->AddState(rows_[i].first_position + row, {state, static_cast<size_t>(width)});
    }
  }
}

}  // namespace hone
