// The engine over the fake model, one behaviour a test: what is said, how it ends, what is refused. Random loads:
// tests/sim/engine_sim_test.cc.
#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <thread>

#include "cache/kv_cache.h"
#include "engine/test_engine.h"

namespace hone {
namespace {

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

}  // namespace
}  // namespace hone
