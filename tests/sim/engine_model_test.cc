// The engine over a real model, loaded as --deterministic loads it: however a prompt was cut, whatever ran beside it,
// found in the cache or not, preempted or not, every token and every log-probability is the same bit by bit.
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "base/test_runtime.h"
#include "base/test_shared.h"
#include "cache/kv_cache.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace hone {
namespace {

struct Said {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  int cached = 0;
  bool operator==(const Said& other) const { return ids == other.ids && logprobs == other.logprobs; }
};

class EngineModelTest : public RuntimeTest {
 protected:
  void Open(const std::string& path) {
    auto checkpoint = Checkpoint::Open(path);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    LoadOptions load;
    load.deterministic = true;
    auto model = Model::Load(*checkpoint, runtime_, load);
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
    auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = *tokenizer;
  }

  std::unique_ptr<Engine> Make(EngineOptions options) {
    options.step_ms = 0;
    auto engine = Engine::Create(model_, tokenizer_, runtime_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  // The first prompt has the seed `seed`, the next one more ...
  std::vector<Said> Run(Engine* engine, const std::vector<std::vector<int32_t>>& prompts, uint64_t seed) {
    std::vector<Said> said(prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) {
      SequenceRequest request;
      request.prompt = prompts[i];
      request.max_tokens = kOutput;
      request.ignore_end = true;
      request.logprobs = 0;
      request.sampling.temperature = 1;
      request.sampling.seed = seed + i;
      const auto id = engine->Submit(request, [&said, i](const SequenceEvent& event) {
        for (const TokenResult& token : event.tokens) {
          said[i].ids.push_back(token.id);
          said[i].logprobs.push_back(token.logprob);
        }
        said[i].cached = event.cached_tokens;
      });
      EXPECT_TRUE(id);
    }
    while (engine->Step()) {}
    return said;
  }

  static constexpr int kOutput = 60;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(EngineModelTest, ChunksNeighboursHitsAndPreemptionsDoNotChangeABit) {
  HONE_NEED_SHARED(path, "models/builtin/main");
  ASSERT_NO_FATAL_FAILURE(Open(path));
  Rng rng(1);
  const int context = std::min(256, model_->config().context);
  const auto random_ids = [&](int count) {
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng.Below(static_cast<uint64_t>(model_->config().vocab)));
    return ids;
  };
  const std::vector<int32_t> common = random_ids(context / 2);
  std::vector<std::vector<int32_t>> prompts;
  for (const int more : {0, 0, 9, 40}) {
    prompts.push_back(common);
    for (const int32_t id : random_ids(more)) prompts.back().push_back(id);
  }
  prompts.push_back(random_ids(3));

  std::vector<Said> alone;
  const EngineOptions one{.context = context, .max_sequences = 1, .prefix_cache = false};
  for (size_t i = 0; i < prompts.size(); ++i) {
    alone.push_back(Run(Make(one).get(), {prompts[i]}, 100 + i)[0]);
    EXPECT_EQ(alone.back().cached, 0);
    EXPECT_EQ(alone.back().ids.size(), static_cast<size_t>(kOutput));
  }
  const KvCacheShape block{EngineOptions().kv, model_->config().layers, model_->config().kv_heads,
                           model_->config().head_width, 1};
  for (const bool roomy : {true, false}) {  // whole prompts; prompts in pieces, and so few blocks that some are preempted
    const auto engine = Make({.context = context,
                              .kv_bytes = roomy ? 0 : 9 * block.total_bytes(),
                              .step_tokens = roomy ? 512 : 37});
    ASSERT_NE(engine, nullptr);
    for (int round = 0; round < 2; ++round) {
      const std::vector<Said> together = Run(engine.get(), prompts, 100);
      for (size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_TRUE(together[i] == alone[i]) << "prompt " << i << ", round " << round << ", roomy " << roomy;
      }
      EXPECT_EQ(together[1].cached, static_cast<int>(common.size()) - 1);
    }
    EXPECT_GT(engine->stats().prefix_hit_tokens, 0u);
    EXPECT_TRUE(roomy || engine->stats().preemptions > 0);
  }
}

}  // namespace
}  // namespace hone
