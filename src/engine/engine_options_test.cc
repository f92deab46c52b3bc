// Options: what 0 becomes, and that each error says its numbers.
#include "engine/engine_options.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hone {
namespace {

class OptionsTest : public testing::Test {
 protected:
  OptionsTest() {
    config_.layers = 2;
    config_.kv_heads = 2;
    config_.head_width = 8;
    config_.vocab = 10;
    config_.context = 131072;
  }
  // A block of 32 tokens: 2 (keys, values) x 2 layers x 2 heads x 8 x 32 x 2 bytes.
  static constexpr uint64_t kBlockBytes = 4096;

  std::string Refusal(const EngineOptions& options, uint64_t free_bytes = 0) {
    const auto resolved = ResolveOptions(options, config_, load_, free_bytes);
    return resolved ? "" : resolved.error().message;
  }
  ModelConfig config_;
  LoadOptions load_;
};

TEST_F(OptionsTest, Defaults) {
  const auto resolved = ResolveOptions({}, config_, load_, 0);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->options.context, kMaxDefaultContext);
  EXPECT_EQ(resolved->cache.blocks, kDefaultMaxSequences * kMaxDefaultContext / 32);
  EXPECT_EQ(resolved->options.kv_bytes, kBlockBytes * resolved->cache.blocks);
  EXPECT_EQ(resolved->options.kv_bytes, resolved->cache.total_bytes());
  config_.context = 100;
  EXPECT_EQ(ResolveOptions({}, config_, load_, 0)->options.context, 100);
  load_.max_context = 50;
  EXPECT_EQ(ResolveOptions({}, config_, load_, 0)->options.context, 50);
}

TEST_F(OptionsTest, AQuarterOfFreeMemoryAtMost) {
  config_.context = 320;  // 10 blocks a context
  auto resolved = ResolveOptions({}, config_, load_, 4 * 25 * kBlockBytes + 5);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->cache.blocks, 25);
  EXPECT_EQ(ResolveOptions({}, config_, load_, 4 * 10 * kBlockBytes)->cache.blocks, 10);
  const std::string message = Refusal({}, 4 * 10 * kBlockBytes - 1);
  EXPECT_NE(message.find("one context of 320 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("at most 288 tokens"), std::string::npos) << message;
}

TEST_F(OptionsTest, AskedForBytes) {
  EngineOptions options{.context = 320, .kv_bytes = 10 * kBlockBytes + 7};
  auto resolved = ResolveOptions(options, config_, load_, 0);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->cache.blocks, 10);
  EXPECT_EQ(resolved->options.kv_bytes, 10 * kBlockBytes);
  options.kv_bytes = 10 * kBlockBytes - 1;
  EXPECT_NE(Refusal(options).find("kv_bytes"), std::string::npos);
  options.kv_bytes = 100 * kBlockBytes;  // more than it needs is taken as asked: room for a prefix cache
  EXPECT_EQ(ResolveOptions(options, config_, load_, 0)->cache.blocks, 100);
  EXPECT_NE(Refusal(options, 50 * kBlockBytes).find("free"), std::string::npos);
}

TEST_F(OptionsTest, PoliciesAndTimes) {
  for (const std::string& policy : SchedulingPolicies()) EXPECT_EQ(Refusal({.policy = policy}), "");
  const std::string message = Refusal({.policy = "lifo"});
  for (const char* part : {"policy", "lifo", "fcfs, priority, mlfq"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(Refusal({.step_ms = 0}), "");
  EXPECT_NE(Refusal({.step_ms = -1}).find("step_ms"), std::string::npos);
  EXPECT_NE(Refusal({.step_ms = NAN}).find("step_ms"), std::string::npos);
  EXPECT_NE(Refusal({.queue_timeout_s = -1}).find("queue_timeout_s"), std::string::npos);
  EXPECT_NE(Refusal({.request_timeout_s = NAN}).find("request_timeout_s"), std::string::npos);
}

TEST_F(OptionsTest, ContextsThatDoNotExist) {
  for (const int context : {-1, 1}) EXPECT_NE(Refusal({.context = context}).find("context"), std::string::npos);
  EXPECT_EQ(Refusal({.context = 2}), "");
  EXPECT_EQ(Refusal({.context = 131072}), "");
  EXPECT_NE(Refusal({.context = 131073}).find("131072"), std::string::npos);
}

TEST_F(OptionsTest, StepAndSequences) {
  EXPECT_NE(Refusal({.max_sequences = 0}).find("max_sequences"), std::string::npos);
  EXPECT_NE(Refusal({.max_sequences = kMaxSequences + 1}).find("max_sequences"), std::string::npos);
  EXPECT_NE(Refusal({.max_queue = -1}).find("max_queue"), std::string::npos);
  EXPECT_NE(Refusal({.step_tokens = 0}).find("step_tokens"), std::string::npos);
  EXPECT_EQ(Refusal({.max_sequences = 8, .step_tokens = 8}), "");
  EXPECT_NE(Refusal({.max_sequences = 9, .step_tokens = 8}).find("8 tokens"), std::string::npos);
  load_.max_rows = 100;
  EXPECT_EQ(ResolveOptions({.step_tokens = 512}, config_, load_, 0)->options.step_tokens, 100);
  EXPECT_NE(Refusal({.max_sequences = 101, .step_tokens = 512}).find("100"), std::string::npos);
}

TEST_F(OptionsTest, AModelWithoutKeysNeedsNoBytes) {
  config_.kv_heads = 0;
  const auto resolved = ResolveOptions({.context = 64, .max_sequences = 3, .step_tokens = 16}, config_, load_, 1);
  ASSERT_TRUE(resolved);
  EXPECT_EQ(resolved->cache.blocks, 6);
  EXPECT_EQ(resolved->options.kv_bytes, 0u);
}

}  // namespace
}  // namespace hone
