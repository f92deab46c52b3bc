// Adapters through the engine: each sequence says what its own adapter says, whatever runs beside it, is cached or preempted.
#include <gtest/gtest.h>

#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "engine/test_engine.h"

namespace hone {
namespace {

constexpr int kOutput = 40;

class EngineAdapters : public EngineTest {
 protected:
  std::shared_ptr<const Adapter> Load(int number) {
    auto adapter = engine_->LoadAdapter(std::to_string(number));
    EXPECT_TRUE(adapter) << adapter.error().message;
    return *adapter;
  }
  SequenceRequest With(int adapter, std::vector<int32_t> prompt = Prompt()) {
    SequenceRequest request = Greedy(std::move(prompt), kOutput);
    request.min_tokens = kOutput;
    if (adapter > 0) request.adapter = Load(adapter);
    return request;
  }
  static std::vector<int32_t> Prompt() {
    std::vector<int32_t> prompt;
    for (int i = 0; i < 70; ++i) prompt.push_back(2 + i % 41);
    return prompt;
  }
};

TEST_F(EngineAdapters, DifferentOnesInOneBatch) {
  Make({.max_sequences = 6});
  const int adapters[] = {1, 0, 2, 1, 0, 9};
  std::vector<SequenceId> ids;
  for (const int adapter : adapters) ids.push_back(Submit(With(adapter)));
  Drain();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(Ids(*transcripts_[ids[i]]), GreedyAfter(Prompt(), kOutput, true, adapters[i])) << i;
  }
  EXPECT_NE(GreedyAfter(Prompt(), kOutput, true, 1), GreedyAfter(Prompt(), kOutput, true, 2));
}

TEST_F(EngineAdapters, CachedPrefixesAreOfOneContent) {
  Make({});
  EXPECT_EQ(Run(With(0)).last.cached_tokens, 0);
  EXPECT_EQ(Run(With(1)).last.cached_tokens, 0);
  EXPECT_EQ(Run(With(2)).last.cached_tokens, 0);
  // Loaded again, it is the same content; the old object is gone.
  const Transcript again = Run(With(1));
  EXPECT_EQ(again.last.cached_tokens, 69);
  EXPECT_EQ(Ids(again), GreedyAfter(Prompt(), kOutput, true, 1));
  EXPECT_EQ(Run(With(0)).last.cached_tokens, 69);
}

TEST_F(EngineAdapters, AGroupSharesItsPromptWithoutAPrefixCacheToo) {
  for (const bool cache : {true, false}) {
    Make({.prefix_cache = cache});
    std::vector<std::vector<int32_t>> said(3);
    std::vector<EventCallback> callbacks;
    int cached = 0;
    for (auto& ids : said) {
      callbacks.push_back([&ids, &cached](const SequenceEvent& event) {
        for (const TokenResult& token : event.tokens) ids.push_back(token.id);
        if (event.finish != FinishReason::kNone) cached += event.cached_tokens;
      });
    }
    ASSERT_TRUE(engine_->SubmitGroup(With(4), callbacks));
    Drain();
    for (const auto& ids : said) EXPECT_EQ(ids, GreedyAfter(Prompt(), kOutput, true, 4));
    EXPECT_EQ(cached, 2 * 69) << "the prompt was computed more than once";
  }
}

TEST_F(EngineAdapters, PreemptionKeepsIt) {
  const FakeModel model;
  const KvCacheShape block{EngineOptions().kv, model.config().layers, model.config().kv_heads, model.config().head_width, 1};
  Make({.context = 128, .kv_bytes = 5 * block.total_bytes(), .max_sequences = 4}, 128);
  std::vector<SequenceId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(Submit(With(i, {5, 6, static_cast<int32_t>(7 + i)})));
  Drain();
  EXPECT_GT(engine_->stats().preemptions, 0u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(Ids(*transcripts_[ids[i]]), GreedyAfter({5, 6, static_cast<int32_t>(7 + i)}, kOutput, true, i)) << i;
  }
}

TEST_F(EngineAdapters, GivenUpWhileItRuns) {
  Make({});
  std::weak_ptr<const Adapter> seen;
  SequenceId id = 0;
  {
    SequenceRequest request = With(3);
    seen = request.adapter;
    id = Submit(std::move(request));
  }
  for (int i = 0; i < 5; ++i) engine_->Step();
  EXPECT_FALSE(seen.expired()) << "the sequence holds it";
  Drain();
  EXPECT_EQ(Ids(*transcripts_[id]), GreedyAfter(Prompt(), kOutput, true, 3));
  EXPECT_TRUE(seen.expired()) << "nobody holds it";
}

TEST_F(EngineAdapters, AreCountedByName) {
  Make({.max_sequences = 2});
  const auto named = [&](int adapter, const std::string& name) {
    SequenceRequest request = With(adapter, {5, 6, static_cast<int32_t>(7 + adapter)});
    request.adapter_name = name;
    return request;
  };
  Submit(named(0, ""));
  Submit(named(1, "one"));
  Submit(named(2, "two"));
  Submit(named(2, "two"));
  const auto counts = [&] {
    std::string text;
    for (const AdapterSequences& one : engine_->stats().adapters) text += one.name + std::to_string(one.running) + std::to_string(one.waiting) + " ";
    return text;
  };
  EXPECT_EQ(counts(), "one01 two02 ") << "mail that no step has read";
  engine_->Step();
  EXPECT_EQ(counts(), "one10 two02 ");
  Drain();
  EXPECT_EQ(counts(), "");
}

TEST_F(EngineAdapters, OfAnotherModelIsRefused) {
  Make({});
  const SequenceRequest other = With(1);
  const std::unique_ptr<Engine> kept = std::move(engine_);
  Make({});
  EXPECT_NE(Refusal(other).find("loaded for other weights"), std::string::npos);
  EXPECT_FALSE(engine_->LoadAdapter("no number"));
  EXPECT_EQ(engine_->stats().waiting, 0);
}

}  // namespace
}  // namespace hone
