// StepController: how many prompt tokens a step may compute so that they make it no longer than a target. It learns what
// steps cost from the steps themselves; no tensors, no clock: times come in as numbers.
//
// The target is what prompts may add to a step of the streams alone, so a stream's gap is at most its gap without them and the
// target; and prompts get on, with chunks of a useful size, also where the streams alone take as long as the target.
//
// Model: ms = w0 + w1 * decodes + w2 * prompt tokens + w3 * (sum of their positions), fitted by recursive least squares
// that forgets (a step counts half after about 35 more). The last term is attention: the tokens of a long prompt get
// dearer as it goes on.
#pragma once

#include <array>

#include "engine/scheduler.h"

namespace hone {

// What a step did.
struct StepCost {
  int decodes = 0, prompt_tokens = 0;
  double positions = 0;  // sum over the prompt tokens
  double ms = 0;
};

class StepController {
 public:
  // `target_ms` 0: always `most_tokens`.
  StepController(double target_ms, int most_tokens);

  // Prompt tokens of the next step, kMinChunk to most_tokens (most_tokens if that is less). A step without a stream
  // that waits for its next token may take kIdleStretch times the target in all.
  int Budget(const SchedulerDemand& demand) const;
  void Observe(const StepCost& step);
  double Predict(int decodes, int prompt_tokens, double positions) const;

  static constexpr int kMinChunk = 16;       // a prompt always moves; less would not be cheaper
  static constexpr int kColdChunk = 64;      // before anything is known
  static constexpr double kIdleStretch = 10;

 private:
  static constexpr int kTerms = 4;
  using Vector = std::array<double, kTerms>;
  static Vector Features(int decodes, int prompt_tokens, double positions);

  const double target_ms_;
  const int most_tokens_;
  Vector weights_{};
  std::array<Vector, kTerms> covariance_{};
  int observed_ = 0;      // steps
  int largest_chunk_ = 0;  // so far: the model is not trusted far beyond what it has seen
};

}  // namespace hone
