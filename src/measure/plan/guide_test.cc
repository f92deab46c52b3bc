// The guide: what stands in the way is named by what was asked, proposals help by their own arithmetic, constraints are
// kept, and a plan ends with all that is asked or says what is open.
#include <gtest/gtest.h>

#include <algorithm>

#include "measure/plan/plan_report.h"

namespace hone {
namespace {

Deployment Plan(const char* shape, const char* format, const char* card) {
  Deployment d;
  d.shape = *FindPublicShape(shape);
  d.format = *FindWeightFormat(format);
  d.kv = *FindKvFormat("bf16");
  d.hardware = *FindCard(card);
  d.efficiency = AssumedEfficiency(d.hardware);
  d.step_tokens = d.hardware.cpu ? 512 : 2048;
  return d;
}

bool Has(const std::vector<Proposal>& proposals, const std::string& move) {
  return std::any_of(proposals.begin(), proposals.end(), [&](const Proposal& p) { return p.move == move; });
}

TEST(FindBottleneckTest, NamesWhatWasAskedAndWhatBoundsIt) {
  Deployment d = Plan("llama-2-7b", "f16", "rtx-4090");
  EXPECT_FALSE(FindBottleneck(d, {}));
  auto finding = FindBottleneck(d, {.tpot_s = 0.005});
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->bottleneck, Bottleneck::kWeightBandwidth);
  EXPECT_EQ(finding->target, Target::kTpot);
  finding = FindBottleneck(d, {.ttft_s = 0.001});
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->bottleneck, Bottleneck::kCompute);
  EXPECT_EQ(finding->target, Target::kTtft);
  finding = FindBottleneck(d, {.p99_gap_s = 0.001});
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->bottleneck, Bottleneck::kLongTail);
  finding = FindBottleneck(d, {.sequences = 10000});
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->bottleneck, Bottleneck::kCapacity);
  d.hardware.memory_bytes = 8e9;
  finding = FindBottleneck(d, {});
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->bottleneck, Bottleneck::kCapacity);
  d = Plan("llama-2-7b", "f16", "a100-80g");
  d.input = 4000, d.concurrency = 20;
  finding = FindBottleneck(d, {.tpot_s = 0.01});
  ASSERT_TRUE(finding);
  EXPECT_EQ(finding->bottleneck, Bottleneck::kKvBandwidth);
}

TEST(ProposeTest, EveryProposalHelpsAndSaysHowToTestAndUndoIt) {
  int seen = 0;
  for (const char* shape : {"llama-2-7b", "llama-3.1-70b", "mixtral-8x7b", "gemma-3-12b", "deepseek-v2-lite", "mamba-2.8b"}) {
    for (const char* card : {"rtx-4090", "a100-80g", "server-cpu", "edge-cpu"}) {
      for (const Constraints& asked : {Constraints{.tpot_s = 0.002}, Constraints{.ttft_s = 0.01}, Constraints{.sequences = 100}, Constraints{.p99_gap_s = 0.01}}) {
        Deployment d = Plan(shape, "bf16", card);
        d.context = 4096, d.concurrency = 4, d.shared_input = 256;
        const auto finding = FindBottleneck(d, asked);
        if (!finding) continue;
        for (const Proposal& p : Propose(d, *finding, asked, "m")) {
          ++seen;
          EXPECT_FALSE(p.what.empty() || p.gain.empty() || p.risk.empty() || p.test.empty() || p.undo.empty()) << p.move;
          EXPECT_NE(p.test.find("hone "), std::string::npos) << p.move;
          const auto before = Predict(d), then = Predict(p.after);
          switch (finding->target) {
            case Target::kMemory: EXPECT_GE(AccountMemory(p.after).most_sequences, AccountMemory(d).most_sequences) << p.move; break;
            case Target::kTpot: EXPECT_LE(then.tpot_s, before.tpot_s) << shape << " " << card << " " << p.move; break;
            case Target::kTtft: EXPECT_LE(then.ttft_s, 1.0001 * before.ttft_s) << shape << " " << card << " " << p.move; break;
            case Target::kGap: EXPECT_LE(p.after.step_tokens, d.step_tokens) << p.move; break;
          }
        }
      }
    }
  }
  EXPECT_GT(seen, 100);
}

TEST(ProposeTest, TheQualityFloorAndTheNumberOfCardsAreKept) {
  const Deployment d = Plan("llama-3-8b", "bf16", "desktop-cpu");
  for (const double floor : {0.001, 0.002, 0.006, 0.02, 0.05}) {
    const Constraints asked{.tpot_s = 0.01, .kld = floor};
    const StepPlan plan = MakeStepPlan(d, asked, "m");
    EXPECT_LE(plan.end.format.kld, floor);
    EXPECT_TRUE(plan.open) << "8 billion weights in 10 ms a token is too much for this box";
  }
  // Nothing said: formats that are known to hurt are not proposed.
  EXPECT_LE(MakeStepPlan(d, {.tpot_s = 0.01}, "m").end.format.kld, 0.1);
  Deployment large = Plan("llama-3.1-405b", "bf16", "h100");
  EXPECT_EQ(MakeStepPlan(large, {.most_cards = 1}, "m").end.hardware.count, 1);
  const StepPlan free = MakeStepPlan(large, {}, "m");
  EXPECT_GT(free.end.hardware.count, 1);
  EXPECT_FALSE(free.open);
  EXPECT_EQ(large.shape.heads % free.end.hardware.count, 0);
}

TEST(ProposeTest, FlagsComeBeforeFilesAndFilesBeforeHardware) {
  Deployment d = Plan("llama-2-7b", "f16", "rtx-4090");
  d.context = 4096, d.concurrency = 16;
  const auto finding = FindBottleneck(d, {});
  ASSERT_TRUE(finding);
  const std::vector<Proposal> proposals = Propose(d, *finding, {}, "m");
  ASSERT_GE(proposals.size(), 4u);
  EXPECT_EQ(proposals[0].move, "reserve-less");
  EXPECT_EQ(proposals[1].move, "kv-8bit");
  EXPECT_EQ(proposals[2].move, "smaller-weights");
  EXPECT_EQ(proposals.back().move, "more-cards");
}

TEST(ProposeTest, MeasuredBottlenecksHaveStepsToo) {
  Deployment d = Plan("llama-3.2-1b", "bf16", "server-cpu");
  d.concurrency = 8;
  EXPECT_TRUE(Has(Propose(d, {Target::kTtft, Bottleneck::kQueueing, ""}, {}, "m"), "more-at-once"));
  EXPECT_TRUE(Has(Propose(d, {Target::kTtft, Bottleneck::kTokenizer, ""}, {}, "m"), "send-ids"));
  EXPECT_TRUE(Has(Propose(d, {Target::kGap, Bottleneck::kLongTail, ""}, {}, "m"), "smaller-step"));
  EXPECT_TRUE(Propose(d, {Target::kTpot, Bottleneck::kOverhead, ""}, {}, "m").empty());
}

TEST(ProposeTest, AQuantisedFileIsNoSource) {
  Deployment d = Plan("llama-3-8b", "q8_0", "desktop-cpu");
  const auto proposals = Propose(d, {Target::kTpot, Bottleneck::kWeightBandwidth, ""}, {}, "mine.gguf");
  ASSERT_TRUE(Has(proposals, "smaller-weights"));
  for (const Proposal& p : proposals) {
    if (p.move != "smaller-weights") continue;
    EXPECT_NE(p.test.find("hone quantize ORIGINAL "), std::string::npos) << p.test;
    EXPECT_NE(p.risk.find("original weights"), std::string::npos) << p.risk;
  }
}

TEST(StepPlanTest, EndsWithAllThatIsAskedAndRepeats) {
  Deployment d = Plan("llama-2-70b", "f16", "a100-80g");
  d.hardware.count = 2, d.split = Split::kLayers, d.concurrency = 8;
  const Constraints asked{.ttft_s = 1, .tpot_s = 0.04, .sequences = 32};
  const StepPlan plan = MakeStepPlan(d, asked, "m");
  EXPECT_FALSE(plan.open);
  EXPECT_FALSE(FindBottleneck(plan.end, asked));
  EXPECT_TRUE(std::any_of(plan.steps.begin(), plan.steps.end(), [](const PlanStep& step) { return step.proposal.move == "tensor-split"; }));
  PlanReport report;
  report.model.shape = d.shape, report.model.format = d.format, report.deployment = d, report.asked = asked, report.model_name = "m", report.steps = true;
  EXPECT_EQ(PlanTable(report), PlanTable(report));
  EXPECT_TRUE(MakeStepPlan(d, {}, "m").steps.empty());  // it fits, and nothing else was asked
}

TEST(SaySecondsTest, Units) {
  EXPECT_EQ(SaySeconds(12e-6), "12 us");
  EXPECT_EQ(SaySeconds(0.0345), "34.5 ms");
  EXPECT_EQ(SaySeconds(0.25), "250 ms");
  EXPECT_EQ(SaySeconds(2), "2.00 s");
  EXPECT_EQ(SayBytes(70272), "70.3 kB");
  EXPECT_EQ(SayBytes(138e9), "138 GB");
  EXPECT_EQ(SayBytes(12), "12 B");
}

}  // namespace
}  // namespace hone
