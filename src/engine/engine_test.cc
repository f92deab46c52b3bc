// The engine over the fake model, one behaviour a test. Random loads: tests/sim/engine_sim_test.cc.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <map>

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

class EngineTest : public testing::Test {
 protected:
  void Make(EngineOptions options, int context = 256, int max_rows = 64) {
    if (!keeps_time_) options.step_ms = 0;  // chunks must not depend on how fast this machine is
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

  bool keeps_time_ = false;
  Clock clock_;
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
  const uint64_t context_bytes = 8 * uint64_t{2} * 2 * 3 * 32 * 2 * 2;  // 8 blocks: 256 tokens
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
  request.logprobs = kMaxLogprobs;
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
