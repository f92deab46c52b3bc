// A step is one walk over running and waiting sequences together, the most important first. Who lacks one token gets
// it; who lacks more gets a part of the prompt budget; who waits is admitted. So victims of a preemption, taken from the
// other end, never had rows yet.
#include "engine/scheduler.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace hone {

Scheduler::Scheduler(const SchedulerLimits& limits, BlockPool* pool)
    : limits_(limits), pool_(pool), index_(pool->blocks(), limits.secret, pool->block_tokens()) {
  HONE_CHECK(limits.max_sequences >= 1 && limits.max_sequences <= limits.step_tokens);
  HONE_CHECK(limits.prompt_logit_rows >= 1 && limits.policy != nullptr);
  running_.reserve(limits.max_sequences);
  batch_.sequences.reserve(limits.max_sequences);
}

bool Scheduler::Add(const NewSequence& added) {
  const int length = static_cast<int>(added.tokens.size());
  HONE_CHECK(length >= 1 && length <= added.final_length);
  if (pool_->BlocksOf(added.final_length) > pool_->blocks()) return false;
  const auto [it, is_new] = sequences_.try_emplace(added.id);
  HONE_CHECK(is_new, "a sequence was added twice");
  Sequence& sequence = it->second;
  sequence.id = added.id;
  sequence.rank = {.arrival = arrivals_++, .priority = added.priority, .last_served = clock_.step};
  sequence.tokens.assign(added.tokens.begin(), added.tokens.end());
  sequence.prompt_length = length;
  sequence.final_length = added.final_length;
  sequence.reuse = added.reuse;
  sequence.prompt_logits = added.prompt_logits;
  if (!added.root.empty()) sequence.root = index_.OpenRoot(added.root);
  if (limits_.policy->joined != nullptr) limits_.policy->joined(&sequence.rank, &clock_, length);
  Insert(&sequence, &waiting_);
  return true;
}

void Scheduler::Remove(uint64_t id) {
  const auto it = sequences_.find(id);
  HONE_CHECK(it != sequences_.end(), "an unknown sequence was removed");
  Sequence* sequence = &it->second;
  std::vector<Sequence*>& list = sequence->running ? running_ : waiting_;
  list.erase(std::find(list.begin(), list.end(), sequence));
  ReleaseBlocks(sequence);
  if (sequence->root != 0) index_.CloseRoot(sequence->root);
  sequences_.erase(it);
}

void Scheduler::Append(uint64_t id, int32_t token) {
  const auto it = sequences_.find(id);
  HONE_CHECK(it != sequences_.end() && it->second.running);
  Sequence& sequence = it->second;
  HONE_CHECK(sequence.computed == sequence.length() && sequence.length() < sequence.final_length);
  sequence.tokens.push_back(token);
}

// Ranks change at most a little from step to step.
void Scheduler::Sort(std::vector<Sequence*>* list) const {
  const auto before = [this](const Sequence* a, const Sequence* b) { return Before(a, b); };
  if (!std::is_sorted(list->begin(), list->end(), before)) std::sort(list->begin(), list->end(), before);
}

void Scheduler::Insert(Sequence* sequence, std::vector<Sequence*>* list) const {
  const auto before = [this](const Sequence* a, const Sequence* b) { return Before(a, b); };
  list->insert(std::upper_bound(list->begin(), list->end(), sequence, before), sequence);
}

const StepBatch& Scheduler::Schedule(int prompt_tokens) {
  batch_.sequences.clear();
  batch_.copies.clear();
  batch_.admitted.clear();
  batch_.preempted.clear();
  batch_.tokens = 0;
  ++clock_.step;
  if (limits_.policy->aged != nullptr) {
    for (const std::vector<Sequence*>* list : {&running_, &waiting_}) {
      for (Sequence* sequence : *list) limits_.policy->aged(&sequence->rank, &clock_);
    }
  }
  Sort(&running_);
  Sort(&waiting_);

  places_ = limits_.max_sequences;
  tokens_left_ = limits_.step_tokens;
  prompt_left_ = std::clamp(prompt_tokens, 1, limits_.step_tokens);
  logit_rows_left_ = limits_.prompt_logit_rows;
  const auto decodes = [](const Sequence* sequence) { return sequence->missing() == 1; };
  decodes_left_ = static_cast<int>(std::count_if(running_.begin(), running_.end(), decodes));

  size_t run = 0, wait = 0;
  bool admits = true;
  while (places_ > 0) {
    // Who was just preempted would only come back and be preempted again.
    admits = admits && wait < waiting_.size() && batch_.preempted.empty();
    const bool runs = run < running_.size();
    if (!admits || (runs && Before(running_[run], waiting_[wait]))) {
      if (!runs) break;
      RunOne(&run);
      continue;
    }
    Sequence* sequence = waiting_[wait];
    switch (TryAdmit(sequence, run)) {
      case Admitted::kYes:
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(wait));
        running_.insert(running_.begin() + static_cast<std::ptrdiff_t>(run), sequence);
        Give(sequence, RowsFor(*sequence));
        ++run;
        break;
      case Admitted::kAwaits: ++wait; break;
      case Admitted::kNoRoom: admits = false; break;
    }
  }
  ListBatch();
  return batch_;
}

void Scheduler::ListBatch() {
  for (const Sequence* sequence : running_) {
    if (sequence->scheduled == 0) continue;
    batch_.sequences.push_back({.id = sequence->id,
                                .first_position = sequence->computed,
                                .rows = sequence->scheduled,
                                .samples = sequence->scheduled == sequence->missing()});
    batch_.tokens += sequence->scheduled;
  }
  HONE_CHECK(batch_.tokens <= limits_.step_tokens);
  HONE_CHECK(!batch_.sequences.empty() || sequences_.empty(), "sequences are there but none can run");
}

// The running sequence at *index gets its rows, if there are any for it; *index moves on.
void Scheduler::RunOne(size_t* index) {
  Sequence* sequence = running_[*index];
  if (sequence->missing() == 1) {
    if (!GrowOrPreempt(*index)) return;  // it was the last itself
    --decodes_left_;
    Give(sequence, 1);
  } else if (const int rows = RowsFor(*sequence); rows > 0) {
    Give(sequence, rows);
  }
  ++*index;
}

// What a sequence that lacks several tokens gets. Each decode that will still have a place keeps its token; as
// max_sequences <= step_tokens, the first sequence gets at least one.
int Scheduler::RowsFor(const Sequence& sequence) const {
  int rows = std::min({sequence.missing(), prompt_left_, tokens_left_ - std::min(decodes_left_, places_ - 1)});
  if (sequence.prompt_logits && sequence.computed < sequence.prompt_length) rows = std::min(rows, logit_rows_left_);
  return rows;
}

void Scheduler::Give(Sequence* sequence, int rows) {
  HONE_CHECK(rows > 0 && rows <= sequence->missing() && rows <= tokens_left_ && places_ > 0);
  const bool is_prompt = sequence->missing() > 1;
  if (is_prompt && sequence->prompt_logits && sequence->computed < sequence->prompt_length) logit_rows_left_ -= rows;
  if (is_prompt) prompt_left_ = std::max(0, prompt_left_ - rows);
  sequence->scheduled = rows;
  sequence->rank.last_served = clock_.step;
  tokens_left_ -= rows;
  --places_;
}

// `more_important` running sequences come before it. Beyond max_sequences only somebody who outranks a running one is
// let in: that one pauses, with its blocks.
Scheduler::Admitted Scheduler::TryAdmit(Sequence* sequence, size_t more_important) {
  if (RowsFor(*sequence) < 1) return Admitted::kNoRoom;
  if (running() >= limits_.max_sequences && !limits_.policy->outranks(sequence->rank, running_.back()->rank)) {
    return Admitted::kNoRoom;
  }
  if (Awaits(sequence)) return Admitted::kAwaits;
  if (!MakeRoom(*sequence, more_important)) return Admitted::kNoRoom;
  TakeBlocks(sequence);
  return Admitted::kYes;
}

// Whether a running sequence is about to compute what this one needs: then it waits for that, and shares it.
bool Scheduler::Awaits(Sequence* sequence) {
  if (sequence->root == 0 || !sequence->reuse) return false;
  if (sequence->awaited != 0) {
    const auto it = sequences_.find(sequence->awaited);
    if (it != sequences_.end() && Computes(it->second, sequence->awaited_tokens)) return true;
    sequence->awaited = 0;
  }
  const int most = sequence->length() - 1;
  int best = 0, best_end = 0;
  uint64_t best_id = 0;
  for (const Sequence* other : running_) {
    if (other->root != sequence->root || other->computed >= other->prompt_length) continue;
    const int shorter = std::min(most, other->length());
    const auto begin = sequence->tokens.begin();
    const int same = static_cast<int>(std::mismatch(begin, begin + shorter, other->tokens.begin()).first - begin);
    // A block can be shared when it is full, or when the prompt that ends in it is computed.
    const int end = std::min(pool_->BlocksOf(same) * pool_->block_tokens(), other->length());
    if (same <= best || !Computes(*other, end)) continue;
    best = same;
    best_end = end;
    best_id = other->id;
  }
  if (best == 0) return false;
  index_.Find(sequence->root, std::span(sequence->tokens).first(most), &match_);
  const int gain = best - match_.tokens();
  if (gain <= 0 || (gain < pool_->block_tokens() && best < most)) return false;  // not worth a step
  sequence->awaited = best_id;
  sequence->awaited_tokens = best_end;
  return true;
}

// Whether the sequence will have computed its first `tokens` tokens soon, and has not yet.
bool Scheduler::Computes(const Sequence& sequence, int tokens) const {
  return sequence.running && sequence.indexed && sequence.computed < tokens &&
         sequence.rank.last_served + 1 >= clock_.step;
}

// Blocks for all known tokens, of which match_ holds those that are cached. Beside running sequences one spare block
// for each must stay, or the next steps would take back what admission gave.
bool Scheduler::MakeRoom(const Sequence& sequence, size_t more_important) {
  for (bool first = true;; first = false) {
    match_ = {};
    if (sequence.root != 0 && sequence.reuse) {
      index_.Find(sequence.root, std::span(sequence.tokens).first(sequence.length() - 1), &match_);
    }
    const auto is_cached = [this](int32_t block) { return pool_->references(block) == 0; };
    const int revived = static_cast<int>(std::count_if(match_.blocks.begin(), match_.blocks.end(), is_cached));
    const int fresh = pool_->BlocksOf(sequence.length()) - static_cast<int>(match_.blocks.size());
    const int needed = fresh + revived + std::min(running(), limits_.max_sequences);
    const int source = match_.part >= 0 && is_cached(match_.part) ? 1 : 0;
    if (needed + source <= pool_->free_blocks()) return true;
    if (needed <= pool_->free_blocks()) {  // the block to copy from would have to make room itself
      match_.part = -1;
      match_.part_tokens = 0;
      return true;
    }
    int could_be_free = pool_->free_blocks();
    for (size_t i = running_.size(); first && i > more_important; --i) {
      if (!limits_.policy->outranks(sequence.rank, running_[i - 1]->rank)) break;
      for (const int32_t block : running_[i - 1]->blocks) could_be_free += pool_->references(block) == 1 ? 1 : 0;
    }
    if (first && needed > could_be_free) return false;
    if (running_.size() <= more_important || !limits_.policy->outranks(sequence.rank, running_.back()->rank)) {
      return false;
    }
    PreemptLast();
  }
}

void Scheduler::TakeBlocks(Sequence* sequence) {
  for (const int32_t block : match_.blocks) pool_->Share(block);
  if (match_.part >= 0) pool_->Share(match_.part);  // not evicted for what follows
  sequence->blocks = match_.blocks;
  const int shared = static_cast<int>(match_.blocks.size());
  HONE_CHECK(Allocate(pool_->BlocksOf(sequence->length()) - shared, &sequence->blocks));
  if (match_.part >= 0) {
    batch_.copies.push_back({match_.part, sequence->blocks[shared]});
    pool_->Release(match_.part);
    ++copied_;
  }
  sequence->known_blocks = shared;
  sequence->computed = match_.tokens();
  sequence->awaited = 0;
  sequence->running = true;
  batch_.admitted.push_back({sequence->id, sequence->computed});
}

// Makes room for one more position of running_[index]. False: that sequence itself was preempted.
bool Scheduler::GrowOrPreempt(size_t index) {
  Sequence* sequence = running_[index];
  const int missing = pool_->BlocksOf(sequence->computed + 1) - static_cast<int>(sequence->blocks.size());
  if (missing <= 0) return true;
  while (!Allocate(missing, &sequence->blocks)) {
    HONE_CHECK(running_.size() > 1, "one sequence alone does not fit the pool");
    PreemptLast();
    if (index == running_.size()) return false;
  }
  return true;
}

// REQUIRES: the least important running sequence has no rows in this step.
void Scheduler::PreemptLast() {
  Sequence* victim = running_.back();
  HONE_CHECK(victim->scheduled == 0);
  running_.pop_back();
  if (victim->missing() == 1) --decodes_left_;
  ReleaseBlocks(victim);
  victim->running = false;
  Insert(victim, &waiting_);
  batch_.preempted.push_back(victim->id);
  ++preemptions_;
}

void Scheduler::Commit() {
  for (Sequence* sequence : running_) {
    if (sequence->scheduled == 0) continue;
    sequence->computed += sequence->scheduled;
    if (limits_.policy->served != nullptr) limits_.policy->served(&sequence->rank, &clock_, sequence->scheduled);
    sequence->scheduled = 0;
    LearnComputed(sequence);
  }
}

// Full blocks at once; a partly filled one when the prompt ends in it, for those who have the same prompt.
void Scheduler::LearnComputed(Sequence* sequence) {
  if (sequence->root == 0) return;
  while (sequence->indexed && (sequence->known_blocks + 1) * pool_->block_tokens() <= sequence->computed) {
    sequence->indexed = Learn(sequence, sequence->known_blocks, pool_->block_tokens());
    if (sequence->indexed) ++sequence->known_blocks;
  }
  if (!sequence->tail_known && sequence->computed >= sequence->prompt_length) {
    LearnTail(sequence);
    sequence->tail_known = true;
  }
}

void Scheduler::LearnTail(Sequence* sequence) {
  const int tokens = sequence->computed % pool_->block_tokens();
  if (sequence->root == 0 || !sequence->indexed || tokens == 0) return;
  Learn(sequence, sequence->known_blocks, tokens);
}

// The first `tokens` tokens of the sequence's block `index` are computed. If another block is known to hold just them,
// the sequence takes that one: what is cached is there once, and whoever uses a block also owns all before it.
bool Scheduler::Learn(Sequence* sequence, int index, int tokens) {
  const int32_t own = sequence->blocks[index], parent = index == 0 ? -1 : sequence->blocks[index - 1];
  const auto ids = std::span(sequence->tokens).subspan(static_cast<size_t>(index) * pool_->block_tokens(), tokens);
  const int32_t known = index_.Insert(sequence->root, parent, ids, own);
  if (known == own) {
    if (limits_.keep) pool_->Keep(own);
    return true;
  }
  pool_->Drop(own);
  if (known < 0) return false;
  pool_->Share(known);
  pool_->Release(own);
  sequence->blocks[index] = known;
  return true;
}

bool Scheduler::Allocate(int count, std::vector<int32_t>* table) {
  if (!pool_->Allocate(count, table)) return false;
  for (const int32_t block : pool_->evicted()) index_.Forget(block);
  evicted_ += pool_->evicted().size();
  pool_->ClearEvicted();
  return true;
}

// The end first, so that it is evicted before the beginning, without which it could not be found.
void Scheduler::ReleaseBlocks(Sequence* sequence) {
  if (limits_.keep && sequence->running) LearnTail(sequence);
  for (; !sequence->blocks.empty(); sequence->blocks.pop_back()) {
    const int32_t block = sequence->blocks.back();
    if (!limits_.keep && pool_->references(block) == 1) index_.Forget(block);
    pool_->Release(block);
  }
  sequence->computed = sequence->known_blocks = 0;
  sequence->tail_known = false;
}

std::span<const int32_t> Scheduler::blocks(uint64_t id) const {
  const auto it = sequences_.find(id);
  HONE_CHECK(it != sequences_.end() && it->second.running);
  return it->second.blocks;
}

bool Scheduler::Runs(uint64_t id) const {
  const auto it = sequences_.find(id);
  return it != sequences_.end() && it->second.running;
}

SchedulerDemand Scheduler::demand() const {
  SchedulerDemand demand;
  for (const Sequence* sequence : running_) {
    if (sequence->missing() == 1) {
      ++demand.decodes;
    } else if (!demand.has_prompt) {
      demand.has_prompt = true;
      demand.prompt_position = sequence->computed;
    }
  }
  demand.decodes = std::min(demand.decodes, limits_.max_sequences);
  demand.has_prompt = demand.has_prompt || !waiting_.empty();
  return demand;
}

std::string Scheduler::Audit() const {
  if (std::string problem = pool_->Audit(); !problem.empty()) return problem;
  if (std::string problem = index_.Audit(); !problem.empty()) return problem;
  std::vector<int> owners(pool_->blocks(), 0);
  if (std::string problem = AuditRunning(&owners); !problem.empty()) return problem;
  for (const Sequence* sequence : waiting_) {
    if (sequence->running || !sequence->blocks.empty()) return fmt::format("{} waits but owns blocks", sequence->id);
  }
  for (int32_t block = 0; block < pool_->blocks(); ++block) {
    if (owners[block] != pool_->references(block)) {
      return fmt::format("block {} is in {} tables, {} are counted", block, owners[block], pool_->references(block));
    }
    const bool wanted = limits_.keep ? index_.Knows(block) : false;
    if (pool_->is_kept(block) != wanted) return fmt::format("block {} is kept without reason, or is not kept", block);
    if (index_.Knows(block) && owners[block] == 0 && !limits_.keep) return fmt::format("block {} is still known", block);
  }
  if (running_.size() + waiting_.size() != sequences_.size()) return "a sequence neither runs nor waits";
  return "";
}

std::string Scheduler::AuditRunning(std::vector<int>* owners) const {
  const Sequence* previous = nullptr;
  for (const Sequence* sequence : running_) {
    const bool moved = limits_.policy->served != nullptr;  // ranks change at Commit; they are sorted at Schedule
    if (previous != nullptr && !moved && !Before(previous, sequence)) {
      return fmt::format("sequence {} runs out of order", sequence->id);
    }
    previous = sequence;
    const int end = pool_->BlocksOf(sequence->computed + sequence->scheduled);
    if (end > static_cast<int>(sequence->blocks.size())) {
      return fmt::format("sequence {} has rows without a block", sequence->id);
    }
    for (int i = sequence->computed / pool_->block_tokens(); sequence->scheduled > 0 && i < end; ++i) {
      if (!pool_->IsWritable(sequence->blocks[i])) {
        return fmt::format("block {} of sequence {} is written but shared", sequence->blocks[i], sequence->id);
      }
    }
    for (const int32_t block : sequence->blocks) ++(*owners)[block];
  }
  return "";
}

}  // namespace hone
