// The engine over the fake model, one behaviour a test. Random loads: tests/sim/engine_sim_test.cc.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <thread>

#include "cache/kv_cache.h"
#include "engine/fake_model.h"

namespace hone {
namespace {

// All that a sequence said.
struct Transcript {
  std::string text;
  std::vector<TokenResult> tokens;
  SequenceEvent last;
  int events = 0;
};

// Real time, and as much more as a test says.
class FakeClock final : public Clock {
 public:
  double Now() const override { return Clock::Now() + later_s; }
  double later_s = 0;
};

class EngineTest : public testing::Test {
 protected:
  void Make(EngineOptions options, int context = 256, int max_rows = 64) {
    options.step_ms = 0;  // chunks must not depend on how fast this machine is
    Result<std::unique_ptr<Engine>> engine = Engine::Create(std::make_shared<FakeModel>(context, max_rows),
                                                            std::make_shared<FakeTokenizer>(), runtime_, options);
    ASSERT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
  }
  SequenceId Submit(SequenceRequest request) {
    auto transcript = std::make_shared<Transcript>();
    const Result<SequenceId> id = engine_->Submit(std::move(request), [transcript](const SequenceEvent& event) {
      EXPECT_EQ(transcript->last.finish, FinishReason::kNone) << "an event after the last";
      transcript->text += event.text;
      transcript->tokens.insert(transcript->tokens.end(), event.tokens.begin(), event.tokens.end());
      transcript->last = event;
      ++transcript->events;
    });
    EXPECT_TRUE(id) << id.error().message;
    transcripts_[*id] = transcript;
    return *id;
  }
  Transcript Run(SequenceRequest request) {
    const SequenceId id = Submit(std::move(request));
    Drain();
    return *transcripts_[id];
  }
  void Drain() {
    int steps = 0;
    while (engine_->Step()) ASSERT_LT(++steps, 100000);
    EXPECT_EQ(engine_->stats().blocks_used, 0);
    EXPECT_EQ(engine_->stats().running + engine_->stats().waiting, 0);
  }
  std::string Refusal(SequenceRequest request) {
    const Result<SequenceId> id = engine_->Submit(std::move(request), [](const SequenceEvent&) {});
    return id ? "" : id.error().message;
  }
  static SequenceRequest Greedy(std::vector<int32_t> prompt, int max_tokens = 0) {
    SequenceRequest request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.max_tokens = max_tokens;
    return request;
  }
  static std::vector<int32_t> Ids(const Transcript& transcript) {
    std::vector<int32_t> ids;
    for (const TokenResult& token : transcript.tokens) ids.push_back(token.id);
    return ids;
  }
  // Greedy output of the model itself, without an engine; the end token is left out unless it may come.
  static std::vector<int32_t> GreedyAfter(std::vector<int32_t> tokens, int count, bool without_end = true) {
    std::vector<int32_t> output;
    for (int i = 0; i < count; ++i) {
      std::vector<float> logits = FakeModel::LogitsAfter(tokens);
      if (without_end) logits[kFakeEnd] = -1000;
      const int32_t id = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      output.push_back(id);
      tokens.push_back(id);
    }
    return output;
  }

  FakeClock clock_;
  ThreadPool threads_{2};
  Runtime runtime_{.threads = &threads_, .clock = &clock_};
  std::unique_ptr<Engine> engine_;
  std::map<SequenceId, std::shared_ptr<Transcript>> transcripts_;
};

TEST_F(EngineTest, GreedyOutputIsTheModels) {
  Make({});
  SequenceRequest request = Greedy({5, 6, 7}, 90);
  request.min_tokens = 90;
  const Transcript got = Run(request);
  EXPECT_EQ(Ids(got), GreedyAfter({5, 6, 7}, 90));
  EXPECT_EQ(got.last.finish, FinishReason::kLength);
  EXPECT_EQ(got.last.prompt_tokens, 3);
  EXPECT_EQ(got.last.output_tokens, 90);
  EXPECT_EQ(got.last.cached_tokens, 0);
  EXPECT_EQ(got.text, FakeTokenizer().Decode(Ids(got), true));
  EXPECT_EQ(engine_->stats().output_tokens, 90u);
  EXPECT_EQ(engine_->stats().prompt_tokens, 3u);
  EXPECT_EQ(engine_->stats().steps, 90u);
}

TEST_F(EngineTest, ALongPromptInChunksSaysTheSame) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < 150; ++i) prompt.push_back(2 + i % 40);
  SequenceRequest request = Greedy(prompt, 20);
  request.min_tokens = 20;
  for (const int step_tokens : {16, 17, 64}) {
    Make({.step_tokens = step_tokens});
    EXPECT_EQ(Ids(Run(request)), GreedyAfter(prompt, 20)) << step_tokens;
    EXPECT_EQ(engine_->stats().steps, static_cast<uint64_t>((150 + step_tokens - 1) / step_tokens + 19));
  }
}

TEST_F(EngineTest, EndTokens) {
  Make({});
  std::vector<int32_t> prompt;  // one after which the model ends at once
  for (int32_t id = 2; id < kFakeVocab && prompt.empty(); ++id) {
    for (int32_t second = 2; second < kFakeVocab && prompt.empty(); ++second) {
      if (GreedyAfter({id, second}, 1, false)[0] == kFakeEnd) prompt = {id, second};
    }
  }
  ASSERT_FALSE(prompt.empty());
  Transcript got = Run(Greedy(prompt, 5));
  EXPECT_EQ(got.last.finish, FinishReason::kStop);
  EXPECT_EQ(Ids(got), std::vector<int32_t>{kFakeEnd});
  EXPECT_EQ(got.text, "");
  EXPECT_EQ(got.last.stop_string, "");

  SequenceRequest request = Greedy(prompt, 5);
  request.ignore_end = true;
  got = Run(request);
  EXPECT_EQ(got.last.finish, FinishReason::kLength);
  EXPECT_EQ(got.last.output_tokens, 5);

  request = Greedy(prompt, 5);
  request.min_tokens = 1;
  EXPECT_EQ(Ids(Run(request))[0], GreedyAfter(prompt, 1)[0]);

  const std::vector<int32_t> output = GreedyAfter({9, 9}, 4);
  request = Greedy({9, 9}, 50);
  request.min_tokens = 3;
  request.stop_ids = {output[3]};
  got = Run(request);
  EXPECT_EQ(got.last.finish, FinishReason::kStop);
  EXPECT_EQ(Ids(got), output);
  EXPECT_EQ(got.text, FakeTokenizer().Decode(std::span(output).first(3), true));  // a stop id leaves no text
}

TEST_F(EngineTest, StopStrings) {
  Make({});
  SequenceRequest request = Greedy({3, 4}, 100);
  request.min_tokens = 100;
  const Transcript whole = Run(request);
  ASSERT_GT(whole.text.size(), 60u);
  for (size_t at = 10; at < 50; at += 7) {  // wherever a piece of the text begins and ends
    for (const size_t size : {1, 4, 9}) {
      const std::string stop = whole.text.substr(at, size);
      if (!IsValidUtf8(stop)) continue;
      request.stop = {stop, "never in the text"};
      const Transcript got = Run(request);
      EXPECT_EQ(got.last.finish, FinishReason::kStop);
      EXPECT_EQ(got.last.stop_string, stop);
      EXPECT_EQ(got.text, whole.text.substr(0, whole.text.find(stop)));
      request.include_stop = true;
      EXPECT_EQ(Run(request).text, whole.text.substr(0, whole.text.find(stop) + size));
      request.include_stop = false;
    }
  }
}

TEST_F(EngineTest, EndOfContextIsLength) {
  Make({.context = 40});
  SequenceRequest request = Greedy(std::vector<int32_t>(37, 8));
  request.ignore_end = true;
  const Transcript got = Run(request);
  EXPECT_EQ(got.last.finish, FinishReason::kLength);
  EXPECT_EQ(got.last.output_tokens, 3);
  request.max_tokens = 1000;  // never beyond the context
  EXPECT_EQ(Run(request).last.output_tokens, 3);
  request.prompt.assign(39, 8);
  EXPECT_EQ(Run(request).last.output_tokens, 1);
  request.prompt.assign(40, 8);
  const std::string refusal = Refusal(request);
  EXPECT_NE(refusal.find("40 tokens"), std::string::npos) << refusal;
  EXPECT_NE(refusal.find("39 or less"), std::string::npos) << refusal;
}

TEST_F(EngineTest, SeedsRepeatAndAreReported) {
  Make({});
  SequenceRequest request = Greedy({5}, 60);
  request.ignore_end = true;
  request.sampling.temperature = 1.5f;
  request.sampling.seed = 42;
  const Transcript first = Run(request);
  EXPECT_EQ(first.last.seed, 42u);
  EXPECT_EQ(Ids(Run(request)), Ids(first));
  request.sampling.seed = 43;
  EXPECT_NE(Ids(Run(request)), Ids(first));
  request.sampling.seed.reset();
  const Transcript random = Run(request), other = Run(request);
  EXPECT_NE(random.last.seed, other.last.seed);
  EXPECT_NE(Ids(random), Ids(other));
  request.sampling.seed = random.last.seed;
  EXPECT_EQ(Ids(Run(request)), Ids(random));
}

TEST_F(EngineTest, RawLogprobs) {
  Make({});
  SequenceRequest request = Greedy({5}, 3);
  request.min_tokens = 3;
  request.logprobs = 4;
  request.sampling.logit_bias = {{7, 50.0f}};  // chosen by bias, reported by the model's own probability
  const Transcript got = Run(request);
  std::vector<int32_t> tokens = {5};
  for (const TokenResult& token : got.tokens) {
    EXPECT_EQ(token.id, 7);
    EXPECT_EQ(token.bytes, "f");
    const std::vector<float> logits = FakeModel::LogitsAfter(tokens);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit});
    EXPECT_NEAR(token.logprob, logits[7] - std::log(sum), 1e-5);
    ASSERT_EQ(token.top.size(), 4u);
    EXPECT_NEAR(token.top[0].logprob, *std::max_element(logits.begin(), logits.end()) - std::log(sum), 1e-5);
    for (int i = 1; i < 4; ++i) EXPECT_GE(token.top[i - 1].logprob, token.top[i].logprob);
    tokens.push_back(7);
  }
  request.logprobs = 0;
  EXPECT_TRUE(Run(request).tokens[0].top.empty());
  EXPECT_LT(Run(request).tokens[0].logprob, 0);
}

TEST_F(EngineTest, LogitsThatAreNoNumbersFailOnlyTheirSequence) {
  Make({});
  SequenceRequest fine = Greedy({5, 6}, 30);
  fine.min_tokens = 30;
  const SequenceId good = Submit(fine), bad = Submit(Greedy({5, kFakePoison, 6}, 30));
  Drain();
  EXPECT_EQ(transcripts_[bad]->last.finish, FinishReason::kError);
  EXPECT_NE(transcripts_[bad]->last.error.find("no token"), std::string::npos);
  EXPECT_EQ(Ids(*transcripts_[good]), GreedyAfter({5, 6}, 30));
}

TEST_F(EngineTest, BansOfEverythingAreAnError) {
  Make({});
  SequenceRequest request = Greedy({5}, 3);
  request.min_tokens = 3;
  for (int32_t id = 0; id < kFakeVocab; ++id) request.stop_ids.push_back(id);
  EXPECT_EQ(Run(request).last.finish, FinishReason::kError);
}

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

TEST_F(EngineTest, WrongRequestsNameTheField) {
  Make({});
  const auto refused = [&](const std::function<void(SequenceRequest*)>& change, const std::string& field) {
    SequenceRequest request = Greedy({5}, 3);
    change(&request);
    const std::string message = Refusal(request);
    EXPECT_NE(message.find(field), std::string::npos) << field << ": " << message;
  };
  using R = SequenceRequest;
  refused([](R* r) { r->prompt.clear(); }, "prompt");
  refused([](R* r) { r->prompt = {kFakeVocab}; }, "prompt");
  refused([](R* r) { r->prompt = {-1}; }, "prompt");
  refused([](R* r) { r->max_tokens = -1; }, "max_tokens");
  refused([](R* r) { r->min_tokens = 4; }, "min_tokens");
  refused([](R* r) { r->stop = {""}; }, "stop");
  refused([](R* r) { r->stop = {"\xff"}; }, "stop");
  refused([](R* r) { r->stop.assign(kMaxStops + 1, "x"); }, "stop");
  refused([](R* r) { r->stop = {std::string(kMaxStopBytes + 1, 'x')}; }, "stop");
  refused([](R* r) { r->stop_ids = {kFakeVocab}; }, "stop_ids");
  refused([](R* r) { r->stop_ids.assign(kMaxStopIds + 1, 3); }, "stop_ids");
  refused([](R* r) { r->logprobs = kMaxLogprobs + 1; }, "logprobs");
  refused([](R* r) { r->logprobs = -2; }, "logprobs");
  refused([](R* r) { r->prompt_logprobs = kMaxLogprobs + 1; }, "prompt_logprobs");
  refused([](R* r) { r->salt.assign(kMaxSaltBytes + 1, 'x'); }, "salt");
  refused([](R* r) { r->queue_timeout_s = NAN; }, "queue_timeout_s");
  refused([](R* r) { r->timeout_s = -1; }, "timeout_s");
  refused([](R* r) { r->sampling.temperature = NAN; }, "temperature");
  refused([](R* r) { r->sampling.temperature = -1; }, "temperature");
  refused([](R* r) { r->sampling.top_k = -1; }, "top_k");
  refused([](R* r) { r->sampling.top_p = 1.5f; }, "top_p");
  refused([](R* r) { r->sampling.min_p = -0.1f; }, "min_p");
  refused([](R* r) { r->sampling.typical = NAN; }, "typical");
  refused([](R* r) { r->sampling.repetition_penalty = 0; }, "repetition_penalty");
  refused([](R* r) { r->sampling.frequency_penalty = INFINITY; }, "frequency_penalty");
  refused([](R* r) { r->sampling.presence_penalty = NAN; }, "presence_penalty");
  refused([](R* r) { r->sampling.logit_bias = {{kFakeVocab, 1.0f}}; }, "logit_bias");
  refused([](R* r) { r->sampling.logit_bias = {{1, INFINITY}}; }, "logit_bias");
  refused([](R* r) { r->sampling.dry_breakers.assign(kMaxDryBreakers + 1, 1); }, "dry_breakers");
  refused([](R* r) { r->sampling.no_repeat_ngram = kMaxNoRepeatNgram + 1; }, "no_repeat_ngram");
  // The edges themselves are fine.
  SequenceRequest request = Greedy({kFakeVocab - 1}, 3);
  request.stop.assign(kMaxStops, std::string(kMaxStopBytes, 'x'));
  request.stop_ids.assign(kMaxStopIds, kFakeVocab - 1);
  request.logprobs = request.prompt_logprobs = kMaxLogprobs;
  request.salt.assign(kMaxSaltBytes, 'x');
  request.sampling.dry_breakers.assign(kMaxDryBreakers, 1);
  request.sampling.no_repeat_ngram = kMaxNoRepeatNgram;
  EXPECT_EQ(Refusal(request), "");
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
  while (engine_->stats().running + engine_->stats().waiting > 0) std::this_thread::yield();
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
  EXPECT_EQ(stats.prompt_tokens, 200u);
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

TEST_F(EngineTest, ProcessedLogprobs) {
  Make({});
  SequenceRequest request = Greedy({5}, 3);
  request.min_tokens = 3;
  request.logprobs = 3;
  request.logprobs_kind = LogprobsKind::kProcessed;
  for (const TokenResult& token : Run(request).tokens) {  // greedy leaves one candidate
    EXPECT_EQ(token.logprob, 0);
    ASSERT_EQ(token.top.size(), 1u);
    EXPECT_EQ(token.top[0].id, token.id);
  }
  request.sampling.temperature = 0.5f;
  request.sampling.top_k = 2;
  request.min_tokens = 0;
  request.sampling.logit_bias = {{kFakeEnd, -100.0f}};
  const Transcript got = Run(request);
  std::vector<int32_t> tokens = {5};
  for (const TokenResult& token : got.tokens) {
    std::vector<float> logits = FakeModel::LogitsAfter(tokens);
    logits[kFakeEnd] -= 100;
    std::sort(logits.begin(), logits.end(), std::greater<>());
    const double other = std::exp(2.0 * (logits[1] - logits[0]));
    ASSERT_EQ(token.top.size(), 2u);
    EXPECT_NEAR(token.top[0].logprob, -std::log1p(other), 1e-5);
    EXPECT_NEAR(token.top[1].logprob, std::log(other) - std::log1p(other), 1e-5);
    EXPECT_EQ(token.logprob, token.top[token.id == token.top[0].id ? 0 : 1].logprob);
    tokens.push_back(token.id);
  }
}

TEST_F(EngineTest, PromptLogprobs) {
  for (const int length : {1, 2, 40, 200}) {  // in one chunk and in several
    Make({.max_sequences = 2});
    SequenceRequest request = Greedy({}, 2);
    for (int i = 0; i < length; ++i) request.prompt.push_back(2 + i * i % 45);
    request.min_tokens = 2;
    request.prompt_logprobs = 2;
    Run(Greedy(request.prompt, 2));  // a cached prompt has no logits
    const SequenceId id = Submit(request);
    std::vector<TokenResult> got;
    int events = 0;
    const Result<SequenceId> other = engine_->Submit(request, [&](const SequenceEvent& event) {
      if (++events == 1) got = event.prompt_logprobs;
      EXPECT_TRUE(events == 1 || event.prompt_logprobs.empty());
    });
    ASSERT_TRUE(other);
    Drain();
    EXPECT_EQ(Ids(*transcripts_[id]), GreedyAfter(request.prompt, 2));
    EXPECT_EQ(transcripts_[id]->last.cached_tokens, 0);
    ASSERT_EQ(static_cast<int>(got.size()), length - 1);
    for (int i = 1; i < length; ++i) {
      const std::vector<float> logits = FakeModel::LogitsAfter(std::span(request.prompt).first(i));
      double sum = 0;
      for (const float logit : logits) sum += std::exp(double{logit});
      ASSERT_EQ(got[i - 1].id, request.prompt[i]);
      ASSERT_NEAR(got[i - 1].logprob, logits[request.prompt[i]] - std::log(sum), 1e-5);
      ASSERT_EQ(got[i - 1].top.size(), 2u);
    }
    request.prompt_only = true;
    const Transcript only = Run(request);
    EXPECT_EQ(only.last.finish, FinishReason::kStop);
    EXPECT_EQ(only.last.prompt_logprobs.size(), got.size());
    EXPECT_EQ(only.last.output_tokens, 0);
    EXPECT_EQ(only.text, "");
  }
}

TEST_F(EngineTest, Embeddings) {
  Make({.context = 200});
  SequenceRequest request;
  for (int i = 0; i < 200; ++i) request.prompt.push_back(2 + i * i % 45);  // the whole context
  const auto wanted = [&](Pooling pooling) {
    std::vector<double> sum(kFakeWidth);
    for (size_t i = pooling == Pooling::kLast ? 200 : 1; i <= 200; ++i) {
      const std::vector<float> state = FakeModel::StateAfter(std::span(request.prompt).first(i));
      for (int j = 0; j < kFakeWidth; ++j) sum[j] += state[j];
    }
    double squares = 0;
    for (const double x : sum) squares += x * x;
    for (double& x : sum) x /= std::sqrt(squares);
    return sum;
  };
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast, Pooling::kMean, Pooling::kLast}) {
    request.pooling = pooling;
    const SequenceId id = Submit(request), beside = Submit(Greedy({4, 5}, 6));
    Drain();
    const SequenceEvent& event = transcripts_[id]->last;
    EXPECT_EQ(event.finish, FinishReason::kStop);
    EXPECT_EQ(event.prompt_tokens, 200);
    EXPECT_EQ(event.output_tokens, 0);
    ASSERT_EQ(event.embedding.size(), static_cast<size_t>(kFakeWidth));
    for (int j = 0; j < kFakeWidth; ++j) EXPECT_NEAR(event.embedding[j], wanted(pooling)[j], 1e-5);
    EXPECT_EQ(transcripts_[beside]->last.embedding.size(), 0u);
    EXPECT_TRUE(pooling != Pooling::kMean || event.cached_tokens == 0);  // every state is needed
  }
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
