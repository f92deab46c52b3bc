// schedule = one token for each sequence that decodes, then chunks of prompts under way, then admission. Order of
// arrival everywhere: the oldest sequence moves in every step and is never preempted, so everyone becomes the oldest in
// time.
#include "engine/scheduler.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace hone {

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool* pool) : limits_(limits), pool_(pool) {
  HONE_CHECK(limits.max_sequences >= 1 && limits.max_sequences <= limits.step_tokens);
  running_.reserve(limits.max_sequences);
  batch_.sequences.reserve(limits.max_sequences);
}

bool Scheduler::Add(uint64_t id, int length, int final_length) {
  HONE_CHECK(length >= 1 && length <= final_length);
  if (BlockPool::BlocksFor(final_length) > pool_->blocks()) return false;
  const auto [it, is_new] = sequences_.try_emplace(id);
  HONE_CHECK(is_new, "a sequence was added twice");
  it->second = {.id = id, .arrival = arrivals_++, .length = length, .final_length = final_length};
  waiting_.push_back(&it->second);
  return true;
}

void Scheduler::Remove(uint64_t id) {
  const auto it = sequences_.find(id);
  HONE_CHECK(it != sequences_.end(), "an unknown sequence was removed");
  Sequence* sequence = &it->second;
  if (sequence->running) {
    running_.erase(std::find(running_.begin(), running_.end(), sequence));
  } else {
    waiting_.erase(std::find(waiting_.begin(), waiting_.end(), sequence));
  }
  pool_->ReleaseAll(&sequence->blocks);
  sequences_.erase(it);
}

const StepBatch& Scheduler::Schedule() {
  batch_.sequences.clear();
  batch_.admitted.clear();
  batch_.preempted.clear();
  batch_.tokens = 0;
  budget_ = limits_.step_tokens;

  ScheduleDecodes();
  ScheduleChunks();
  if (batch_.preempted.empty()) Admit();  // who was just preempted would only come back and be preempted again

  for (const Sequence* sequence : running_) {
    if (sequence->scheduled == 0) continue;
    batch_.sequences.push_back({.id = sequence->id,
                                .first_position = sequence->computed,
                                .rows = sequence->scheduled,
                                .samples = sequence->computed + sequence->scheduled == sequence->length});
    batch_.tokens += sequence->scheduled;
  }
  HONE_CHECK(batch_.tokens <= limits_.step_tokens);
  HONE_CHECK(!batch_.sequences.empty() || sequences_.empty(), "sequences are there but none can run");
  return batch_;
}

// One token for each sequence that lacks only its last one. Only here can blocks run out: a prompt has all of its
// blocks from admission on.
void Scheduler::ScheduleDecodes() {
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->length - running_[i]->computed != 1) continue;
    if (!GrowOrPreempt(i)) return;  // it was the newest: nobody is behind it
    Give(running_[i], 1);
  }
}

// Prompts under way, oldest first, take what is left. max_sequences <= step_tokens leaves at least one token: a
// sequence in its prompt is not among those that decode.
void Scheduler::ScheduleChunks() {
  for (Sequence* sequence : running_) {
    if (sequence->scheduled == 0) Give(sequence, std::min(budget_, sequence->length - sequence->computed));
  }
}

// First come, first served: who cannot start keeps those behind it waiting. Beside running sequences one spare block
// for each of them must stay, or the next steps would take back what admission gave.
void Scheduler::Admit() {
  while (!waiting_.empty() && budget_ > 0 && running() < limits_.max_sequences) {
    Sequence* sequence = waiting_.front();
    // A prefix index would be asked here: its blocks join the table (BlockPool::Share) and computed starts behind them.
    const int wanted = BlockPool::BlocksFor(sequence->length);
    if (wanted + running() > pool_->free_blocks()) return;
    HONE_CHECK(pool_->Allocate(wanted, &sequence->blocks));
    waiting_.pop_front();
    running_.push_back(sequence);
    sequence->running = true;
    batch_.admitted.push_back(sequence->id);
    Give(sequence, std::min(budget_, sequence->length));
  }
}

// Makes room for one more position of running_[index]. False: that sequence itself was preempted.
bool Scheduler::GrowOrPreempt(size_t index) {
  Sequence* sequence = running_[index];
  const int missing = BlockPool::BlocksFor(sequence->computed + 1) - static_cast<int>(sequence->blocks.size());
  if (missing <= 0) return true;
  while (!pool_->Allocate(missing, &sequence->blocks)) {
    HONE_CHECK(running_.size() > 1, "one sequence alone does not fit the pool");
    PreemptNewest();
    if (index == running_.size()) return false;
  }
  return true;
}

void Scheduler::PreemptNewest() {
  Sequence* victim = running_.back();
  running_.pop_back();
  budget_ += victim->scheduled;
  victim->scheduled = 0;
  victim->computed = 0;
  victim->running = false;
  pool_->ReleaseAll(&victim->blocks);
  waiting_.push_front(victim);  // it arrived before all that wait
  batch_.preempted.push_back(victim->id);
  ++preemptions_;
}

void Scheduler::Give(Sequence* sequence, int rows) {
  HONE_CHECK(rows >= 0 && rows <= budget_);
  sequence->scheduled = rows;
  budget_ -= rows;
}

void Scheduler::Commit() {
  for (Sequence* sequence : running_) {
    sequence->computed += sequence->scheduled;
    sequence->scheduled = 0;
  }
}

void Scheduler::Append(uint64_t id) {
  Sequence& sequence = sequences_.at(id);
  HONE_CHECK(sequence.running && sequence.computed == sequence.length && sequence.length < sequence.final_length);
  ++sequence.length;
}

std::span<const int32_t> Scheduler::blocks(uint64_t id) const {
  const auto it = sequences_.find(id);
  HONE_CHECK(it != sequences_.end() && it->second.running);
  return it->second.blocks;
}

std::string Scheduler::Audit() const {
  if (std::string problem = pool_->Audit(); !problem.empty()) return problem;
  std::vector<uint64_t> owner(pool_->blocks(), 0);
  int owned = 0;
  uint64_t previous = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->arrival < previous) return fmt::format("sequence {} runs out of order", sequence->id);
    previous = sequence->arrival;
    if (BlockPool::BlocksFor(sequence->computed + sequence->scheduled) > static_cast<int>(sequence->blocks.size())) {
      return fmt::format("sequence {} has rows without a block", sequence->id);
    }
    for (const int32_t block : sequence->blocks) {
      if (owner[block] != 0) return fmt::format("block {} is in two tables", block);
      owner[block] = sequence->id + 1;
      ++owned;
      if (!pool_->IsWritable(block)) return fmt::format("block {} of sequence {} is not its own", block, sequence->id);
    }
  }
  for (const Sequence* sequence : waiting_) {
    if (sequence->arrival < previous) return fmt::format("sequence {} waits out of order", sequence->id);
    previous = sequence->arrival;
    if (!sequence->blocks.empty()) return fmt::format("sequence {} waits but owns blocks", sequence->id);
  }
  if (owned != pool_->used_blocks()) return fmt::format("{} blocks in tables, {} in use", owned, pool_->used_blocks());
  if (running_.size() + waiting_.size() != sequences_.size()) return "a sequence neither runs nor waits";
  return "";
}

}  // namespace hone
