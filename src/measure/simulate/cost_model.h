// What a step of the engine costs, for simulation: fitted to the steps that hone profile timed, or predicted from a
// deployment's roof, which may be of a machine that is not here.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "measure/plan/deployment.h"

namespace hone {

// What a step does.
struct StepLoad {
  int decodes = 0;         // sequences with one token each
  int prompt_tokens = 0;
  double positions = 0;    // sum over the prompt tokens of how many come before each
  double cached = 0;       // tokens that the decoding sequences read
};

struct CostModel {
  std::function<double(const StepLoad& load)> seconds;
  std::string source;      // "fitted to 812 steps of profile.json: 7.1 ms + ..."
  double error = 0;        // mean relative error of the fit on its own steps; 0 where there are none
};

// Terms of the fitted model: 1, decodes, prompt tokens, positions, cached tokens; none is negative.
inline constexpr int kCostTerms = 5;
std::array<double, kCostTerms> FitStepCost(std::span<const std::array<double, kCostTerms>> steps);

// From the JSON of hone profile --json. Errors: no steps in it.
Result<CostModel> CostFromProfile(const std::string& file, std::string_view json);

CostModel CostFromDeployment(const Deployment& deployment);

}  // namespace hone
