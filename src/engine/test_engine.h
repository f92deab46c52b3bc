// For the tests of engine/: an engine over the fake model, and what its sequences said.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/fake_model.h"

namespace hone {

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
  static std::vector<int32_t> GreedyAfter(std::vector<int32_t> tokens, int count, bool without_end = true,
                                          int adapter = 0) {
    std::vector<int32_t> output;
    for (int i = 0; i < count; ++i) {
      std::vector<float> logits = FakeModel::LogitsAfter(tokens, adapter);
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

}  // namespace hone
