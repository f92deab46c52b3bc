// Recursive least squares with forgetting; a direction that no step excites is not forgotten without end. The latest step is
// looked up in all remembered ones for each budget: a microsecond beside a step of milliseconds.
#include "engine/step_controller.h"

#include <algorithm>

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
  return {1, decodes / 8.0, prompt_tokens / 64.0, positions / 65536.0};
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
  const double target = beside ? Alone(demand.decodes) + target_ms_ : kIdleStretch * target_ms_;
  const double lateness = beside ? Lateness() : 1;
  const int trusted = std::max(kColdChunk, 2 * largest_chunk_);
  int low = std::min(LeastChunk(demand.prompt_position), most_tokens_), high = std::max(low, std::min(most_tokens_, trusted));
  while (low < high) {
    const int chunk = (low + high + 1) / 2;
    const double positions = chunk * (demand.prompt_position + 0.5 * chunk);
    if (lateness * Predict(demand.decodes, chunk, positions) <= target) {
      low = chunk;
    } else {
      high = chunk - 1;
    }
  }
  return low;
}

// Times over predictions of today, so that what the model has learned since is not counted twice.
double StepController::Lateness() const {
  const int known = static_cast<int>(beside_.size());
  double lateness = kAssumedLate - (kAssumedLate - 1) * known / kRemembered;
  for (int i = 0; i < known; ++i) {
    const StepCost& step = beside_[i];
    const double predicted = Predict(step.decodes, step.prompt_tokens, step.positions);
    const bool stood_still = step.ms - predicted > target_ms_ && i < known - kCareful;
    if (predicted > 0 && !stood_still) lateness = std::max(lateness, step.ms / predicted);
  }
  return lateness;
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
