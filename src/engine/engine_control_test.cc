// Who runs when and for how long: cancels, the queue, preemption, priorities, time limits, threads, records.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "cache/kv_cache.h"
#include "engine/test_engine.h"

namespace hone {
namespace {

TEST_F(EngineTest, CancelEndsWithinOneStepAndFreesBlocks) {
  Make({.max_sequences = 2, .step_tokens = 64});
  SequenceRequest request = Greedy(std::vector<int32_t>(100, 7));
  request.ignore_end = true;
  const SequenceId first = Submit(request), second = Submit(request), third = Submit(request);
  engine_->Step();
  engine_->Step();
  engine_->Step();
  engine_->Step();
  EXPECT_EQ(engine_->stats().running, 2);
  EXPECT_EQ(engine_->stats().waiting, 1);
  const int used = engine_->stats().blocks_used;
  engine_->Cancel(first);
  engine_->Cancel(third);  // it waits
  engine_->Cancel(999);
  engine_->Cancel(0);
  engine_->Step();
  EXPECT_EQ(transcripts_[first]->last.finish, FinishReason::kCancelled);
  EXPECT_EQ(transcripts_[third]->last.finish, FinishReason::kCancelled);
  EXPECT_EQ(transcripts_[third]->last.output_tokens, 0);
  EXPECT_LT(engine_->stats().blocks_used, used);
  EXPECT_EQ(engine_->stats().running, 1);
  engine_->Cancel(first);  // again: ignored
  Drain();
  EXPECT_EQ(transcripts_[second]->last.finish, FinishReason::kLength);
  EXPECT_EQ(transcripts_[second]->last.output_tokens, 156);
}

TEST_F(EngineTest, CancelledBeforeItsFirstStep) {
  Make({});
  const SequenceId id = Submit(Greedy({5}, 3));
  engine_->Cancel(id);
  EXPECT_TRUE(engine_->Step());
  EXPECT_EQ(transcripts_[id]->last.finish, FinishReason::kCancelled);
  EXPECT_FALSE(engine_->Step());
}

TEST_F(EngineTest, TheQueueIsBounded) {
  Make({.max_sequences = 2, .max_queue = 3});
  for (int i = 0; i < 5; ++i) Submit(Greedy({5}, 2));
  const Result<SequenceId> refused = engine_->Submit(Greedy({5}, 2), [](const SequenceEvent&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  Drain();
  Submit(Greedy({5}, 2));
  Drain();
  EXPECT_EQ(transcripts_.size(), 6u);
}

TEST_F(EngineTest, APoolForOneContextServesManyByPreemption) {
  const uint64_t context_bytes = KvCacheShape{EngineOptions().kv, 2, 2, 3, 8}.total_bytes();  // 8 blocks: 256 tokens
  Make({.kv_bytes = context_bytes, .max_sequences = 4});
  EXPECT_EQ(engine_->stats().blocks, 8);
  std::vector<SequenceId> ids;
  for (int32_t i = 0; i < 6; ++i) {
    SequenceRequest request = Greedy({10 + i, 3}, 120);
    request.min_tokens = 120;
    ids.push_back(Submit(request));
  }
  Drain();
  EXPECT_GT(engine_->stats().preemptions, 0u);
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(transcripts_[ids[i]]->last.finish, FinishReason::kLength);
    EXPECT_EQ(Ids(*transcripts_[ids[i]]), GreedyAfter({10 + i, 3}, 120)) << i;
  }
  EXPECT_EQ(engine_->stats().prompt_tokens, 12u);  // recompute is not counted again
}

TEST_F(EngineTest, CallbacksMaySubmitAndCancel) {
  Make({.max_sequences = 1, .max_queue = 0});
  int finished = 0;
  EventCallback callback = [&](const SequenceEvent& event) {
    engine_->Cancel(event.id + 1);
    if (event.finish == FinishReason::kNone) return;
    EXPECT_TRUE(++finished == 5 || engine_->Submit(Greedy({5}, 2), callback)) << "the place must be free by now";
  };
  ASSERT_TRUE(engine_->Submit(Greedy({5}, 2), callback));
  Drain();
  EXPECT_EQ(finished, 5);
}

TEST_F(EngineTest, ThreadAndStop) {
  Make({});
  SequenceRequest request = Greedy({5}, 100);
  request.ignore_end = true;
  const SequenceId id = Submit(request);
  engine_->Start();
  engine_->Start();
  const auto busy = [&] {
    const EngineStats stats = engine_->stats();  // one look: a sequence goes from waiting to running between two
    return stats.running + stats.waiting > 0;
  };
  while (busy()) std::this_thread::yield();
  engine_->Stop();
  EXPECT_EQ(transcripts_[id]->last.finish, FinishReason::kLength);
  const Result<SequenceId> refused = engine_->Submit(request, [](const SequenceEvent&) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
  engine_->Start();
  const SequenceId again = Submit(request);
  engine_->Stop();
  EXPECT_NE(transcripts_[again]->last.finish, FinishReason::kNone);
  EXPECT_EQ(engine_->stats().blocks_used, 0);
}

TEST_F(EngineTest, TimeLimitsEndSequencesWithACause) {
  Make({.max_sequences = 1, .queue_timeout_s = 1000, .request_timeout_s = 5000});
  SequenceRequest request = Greedy({5}, 200);
  request.ignore_end = true;
  const SequenceId running = Submit(request), waiting = Submit(request);
  request.queue_timeout_s = 3000;  // its own limit
  const SequenceId patient = Submit(request);
  engine_->Step();
  clock_.later_s = 2000;
  engine_->Step();
  EXPECT_EQ(transcripts_[waiting]->last.finish, FinishReason::kError);
  EXPECT_EQ(transcripts_[waiting]->last.cause, EndCause::kQueueTime);
  EXPECT_NE(transcripts_[waiting]->last.error.find("queue"), std::string::npos);
  EXPECT_EQ(transcripts_[running]->last.finish, FinishReason::kNone);
  EXPECT_EQ(engine_->stats().waiting, 1);
  clock_.later_s = 6000;
  engine_->Step();
  EXPECT_EQ(transcripts_[running]->last.cause, EndCause::kRequestTime);
  EXPECT_EQ(transcripts_[running]->last.output_tokens, 2);
  EXPECT_EQ(transcripts_[patient]->last.cause, EndCause::kQueueTime);
  EXPECT_EQ(engine_->stats().timed_out, 3u);
  EXPECT_EQ(engine_->stats().blocks_used, 0);
  EXPECT_FALSE(engine_->Step());
  EXPECT_EQ(Run(Greedy({5}, 3)).last.finish, FinishReason::kLength);
}

TEST_F(EngineTest, PrioritiesAreKept) {
  Make({.max_sequences = 1, .policy = "priority"});
  SequenceRequest request = Greedy({5}, 10);
  request.ignore_end = true;
  std::vector<SequenceId> order;
  const auto submit = [&](int priority) {
    request.priority = priority;
    ASSERT_TRUE(engine_->Submit(request, [&](const SequenceEvent& event) {
      if (event.finish != FinishReason::kNone) order.push_back(event.id);
    }));
  };
  for (const int priority : {5, 7, 1}) submit(priority);
  engine_->Step();
  submit(-3);
  Drain();
  EXPECT_EQ(order, (std::vector<SequenceId>{4, 3, 1, 2}));
}

TEST_F(EngineTest, StepsAreRemembered) {
  Make({});
  SequenceRequest request = Greedy(std::vector<int32_t>(70, 9), 4);
  request.ignore_end = true;
  Run(request);
  const std::vector<StepRecord> steps = engine_->StepsAfter(0);
  ASSERT_EQ(steps.size(), 5u);
  const int prompts[] = {64, 6, 0, 0, 0};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(steps[i].number, static_cast<uint64_t>(i + 1));
    EXPECT_EQ(steps[i].prompt_tokens, prompts[i]);
    EXPECT_EQ(steps[i].decode_tokens, i < 2 ? 0 : 1);
    EXPECT_EQ(steps[i].sequences, 1);
  }
  EXPECT_EQ(engine_->StepsAfter(3).size(), 2u);
  const auto& tally = engine_->stats().step_tokens;
  EXPECT_EQ(std::accumulate(tally.counts.begin(), tally.counts.end(), uint64_t{0}), 5u);
  EXPECT_EQ(tally.sum, std::accumulate(steps.begin(), steps.end(), 0.0, [](double sum, const StepRecord& step) {
              return sum + step.prompt_tokens + step.decode_tokens;
            }));
  EXPECT_TRUE(engine_->StepsAfter(5).empty());
  EXPECT_TRUE(engine_->StepsAfter(77).empty());
  request.prompt = {5};
  request.max_tokens = 200;
  while (engine_->stats().steps < kStepRecords + 100u) Run(request);
  const std::vector<StepRecord> last = engine_->StepsAfter(0);
  ASSERT_EQ(last.size(), static_cast<size_t>(kStepRecords));
  EXPECT_EQ(last.back().number, engine_->stats().steps);
  EXPECT_EQ(last.front().number, last.back().number - kStepRecords + 1);
}

TEST_F(EngineTest, TimesAndOrderOfEvents) {
  Make({});
  SequenceRequest request = Greedy({5}, 4);
  request.ignore_end = true;
  const Transcript got = Run(request);
  EXPECT_EQ(got.events, 4);
  EXPECT_GE(got.last.queue_s, 0);
  EXPECT_GE(got.last.prefill_s, 0);
  EXPECT_GE(got.last.decode_s, 0);
}

}  // namespace
}  // namespace hone
