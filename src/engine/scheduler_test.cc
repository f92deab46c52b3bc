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
// A prompt of `length` tokens; those of the same `seed` begin alike.
bool Add(Scheduler* scheduler, uint64_t id, int length, int final_length, const std::string& root = "", int seed = 0,
         int priority = 0) {
  std::vector<int32_t> tokens(length);
  for (int i = 0; i < length; ++i) tokens[i] = 1000 * seed + i;
  return scheduler->Add(
      {.id = id, .tokens = tokens, .final_length = final_length, .priority = priority, .root = root});
}
using Pairs = std::vector<std::pair<uint64_t, int>>;

TEST(Scheduler, ALongPromptIsCutIntoChunksAndDoesNotStopOthers) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 10, .max_sequences = 4}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 3, 100));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 3}}));
  scheduler.Commit();
  scheduler.Append(1, 7);
  ASSERT_TRUE(Add(&scheduler, 2, 25, 100));
  for (const int rows : {9, 9, 7}) {
    const StepBatch& batch = scheduler.Schedule();
    EXPECT_EQ(Rows(batch), (Pairs{{1, 1}, {2, rows}}));
    EXPECT_TRUE(batch.sequences[0].samples);
    EXPECT_EQ(batch.sequences[1].samples, rows == 7);
    scheduler.Commit();
    scheduler.Append(1, 7);
  }
  scheduler.Append(2, 7);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 1}, {2, 1}}));
}

TEST(Scheduler, SeveralPromptsShareOneStep) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 16, .max_sequences = 3}, &pool);
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_TRUE(Add(&scheduler, id, 5, 20));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 5}, {2, 5}, {3, 5}}));  // the fourth: no place
  EXPECT_EQ(scheduler.waiting(), 1);
}

TEST(Scheduler, WhenBlocksRunOutTheNewestIsRecomputed) {
  BlockPool pool(3);
  Scheduler scheduler({.step_tokens = 64, .max_sequences = 2}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, kKvBlockTokens, 3 * kKvBlockTokens));
  scheduler.Schedule();
  scheduler.Commit();
  ASSERT_TRUE(Add(&scheduler, 2, kKvBlockTokens - 2, 3 * kKvBlockTokens));
  scheduler.Append(1, 7);                                     // 1 needs its second block now
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 1}}));  // admitting 2 would leave no spare block
  scheduler.Commit();
  scheduler.Remove(1);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{2, kKvBlockTokens - 2}}));
  scheduler.Commit();
  scheduler.Append(2, 7);
  ASSERT_TRUE(Add(&scheduler, 3, 2, 90));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{2, 1}, {3, 2}}));
  scheduler.Commit();
  int preempted_at = 0;
  for (int length = kKvBlockTokens; length < 3 * kKvBlockTokens; ++length) {
    scheduler.Append(2, 7);
    if (preempted_at == 0) scheduler.Append(3, 7);
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
  EXPECT_FALSE(Add(&scheduler, 1, 5, 2 * kKvBlockTokens + 1));
  EXPECT_FALSE(scheduler.Knows(1));
  EXPECT_TRUE(Add(&scheduler, 1, 5, 2 * kKvBlockTokens));
  EXPECT_TRUE(scheduler.Knows(1));
}

TEST(Scheduler, WaitingAndRunningCanBeRemoved) {
  BlockPool pool(4);
  Scheduler scheduler({.step_tokens = 8, .max_sequences = 1}, &pool);
  for (uint64_t id = 1; id <= 3; ++id) ASSERT_TRUE(Add(&scheduler, id, 3, 9));
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
  ASSERT_TRUE(Add(&scheduler, 1, 1, 50));
  ASSERT_TRUE(Add(&scheduler, 2, 1, 50));
  ASSERT_TRUE(Add(&scheduler, 3, 5, 50));
  scheduler.Schedule();
  scheduler.Commit();
  for (int step = 0; step < 4; ++step) {
    scheduler.Append(1, 7);
    scheduler.Append(2, 7);
    EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 1}, {2, 1}, {3, 1}}));
    scheduler.Commit();
  }
}

TEST(SchedulerPrefix, APromptThatIsCachedIsNotComputedAgain) {
  BlockPool pool(20);
  Scheduler scheduler({.step_tokens = 200, .max_sequences = 4}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 100, 200, "r"));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 100}}));
  scheduler.Commit();
  scheduler.Remove(1);
  EXPECT_EQ(pool.used_blocks(), 0);
  EXPECT_EQ(pool.cached_blocks(), 4);

  ASSERT_TRUE(Add(&scheduler, 2, 100, 200, "r"));  // the same: only the last token is computed
  const StepBatch& same = scheduler.Schedule();
  EXPECT_EQ(Rows(same), (Pairs{{2, 1}}));
  EXPECT_EQ(same.sequences[0].first_position, 99);
  EXPECT_EQ(same.admitted[0].cached, 99);
  ASSERT_EQ(same.copies.size(), 1u);  // the last block is only partly the same: a copy
  EXPECT_EQ(same.copies[0].to, scheduler.blocks(2)[3]);
  EXPECT_NE(same.copies[0].from, same.copies[0].to);
  EXPECT_EQ(scheduler.Audit(), "");
  scheduler.Commit();

  ASSERT_TRUE(Add(&scheduler, 3, 120, 200, "r"));  // goes on where 1 ended; shares with 2, which runs
  const StepBatch& longer = scheduler.Schedule();
  EXPECT_EQ(longer.sequences.back().first_position, 96);  // four more are too few to copy a block for
  EXPECT_EQ(longer.sequences.back().rows, 24);
  EXPECT_EQ(pool.shared_blocks(), 3);
  EXPECT_EQ(scheduler.Audit(), "");
  scheduler.Commit();

  ASSERT_TRUE(Add(&scheduler, 4, 100, 200, "other"));  // another tenant
  ASSERT_TRUE(Add(&scheduler, 5, 100, 200, "r", 1));   // other tokens
  const StepBatch& others = scheduler.Schedule();
  for (const Admission& admission : others.admitted) EXPECT_EQ(admission.cached, 0);
  EXPECT_EQ(others.admitted.size(), 2u);
}

TEST(SchedulerPrefix, IdenticalPromptsThatArriveTogetherAreComputedOnce) {
  for (const int length : {3, 20, 64, 100, 500}) {
    BlockPool pool(200);
    Scheduler scheduler({.step_tokens = 64, .max_sequences = 8}, &pool);
    for (uint64_t id = 1; id <= 8; ++id) ASSERT_TRUE(Add(&scheduler, id, length, length + 100, "r"));
    int computed = 0;
    for (int step = 0; step < 20; ++step) {
      const StepBatch& batch = scheduler.Schedule();
      ASSERT_EQ(scheduler.Audit(), "");
      computed += batch.tokens;
      scheduler.Commit();
      if (scheduler.waiting() == 0 && scheduler.demand().decodes == 0 && !scheduler.demand().has_prompt) break;
      for (const StepSequence& sequence : std::vector(batch.sequences)) {
        if (sequence.samples) scheduler.Append(sequence.id, 5);
      }
      if (scheduler.waiting() == 0) break;
    }
    EXPECT_EQ(scheduler.waiting(), 0);
    EXPECT_LE(computed, length + 8 * 3) << "of " << length;  // once, a last token each, and a few outputs
    if (length > 64) {
      EXPECT_EQ(pool.shared_blocks(), (length - 1) / kKvBlockTokens);
    }
  }
}

TEST(SchedulerPrefix, WhoWaitsForABlockDoesNotKeepOthersWaiting) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 200, .max_sequences = 4}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 150, 200, "r"));
  ASSERT_TRUE(Add(&scheduler, 2, 150, 200, "r"));
  ASSERT_TRUE(Add(&scheduler, 3, 20, 200, "r", 9));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 150}, {3, 20}}));
  scheduler.Commit();
  scheduler.Remove(1);  // what it computed is there
  EXPECT_EQ(Rows(scheduler.Schedule(50)), (Pairs{{2, 1}}));
}

TEST(SchedulerPrefix, WhoWaitedForSomebodyThatIsGoneComputesItself) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 64, .max_sequences = 4}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 150, 200, "r"));
  ASSERT_TRUE(Add(&scheduler, 2, 150, 200, "r"));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 64}}));
  scheduler.Commit();
  scheduler.Remove(1);
  const StepBatch& batch = scheduler.Schedule();
  EXPECT_EQ(Rows(batch), (Pairs{{2, 64}}));
  EXPECT_EQ(batch.sequences[0].first_position, 64);
}

TEST(SchedulerPrefix, WithoutReuseEverythingIsComputedButCanBeShared) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 200, .max_sequences = 4}, &pool);
  std::vector<int32_t> tokens(70, 3);
  for (uint64_t id = 1; id <= 2; ++id) {
    ASSERT_TRUE(scheduler.Add({.id = id, .tokens = tokens, .final_length = 90, .root = "r", .reuse = false}));
    scheduler.Schedule();
    scheduler.Commit();
    EXPECT_EQ(scheduler.Audit(), "");
  }
  EXPECT_EQ(pool.shared_blocks(), 2);  // 2 computed the blocks again and then took those of 1
  EXPECT_EQ(pool.used_blocks(), 4);
  ASSERT_TRUE(scheduler.Add({.id = 3, .tokens = tokens, .final_length = 90, .root = "r"}));
  EXPECT_EQ(scheduler.Schedule().admitted[0].cached, 69);
}

TEST(SchedulerPrefix, WithoutKeepingOnlyThoseWhoRunShare) {
  BlockPool pool(20);
  Scheduler scheduler({.step_tokens = 200, .max_sequences = 4, .keep = false}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 100, 200, "g"));
  ASSERT_TRUE(Add(&scheduler, 2, 100, 200, "g"));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 100}}));
  scheduler.Commit();
  scheduler.Append(1, 5);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 1}, {2, 1}}));
  EXPECT_EQ(scheduler.Audit(), "");
  scheduler.Commit();
  scheduler.Remove(1);
  EXPECT_EQ(scheduler.Audit(), "");
  EXPECT_EQ(pool.shared_blocks(), 0);
  scheduler.Remove(2);
  EXPECT_EQ(scheduler.Audit(), "");
  EXPECT_EQ(pool.cached_blocks(), 0);
  EXPECT_EQ(scheduler.index().known(), 0);
  EXPECT_EQ(scheduler.index().roots(), 0);
  ASSERT_TRUE(Add(&scheduler, 3, 100, 200, "g"));
  EXPECT_EQ(scheduler.Schedule().admitted[0].cached, 0);
}

TEST(SchedulerPrefix, RunningSequencesComeBeforeTheCache) {
  BlockPool pool(5);
  Scheduler scheduler({.step_tokens = 200, .max_sequences = 4}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 128, 160, "r"));  // fills four of five blocks
  scheduler.Schedule();
  scheduler.Commit();
  scheduler.Remove(1);
  EXPECT_EQ(pool.cached_blocks(), 4);
  ASSERT_TRUE(Add(&scheduler, 2, 90, 160, "r", 1));  // three blocks: two of them are evicted, the end of 1 first
  scheduler.Schedule();
  EXPECT_EQ(scheduler.Audit(), "");
  EXPECT_EQ(scheduler.evicted(), 2u);
  scheduler.Commit();
  scheduler.Remove(2);
  ASSERT_TRUE(Add(&scheduler, 3, 128, 160, "r"));
  EXPECT_EQ(scheduler.Schedule().admitted[0].cached, 64);  // its beginning is still there
  EXPECT_EQ(scheduler.Audit(), "");
}

TEST(SchedulerPrefix, APreemptedSequenceFindsItsBlocksAgain) {
  BlockPool pool(9);
  Scheduler scheduler({.step_tokens = 200, .max_sequences = 4, .policy = FindPolicy("priority")}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 120, 200, "r", 1, 5));
  scheduler.Schedule();
  scheduler.Commit();
  scheduler.Append(1, 4);
  ASSERT_TRUE(Add(&scheduler, 2, 200, 250, "r", 2, 0));  // more important, and needs seven blocks
  const StepBatch& batch = scheduler.Schedule();
  EXPECT_EQ(batch.preempted, std::vector<uint64_t>{1});
  EXPECT_EQ(Rows(batch), (Pairs{{2, 200}}));
  EXPECT_EQ(scheduler.Audit(), "");
  scheduler.Commit();
  scheduler.Remove(2);
  const StepBatch& again = scheduler.Schedule();
  ASSERT_EQ(again.admitted.size(), 1u);
  EXPECT_EQ(again.admitted[0].cached, 64);  // two of its four blocks had to go
  EXPECT_EQ(scheduler.Audit(), "");
}

TEST(SchedulerPolicy, TheMoreImportantTakesThePlaceAndTheOtherPauses) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 50, .max_sequences = 2, .policy = FindPolicy("priority")}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 5, 100, "", 0, 3));
  ASSERT_TRUE(Add(&scheduler, 2, 5, 100, "", 0, 2));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{2, 5}, {1, 5}}));
  scheduler.Commit();
  scheduler.Append(1, 7);
  scheduler.Append(2, 7);
  ASSERT_TRUE(Add(&scheduler, 3, 5, 100, "", 0, 1));
  ASSERT_TRUE(Add(&scheduler, 4, 5, 100, "", 0, 3));  // not more important than 1
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{3, 5}, {2, 1}}));
  EXPECT_EQ(scheduler.running(), 3);  // 1 pauses and keeps its blocks
  EXPECT_EQ(scheduler.preemptions(), 0u);
  scheduler.Commit();
  scheduler.Remove(3);
  scheduler.Append(2, 7);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{2, 1}, {1, 1}}));  // where it stopped
}

TEST(SchedulerPolicy, ShortPromptsPassLongOnesAndNobodyStarves) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 32, .max_sequences = 1, .policy = FindPolicy("mlfq")}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 500, 600));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 32}}));
  scheduler.Commit();
  ASSERT_TRUE(Add(&scheduler, 2, 10, 20));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{2, 10}}));
  scheduler.Commit();
  scheduler.Remove(2);
  int unserved = 0, longest = 0;
  for (uint64_t id = 3; id < 3000 && scheduler.Knows(1); ++id) {  // there is always short work
    ASSERT_TRUE(Add(&scheduler, id, 10, 20));
    const StepBatch& batch = scheduler.Schedule();
    ASSERT_EQ(batch.sequences.size(), 1u);
    const uint64_t got = batch.sequences[0].id;
    const bool samples = batch.sequences[0].samples;
    scheduler.Commit();
    unserved = got == 1 ? 0 : unserved + 1;
    longest = std::max(longest, unserved);
    if (samples) scheduler.Remove(got);
  }
  EXPECT_FALSE(scheduler.Knows(1)) << "the long prompt never ended";
  EXPECT_GT(longest, 200);
  EXPECT_LE(longest, kMlfqPatience + kMlfqQuantum);
}

TEST(Scheduler, PromptTokensKeepToTheirBudget) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 64, .max_sequences = 4}, &pool);
  ASSERT_TRUE(Add(&scheduler, 1, 4, 100));
  scheduler.Schedule(1000);
  scheduler.Commit();
  scheduler.Append(1, 7);
  ASSERT_TRUE(Add(&scheduler, 2, 30, 100));
  ASSERT_TRUE(Add(&scheduler, 3, 30, 100));
  EXPECT_EQ(Rows(scheduler.Schedule(20)), (Pairs{{1, 1}, {2, 20}}));
  scheduler.Commit();
  scheduler.Append(1, 7);
  EXPECT_EQ(Rows(scheduler.Schedule(20)), (Pairs{{1, 1}, {2, 10}, {3, 10}}));
  scheduler.Commit();
  scheduler.Append(1, 7);
  scheduler.Append(2, 7);
  EXPECT_EQ(Rows(scheduler.Schedule(0)), (Pairs{{1, 1}, {2, 1}, {3, 1}}));  // a prompt always moves
}

TEST(Scheduler, RowsWithLogitsHaveABudgetOfTheirOwn) {
  BlockPool pool(100);
  Scheduler scheduler({.step_tokens = 64, .max_sequences = 4, .prompt_logit_rows = 8}, &pool);
  std::vector<int32_t> tokens(20, 3);
  ASSERT_TRUE(scheduler.Add({.id = 1, .tokens = tokens, .final_length = 30, .prompt_logits = true}));
  ASSERT_TRUE(Add(&scheduler, 2, 20, 30));
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 8}, {2, 20}}));
  scheduler.Commit();
  scheduler.Append(2, 7);
  EXPECT_EQ(Rows(scheduler.Schedule()), (Pairs{{1, 8}, {2, 1}}));
}

TEST(Policies, AreFoundByName) {
  EXPECT_EQ(Policies()[0]->name, "fcfs");
  for (const char* name : {"fcfs", "priority", "mlfq"}) EXPECT_EQ(FindPolicy(name)->name, name);
  EXPECT_EQ(FindPolicy("lifo"), nullptr);
}

}  // namespace
}  // namespace hone
