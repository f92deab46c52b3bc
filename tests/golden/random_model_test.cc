// Random models of every family: the fast path against the reference, from both file kinds, over random prompts cut at
// random.
#include "golden/random_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/random.h"
#include "base/test_shared.h"
#include "golden/driver.h"
#include "reference/reference.h"

namespace hone::golden {
namespace {

constexpr int kModelsAFamily = 6;

reference::Pass RunReference(const std::string& path, const std::vector<int32_t>& tokens, int final_length) {
  auto checkpoint = Checkpoint::Open(path);
  HONE_CHECK(checkpoint.has_value(), checkpoint.has_value() ? "" : checkpoint.error().message);
  auto model = reference::ReferenceModel::Load(**checkpoint);
  HONE_CHECK(model.has_value(), model.has_value() ? "" : model.error().message);
  return model->Run(tokens, final_length);
}

// Feeds the tokens in random chunks.
std::vector<std::vector<float>> RunFast(Model& model, const std::vector<int32_t>& tokens, int final_length, Rng& rng) {
  Sequences sequences(model, 8);
  sequences.SetFinalLength(0, final_length);
  std::vector<std::vector<float>> logits;
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t end = std::min(tokens.size(), begin + 1 + rng.Below(40));
    for (auto& row : sequences.Feed({{0, {tokens.begin() + begin, tokens.begin() + end}}}))
      logits.push_back(std::move(row));
    begin = end;
  }
  return logits;
}

void ExpectClose(const std::vector<std::vector<float>>& fast, const reference::Pass& pass) {
  ASSERT_EQ(fast.size(), pass.logits.size());
  double largest = 1;
  for (const reference::Row& row : pass.logits) {
    for (const double logit : row) largest = std::max(largest, std::abs(logit));
  }
  for (size_t i = 0; i < fast.size(); ++i) {
    for (size_t v = 0; v < fast[i].size(); ++v) {
      ASSERT_NEAR(fast[i][v], pass.logits[i][v], 3e-5 * largest) << "row " << i << ", token " << v;
    }
  }
}

class RandomModelTest : public testing::TestWithParam<std::string> {};

TEST_P(RandomModelTest, FastPathEqualsReference) {
  const std::string& family = GetParam();
  const std::string where = TestPath("random_" + family);
  std::filesystem::create_directories(where);
  Rng rng(std::hash<std::string>{}(family) % 1000 + 1);
  Machine machine;
  for (int i = 0; i < kModelsAFamily; ++i) {
    const RandomModel random = WriteRandomModel(family, rng, where);
    const Isa isa = machine.isas()[i % machine.isas().size()];
    SCOPED_TRACE(random.what + std::string(IsaName(isa)));
    const LoadOptions options{.exact = isa >= Isa::kBf16};  // which else rounds the activations of BF16 weights
    const std::unique_ptr<Model> model = LoadModel(random.folder, machine.runtime(isa), options);
    const std::unique_ptr<Model> gguf = LoadModel(random.gguf, machine.runtime(isa), options);
    ASSERT_TRUE(model && gguf);
    std::vector<int32_t> tokens(1 + rng.Below(80));
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng.Below(model->config().vocab));
    int final_length = static_cast<int>(tokens.size() + rng.Below(20));
    if (family == "phi3" && i % 2 == 0) {  // on both sides of longrope's border, 40
      tokens.resize(std::min<size_t>(tokens.size(), 39));
      final_length = 40 + static_cast<int>(rng.Below(2));
    }
    const reference::Pass pass = RunReference(random.folder, tokens, final_length);
    ExpectClose(RunFast(*model, tokens, final_length, rng), pass);
    SCOPED_TRACE("gguf");
    ExpectClose(RunFast(*gguf, tokens, final_length, rng), pass);
    if (random.blocks_gguf.empty()) continue;
    SCOPED_TRACE("blocks");
    const std::unique_ptr<Model> blocks = LoadModel(random.blocks_gguf, machine.runtime(isa), {.exact = true});
    ASSERT_TRUE(blocks);
    ExpectClose(RunFast(*blocks, tokens, final_length, rng), RunReference(random.blocks_gguf, tokens, final_length));
  }
  std::filesystem::remove_all(where);
}

// A file may hold any numbers: NaN and infinite weights give NaN logits, never a crash.
TEST(BrokenWeights, NeverCrash) {
  const std::string where = TestPath("broken_weights");
  std::filesystem::create_directories(where);
  Machine machine;
  for (const std::string family : {"llama", "qwen3moe", "gemma2", "olmo2"}) {
    SCOPED_TRACE(family);
    Rng rng(5);
    const RandomModel random = WriteRandomModel(family, rng, where);
    {
      std::fstream file(random.folder + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(0, std::ios::end);
      const int64_t bytes = file.tellg(), damaged = bytes / 3;
      file.seekp(bytes - damaged);
      for (int64_t i = 0; i < damaged; ++i)
        file.put(static_cast<char>(i % 97 < 4 ? 0xff : 0x7f));  // NaN, and about 3e38
    }
    for (const Isa isa : machine.isas()) {
      const std::unique_ptr<Model> model = LoadModel(random.folder, machine.runtime(isa));
      ASSERT_NE(model, nullptr);
      Sequences sequences(*model, 4);
      sequences.Feed({{0, {1, 2, 3, 4, 5}}});
      const auto logits = sequences.Feed({{0, {6}}}, std::vector<int32_t>{});
      EXPECT_TRUE(logits.empty());
      bool odd = false;
      const auto last = sequences.Feed({{0, {7}}});
      for (const float logit : last[0]) odd |= !std::isfinite(logit);
      EXPECT_TRUE(odd);
    }
  }
  std::filesystem::remove_all(where);
}

INSTANTIATE_TEST_SUITE_P(Families, RandomModelTest, testing::ValuesIn(RandomFamilies()),
                         [](const testing::TestParamInfo<std::string>& one) { return one.param; });

}  // namespace
}  // namespace hone::golden
