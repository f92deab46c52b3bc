// Least squares by normal equations. The latest step is looked up in all remembered ones for each budget: a microsecond beside a
// step of milliseconds.
#include "engine/step_controller.h"

#include <algorithm>

namespace hone {
namespace {

constexpr double kForget = 0.98;
constexpr double kRidge = 1e-5;  // of each square: where steps do not tell two terms apart, both take a share
constexpr double kOutlier = 4;  // a step that took longer than this many times the prediction counts as that

}  // namespace

StepController::StepController(double target_ms, int most_tokens) : target_ms_(target_ms), most_tokens_(most_tokens) {}

// Scaled so that every term is about 1 in an ordinary step.
StepController::Vector StepController::Features(int decodes, int prompt_tokens, double positions) {
  return {1, decodes / 8.0, prompt_tokens / 64.0, positions / 65536.0};
}

double StepController::Predict(const Vector& weights, const Vector& features) {
  double ms = 0;
  for (int i = 0; i < kTerms; ++i) ms += weights[i] * features[i];
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
  const int least = std::min(LeastChunk(demand.prompt_position), most_tokens_);
  int low = least, high = std::max(low, std::min(most_tokens_, trusted));
  while (low < high) {
    const int chunk = (low + high + 1) / 2;
    const double positions = chunk * (demand.prompt_position + 0.5 * chunk);
    if (lateness * Predict(demand.decodes, chunk, positions) <= target) {
      low = chunk;
    } else {
      high = chunk - 1;
    }
  }
  // Kernels multiply eight rows in the time of five: what does not fill the last eight waits for the next step.
  const int rows = demand.decodes + low, whole = low - rows % kRowsTogether;
  return rows < kWholeFrom || whole < least ? low : whole;
}

// Times over predictions of today, so that what the model has learned since is not counted twice.
double StepController::Lateness() const {
  const int known = static_cast<int>(beside_.size());
  double latest = kAssumedLate - (kAssumedLate - 1) * known / kRemembered, second = latest;
  for (int i = 0; i < known; ++i) {
    const StepCost& step = beside_[i];
    const double predicted = Predict(step.decodes, step.prompt_tokens, step.positions);
    const bool stood_still = step.ms - predicted > target_ms_ && i < known - kCareful;
    if (predicted <= 0 || stood_still) continue;
    const double ratio = step.ms / predicted;
    second = std::max(second, std::min(latest, ratio));
    latest = std::max(latest, ratio);
  }
  return known < kSecond ? latest : second;
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
  const bool first = observed_++ == 0, beyond = step.prompt_tokens > largest_chunk_;
  largest_chunk_ = std::max(largest_chunk_, step.prompt_tokens);
  if (first) return;
  const Vector x = Features(step.decodes, step.prompt_tokens, step.positions);
  const double predicted = Predict(weights_, x), least = 1e-3;
  double ms = std::max(least, step.ms);
  if (observed_ > 8 && predicted > least && !beyond) ms = std::min(ms, kOutlier * predicted);

  Sums& kind = sums_[step.prompt_tokens > 0 ? 1 : 0];
  for (int i = 0; i < kTerms; ++i) {
    kind.products[i] = kForget * kind.products[i] + x[i] / ms;
    for (int j = 0; j < kTerms; ++j) kind.squares[i][j] = kForget * kind.squares[i][j] + x[i] * x[j] / (ms * ms);
  }
  Sums all = sums_[0];
  for (int i = 0; i < kTerms; ++i) {
    all.products[i] += sums_[1].products[i];
    for (int j = 0; j < kTerms; ++j) all.squares[i][j] += sums_[1].squares[i][j];
  }
  weights_ = Solve(all);
}

// The least squares of all terms; while one of them is negative, of the terms without the most negative.
StepController::Vector StepController::Solve(const Sums& sums) {
  std::array<bool, kTerms> used;
  for (int i = 0; i < kTerms; ++i) used[i] = sums.squares[i][i] > 0;
  for (;;) {
    // Elimination in place; the matrix is positive definite. Unused terms are rows of the unit matrix.
    std::array<Vector, kTerms> a{};
    Vector w{};
    for (int i = 0; i < kTerms; ++i) {
      if (used[i]) w[i] = sums.products[i];
      for (int j = 0; j < kTerms; ++j) a[i][j] = used[i] && used[j] ? sums.squares[i][j] : 0;
      a[i][i] = used[i] ? (1 + kRidge) * a[i][i] : 1;
    }
    for (int k = 0; k < kTerms; ++k) {
      for (int i = k + 1; i < kTerms; ++i) {
        const double factor = a[i][k] / a[k][k];
        for (int j = k; j < kTerms; ++j) a[i][j] -= factor * a[k][j];
        w[i] -= factor * w[k];
      }
    }
    for (int i = kTerms - 1; i >= 0; --i) {
      for (int j = i + 1; j < kTerms; ++j) w[i] -= a[i][j] * w[j];
      w[i] /= a[i][i];
    }
    const auto worst = std::min_element(w.begin(), w.end());
    if (*worst >= 0) return w;
    used[worst - w.begin()] = false;
  }
}

}  // namespace hone
