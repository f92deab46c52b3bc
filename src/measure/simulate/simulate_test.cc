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
  for (size_t i = 1; i < paged.waste_by_block.size(); ++i)
    EXPECT_GE(paged.waste_by_block[i].second, paged.waste_by_block[i - 1].second);
  EXPECT_EQ(paged.waste_by_block[0].second, 0);  // blocks of one token
  options.contiguous = true;
  options.reserve_tokens = 2048;
  const SimResult contiguous = SimulateOk(trace, options);
  EXPECT_GT(contiguous.waste, 0.6);
  EXPECT_EQ(contiguous.requests, paged.requests);
  EXPECT_EQ(contiguous.preemptions, 0u);
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
  EXPECT_EQ(code({.contiguous = true, .reserve_tokens = 50}), ErrorCode::kUsage);
}

}  // namespace
}  // namespace hone
