// The scheduler's policy on small cases that can be followed by hand. Random lives: tests/sim/scheduler_sim_test.cc.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

std::vector<std::pair<uint64_t, int>> Rows(const StepBatch& batch) {
  std::vector<std::pair<uint64_t, int>> rows;
  for (const StepSequence& sequence : batch.sequences) rows.emplace_back(sequence.id, sequence.rows);
  return rows;
}
using Pairs = std::vector<std::pair<uint64_t, int>>;

TEST(Scheduler, ALongPromptIsCutIntoChunksAndDoesNotStopOthers) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 10, .max_sequences = 4}, &pool);
  ASSERT_TRUE(scheduler.Add(1, 3, 100));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 3}}));
  scheduler.Commit();
  scheduler.Append(1);
  ASSERT_TRUE(scheduler.Add(2, 25, 100));
  for (const int rows : {9, 9, 7}) {
    const StepBatch& batch = scheduler.Schedule();
    EXPECT_EQ(Rows(batch), (Pairs{{1, 1}, {2, rows}}));
    EXPECT_TRUE(batch.sequences[0].samples);
    EXPECT_EQ(batch.sequences[1].samples, rows == 7);
    scheduler.Commit();
    scheduler.Append(1);
  }
  scheduler.Append(2);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 1}, {2, 1}}));
}

TEST(Scheduler, SeveralPromptsShareOneStep) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 16, .max_sequences = 3}, &pool);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(scheduler.Add(id, 5, 20));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 5}, {2, 5}, {3, 5}}));  // the fourth: no place
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST(Scheduler, WhenBlocksRunOutTheNewestIsRecomputed) {
  BlockPool pool(3);
  Scheduler scheduler({.step_tokens = 64, .max_sequences = 2}, &pool);
  ASSERT_TRUE(scheduler.Add(1, kKvBlockTokens, 3 * kKvBlockTokens));
  scheduler.Schedule();
  scheduler.Commit();
  ASSERT_TRUE(scheduler.Add(2, kKvBlockTokens - 2, 3 * kKvBlockTokens));
  scheduler.Append(1);                                     // 1 needs its second block now
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 1}}));  // admitting 2 would leave no spare block
  scheduler.Commit();
  scheduler.Remove(1);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{2, kKvBlockTokens - 2}}));
  scheduler.Commit();
  scheduler.Append(2);
  ASSERT_TRUE(scheduler.Add(3, 2, 90));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{2, 1}, {3, 2}}));
  scheduler.Commit();
  int preempted_at = 0;
  for (int length = kKvBlockTokens; length < 3 * kKvBlockTokens; ++length) {
    scheduler.Append(2);
    if (preempted_at == 0) scheduler.Append(3);
    const StepBatch& batch = scheduler.Schedule();
    ASSERT_EQ(batch.sequences[0].id, 2u);
    if (!batch.preempted.empty()) {
      ASSERT_EQ(batch.preempted, std::vector<uint64_t>{3});
      preempted_at = length;
    }
    ASSERT_EQ(scheduler.Audit(), "");
    scheduler.Commit();
  }
  // 2 holds two blocks and 3 one when 3, thirty tokens shorter, needs its second: the newest is 3 itself.
  EXPECT_EQ(preempted_at, 2 * kKvBlockTokens - 2);
  EXPECT_EQ(scheduler.preemptions(), 1u);
  const int length_of_3 = 2 + preempted_at - kKvBlockTokens + 1;
  scheduler.Remove(2);
  const StepBatch& batch = scheduler.Schedule();
  EXPECT_EQ(Rows(batch), (Pairs{{3, length_of_3}}));  // prompt and output so far, from position 0
  EXPECT_EQ(batch.sequences[0].first_position, 0);
  EXPECT_TRUE(batch.sequences[0].samples);
}

TEST(Scheduler, WhatCanNeverFitIsRefusedAtOnce) {
  BlockPool pool(2);
  Scheduler scheduler({.step_tokens = 8, .max_sequences = 2}, &pool);
  EXPECT_FALSE(scheduler.Add(1, 5, 2 * kKvBlockTokens + 1));
  EXPECT_FALSE(scheduler.Knows(1));
  EXPECT_TRUE(scheduler.Add(1, 5, 2 * kKvBlockTokens));
  EXPECT_TRUE(scheduler.Knows(1));
}

TEST(Scheduler, WaitingAndRunningCanBeRemoved) {
  BlockPool pool(4);
  Scheduler scheduler({.step_tokens = 8, .max_sequences = 1}, &pool);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(scheduler.Add(id, 3, 9));
  scheduler.Schedule();
  scheduler.Commit();
  scheduler.Remove(2);
  scheduler.Remove(1);
  EXPECT_EQ(pool.used_blocks(), 0);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{3, 3}}));
  scheduler.Remove(3);
  EXPECT_TRUE(scheduler.Schedule().sequences.empty());
  EXPECT_EQ(scheduler.Audit(), "");
}

TEST(Scheduler, AsManySequencesAsTokensStillMoveAPrompt) {
  BlockPool pool(50);
  Scheduler scheduler({.step_tokens = 3, .max_sequences = 3}, &pool);
  ASSERT_TRUE(scheduler.Add(1, 1, 50));
  ASSERT_TRUE(scheduler.Add(2, 1, 50));
  ASSERT_TRUE(scheduler.Add(3, 5, 50));
  scheduler.Schedule();
  scheduler.Commit();
  for (int step = 0; step < 4; ++step) {
    scheduler.Append(1);
    scheduler.Append(2);
    EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 1}, {2, 1}, {3, 1}}));
    scheduler.Commit();
  }
}

}  // namespace
}  // namespace hone
