// The simulator against closed forms of small traces, against itself, and bad input.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/policies/policy.h"
#include "measure/simulate/simulate.h"

namespace hone {
namespace {

// 10 ms a step and 1 ms a prompt token.
CostModel Simple() {
  return {[](const StepLoad& load) { return 0.01 + 0.001 * load.prompt_tokens; }, "simple", 0};
}

SimResult SimulateOk(std::span<const SimRequest> trace, const SimOptions& options, const CostModel& cost = Simple()) {
  const auto result = Simulate(trace, cost, options);
  EXPECT_TRUE(result) << result.error().message;
  return result ? *result : SimResult{};
}

TEST(SimulateTest, OneRequestByHand) {
  const SimRequest one[] = {{.at_s = 5, .input = 100, .output = 11}};
  const SimResult r = SimulateOk(one, {.step_ms = 0});
  // One step with the prompt, which also gives the first token, and ten more.
  EXPECT_EQ(r.steps, 11u);
  EXPECT_NEAR(r.ttft_s.p50, 0.01 + 0.1, 1e-12);
  EXPECT_NEAR(r.tpot_s.p50, 0.01, 1e-12);
  EXPECT_NEAR(r.total_s.max, 0.11 + 0.1, 1e-12);
  EXPECT_NEAR(r.seconds, 0.21, 1e-9);
  EXPECT_EQ(r.output_tokens, 11);
  EXPECT_NEAR(r.busy_share, 1, 1e-9);
}

TEST(SimulateTest, QueueOfOnePlace) {
  // Three at once and one place: each waits for the ones before it.
  const SimRequest three[] = {{0, 10, 5}, {0, 10, 5}, {0, 10, 5}};
  const SimResult r = SimulateOk(three, {.max_sequences = 1, .step_ms = 0});
  const double each_s = 5 * 0.01 + 0.01;
  EXPECT_NEAR(r.ttft_s.max, 2 * each_s + 0.02, 1e-9);
  EXPECT_EQ(r.most_running, 1);
  EXPECT_EQ(r.requests, 3);
}

TEST(SimulateTest, WasteOfBlocksIsAboutHalfABlockAndOfReservationsTheRest) {
  const std::vector<SimRequest> trace = PoissonTrace(4, 300, 400, 200, 0.5, 7);
  SimOptions options{.kv_tokens = 1 << 16, .max_sequences = 32, .step_ms = 0};
  const SimResult paged = SimulateOk(trace, options);
  EXPECT_LT(paged.waste, 0.06);
  double before = 0;
  for (const int block : {1, 16, 64, 256}) {
    options.block_tokens = block;
    const SimResult r = SimulateOk(trace, options);
    EXPECT_EQ(r.requests, 300) << block;
    if (block == 1) {
      EXPECT_LT(r.waste, 0.02);  // only blocks of prompts that are not computed yet
    }
    EXPECT_GE(r.waste, before);
    before = r.waste;
  }
  options.block_tokens = 32;
  options.contiguous = true;
  options.reserve_tokens = 2048;
  const SimResult contiguous = SimulateOk(trace, options);
  EXPECT_GT(contiguous.waste, 0.6);
  EXPECT_EQ(contiguous.requests, paged.requests);
  EXPECT_EQ(contiguous.preemptions, 0u);
}

// One sequence, steps of one length: after step k it has computed i + k - 1 of its i + o tokens, in ceil(. / block) blocks.
TEST(SimulateTest, WasteInClosedForm) {
  constexpr int kInput = 37, kOutput = 90;
  const CostModel flat{[](const StepLoad&) { return 0.01; }, "flat", 0};
  const SimRequest one[] = {{.at_s = 0, .input = kInput, .output = kOutput}};
  for (const int block : {1, 7, 16, 32, 64, 128, 512}) {
    double waste = 0;
    for (int k = 0; k < kOutput; ++k) {
      const double tokens = kInput + k;
      waste += (1 - tokens / (block * std::ceil(tokens / block))) / kOutput;
    }
    const SimResult r = SimulateOk(one, {.block_tokens = block, .kv_tokens = 4096, .step_ms = 0}, flat);
    EXPECT_EQ(r.steps, static_cast<uint64_t>(kOutput));
    EXPECT_NEAR(r.waste, waste, 1e-9) << block;
  }
  double waste = 0;  // a reservation of 256 tokens, whatever it holds
  for (int k = 0; k < kOutput; ++k) waste += (1 - (kInput + k) / 256.0) / kOutput;
  const SimResult reserved = SimulateOk(one, {.contiguous = true, .reserve_tokens = 256, .kv_tokens = 4096, .step_ms = 0}, flat);
  EXPECT_NEAR(reserved.waste, waste, 1e-9);
}

// In 1024 tokens fit at most as many sequences of 100 + 28 tokens as there are blocks for: 4 of 32 for each, 1 of 256.
TEST(SimulateTest, TheBlockSizeDecidesHowManyFit) {
  const std::vector<SimRequest> trace(16, SimRequest{.at_s = 0, .input = 100, .output = 28});
  int before = 16;
  for (const int block : {32, 256, 512}) {
    const SimResult r = SimulateOk(trace, {.block_tokens = block, .kv_tokens = 1024, .max_sequences = 16, .step_ms = 0, .prefix_cache = false});
    EXPECT_EQ(r.requests, 16) << block;
    EXPECT_LE(r.most_running, 1024 / (block * ((99 + block) / block))) << block;
    EXPECT_LT(r.most_running, before) << block;
    before = r.most_running;
  }
  EXPECT_EQ(SimulateOk(trace, {.block_tokens = 2048, .kv_tokens = 1024}).refused, 16);
  // Prefixes are shared by whole blocks, and by parts of the last.
  std::vector<SimRequest> shared;
  for (int i = 0; i < 20; ++i) shared.push_back({.at_s = i * 5.0, .input = 1100, .output = 4, .prefix = {11, 22}});
  for (const int block : {16, 64, 256}) EXPECT_EQ(SimulateOk(shared, {.block_tokens = block, .kv_tokens = 1 << 16}).cached_tokens, 19 * 1024) << block;
}

TEST(SimulateTest, WarmRequestsAreNotCounted) {
  const SimRequest two[] = {{0, 100, 11}, {1000, 50, 2}};
  const SimResult r = SimulateOk(two, {.step_ms = 0, .warm_requests = 1});
  EXPECT_NEAR(r.ttft_s.max, 0.01 + 0.05, 1e-9);
  EXPECT_NEAR(r.gap_s.max, 0.01, 1e-9);
  EXPECT_EQ(r.requests, 2);
}

TEST(SimulateTest, TheSameRoomHoldsMoreSequencesWhenPaged) {
  const std::vector<SimRequest> trace = PoissonTrace(50, 200, 200, 100, 0.5, 3);
  SimOptions options{.kv_tokens = 8192, .max_sequences = 64, .step_ms = 0};
  const CostModel cost{[](const StepLoad& load) { return 0.02 + 1e-5 * load.prompt_tokens; }, "reading weights", 0};
  const SimResult paged = SimulateOk(trace, options, cost);
  options.contiguous = true;
  options.reserve_tokens = 1024;
  const SimResult contiguous = SimulateOk(trace, options, cost);
  EXPECT_EQ(contiguous.most_running, 8);
  EXPECT_GT(paged.mean_running, 2 * contiguous.mean_running);
  EXPECT_GT(paged.tok_s, 1.5 * contiguous.tok_s);
}

TEST(SimulateTest, PrefixesOfTheTraceAreFound) {
  std::vector<SimRequest> trace;
  for (int i = 0; i < 20; ++i) trace.push_back({.at_s = i * 5.0, .input = 1100, .output = 4, .prefix = {11, 22}});
  const SimResult cached = SimulateOk(trace, {.kv_tokens = 1 << 16});
  EXPECT_EQ(cached.cached_tokens, 19 * 1024);
  const SimResult cold = SimulateOk(trace, {.kv_tokens = 1 << 16, .prefix_cache = false});
  EXPECT_EQ(cold.cached_tokens, 0);
  EXPECT_GT(cold.ttft_s.p50, 3 * cached.ttft_s.p50);
}

TEST(SimulateTest, APoolTooSmallPreemptsAndRefusesButEveryoneEnds) {
  const std::vector<SimRequest> trace = PoissonTrace(100, 60, 100, 150, 0.2, 5);
  const SimResult r = SimulateOk(trace, {.kv_tokens = 1024, .max_sequences = 8});
  EXPECT_EQ(r.requests, 60);
  EXPECT_GT(r.preemptions, 0u);
  const SimRequest large[] = {{0, 2000, 10}, {0, 10, 10}};
  const SimResult refused = SimulateOk(large, {.kv_tokens = 1024});
  EXPECT_EQ(refused.refused, 1);
  EXPECT_EQ(refused.requests, 1);
}

TEST(SimulateTest, EveryPolicyEndsEverythingAndRunsAreEqualBitByBit) {
  const std::vector<SimRequest> trace = PoissonTrace(6, 150, 300, 60, 0.9, 2);
  for (const Policy* policy : Policies()) {
    const SimOptions options{.policy = std::string(policy->name), .kv_tokens = 8192, .max_sequences = 8};
    const SimResult a = SimulateOk(trace, options), b = SimulateOk(trace, options);
    EXPECT_EQ(a.requests, 150) << policy->name;
    EXPECT_EQ(SimJson({&a, 1}, Simple(), "t"), SimJson({&b, 1}, Simple(), "t"));
  }
}

TEST(CostModelTest, TheFitFindsTheTermsThatMadeTheSteps) {
  const std::array<double, 5> truth = {0.004, 0.0005, 0.0001, 2e-8, 3e-7};
  std::vector<std::array<double, 5>> steps;
  for (int decodes : {0, 1, 2, 4, 8}) {
    for (int prompt : {0, 16, 128, 512}) {
      if (decodes + prompt == 0) continue;
      for (double first : {0.0, 1000.0, 4000.0}) {
        const double positions = prompt * (first + 0.5 * prompt), cached = decodes * (first + 10);
        steps.push_back({double(decodes), double(prompt), positions, cached,
                         truth[0] + truth[1] * decodes + truth[2] * prompt + truth[3] * positions + truth[4] * cached});
      }
    }
  }
  const auto fitted = FitStepCost(steps);
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(fitted[i] / truth[i], 1, 1e-3) << i;
  // Through the file that hone profile writes.
  nlohmann::json rows = steps;
  const auto cost = CostFromProfile("p.json", nlohmann::json{{"steps", {{"rows", rows}}}}.dump());
  ASSERT_TRUE(cost) << cost.error().message;
  EXPECT_LT(cost->error, 1e-3);
  EXPECT_NEAR(cost->seconds({2, 0, 0, 2000}), 0.004 + 0.001 + 0.0006, 1e-6);
}

TEST(CostModelTest, BadProfilesAreErrors) {
  for (const char* bad : {"", "[]", "{}", "{\"steps\": {}}", "{\"steps\": {\"rows\": []}}", "{\"steps\": {\"rows\": [[1, 2]]}}",
                          "{\"steps\": {\"rows\": [[1, 2, 3, 4, \"x\"]]}}", "{\"steps\": {\"rows\": [[0, 0, 0, 0, -1]]}}"}) {
    const auto cost = CostFromProfile("p.json", bad);
    ASSERT_FALSE(cost) << bad;
    EXPECT_EQ(cost.error().code, ErrorCode::kInvalidInput);
    EXPECT_NE(cost.error().message.find("p.json"), std::string::npos);
  }
}

TEST(CostModelTest, FittedConstantsAddUpAndManyRowsUnpackFirst) {
  Deployment d;
  d.shape = *FindPublicShape("llama-3-8b");
  d.format = *FindWeightFormat("bf16");
  d.kv = *FindKvFormat("bf16");
  d.hardware = {.name = "box", .memory_bytes = 64e9, .read_bytes_s = 1e11, .ops_16bit = 1e12, .cpu = true};
  d.efficiency = {.read_share = 0.8, .compute_share = 0.4, .decode_share = 0.1, .step_overhead_s = 0.001, .source = "fitted", .many_rows_reads = 6, .overlapped = false, .few_rows = 8};
  const StepTime one = PredictStep(d, 1, 1, 100), four = PredictStep(d, 4, 1, 100), prompt = PredictStep(d, 1, 512, 0);
  EXPECT_EQ(one.compute_s, 0);  // hides behind the reading
  EXPECT_NEAR(one.seconds(), 0.001 + (one.weight_bytes + one.kv_bytes) / 0.8e11, 1e-9);
  EXPECT_NEAR(four.seconds(), 0.001 + (four.weight_bytes + four.kv_bytes) / 0.8e11 + 0.75 * four.flops / 1e11, 1e-9);
  EXPECT_NEAR(prompt.seconds(), 0.001 + 6 * prompt.weight_bytes / 1e11 + prompt.kv_bytes / 0.8e11 + prompt.flops / 4e11, 1e-6);
  // A few rows of a prompt take the kernels of few rows, many sequences those of many.
  EXPECT_NEAR(PredictStep(d, 1, 2, 0).seconds(), 0.001 + (prompt.weight_bytes + PredictStep(d, 1, 2, 0).kv_bytes) / 0.8e11 + PredictStep(d, 1, 2, 0).flops / 2 / 1e11, 1e-6);
  // Beyond what was measured of few rows a prompt takes the kernels of many, also where those of few would be said to be quicker.
  Deployment quick = d;
  quick.efficiency.decode_share = 0.8;
  const StepTime nine = PredictStep(quick, 1, 9, 0);
  EXPECT_LT(nine.flops * 8 / 9 / 8e11 + nine.weight_bytes / 0.8e11, 6 * nine.weight_bytes / 1e11 + nine.flops / 4e11);
  EXPECT_NEAR(nine.seconds(), 0.001 + 6 * nine.weight_bytes / 1e11 + nine.kv_bytes / 0.8e11 + nine.flops / 4e11, 1e-6);
  // Where prompts hide their reading, a step of one sequence still reads the weights, and so does one of many.
  quick.efficiency.many_rows_reads = 0;
  EXPECT_NEAR(PredictStep(quick, 1, 1, 100).seconds(), one.seconds(), 1e-9);
  const StepTime twelve = PredictStep(quick, 1, 12, 0), sixteen = PredictStep(quick, 16, 1, 100);
  EXPECT_NEAR(twelve.seconds(), 0.001 + twelve.flops / 4e11 + twelve.kv_bytes / 0.8e11, 1e-6);
  EXPECT_GE(sixteen.seconds(), 0.001 + (sixteen.weight_bytes + sixteen.kv_bytes) / 0.8e11 - 1e-9);
  const StepTime many = PredictStep(d, 64, 1, 0);
  EXPECT_NEAR(many.compute_s, many.flops / 4e11, 1e-6);
  const CostModel cost = CostFromDeployment(d);
  EXPECT_NEAR(cost.seconds({1, 511, 511 * 255.5, 1000}), PredictStep(d, 1, 512, 0).seconds() + PredictStep(d, 1, 1, 1000).kv_bytes / 0.8e11, 2e-3);
}

TEST(CostModelTest, ADeploymentsStepsAreThoseOfItsPrediction) {
  Deployment d;
  d.shape = *FindPublicShape("llama-3-8b");
  d.format = *FindWeightFormat("bf16");
  d.kv = *FindKvFormat("bf16");
  d.hardware = *FindCard("h100");
  d.efficiency = AssumedEfficiency(d.hardware);
  const CostModel cost = CostFromDeployment(d);
  EXPECT_NEAR(cost.seconds({4, 0, 0, 4000}), PredictStep(d, 4, 1, 1000).seconds(), 1e-9);
  EXPECT_NEAR(cost.seconds({0, 512, 512 * 256.0, 0}), PredictStep(d, 1, 512, 0).seconds(), 1e-9);
  const double both_s = cost.seconds({4, 512, 512 * 256.0, 4000});
  EXPECT_GT(both_s, cost.seconds({0, 512, 512 * 256.0, 0}));
  EXPECT_LT(both_s, cost.seconds({0, 512, 512 * 256.0, 0}) + cost.seconds({4, 0, 0, 4000}));
}

TEST(SimTraceTest, KeysOfBothKindsAndErrorsThatNameTheLine) {
  const auto trace = ParseSimTrace("t", "{\"timestamp\": 2000, \"input_length\": 7, \"output_length\": 3, \"hash_ids\": [1, -2]}\n\n"
                                        "{\"time_s\": 0.5, \"prompt_tokens\": 9, \"completion_tokens\": 1, \"priority\": -1}\n");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->size(), 2u);
  EXPECT_EQ((*trace)[0].at_s, 0.5);
  EXPECT_EQ((*trace)[0].priority, -1);
  EXPECT_EQ((*trace)[1].prefix.size(), 2u);
  const std::pair<const char*, const char*> bad[] = {
      {"", "holds no requests"}, {"x", "line 1"}, {"{\"time_s\": 1, \"input_length\": 1, \"output_length\": 1}\n[]", "line 2"},
      {"{\"input_length\": 1}", "timestamp"}, {"{\"time_s\": 1, \"input_length\": 0, \"output_length\": 1}", "input_length"},
      {"{\"time_s\": 1, \"input_length\": 1}", "output_length"}, {"{\"time_s\": -1, \"input_length\": 1, \"output_length\": 1}", "timestamp"}};
  for (const auto& [text, says] : bad) {
    const auto parsed = ParseSimTrace("t.jsonl", text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_NE(parsed.error().message.find(says), std::string::npos) << parsed.error().message;
    EXPECT_NE(parsed.error().message.find("t.jsonl"), std::string::npos);
  }
}

TEST(SimulateTest, OptionsThatContradict) {
  const SimRequest one[] = {{0, 100, 10}};
  const auto code = [&](const SimOptions& options) {
    const auto result = Simulate(one, Simple(), options);
    return result ? ErrorCode::kInternal : result.error().code;
  };
  EXPECT_EQ(code({.policy = "best"}), ErrorCode::kUsage);
  EXPECT_EQ(code({.max_sequences = 8, .step_tokens = 4}), ErrorCode::kUsage);
  EXPECT_EQ(code({.block_tokens = 0}), ErrorCode::kUsage);
  EXPECT_EQ(code({.contiguous = true, .reserve_tokens = 50}), ErrorCode::kUsage);
}

}  // namespace
}  // namespace hone
