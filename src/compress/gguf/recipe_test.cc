// Budgets are kept and used, more bytes never cost more, patterns do what they say.
#include "compress/gguf/recipe.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/test_shared.h"

namespace hone {
namespace {

TEST(Recipe, LinesAreReadAndFaultsAreNamed) {
  const auto lines = ParseRecipe("# comment\n*.ffn_down.weight q6_K  # more\n\nblk.0.* F16\n", "r");
  ASSERT_TRUE(lines) << lines.error().message;
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].type, DType::kQ6_K);
  EXPECT_EQ((*lines)[1].pattern, "blk.0.*");
  for (const char* bad : {"", "a", "a Q4_K b", "a Q9_Z", "a IQ1_S"}) {
    const auto result = ParseRecipe(bad, "r");
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().message.find("r:"), 0u) << result.error().message;
  }
}

class MixedTest : public testing::Test {
 protected:
  MixedTest() { runtime_ = {&cpu_, cpu_.best_isa(), &threads_, nullptr, &clock_}; }
  CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{2};
  Clock clock_;
  Runtime runtime_;
};

TEST_F(MixedTest, BudgetsAreKeptAndUsed) {
  const auto checkpoint = Checkpoint::Open(HONE_SOURCE_DIR "/assets/builtin/main");
  ASSERT_TRUE(checkpoint);
  const auto source = SourceFromFolder(*checkpoint, {});
  ASSERT_TRUE(source);
  uint64_t all = 0, largest = 0;
  for (const TensorInfo& info : (*source)->tensors()) {
    all += info.bytes();
    largest = std::max(largest, info.bytes());
  }
  double before = HUGE_VAL;
  for (const double share : {0.18, 0.25, 0.3, 0.45}) {
    const uint64_t budget = static_cast<uint64_t>(share * static_cast<double>(all));
    const auto choice = ChooseMixed(**source, nullptr, budget, runtime_);
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_LE(choice->bytes, budget);
    EXPECT_GT(choice->bytes + largest / 4, budget);  // one step of the largest tensor is all that may be left
    EXPECT_LT(choice->cost, before);
    before = choice->cost;
  }
  EXPECT_FALSE(ChooseMixed(**source, nullptr, all / 20, runtime_));
  const auto lines = ParseRecipe("*ffn_down* Q8_0\nblk.1.ffn_down.weight Q2_K", "r");
  ASSERT_TRUE(lines);
  const auto types = ApplyRecipe(*lines, **source, "r");
  ASSERT_TRUE(types);
  EXPECT_EQ(types->at("blk.0.ffn_down.weight"), DType::kQ8_0);
  EXPECT_EQ(types->at("blk.1.ffn_down.weight"), DType::kQ2_K);
  EXPECT_EQ(types->count("blk.0.attn_q.weight"), 0u);
  EXPECT_FALSE(ApplyRecipe(*ParseRecipe("nothing Q8_0", "r"), **source, "r"));
}

}  // namespace
}  // namespace hone
