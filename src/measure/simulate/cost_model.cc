// See cost_model.h.
#include "measure/simulate/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/json_text.h"
#include "measure/plan/guide.h"

namespace hone {
namespace {

using nlohmann::ordered_json;
using Terms = std::array<double, kCostTerms>;

// Features of a row {decodes, prompt tokens, positions, cached, seconds}, scaled so that all are of one size.
constexpr Terms kScale = {1, 8, 64, 65536, 8192};
Terms Features(double decodes, double prompt, double positions, double cached) {
  return {1 / kScale[0], decodes / kScale[1], prompt / kScale[2], positions / kScale[3], cached / kScale[4]};
}

double Dot(const Terms& a, const Terms& b) {
  double sum = 0;
  for (int i = 0; i < kCostTerms; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

Terms FitStepCost(std::span<const Terms> steps) {
  // Relative errors: each row is divided by its time. Coordinate descent keeps the terms from going below zero; the
  // problem is convex and small.
  Terms normal[kCostTerms] = {}, right = {};
  for (const Terms& step : steps) {
    if (!(step[4] > 0)) continue;
    const Terms x = Features(step[0], step[1], step[2], step[3]);
    for (int i = 0; i < kCostTerms; ++i) {
      for (int j = 0; j < kCostTerms; ++j) normal[i][j] += x[i] * x[j] / (step[4] * step[4]);
      right[i] += x[i] / step[4];
    }
  }
  Terms w = {};
  for (int round = 0; round < 20000; ++round) {
    double moved = 0;
    for (int i = 0; i < kCostTerms; ++i) {
      if (normal[i][i] <= 0) continue;
      const double next = std::max(0.0, w[i] + (right[i] - Dot(normal[i], w)) / normal[i][i]);
      moved = std::max(moved, std::abs(next - w[i]) * std::sqrt(normal[i][i]));
      w[i] = next;
    }
    if (moved < 1e-12 * std::sqrt(static_cast<double>(steps.size()) + 1)) break;
  }
  for (int i = 0; i < kCostTerms; ++i) w[i] /= kScale[i];
  return w;
}

Result<CostModel> CostFromProfile(const std::string& file, std::string_view text) {
  const ordered_json json = ParseJson(text);
  const auto steps = json.is_object() ? json.find("steps") : json.end();
  if (!json.is_object() || steps == json.end() || !steps->is_object() || !steps->contains("rows") || !(*steps)["rows"].is_array())
    return InvalidInput(file + ": no \"steps\" in it; wanted the output of hone profile --json");
  std::vector<Terms> rows;
  for (const ordered_json& row : (*steps)["rows"]) {
    Terms values{};
    bool good = row.is_array() && row.size() == kCostTerms;
    for (int i = 0; good && i < kCostTerms; ++i) {
      good = row[i].is_number() && std::isfinite(row[i].get<double>()) && row[i].get<double>() >= 0;
      if (good) values[i] = row[i].get<double>();
    }
    if (!good) return InvalidInput(fmt::format("{}: a row of \"steps\" is not five numbers", file));
    if (values[4] > 0) rows.push_back(values);
  }
  if (rows.empty()) return InvalidInput(file + ": \"steps\" has no rows; the profile timed no step");
  const Terms w = FitStepCost(rows);
  CostModel cost;
  cost.seconds = [w](const StepLoad& load) {
    return std::max(1e-9, w[0] + w[1] * load.decodes + w[2] * load.prompt_tokens + w[3] * load.positions + w[4] * load.cached);
  };
  for (const Terms& row : rows) {
    const double predicted = w[0] + w[1] * row[0] + w[2] * row[1] + w[3] * row[2] + w[4] * row[3];
    cost.error += std::abs(predicted / row[4] - 1) / static_cast<double>(rows.size());
  }
  cost.source = fmt::format("fitted to {} steps of {}: {} + {} a stream + {} a prompt token + {:.3g} ns a position + {:.3g} ns a cached token", rows.size(),
                            file, SaySeconds(w[0]), SaySeconds(w[1]), SaySeconds(w[2]), 1e9 * w[3], 1e9 * w[4]);
  return cost;
}

CostModel CostFromDeployment(const Deployment& deployment) {
  CostModel cost;
  const Deployment d = deployment;
  // Prompt rows and decoding rows share one reading of the weights: the dearer of reading and arithmetic counts.
  cost.seconds = [d](const StepLoad& load) {
    StepTime sum;
    if (load.prompt_tokens > 0 && load.decodes > 0 && !d.efficiency.overlapped) {  // all rows pass through the matrices together
      const double first = std::max(0.0, load.positions / load.prompt_tokens - 0.5 * load.prompt_tokens);
      sum = PredictStep(d, 1, load.prompt_tokens + load.decodes, first);
      const StepTime riders = PredictStep(d, load.decodes, 1, load.cached / load.decodes);
      sum.read_s += riders.kv_bytes / std::max(1.0, d.hardware.read_bytes_s * d.efficiency.read_share);
      return std::max(1e-9, sum.seconds());
    }
    if (load.prompt_tokens > 0) sum = PredictStep(d, 1, load.prompt_tokens, std::max(0.0, load.positions / load.prompt_tokens - 0.5 * load.prompt_tokens));
    if (load.decodes > 0) {
      const StepTime decode = PredictStep(d, load.decodes, 1, load.cached / load.decodes);
      if (load.prompt_tokens > 0) {
        const double weights_s = decode.read_s * decode.weight_bytes / std::max(1.0, decode.weight_bytes + decode.kv_bytes);
        sum.read_s += decode.read_s - weights_s, sum.compute_s += decode.compute_s;
      } else {
        sum = decode;
      }
    }
    return std::max(1e-9, sum.seconds());
  };
  cost.source = fmt::format("predicted: {} in {} on {} x {} ({})", d.shape.name, d.format.name, d.hardware.count, d.hardware.name, d.efficiency.source);
  return cost;
}

}  // namespace hone
