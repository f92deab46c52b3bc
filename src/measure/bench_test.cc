// The plan of a bench, the cost of a step against counts by hand, the check of answers, the report's keys.
#include "measure/bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "formats/checkpoint.h"
#include "measure/answer_check.h"
#include "measure/model_cost.h"
#include "measure/model_runner.h"

namespace hone {
namespace {

using nlohmann::ordered_json;
using Kind = BenchWork::Kind;

ModelConfig SomeConfig(int context) {
  ModelConfig config;
  config.layers = 2, config.width = 64, config.heads = 4, config.kv_heads = 2, config.head_width = 16,
  config.vocab = 100;
  config.context = context;
  config.layer.resize(2);
  return config;
}

std::string Names(const BenchPlan& plan) {
  std::string names;
  for (const BenchWork& work : plan.works) names += work.Name() + "; ";
  return names;
}

TEST(PlanTest, DefaultsAreTheAxesThatTheModelHolds) {
  auto plan = PlanBench({}, SomeConfig(131072), 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(Names(*plan),
            "prefill 128; prefill 512; prefill 2048; prefill 8192; decode at 0; decode at 2048; decode at 8192; "
            "decode at 0, batch 4; decode at 0, batch 8; decode at 0, batch 16; decode at 0, batch 32; ");
  EXPECT_TRUE(plan->skipped.empty());
  EXPECT_EQ(plan->max_context, 8192 + 32);
  plan = PlanBench({}, SomeConfig(4096), 0);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->skipped.size(), 2u);
  EXPECT_EQ(plan->skipped[0], "prefill 8192: the model's context is 4096");
  EXPECT_EQ(plan->skipped[1], "decode at 8192: the model's context is 4096");
}

TEST(PlanTest, ListsThatAreGivenAreCrossed) {
  auto plan = PlanBench({.prefill = {0}, .context = {0, 64}, .batch = {1, 8}, .decode = 5}, SomeConfig(4096), 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(Names(*plan), "decode at 0; decode at 0, batch 8; decode at 64; decode at 64, batch 8; ");
  EXPECT_EQ(plan->works[0].tokens, 5);
  plan = PlanBench({.prefill = {16, 16, 32}, .no_decode = true}, SomeConfig(4096), 0);
  ASSERT_TRUE(plan);
  EXPECT_EQ(Names(*plan), "prefill 16; prefill 32; ");
}

TEST(PlanTest, WhatCannotBeIsWrongUsageIfAskedFor) {
  const ModelConfig config = SomeConfig(4096);
  for (const BenchOptions& options :
       {BenchOptions{.prefill = {5000}}, BenchOptions{.context = {5000}}, BenchOptions{.prefill = {-1}},
        BenchOptions{.batch = {0}}, BenchOptions{.batch = {100000}}, BenchOptions{.prefill = {0}, .no_decode = true}}) {
    const auto plan = PlanBench(options, config, 0);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, ErrorCode::kUsage);
  }
  // 4096 tokens of 2 layers, 2 heads of 16, F16 are 1 MiB; batch 32 needs more than half of 40 MiB.
  EXPECT_FALSE(PlanBench({.context = {4064}, .batch = {32}}, config, uint64_t{40} << 20));
  EXPECT_TRUE(PlanBench({.context = {4064}, .batch = {32}}, config, uint64_t{80} << 20));
}

class BuiltinBench : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Checkpoint::Open(HONE_SOURCE_DIR "/assets/builtin/main");
    ASSERT_TRUE(opened) << opened.error().message;
    checkpoint_ = *opened;
  }
  Runtime runtime() { return {&cpu_, cpu_.best_isa(), &threads_, &log_, &clock_}; }
  std::shared_ptr<Model> Load(bool exact) {
    LoadOptions load;
    load.max_rows = 64;
    load.max_context = 512;
    load.exact = exact;
    auto model = Model::Load(checkpoint_, runtime(), load);
    EXPECT_TRUE(model) << model.error().message;
    return std::move(*model);
  }

  const CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{2};
  Log log_{LogLevel::kOff};
  Clock clock_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

TEST_F(BuiltinBench, CostIsWhatTheShapesSay) {
  const auto config = ReadModelConfig(*checkpoint_);
  ASSERT_TRUE(config);
  // Qwen3 shape: width 256, 4 query and 2 KV heads of 64, FFN 768, 8 layers, vocabulary 2048, BF16.
  const double layer = 256.0 * 256 + 2 * 256.0 * 128 + 256.0 * 256 + 3 * 256.0 * 768;
  const ModelCost cost(*checkpoint_, *config, KvType::kF16);
  EXPECT_DOUBLE_EQ(cost.weight_bytes(), 2 * (8 * layer + 2048.0 * 256));
  EXPECT_DOUBLE_EQ(cost.kv_token_bytes(), 8 * 2 * 2 * 64 * 2);
  const ModelCost::Step one = cost.Forward(1, 1, 0);
  EXPECT_DOUBLE_EQ(one.bytes, cost.weight_bytes() + cost.kv_token_bytes());
  EXPECT_DOUBLE_EQ(one.flops, 2 * (8 * layer + 2048.0 * 256) + 8 * 4 * 4 * 64);
  const ModelCost::Step many = cost.Forward(3, 10, 100);
  EXPECT_DOUBLE_EQ(many.bytes, cost.weight_bytes() + 3 * 110 * cost.kv_token_bytes());
  EXPECT_DOUBLE_EQ(many.flops, 2 * (8 * layer * 30 + 2048.0 * 256 * 3) + 8 * 4 * 4 * 64 * 3 * (10 * 100 + 55.0));
}

TEST_F(BuiltinBench, AnswersAreHeldAgainstTheExactCopy) {
  const auto model = Load(false), exact = Load(true);
  const auto check = CheckAnswers(*model, exact.get(), runtime(), KvType::kF16);
  ASSERT_TRUE(check) << check.error().message;
  EXPECT_NE(check->find("all agree"), std::string::npos) << *check;
  EXPECT_TRUE(CheckAnswers(*model, nullptr, runtime(), KvType::kF16));
}

TEST_F(BuiltinBench, AWrongModelIsRefused) {
  const auto model = Load(false);
  const auto other = Checkpoint::Open(HONE_SOURCE_DIR "/assets/builtin/draft");
  ASSERT_TRUE(other);
  LoadOptions load;
  load.max_rows = 32, load.max_context = 64;
  auto wrong = Model::Load(*other, runtime(), load);
  ASSERT_TRUE(wrong);
  const auto check = CheckAnswers(*model, wrong->get(), runtime(), KvType::kF16);
  ASSERT_FALSE(check);
  EXPECT_EQ(check.error().code, ErrorCode::kInternal);
}

TEST(CompareLogitsTest, CountsRowsWithAClearLead) {
  const std::vector<float> want = {0, 10, 1, 2, 5, 0, 4.9f, 1};
  std::vector<float> got = want;
  LogitsDifference d = CompareLogits(got.data(), want.data(), 2, 4);
  EXPECT_EQ(d.relative_rms, 0);
  EXPECT_EQ(d.clear_rows, 2);
  EXPECT_EQ(d.clear_wrong, 0);
  got[6] = 5.1f;  // a near tie may turn
  d = CompareLogits(got.data(), want.data(), 2, 4);
  EXPECT_EQ(d.clear_rows, 1);
  EXPECT_EQ(d.clear_wrong, 0);
  EXPECT_GT(d.relative_rms, 0);
  got[0] = NAN;
  EXPECT_FALSE(CompareLogits(got.data(), want.data(), 2, 4).finite);
}

// A context of copies has the values of the computed blocks, so the next token sees the same keys again and again.
TEST_F(BuiltinBench, CopiedContextsAreReadAtEveryPosition) {
  const auto model = Load(false);
  ModelRunner runner(*model, runtime(), KvType::kF32, 2, 129, 2);
  std::vector<int32_t> ids(64);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(5 + i);
  ASSERT_TRUE(runner.Prefill(0, ids));
  runner.FillByCopy(1, 128, 64);
  runner.FillByCopy(0, 128, 64);
  const int32_t next = 9;
  const ModelRunner::Rows rows[] = {{.sequence = 0, .first_position = 128, .tokens = {&next, 1}},
                                    {.sequence = 1, .first_position = 128, .tokens = {&next, 1}}};
  runner.Forward(rows);
  const auto a = runner.logits(0), b = runner.logits(1);
  EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
  EXPECT_GE(runner.Greedy(2)[0], 0);
}

TEST_F(BuiltinBench, ReportHasTheKeysThatScriptsRelyOn) {
  const auto model = Load(false);
  const BenchModel bench{"builtin", checkpoint_, model, 0.5, 1000, 2000};
  const BenchOptions options{.prefill = {16}, .context = {40}, .batch = {1, 2}, .decode = 2, .rounds = 2};
  const auto plan = PlanBench(options, model->config(), 0);
  ASSERT_TRUE(plan);
  BenchReport report = RunBench(bench, nullptr, *plan, options, {}, runtime(), {});
  report.check = "checked";
  const ordered_json json = ordered_json::parse(BenchJson(report, runtime()));
  for (const char* key : {"roof", "rows", "load_s", "rss_bytes", "environment"}) EXPECT_TRUE(json.contains(key)) << key;
  ASSERT_EQ(json["rows"].size(), 3u);
  for (const ordered_json& row : json["rows"]) {
    for (const char* key :
         {"work", "tokens", "context", "batch", "tok_s", "low", "high", "roof_percent", "bytes", "flops"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_GT(row["tok_s"], 0);
    EXPECT_LE(row["low"], row["tok_s"]);
    EXPECT_GE(row["high"], row["tok_s"]);
    EXPECT_GT(row["bytes"], 0);
    EXPECT_GT(row["flops"], 0);
  }
  EXPECT_EQ(json["rows"][0]["work"], "prefill");
  EXPECT_EQ(json["rows"][2]["batch"], 2);
  EXPECT_EQ(json["rows"][2]["context"], 40);
  EXPECT_TRUE(CheckReport(json.dump(), *plan));
  // An earlier report of the same figures is no difference; other things are no report.
  BenchReport again = report;
  const auto compared = CompareWithReport(json.dump(), "before.json", &again);
  ASSERT_TRUE(compared) << compared.error().message;
  ASSERT_EQ(again.compared.size(), 3u);
  for (const CompareRow& row : again.compared) EXPECT_EQ(row.comparison.verdict, "no difference");
  EXPECT_NE(BenchTable(again).find("verdict: no difference"), std::string::npos);
  for (const char* text : {"", "[]", "{}", "{\"rows\": 3}", "{\"rows\": []}", "{\"rows\": [1]}"}) {
    BenchReport fresh = report;
    EXPECT_FALSE(CompareWithReport(text, "x", &fresh)) << text;
    EXPECT_FALSE(CheckReport(text, *plan)) << text;
  }
}

TEST(FirstLargestTest, IsThatOfAPlainLoop) {
  for (size_t n = 1; n <= 70; ++n) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>((i * 37 + n) % 11) - 20;  // each number several times, none above zero
    EXPECT_EQ(FirstLargest(x), std::max_element(x.begin(), x.end()) - x.begin()) << n;
    for (size_t i = 0; i < n; ++i) {
      std::vector<float> y = x;
      y[i] = 5;
      EXPECT_EQ(FirstLargest(y), static_cast<int32_t>(i)) << n;
      for (const float bad : {INFINITY, -INFINITY, NAN}) {
        y[i] = bad;
        EXPECT_EQ(FirstLargest(y), -1) << n << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace hone
