// Hundreds of seeded lives of the scheduler, the block pool and the prefix index: random limits, policies, arrivals,
// prompts that share prefixes, tenants, ends and cancels, pools from roomy to a single sequence. What every block holds
// is simulated, too: a row reads all that came before it in its sequence, so a block shared, copied, overwritten or
// evicted wrongly is seen at once. After every step all promises of scheduler.h are checked from outside.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "engine/scheduler.h"

namespace hone {
namespace {

struct Record {
  std::vector<int32_t> tokens;
  int final_length = 0, end = 0;  // allowed; where it will end by itself
  int prompt_length = 0, computed = 0;
  int tenant = 0, priority = 0;
  bool shares = true;
  uint64_t served = 0;  // step in which it last got rows
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : rng_(seed),
        step_tokens_(1 + Below(rng_.Below(2) == 0 ? 8 : 200)),
        max_sequences_(1 + Below(std::min(step_tokens_, 12))),
        policy_(Policies()[rng_.Below(Policies().size())]),
        pool_(3 + Below(20)),
        scheduler_({.step_tokens = step_tokens_,
                    .max_sequences = max_sequences_,
                    .prompt_logit_rows = 1 + Below(10),
                    .policy = policy_,
                    .keep = rng_.Below(4) != 0,
                    .secret = seed},
                   &pool_),
        content_(static_cast<size_t>(pool_.blocks()) * kKvBlockTokens),
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
    EXPECT_EQ(scheduler_.preemptions(), preempted);
  }

  uint64_t preempted = 0, cached = 0, copied = 0;

 private:
  int Below(int n) { return static_cast<int>(rng_.Below(n)); }
  bool fcfs() const { return policy_->name == "fcfs"; }

  // Few different beginnings, different at some place.
  std::vector<int32_t> Prompt(int length) {
    std::vector<int32_t> tokens(length);
    const int32_t kind = Below(3);
    const int same = Below(2) == 0 ? length : Below(length + 1);
    for (int i = 0; i < length; ++i) tokens[i] = i < same ? kind * 1000 + i : Below(50);
    return tokens;
  }

  void Arrive() {
    --arrivals_left_;
    Record record;
    record.prompt_length = 1 + Below(rng_.Below(4) == 0 ? 300 : 60);
    record.tokens = Prompt(record.prompt_length);
    record.final_length = record.prompt_length + 1 + Below(400);
    record.end = record.prompt_length + 1 + Below(record.final_length - record.prompt_length);
    record.tenant = Below(2);
    record.priority = Below(3);
    record.shares = Below(8) != 0;
    record.served = step_;
    const uint64_t id = next_id_++;
    const bool fits = BlockPool::BlocksFor(record.final_length) <= pool_.blocks();
    ASSERT_EQ(scheduler_.Add({.id = id,
                              .tokens = record.tokens,
                              .final_length = record.final_length,
                              .priority = record.priority,
                              .root = record.shares ? "tenant " + std::to_string(record.tenant) : "",
                              .reuse = Below(8) != 0,
                              .prompt_logits = Below(6) == 0}),
              fits);
    if (fits) records_[id] = record;
    most_alive_ = std::max(most_alive_, records_.size());
  }

  void Cancel() {
    auto it = std::next(records_.begin(), rng_.Below(records_.size()));
    scheduler_.Remove(it->first);
    records_.erase(it);
    ASSERT_EQ(scheduler_.Audit(), "");
  }

  // What the keys and values of a position depend on: the tenant and all tokens up to it.
  static uint64_t Next(uint64_t hash, int32_t token) { return Rng(hash * 31 + static_cast<uint64_t>(token)).Next(); }
  static uint64_t Start(const Record& record) { return 77 + static_cast<uint64_t>(record.tenant); }
  uint64_t& At(int32_t block, int position) { return content_[block * kKvBlockTokens + position % kKvBlockTokens]; }

  // Every position before the rows holds what it should; the rows add theirs.
  void Compute(const Record& record, const StepSequence& rows) {
    const std::span<const int32_t> blocks = scheduler_.blocks(rows.id);
    uint64_t hash = Start(record);
    for (int position = 0; position < rows.first_position + rows.rows; ++position) {
      hash = Next(hash, record.tokens[position]);
      uint64_t& here = At(blocks[position / kKvBlockTokens], position);
      if (position < rows.first_position) {
        ASSERT_EQ(here, hash) << "sequence " << rows.id << " reads something else at position " << position;
      } else {
        ASSERT_EQ(pool_.references(blocks[position / kKvBlockTokens]), 1);
        here = hash;
      }
    }
  }

  void Step() {
    ++step_;
    const int prompt_tokens = Below(3) == 0 ? 1 + Below(20) : step_tokens_;
    const StepBatch& batch = scheduler_.Schedule(prompt_tokens);
    ASSERT_EQ(scheduler_.Audit(), "");
    ASSERT_EQ(batch.sequences.empty(), records_.empty());
    if (records_.empty()) return;
    CheckMoves(batch);
    for (const BlockCopy& copy : batch.copies) {
      for (int i = 0; i < kKvBlockTokens; ++i) At(copy.to, i) = At(copy.from, i);
    }
    copied += batch.copies.size();
    int tokens = 0, prompts = 0;
    std::vector<uint64_t> sampled;
    for (const StepSequence& rows : batch.sequences) {
      Record& record = records_.at(rows.id);
      const int length = static_cast<int>(record.tokens.size());
      ASSERT_EQ(rows.first_position, record.computed);
      ASSERT_GE(rows.rows, 1);
      ASSERT_LE(record.computed + rows.rows, length);
      tokens += rows.rows;
      if (length - record.computed > 1) prompts += rows.rows;
      Compute(record, rows);
      record.computed += rows.rows;
      record.served = step_;
      ASSERT_EQ(rows.samples, record.computed == length);
      if (rows.samples) sampled.push_back(rows.id);
    }
    ASSERT_EQ(tokens, batch.tokens);
    ASSERT_LE(prompts, prompt_tokens);
    scheduler_.Commit();
    for (const uint64_t id : sampled) {
      Record& record = records_.at(id);
      if (static_cast<int>(record.tokens.size()) + 1 >= record.end) {
        scheduler_.Remove(id);
        records_.erase(id);
      } else {
        record.tokens.push_back(Below(3));
        scheduler_.Append(id, record.tokens.back());
      }
    }
    ASSERT_EQ(scheduler_.Audit(), "");
    CheckStarvation();
  }

  void CheckMoves(const StepBatch& batch) {
    for (const uint64_t id : batch.preempted) {
      ASSERT_TRUE(records_.count(id));
      ASSERT_TRUE(!fcfs() || id != records_.begin()->first) << "the oldest sequence was preempted";
      records_[id].computed = 0;
      ++preempted;
    }
    for (const Admission& admission : batch.admitted) {
      Record& record = records_.at(admission.id);
      ASSERT_EQ(record.computed, 0);
      ASSERT_LT(admission.cached, static_cast<int>(record.tokens.size()));
      ASSERT_TRUE(record.shares || admission.cached == 0);
      record.computed = admission.cached;
      cached += static_cast<uint64_t>(admission.cached);
    }
    ASSERT_LE(batch.tokens, step_tokens_);
    ASSERT_LE(static_cast<int>(batch.sequences.size()), max_sequences_);
    ASSERT_EQ(scheduler_.running() + scheduler_.waiting(), static_cast<int>(records_.size()));
    if (!fcfs()) return;
    ASSERT_LE(scheduler_.running(), max_sequences_);
    ASSERT_TRUE(batch.preempted.empty() || batch.admitted.empty());
    ASSERT_EQ(batch.sequences[0].id, records_.begin()->first) << "the oldest sequence must move in every step";
  }

  void CheckStarvation() {
    // fcfs: the oldest sequence needs at most this many steps, whatever the others do.
    if (records_.empty() || records_.begin()->first != oldest_) {
      oldest_ = records_.empty() ? ~uint64_t{0} : records_.begin()->first;
      steps_of_oldest_ = 0;
    } else if (fcfs()) {
      ASSERT_LE(++steps_of_oldest_, 2 * records_.begin()->second.final_length);
    }
    // mlfq: back at the first level after kMlfqPatience steps, and then those before it have a quantum each.
    if (policy_->name != "mlfq") return;
    for (const auto& [id, record] : records_) {
      ASSERT_LE(step_ - record.served, kMlfqPatience + kMlfqQuantum * most_alive_) << "sequence " << id;
    }
  }

  Rng rng_;
  int step_tokens_, max_sequences_;
  const Policy* policy_;
  BlockPool pool_;
  Scheduler scheduler_;
  std::vector<uint64_t> content_;  // [blocks][kKvBlockTokens]
  int arrivals_left_;
  std::map<uint64_t, Record> records_;  // by id, which is the order of arrival
  uint64_t next_id_ = 1, oldest_ = ~uint64_t{0}, step_ = 0;
  int steps_of_oldest_ = 0;
  size_t most_alive_ = 0;
};

TEST(SchedulerSimulation, HundredsOfSeeds) {
  uint64_t preempted = 0, cached = 0, copied = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation(seed);
    simulation.Run();
    preempted += simulation.preempted;
    cached += simulation.cached;
    copied += simulation.copied;
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(preempted, 300u) << "the pools are too large to test anything";
  EXPECT_GT(cached, 15000u) << "nothing was shared";
  EXPECT_GT(copied, 300u);
}

// Twice as much at once as the pool holds: everybody ends, nobody is refused, recompute is bounded.
TEST(SchedulerSimulation, TwiceAsMuchAsThePoolHolds) {
  for (const Policy* policy : Policies()) {
    constexpr int kSequences = 32, kLength = 60, kFinal = 250;
    BlockPool pool(kSequences * BlockPool::BlocksFor(kFinal) / 2);
    Scheduler scheduler({.step_tokens = 512, .max_sequences = kSequences, .policy = policy}, &pool);
    std::map<uint64_t, int> lengths;
    for (uint64_t id = 1; id <= kSequences; ++id) {
      std::vector<int32_t> tokens(kLength, static_cast<int32_t>(id));
      ASSERT_TRUE(scheduler.Add({.id = id,
                                 .tokens = tokens,
                                 .final_length = kFinal,
                                 .priority = static_cast<int>(id % 3),
                                 .root = "r"}));
      lengths[id] = kLength;
    }
    int64_t rows = 0, steps = 0;
    while (!lengths.empty()) {
      ASSERT_LT(++steps, 20000) << policy->name;
      const std::vector<StepSequence> batch = scheduler.Schedule().sequences;
      scheduler.Commit();
      for (const StepSequence& sequence : batch) {
        rows += sequence.rows;
        if (!sequence.samples) continue;
        if (++lengths[sequence.id] == kFinal) {
          scheduler.Remove(sequence.id);
          lengths.erase(sequence.id);
        } else {
          scheduler.Append(sequence.id, static_cast<int32_t>(steps));
        }
      }
    }
    EXPECT_GT(scheduler.preemptions(), 0u) << policy->name;
    EXPECT_EQ(pool.used_blocks(), 0);
    EXPECT_EQ(scheduler.Audit(), "");
    EXPECT_LT(rows, 2 * int64_t{kSequences} * kFinal) << policy->name << ": it mostly computes again";
  }
}

TEST(SchedulerSimulation, AThousandCancelsLeakNothing) {
  Rng rng(5);
  BlockPool pool(60);
  Scheduler scheduler({.step_tokens = 100, .max_sequences = 8}, &pool);
  std::vector<uint64_t> alive;
  uint64_t next_id = 1;
  for (int cancelled = 0; cancelled < 1000;) {
    while (alive.size() < 16) {
      std::vector<int32_t> tokens(1 + rng.Below(200), static_cast<int32_t>(rng.Below(3)));
      ASSERT_TRUE(scheduler.Add({.id = next_id, .tokens = tokens, .final_length = 700, .root = "r"}));
      alive.push_back(next_id++);
    }
    const size_t victim = rng.Below(alive.size());
    scheduler.Remove(alive[victim]);
    alive.erase(alive.begin() + static_cast<std::ptrdiff_t>(victim));
    ++cancelled;
    ASSERT_EQ(scheduler.Audit(), "");
    for (uint64_t i = rng.Below(4); i > 0; --i) {
      const std::vector<StepSequence> batch = scheduler.Schedule().sequences;
      scheduler.Commit();
      for (const StepSequence& sequence : batch) {
        if (sequence.samples && sequence.first_position + sequence.rows < 700) {
          scheduler.Append(sequence.id, static_cast<int32_t>(rng.Below(3)));
        }
      }
      ASSERT_EQ(scheduler.Audit(), "");
    }
  }
  for (const uint64_t id : alive) scheduler.Remove(id);
  EXPECT_EQ(pool.used_blocks(), 0);
  EXPECT_EQ(scheduler.Audit(), "");
}

// mlfq serves short work in little time whatever long work is there; fcfs makes it wait. Both do the same work.
TEST(SchedulerSimulation, ShortWorkDoesNotWaitForLongWork) {
  const auto mean_wait = [](const char* policy) {
    BlockPool pool(2000);
    Scheduler scheduler({.step_tokens = 64, .max_sequences = 4, .policy = FindPolicy(policy)}, &pool);
    std::map<uint64_t, std::pair<int, int>> left;  // outputs; step of arrival
    uint64_t next_id = 1;
    double waited = 0;
    int shorts = 0;
    for (int step = 0; step < 3000; ++step) {
      const bool is_long = step % 120 == 0;
      if (is_long || step % 25 == 7) {
        std::vector<int32_t> tokens(is_long ? 2000 : 20, 1);
        scheduler.Add({.id = next_id, .tokens = tokens, .final_length = 4000});
        left[next_id++] = {is_long ? 600 : 10, is_long ? -1 : step};
      }
      const std::vector<StepSequence> batch = scheduler.Schedule().sequences;
      scheduler.Commit();
      for (const StepSequence& sequence : batch) {
        if (!sequence.samples) continue;
        auto& [outputs, arrival] = left[sequence.id];
        if (--outputs > 0) {
          scheduler.Append(sequence.id, 1);
          continue;
        }
        if (arrival >= 0) {
          waited += step - arrival;
          ++shorts;
        }
        scheduler.Remove(sequence.id);
        left.erase(sequence.id);
      }
    }
    return waited / std::max(1, shorts);
  };
  EXPECT_LT(mean_wait("mlfq"), 20);
  EXPECT_GT(mean_wait("fcfs"), 3 * mean_wait("mlfq"));
}

}  // namespace
}  // namespace hone
