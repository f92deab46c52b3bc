// Scheduler: which sequences run in this step, with how many tokens, and which blocks they share. A pure state machine
// over integers: no tensors, clock, thread or lock, so that a seed can simulate it (tests/sim). The rules and their
// promises: docs/scheduler.md and docs/prefix-cache.md.
//
// A sequence is its known tokens (prompt and output so far), of which `computed` have keys and values in the cache.
// Each step gives sequences rows for what is missing, within one token budget; the sequence whose last known token is
// computed in the step gets its next token sampled. A prefix that is cached is computed from the start on. Recompute
// after a preemption is nothing special: computed is what is still cached.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/block_pool.h"
#include "cache/prefix_index.h"
#include "engine/policies/policy.h"

namespace hone {

struct SchedulerLimits {
  int step_tokens = 0;    // token budget of a step
  int max_sequences = 0;  // in one step. REQUIRES: 1 <= max_sequences <= step_tokens, so that a prompt always moves
  int prompt_logit_rows = 1;  // rows a step of sequences that want the logits of their prompt. REQUIRES: >= 1
  const Policy* policy = &kFcfsPolicy;
  bool keep = true;     // blocks stay cached after their last owner; false: only those who run at a time share
  uint64_t secret = 0;  // of the prefix index
};

struct NewSequence {
  uint64_t id = 0;
  std::span<const int32_t> tokens;  // the prompt, at least one; copied
  int final_length = 0;             // tokens that it may reach
  int priority = 0;
  std::string root;            // sequences share blocks if their roots are equal (PrefixRootText); "": with nobody
  bool reuse = true;           // false: all of it is computed (but others may share what it computes)
  bool prompt_logits = false;  // its prompt counts towards prompt_logit_rows
};

// The rows of one sequence in a step: positions [first_position, first_position + rows).
struct StepSequence {
  uint64_t id = 0;
  int first_position = 0;
  int rows = 0;
  bool samples = false;  // the last row is the last known token: a next token is wanted
};

struct Admission {
  uint64_t id = 0;
  int cached = 0;  // tokens that need not be computed
};

struct BlockCopy {
  int32_t from = 0, to = 0;
};

struct StepBatch {
  std::vector<StepSequence> sequences;  // the most important first
  std::vector<BlockCopy> copies;        // to be done before the rows are computed, in this order
  std::vector<Admission> admitted;      // left the queue in this step (again, if they were preempted before)
  std::vector<uint64_t> preempted;      // lost their blocks in this step and wait again
  int tokens = 0;                       // sum of rows, at most step_tokens
};

// What the next step has to do, for whoever chooses its budget.
struct SchedulerDemand {
  int decodes = 0;          // running sequences that lack one token
  bool has_prompt = false;  // somebody has more to compute
  int prompt_position = 0;  // where the first of those stands
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, BlockPool* pool);  // the pool is borrowed

  // Queues a sequence. False, and nothing happens, if the whole pool could not hold its final length. REQUIRES: the id
  // is new, 1 <= tokens <= final_length.
  bool Add(const NewSequence& sequence);
  // The sequence is over (finished or cancelled, waiting or running): its blocks are free. REQUIRES: the id is known.
  void Remove(uint64_t id);

  // The next step; valid until the next call. At most `prompt_tokens` (at least 1) of its tokens are of sequences that
  // lack more than one. Empty only if there are no sequences. Every block that a row of it is written to belongs to
  // that sequence alone.
  const StepBatch& Schedule(int prompt_tokens);
  const StepBatch& Schedule() { return Schedule(limits_.step_tokens); }
  // The rows of the last Schedule are in the cache. Call before Append and Remove.
  void Commit();
  // A sampled token joins the sequence. REQUIRES: running, all known tokens computed, length < final_length.
  void Append(uint64_t id, int32_t token);

  // The block table of a running sequence; valid until the next call of a non-const member.
  std::span<const int32_t> blocks(uint64_t id) const;
  bool Runs(uint64_t id) const;  // it has blocks; false: it waits, or is unknown
  bool Knows(uint64_t id) const { return sequences_.count(id) != 0; }
  int running() const { return static_cast<int>(running_.size()); }  // with blocks, even if they pause
  int waiting() const { return static_cast<int>(waiting_.size()); }
  SchedulerDemand demand() const;
  uint64_t preemptions() const { return preemptions_; }
  uint64_t copied() const { return copied_; }    // blocks copied so that a sequence could write
  uint64_t evicted() const { return evicted_; }  // cached blocks whose content was given up
  const PrefixIndex& index() const { return index_; }

  // "" if the promises hold (owners counted, writable where rows are written, order, the pool's and the index's own
  // audits), else what is wrong. Linear in blocks: for tests and simulation.
  std::string Audit() const;

 private:
  struct Sequence {
    uint64_t id = 0;
    Rank rank;
    std::vector<int32_t> tokens;
    int prompt_length = 0;
    int final_length = 0;
    int computed = 0;
    int scheduled = 0;  // rows in the step under way
    uint64_t root = 0;  // 0: shares with nobody
    bool reuse = true, prompt_logits = false;
    bool running = false;
    bool indexed = true;      // its computed full blocks are in the index (false: a key was taken)
    bool tail_known = false;  // so is its last, partly filled one
    int known_blocks = 0;     // leading blocks that are in the index
    uint64_t awaited = 0;     // the sequence that computes what this one needs, up to awaited_tokens
    int awaited_tokens = 0;
    std::vector<int32_t> blocks;

    int length() const { return static_cast<int>(tokens.size()); }
    int missing() const { return length() - computed; }
  };
  enum class Admitted { kYes, kAwaits, kNoRoom };

  bool Before(const Sequence* a, const Sequence* b) const { return limits_.policy->before(a->rank, b->rank); }
  void Sort(std::vector<Sequence*>* list) const;
  void Insert(Sequence* sequence, std::vector<Sequence*>* list) const;
  void RunOne(size_t* index);
  int RowsFor(const Sequence& sequence) const;
  Admitted TryAdmit(Sequence* sequence, size_t more_important);
  bool MakeRoom(const Sequence& sequence, size_t more_important);
  void TakeBlocks(Sequence* sequence);
  bool Awaits(Sequence* sequence);
  bool Computes(const Sequence& sequence, int tokens) const;
  bool GrowOrPreempt(size_t index);
  void PreemptLast();
  void Give(Sequence* sequence, int rows);
  bool Allocate(int count, std::vector<int32_t>* table);
  void ReleaseBlocks(Sequence* sequence);
  bool Learn(Sequence* sequence, int index, int tokens);
  void LearnComputed(Sequence* sequence);
  void LearnTail(Sequence* sequence);
  void ListBatch();
  std::string AuditRunning(std::vector<int>* owners) const;

  const SchedulerLimits limits_;
  BlockPool* const pool_;
  PrefixIndex index_;
  std::unordered_map<uint64_t, Sequence> sequences_;
  std::vector<Sequence*> running_, waiting_;  // the most important first
  PolicyClock clock_;
  StepBatch batch_;
  PrefixMatch match_;  // of the sequence under admission
  // Of the step under way: places, tokens and prompt tokens that are left, prompt rows with logits, decodes to come.
  int places_ = 0, tokens_left_ = 0, prompt_left_ = 0, logit_rows_left_ = 0, decodes_left_ = 0;
  uint64_t arrivals_ = 0, preemptions_ = 0, copied_ = 0, evicted_ = 0;
};

}  // namespace hone
