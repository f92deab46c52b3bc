// Budgets are kept and used, more bytes never cost more, patterns do what they say.
#include "compress/gguf/recipe.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/test_runtime.h"
#include "base/test_shared.h"

namespace hone {
namespace {

TEST(Recipe, LinesAreReadAndFaultsAreNamed) {
  const auto lines = ParseRecipe("# comment\n*.ffn_down.weight q6_K  # more\n\nblk.0.* F16\n", "r");
  ASSERT_TRUE(lines) << lines.error().message;
  ASSERT_EQ(lines->size(), 2u);
  EXPECT_EQ((*lines)[0].type, DType::kQ6_K);
  EXPECT_EQ((*lines)[1].pattern, "blk.0.*");
  const auto marked = ParseRecipe("\xef\xbb\xbf*.ffn_down.weight\tq6_K\r\n", "r");
  ASSERT_TRUE(marked);
  EXPECT_EQ(marked->front().pattern, "*.ffn_down.weight");
  for (const std::string& bad : {std::string(1 << 20, 'a'), "a " + std::string(1 << 20, 'a'), std::string(1 << 20, 'a') + " Q4_K Q4_K"})
    EXPECT_LT(ParseRecipe(bad, "r").error().message.size(), 500u);
  for (const char* bad : {"", "a", "a Q4_K b", "a Q9_Z", "a IQ1_S"}) {
    const auto result = ParseRecipe(bad, "r");
    ASSERT_FALSE(result) << bad;
    EXPECT_EQ(result.error().message.find("r:"), 0u) << result.error().message;
  }
}

class MixedTest : public RuntimeTest {};

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
    const auto choice = ChooseMixed(**source, nullptr, nullptr, budget, runtime_);
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_LE(choice->bytes, budget);
    EXPECT_GT(choice->bytes + largest / 4, budget);  // one step of the largest tensor is all that may be left
    EXPECT_LT(choice->cost, before);
    before = choice->cost;
  }
  EXPECT_FALSE(ChooseMixed(**source, nullptr, nullptr, all / 20, runtime_));
  const auto lines = ParseRecipe("*ffn_down* Q8_0\nblk.1.ffn_down.weight Q2_K", "r");
  ASSERT_TRUE(lines);
  const auto types = ApplyRecipe(*lines, **source, "r");
  ASSERT_TRUE(types);
  EXPECT_EQ(types->at("blk.0.ffn_down.weight"), DType::kQ8_0);
  EXPECT_EQ(types->at("blk.1.ffn_down.weight"), DType::kQ2_K);
  EXPECT_EQ(types->count("blk.0.attn_q.weight"), 0u);
  EXPECT_FALSE(ApplyRecipe(*ParseRecipe("nothing Q8_0", "r"), **source, "r"));
}

TEST_F(MixedTest, WhatMattersIsMeasuredAndPaidFor) {
  const auto checkpoint = Checkpoint::Open(HONE_SOURCE_DIR "/assets/builtin/main");
  ASSERT_TRUE(checkpoint);
  const auto source = SourceFromFolder(*checkpoint, {});
  ASSERT_TRUE(source);
  const auto walk = LayerWalk::Open(*checkpoint, runtime_, 512);
  ASSERT_TRUE(walk);
  CalibrationText text{.chunk_tokens = 512};
  for (int i = 0; i < 512; ++i) text.tokens.push_back(i * 7919 % (*walk)->config().vocab);
  const std::string up = "blk.1.ffn_up.weight", down = "blk.0.ffn_down.weight", table = "token_embd.weight";
  const auto measure = [&](const std::map<std::string, DType>& probes, uint64_t memory, double flops = 1e15) {
    SensitivityOptions options{.probes = probes, .work_path = TestPath("sensitivity"), .memory_bytes = memory};
    options.budget_flops = flops;
    auto measured = MeasureSensitivity(**walk, text, options, runtime_);
    HONE_CHECK(measured.has_value());
    std::map<std::string, double> divergence;
    for (const SensitivityGroup& group : measured->groups) {
      for (const std::string& name : group.tensors) divergence[name] = group.divergence;
    }
    return divergence;
  };
  const auto coarse = measure({{up, DType::kQ3_K}, {down, DType::kQ3_K}, {table, DType::kQ3_K}}, 0);
  ASSERT_EQ(coarse.size(), 3u);
  const auto fine = measure({{up, DType::kQ8_0}, {down, DType::kQ8_0}, {table, DType::kQ8_0}}, 0);
  for (const auto& [name, divergence] : coarse) {
    EXPECT_GT(divergence, 0) << name;
    EXPECT_LT(fine.at(name), divergence / 3) << name;  // what is left is mostly rounding of activations, 2e-5
  }
  EXPECT_EQ(measure({{up, DType::kQ3_K}, {down, DType::kQ3_K}, {table, DType::kQ3_K}}, 1), coarse);  // streams in files
  EXPECT_GT(LeastSensitivityMemory(**walk, 3), uint64_t{1} << 20);
  EXPECT_TRUE(measure({{up, DType::kQ3_K}}, 0, 1).empty());                                        // no budget

  // What a log has is not measured again, and makes no difference to the rest, whatever is missing.
  const std::string path = TestPath("sensitivities");
  std::filesystem::remove(path);
  SensitivityOptions options{.work_path = TestPath("sensitivity")};
  for (const auto& [name, type] : ProbeTypes(**source)) {
    if (!name.starts_with("blk.") || name.ends_with("ffn_up.weight") || name.ends_with("attn_k.weight")) options.probes[name] = type;
  }
  const auto with_log = [&] {
    const auto key = MakeSensitivityKey(**walk, text, options);
    HONE_CHECK(key.has_value());
    const auto log = SensitivityLog::Open(path, *key);
    HONE_CHECK(log.has_value());
    options.log = log->get();
    auto measured = MeasureSensitivity(**walk, text, options, runtime_);
    options.log = nullptr;
    HONE_CHECK(measured.has_value());
    return *std::move(measured);
  };
  const Sensitivity whole = with_log();
  EXPECT_EQ(whole.measured, whole.groups.size());
  ASSERT_EQ(whole.groups.size(), options.probes.size());
  EXPECT_EQ(with_log().measured, 0u);
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  for (const size_t step : {2, 3, 7}) {
    std::ofstream out(path, std::ios::trunc);
    out << lines.front() << "\n";
    for (size_t i = 1; i < lines.size(); i += step) out << lines[i] << "\n";
    out.close();
    const Sensitivity again = with_log();
    EXPECT_EQ(again.measured, whole.groups.size() - (lines.size() - 1 + step - 1) / step);
    EXPECT_EQ(again.tokens, whole.tokens);
    for (size_t i = 0; i < whole.groups.size(); ++i) {
      EXPECT_EQ(again.groups[i].tensors, whole.groups[i].tensors);
      EXPECT_EQ(again.groups[i].divergence, whole.groups[i].divergence) << again.groups[i].tensors.front();
    }
  }
  // Tensors of a kind go together where the budget is smaller; what stays alone is measured as before.
  size_t sizes = 1, last = whole.groups.size();
  for (double flops = 1e15; flops > 1; flops /= 2) {
    SensitivityOptions less = options;
    less.budget_flops = flops;
    const size_t groups = PlanSensitivity(**walk, text, less).groups.size();
    if (groups == 0) break;
    if (groups == last) continue;
    ++sizes, last = groups;
    const auto measured = MeasureSensitivity(**walk, text, less, runtime_);
    ASSERT_TRUE(measured) << measured.error().message;
    ASSERT_EQ(measured->groups.size(), groups);
    for (const SensitivityGroup& group : measured->groups) {
      EXPECT_GT(group.divergence, 0);
      if (group.tensors.front() == table) {
        EXPECT_EQ(group.divergence, whole.groups.back().divergence);
      }
    }
  }
  EXPECT_EQ(sizes, 3u);
  ASSERT_EQ(whole.groups.back().tensors.front(), table);
  // Each thing that decides the figures is in the key.
  const auto key = [&](const CalibrationText& words, const SensitivityOptions& of) { return *MakeSensitivityKey(**walk, words, of); };
  const SensitivityKey same = key(text, options);
  EXPECT_EQ(same.importance, "none");
  CalibrationText other_text = text;
  other_text.tokens.back() ^= 1;
  EXPECT_NE(key(other_text, options).text, same.text);
  SensitivityOptions other = options;
  other.probes[up] = DType::kQ8_0;
  EXPECT_NE(key(text, other).protocol, same.protocol);
  other = options;
  other.budget_flops = 1e10;
  EXPECT_NE(key(text, other).protocol, same.protocol);
  other = options;
  Imatrix imatrix;
  imatrix.entries[up] = {.columns = 1, .sums = {1}, .counts = {1}};
  other.imatrix = &imatrix;
  const std::string importance = key(text, other).importance;
  EXPECT_NE(importance, "none");
  imatrix.entries[up].sums[0] = 2;
  EXPECT_NE(key(text, other).importance, importance);
  EXPECT_EQ(key(text, other).model, same.model);

  // A tensor that is dear gets bits that a cheap one of the same shape does not get.
  Sensitivity made;
  for (const auto& [name, type] : ProbeTypes(**source)) made.groups.push_back({{name}, name == up ? 10.0 : 1e-3});
  uint64_t all = 0;
  for (const TensorInfo& info : (*source)->tensors()) all += info.bytes();
  const auto choice = ChooseMixed(**source, nullptr, &made, all / 4, runtime_);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->types.at(up), DType::kQ8_0);
  EXPECT_NE(choice->types.at("blk.0.ffn_up.weight"), DType::kQ8_0);
  EXPECT_LE(choice->bytes, all / 4);
}

}  // namespace
}  // namespace hone
