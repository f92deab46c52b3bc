// What sequences of an engine share: cached prompts, salts, groups.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "cache/kv_cache.h"
#include "engine/test_engine.h"

namespace hone {
namespace {

TEST_F(EngineTest, ACachedPromptIsReportedAndSaysTheSame) {
  Make({});
  std::vector<int32_t> prompt;
  for (int i = 0; i < 100; ++i) prompt.push_back(2 + i % 37);
  SequenceRequest request = Greedy(prompt, 20);
  request.min_tokens = 20;
  const Transcript first = Run(request), second = Run(request);
  EXPECT_EQ(first.last.cached_tokens, 0);
  EXPECT_EQ(second.last.cached_tokens, 99);  // the last token is always computed
  EXPECT_EQ(Ids(first), GreedyAfter(prompt, 20));
  EXPECT_EQ(Ids(second), Ids(first));
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.prefix_query_tokens, 200u);
  EXPECT_EQ(stats.prefix_hit_tokens, 99u);
  EXPECT_EQ(stats.prompt_tokens, 101u);  // computed: what was found does not count
  EXPECT_GT(stats.blocks_cached, 0);
  EXPECT_EQ(stats.blocks_copied, 1u);
  // The next turn of a conversation: all but what is new is there.
  std::vector<int32_t> turn = prompt;
  for (const int32_t id : Ids(first)) turn.push_back(id);
  for (int i = 0; i < 30; ++i) turn.push_back(3 + i);
  request.prompt = turn;
  const Transcript third = Run(request);
  EXPECT_EQ(third.last.cached_tokens, 119);  // the last token that was sampled had not been computed
  EXPECT_EQ(Ids(third), GreedyAfter(turn, 20));
}

TEST_F(EngineTest, SaltsKeepPromptsApart) {
  Make({});
  SequenceRequest request = Greedy(std::vector<int32_t>(100, 9), 3);
  request.salt = "key of a";
  Run(request);
  EXPECT_EQ(Run(request).last.cached_tokens, 99);
  request.salt = "key of b";
  EXPECT_EQ(Run(request).last.cached_tokens, 0);
  request.salt = "";
  EXPECT_EQ(Run(request).last.cached_tokens, 0);
  // Side by side, too: nobody waits for what it may not use.
  request.prompt.assign(100, 11);
  std::vector<SequenceId> ids;
  for (const char* salt : {"x", "y", "x"}) {
    request.salt = salt;
    ids.push_back(Submit(request));
  }
  Drain();
  EXPECT_EQ(transcripts_[ids[0]]->last.cached_tokens, 0);
  EXPECT_EQ(transcripts_[ids[1]]->last.cached_tokens, 0);
  EXPECT_EQ(transcripts_[ids[2]]->last.cached_tokens, 99);
}

TEST_F(EngineTest, ThePrefixCacheCanBeOff) {
  Make({.prefix_cache = false});
  const SequenceRequest request = Greedy(std::vector<int32_t>(100, 9), 3);
  Run(request);
  EXPECT_EQ(Run(request).last.cached_tokens, 0);
  EXPECT_EQ(engine_->stats().blocks_cached, 0);
  EXPECT_EQ(engine_->stats().prefix_query_tokens, 0u);
}

TEST_F(EngineTest, AGroupComputesItsPromptOnce) {
  for (const bool prefix_cache : {true, false}) {
    Make({.max_sequences = 8, .max_queue = 3, .prefix_cache = prefix_cache});
    SequenceRequest request = Greedy({}, 40);
    for (int i = 0; i < 75; ++i) request.prompt.push_back(2 + i % 41);
    request.ignore_end = true;
    request.sampling.temperature = 1.3f;
    request.sampling.seed = 100;
    std::vector<Transcript> got(4);
    std::vector<EventCallback> callbacks;
    for (Transcript& transcript : got) {
      callbacks.push_back([&transcript](const SequenceEvent& event) {
        transcript.tokens.insert(transcript.tokens.end(), event.tokens.begin(), event.tokens.end());
        transcript.last = event;
      });
    }
    const auto ids = engine_->SubmitGroup(request, callbacks);
    ASSERT_TRUE(ids);
    ASSERT_EQ(ids->size(), 4u);
    engine_->Step();
    engine_->Step();
    engine_->Step();
    EXPECT_EQ(engine_->stats().blocks_shared, 2);  // 64 tokens; the third block is copied, as each writes into it
    EXPECT_EQ(engine_->stats().blocks_copied, 3u);
    Drain();
    const std::vector<StepRecord> steps = engine_->StepsAfter(0);
    int computed = 0;
    for (const StepRecord& step : steps) computed += step.prompt_tokens;
    EXPECT_EQ(computed, 75);
    for (uint64_t i = 0; i < 4; ++i) {
      EXPECT_EQ(got[i].last.seed, 100 + i);
      EXPECT_EQ(got[i].last.cached_tokens, i == 0 ? 0 : 74);
      SequenceRequest alone = request;
      alone.sampling.seed = 100 + i;
      EXPECT_EQ(Ids(got[i]), Ids(Run(alone))) << i;
    }
    EXPECT_NE(Ids(got[0]), Ids(got[1]));
    callbacks.resize(8, callbacks[0]);
    ASSERT_TRUE(engine_->SubmitGroup(request, callbacks));
    const auto refused = engine_->SubmitGroup(request, {callbacks.begin(), callbacks.begin() + 4});  // all or none
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
    EXPECT_EQ(engine_->stats().waiting, 8);
    Drain();
  }
}

TEST_F(EngineTest, IdenticalPromptsTogetherAreComputedOnce) {
  Make({.max_sequences = 8});
  SequenceRequest request = Greedy({}, 5);
  for (int i = 0; i < 200; ++i) request.prompt.push_back(2 + i % 43);
  request.min_tokens = 5;
  std::vector<SequenceId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(Submit(request));
  Drain();
  int computed = 0;
  for (const StepRecord& step : engine_->StepsAfter(0)) computed += step.prompt_tokens;
  EXPECT_EQ(computed, 200);
  for (const SequenceId id : ids) EXPECT_EQ(Ids(*transcripts_[id]), GreedyAfter(request.prompt, 5));
}

}  // namespace
}  // namespace hone
