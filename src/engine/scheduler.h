// Scheduler: which sequences run in this step, and with how many tokens. A pure state machine over integers: no
// tensors, clock, thread or lock, so that a seed can simulate it (tests/sim). The policy and its promises:
// docs/scheduler.md.
//
// A sequence is `length` known tokens (prompt and output so far), of which `computed` have keys and values in the
// cache. Each step gives every running sequence rows for what is missing, within one token budget; the sequence whose
// last known token is computed in the step gets its next token sampled. Recompute after a preemption is nothing
// special: computed is 0 again.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_pool.h"

namespace hone {

struct SchedulerLimits {
  int step_tokens = 0;    // token budget of a step
  int max_sequences = 0;  // running at once. REQUIRES: 1 <= max_sequences <= step_tokens, so that a prompt always moves
};

// The rows of one sequence in a step: positions [first_position, first_position + rows).
struct StepSequence {
  uint64_t id = 0;
  int first_position = 0;
  int rows = 0;
  bool samples = false;  // the last row is the last known token: a next token is wanted
};

struct StepBatch {
  std::vector<StepSequence> sequences;  // in order of arrival
  std::vector<uint64_t> admitted;       // left the queue in this step (again, if they were preempted before)
  std::vector<uint64_t> preempted;      // lost their blocks in this step and wait again
  int tokens = 0;                       // sum of rows, at most step_tokens
};

class Scheduler {
 public:
  Scheduler(const SchedulerLimits& limits, BlockPool* pool);  // the pool is borrowed

  // Queues a sequence behind all others. `final_length`: the length it may reach. False, and nothing happens, if the
  // whole pool could not hold that. REQUIRES: the id is new, 1 <= length <= final_length.
  bool Add(uint64_t id, int length, int final_length);
  // The sequence is over (finished or cancelled, waiting or running): its blocks are free. REQUIRES: the id is known.
  void Remove(uint64_t id);

  // The next step; valid until the next call. Empty only if there are no sequences. Every block of a row in it belongs
  // to that sequence alone.
  const StepBatch& Schedule();
  // The rows of the last Schedule are in the cache. Call before Append and Remove.
  void Commit();
  // A sampled token joins the sequence. REQUIRES: running, all known tokens computed, length < final_length.
  void Append(uint64_t id);

  // The block table of a running sequence; valid until the next call of a non-const member.
  std::span<const int32_t> blocks(uint64_t id) const;
  bool Knows(uint64_t id) const { return sequences_.count(id) != 0; }
  int running() const { return static_cast<int>(running_.size()); }
  int waiting() const { return static_cast<int>(waiting_.size()); }
  uint64_t preemptions() const { return preemptions_; }

  // "" if the promises hold (blocks owned by running sequences only, each by one, the pool's own audit), else what is
  // wrong. Linear in blocks: for tests and simulation.
  std::string Audit() const;

 private:
  struct Sequence {
    uint64_t id = 0;
    uint64_t arrival = 0;
    int length = 0;
    int final_length = 0;
    int computed = 0;
    int scheduled = 0;  // rows in the step under way
    bool running = false;
    std::vector<int32_t> blocks;
  };

  void ScheduleDecodes();
  void ScheduleChunks();
  void Admit();
  bool GrowOrPreempt(size_t index);
  void PreemptNewest();
  void Give(Sequence* sequence, int rows);

  const SchedulerLimits limits_;
  BlockPool* const pool_;
  std::unordered_map<uint64_t, Sequence> sequences_;
  std::vector<Sequence*> running_;  // by arrival; all of them arrived before all that wait
  std::deque<Sequence*> waiting_;   // by arrival
  StepBatch batch_;
  int budget_ = 0;
  uint64_t arrivals_ = 0, preemptions_ = 0;
};

}  // namespace hone
