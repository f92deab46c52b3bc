// The controller against machines that are formulas: it must find the chunk that takes the target, without being told
// what the machine costs.
#include "engine/step_controller.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace hone {
namespace {

// A machine that reads all weights once a step, computes in tiles of 16 rows, and whose attention grows with position.
struct Machine {
  double pass_ms, decode_ms, tile_ms, position_ms;
  double Ms(int decodes, int prompt_tokens, double positions) const {
    return pass_ms + decode_ms * decodes + tile_ms * std::ceil(prompt_tokens / 16.0) + position_ms * positions;
  }
};

TEST(StepController, WithoutATargetStepsAreWhole) {
  const StepController controller(0, 512);
  EXPECT_EQ(controller.Budget({.decodes = 3, .has_prompt = true, .prompt_position = 0}), 512);
}

TEST(StepController, BeforeItKnowsAnythingChunksAreModest) {
  const StepController controller(100, 512);
  EXPECT_EQ(controller.Budget({.decodes = 1, .has_prompt = true, .prompt_position = 0}), StepController::kColdChunk);
  EXPECT_EQ(StepController(100, 8).Budget({.decodes = 1, .has_prompt = true, .prompt_position = 0}), 8);
}

TEST(StepController, ALongPromptBesideStreamsKeepsToTheTarget) {
  const Machine machines[] = {{25, 0.5, 6, 2e-5}, {5, 0.1, 1, 1e-6}, {60, 2, 12, 1e-5}, {25, 0.2, 10, 4e-4}};
  for (const Machine& machine : machines) {
    Rng rng(7);
    StepController controller(100, 512);
    double total = 0;
    int steps = 0, position = 0;
    const auto step = [&](int decodes, int tokens) {
      const double positions = tokens * (position + 0.5 * tokens);
      const double ms = machine.Ms(decodes, tokens, positions) * (0.97 + 0.06 * rng.Uniform());
      controller.Observe({.decodes = decodes, .prompt_tokens = tokens, .positions = positions, .ms = ms});
      position += tokens;
      return ms;
    };
    for (int i = 0; i < 200; ++i) step(4, 0);  // streams alone
    for (int i = 0; position < 8192; ++i) {
      const int decodes = 4 + static_cast<int>(rng.Below(3));
      const int budget = controller.Budget({.decodes = decodes, .has_prompt = true, .prompt_position = position});
      ASSERT_GE(budget, StepController::kMinChunk);
      const double ms = step(decodes, budget);
      const double least = machine.Ms(decodes, 16, 16.0 * position);  // the smallest chunk may be too dear already
      ASSERT_LE(ms, std::max(100.0, least) * 1.35) << "chunk " << i << " of " << budget << " at " << position;
      total += std::min(ms, 1e9);
      ++steps;
    }
    if (machine.Ms(6, 512, 512.0 * 8192) > 200 && machine.Ms(6, 16, 16.0 * 8192) < 100) {
      EXPECT_GE(total / steps, 70) << "chunks are much smaller than they could be";
    }
  }
}

TEST(StepController, WithoutStreamsStepsMayTakeLonger) {
  const Machine machine{25, 0.5, 6, 0};
  StepController controller(100, 512);
  for (const int tokens : {64, 128, 256, 512, 512, 512}) {
    controller.Observe({.decodes = 0, .prompt_tokens = tokens, .positions = 0, .ms = machine.Ms(0, tokens, 0)});
  }
  const int alone = controller.Budget({.decodes = 0, .has_prompt = true, .prompt_position = 0});
  EXPECT_EQ(alone, 512);
  for (int i = 0; i < 5; ++i) controller.Observe({.decodes = 2, .prompt_tokens = 64, .positions = 0, .ms = 50});
  const int beside = controller.Budget({.decodes = 2, .has_prompt = true, .prompt_position = 0});
  EXPECT_LT(beside, 256);
  EXPECT_GT(beside, 100);
}

TEST(StepController, OneSlowStepDoesNotChangeMuch) {
  const Machine machine{25, 0.5, 6, 0};
  StepController controller(100, 512);
  Rng rng(3);
  for (int i = 0; i < 100; ++i) {
    const int tokens = static_cast<int>(16 * (1 + rng.Below(12)));
    controller.Observe({.decodes = 4, .prompt_tokens = tokens, .positions = 0, .ms = machine.Ms(4, tokens, 0)});
  }
  const SchedulerDemand demand{.decodes = 4, .has_prompt = true, .prompt_position = 0};
  const int before = controller.Budget(demand);
  controller.Observe({.decodes = 4, .prompt_tokens = 64, .positions = 0, .ms = 60000});
  const int after = controller.Budget(demand);
  EXPECT_GT(after, before / 2);
  for (int i = 0; i < 60; ++i) {
    controller.Observe({.decodes = 4, .prompt_tokens = 160, .positions = 0, .ms = machine.Ms(4, 160, 0)});
  }
  EXPECT_NEAR(controller.Budget(demand), before, 40);
}

TEST(StepController, LongLivesStayFinite) {
  const Machine machine{30, 0.3, 5, 1e-5};
  StepController controller(80, 512);
  for (int i = 0; i < 200000; ++i) {
    const int tokens = i % 5000 == 4999 ? 128 : 0;
    controller.Observe({.decodes = 8, .prompt_tokens = tokens, .positions = 64.0 * tokens,
                        .ms = machine.Ms(8, tokens, 64.0 * tokens)});
  }
  const int budget = controller.Budget({.decodes = 8, .has_prompt = true, .prompt_position = 0});
  EXPECT_GT(budget, 80);
  EXPECT_LT(budget, 200);
}

}  // namespace
}  // namespace hone
