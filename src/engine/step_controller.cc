// Recursive least squares with forgetting; a direction that no step excites is not forgotten without end. Late steps are
// looked up in all remembered ones for each budget: microseconds beside a step of milliseconds.
#include "engine/step_controller.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace hone {
namespace {

constexpr double kForget = 0.98;
constexpr double kStartVariance = 1e4, kMostVariance = 1e6;
constexpr double kOutlier = 4;  // a step that took longer than this many times the prediction counts as that

}  // namespace

StepController::StepController(double target_ms, int most_tokens) : target_ms_(target_ms), most_tokens_(most_tokens) {
  for (int i = 0; i < kTerms; ++i) covariance_[i][i] = kStartVariance;
}

// Scaled so that every term is about 1 in an ordinary step.
StepController::Vector StepController::Features(int decodes, int prompt_tokens, double positions) {
  if (prompt_tokens == 0) return {1, decodes / 8.0, 0, 0, 0};
  int rows = decodes + prompt_tokens;
  if (rows > kRowsOfBlock) rows = (rows + kRowsOfBlock - 1) / kRowsOfBlock * kRowsOfBlock;
  return {1, decodes / 8.0, rows / 64.0, positions / 65536.0, 1};
}

double StepController::Predict(const Vector& weights, const Vector& features) {
  double ms = 0;
  for (int i = 0; i < kTerms; ++i) ms += std::max(0.0, weights[i]) * features[i];
  return ms;
}

double StepController::Predict(int decodes, int prompt_tokens, double positions) const {
  return Predict(weights_, Features(decodes, prompt_tokens, positions));
}

double StepController::Alone(int decodes) const {
  const Vector x = Features(decodes, 0, 0);
  const double now = Predict(weights_, x);
  return weights_alone_ ? std::min(now, kMostGrown * Predict(*weights_alone_, x)) : now;
}

int StepController::Budget(const SchedulerDemand& demand) const {
  if (target_ms_ <= 0) return most_tokens_;
  const bool beside = demand.decodes > 0;
  const double target = beside ? kShareOfAlone * Alone(demand.decodes) + target_ms_ : kIdleStretch * target_ms_;
  const Lateness late = beside ? Late() : Lateness{};
  const double assumed = kAssumedLate - (kAssumedLate - 1) * static_cast<double>(beside_.size()) / kRemembered;
  const int trusted = std::max(kColdChunk, 2 * largest_chunk_);
  const int least = std::min(kMinChunk, most_tokens_), most = std::max(least, std::min(most_tokens_, trusted));
  int best = least;
  double best_ms = std::numeric_limits<double>::infinity();  // a token
  for (int chunk = least; chunk <= most; ++chunk) {
    const double ms = Predict(demand.decodes, chunk, chunk * (demand.prompt_position + 0.5 * chunk));
    const double late_ms = beside ? std::max(ms * assumed, std::min(ms * late.ratio, ms + late.excess_ms)) : ms;
    if (late_ms > target || ms > best_ms * chunk) continue;
    best = chunk;
    best_ms = ms / chunk;
  }
  return best;
}

// Against predictions of today, so that what the model has learned since is not counted twice.
StepController::Lateness StepController::Late() const {
  const int known = static_cast<int>(beside_.size());
  std::array<double, kAllowedLate> ratios{}, excesses{};  // falling
  Lateness recent;
  const auto keep = [](double value, std::array<double, kAllowedLate>* largest) {
    for (double& one : *largest) {
      if (value > one) std::swap(value, one);
    }
  };
  for (int i = 0; i < known; ++i) {
    const StepCost& step = beside_[i];
    const double predicted = Predict(step.decodes, step.prompt_tokens, step.positions);
    const double ratio = predicted > 0 ? step.ms / predicted : 0, excess = step.ms - predicted;
    if (i >= known - kCareful) {
      recent = {std::max(recent.ratio, ratio), std::max(recent.excess_ms, excess)};
    } else if (excess > target_ms_) {
      continue;  // it stood still
    }
    keep(ratio, &ratios);
    keep(excess, &excesses);
  }
  return {std::max(recent.ratio, ratios.back()), std::max(recent.excess_ms, excesses.back())};
}

void StepController::Observe(const StepCost& step) {
  if (step.decodes > 0 && step.prompt_tokens > 0) {
    if (beside_.size() == kRemembered) beside_.pop_front();
    beside_.push_back(step);
  }
  Fit(step);
  if (step.decodes > 0 && step.prompt_tokens == 0) weights_alone_ = weights_;
}

void StepController::Fit(const StepCost& step) {
  const Vector x = Features(step.decodes, step.prompt_tokens, step.positions);
  double ms = step.ms, predicted = 0;
  for (int i = 0; i < kTerms; ++i) predicted += weights_[i] * x[i];
  if (observed_ >= 8 && predicted > 0 && step.prompt_tokens <= largest_chunk_) ms = std::min(ms, kOutlier * predicted);
  ++observed_;
  largest_chunk_ = std::max(largest_chunk_, step.prompt_tokens);

  Vector px{};
  double scale = kForget, trace = 0;
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) px[i] += covariance_[i][j] * x[j];
    scale += x[i] * px[i];
  }
  for (int i = 0; i < kTerms; ++i) weights_[i] += px[i] / scale * (ms - predicted);
  for (int i = 0; i < kTerms; ++i) {
    for (int j = 0; j < kTerms; ++j) covariance_[i][j] -= px[i] * px[j] / scale;
    trace += covariance_[i][i];
  }
  if (trace / kForget > kMostVariance) return;
  for (Vector& row : covariance_) {
    for (double& value : row) value /= kForget;
  }
}

}  // namespace hone
