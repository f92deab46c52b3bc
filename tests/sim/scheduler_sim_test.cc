// Thousands of seeded lives of the scheduler and the block pool: random limits, arrivals, lengths, ends and cancels,
// pools from roomy to a single sequence. After every step all promises of scheduler.h are checked from outside, against
// a plain record of what each sequence has got so far.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "engine/scheduler.h"

namespace hone {
namespace {

struct Record {
  int length = 0, final_length = 0, end = 0;  // known; allowed; where it will end by itself
  int computed = 0;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : rng_(seed),
        step_tokens_(1 + Below(rng_.Below(2) == 0 ? 8 : 200)),
        max_sequences_(1 + Below(std::min(step_tokens_, 12))),
        pool_(3 + Below(20)),
        scheduler_({.step_tokens = step_tokens_, .max_sequences = max_sequences_}, &pool_),
        arrivals_left_(1 + Below(25)) {}

  void Run() {
    while (arrivals_left_ > 0 || !records_.empty()) {
      while (arrivals_left_ > 0 && (records_.empty() || rng_.Below(5) == 0)) Arrive();
      if (!records_.empty() && rng_.Below(50) == 0) Cancel();
      Step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(pool_.used_blocks(), 0);
    EXPECT_TRUE(scheduler_.Schedule().sequences.empty());
    EXPECT_EQ(scheduler_.preemptions(), preempted_);
  }

  uint64_t preempted() const { return preempted_; }

 private:
  int Below(int n) { return static_cast<int>(rng_.Below(n)); }

  void Arrive() {
    --arrivals_left_;
    Record record;
    record.length = 1 + Below(rng_.Below(4) == 0 ? 300 : 40);
    record.final_length = record.length + 1 + Below(400);
    record.end = record.length + 1 + Below(record.final_length - record.length);
    const uint64_t id = next_id_++;
    const bool fits = BlockPool::BlocksFor(record.final_length) <= pool_.blocks();
    ASSERT_EQ(scheduler_.Add(id, record.length, record.final_length), fits);
    if (fits) records_[id] = record;
  }

  void Cancel() {
    auto it = std::next(records_.begin(), rng_.Below(records_.size()));
    const int used = pool_.used_blocks();
    scheduler_.Remove(it->first);
    ASSERT_TRUE(it->second.computed == 0 || pool_.used_blocks() < used) << "its blocks were not freed";
    records_.erase(it);
    ASSERT_EQ(scheduler_.Audit(), "");
  }

  void Step() {
    const StepBatch& batch = scheduler_.Schedule();
    ASSERT_EQ(scheduler_.Audit(), "");
    ASSERT_EQ(batch.sequences.empty(), records_.empty());
    if (records_.empty()) return;
    for (const uint64_t id : batch.preempted) {
      ASSERT_TRUE(records_.count(id));
      ASSERT_NE(id, records_.begin()->first) << "the oldest sequence was preempted";
      records_[id].computed = 0;
      ++preempted_;
    }
    ASSERT_TRUE(batch.preempted.empty() || batch.admitted.empty());
    ASSERT_LE(batch.tokens, step_tokens_);
    ASSERT_LE(scheduler_.running(), max_sequences_);
    ASSERT_EQ(scheduler_.running() + scheduler_.waiting(), static_cast<int>(records_.size()));
    ASSERT_EQ(batch.sequences[0].id, records_.begin()->first) << "the oldest sequence must move in every step";

    int tokens = 0;
    std::set<int32_t> owned;
    std::vector<uint64_t> sampled;
    for (const StepSequence& rows : batch.sequences) {
      Record& record = records_.at(rows.id);
      ASSERT_EQ(rows.first_position, record.computed);
      ASSERT_GE(rows.rows, 1);
      ASSERT_LE(record.computed + rows.rows, record.length);
      tokens += rows.rows;
      record.computed += rows.rows;
      ASSERT_EQ(rows.samples, record.computed == record.length);
      const std::span<const int32_t> blocks = scheduler_.blocks(rows.id);
      ASSERT_GE(static_cast<int>(blocks.size()), BlockPool::BlocksFor(record.computed));
      for (const int32_t block : blocks) ASSERT_TRUE(owned.insert(block).second) << "a block with two owners";
      if (rows.samples) sampled.push_back(rows.id);
    }
    ASSERT_EQ(tokens, batch.tokens);
    // Nobody who runs and could have been given a token goes without while budget is left.
    ASSERT_TRUE(batch.tokens == step_tokens_ || static_cast<int>(batch.sequences.size()) == scheduler_.running());

    scheduler_.Commit();
    for (const uint64_t id : sampled) {
      Record& record = records_.at(id);
      if (record.length + 1 >= record.end) {
        scheduler_.Remove(id);
        records_.erase(id);
      } else {
        scheduler_.Append(id);
        ++record.length;
      }
    }
    ASSERT_EQ(scheduler_.Audit(), "");
    // No starvation: the oldest sequence needs at most this many steps, whatever the others do.
    if (records_.empty() || records_.begin()->first != oldest_) {
      oldest_ = records_.empty() ? ~uint64_t{0} : records_.begin()->first;
      steps_of_oldest_ = 0;
    } else {
      ASSERT_LE(++steps_of_oldest_, 2 * records_.begin()->second.final_length);
    }
  }

  Rng rng_;
  int step_tokens_, max_sequences_;
  BlockPool pool_;
  Scheduler scheduler_;
  int arrivals_left_;
  std::map<uint64_t, Record> records_;  // by id, which is the order of arrival
  uint64_t next_id_ = 1, oldest_ = ~uint64_t{0}, preempted_ = 0;
  int steps_of_oldest_ = 0;
};

TEST(SchedulerSimulation, ThousandsOfSeeds) {
  uint64_t preempted = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation(seed);
    simulation.Run();
    preempted += simulation.preempted();
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(preempted, 1000u) << "the pools are too large to test anything";
}

}  // namespace
}  // namespace hone
