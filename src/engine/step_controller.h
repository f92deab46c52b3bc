// StepController: how many prompt tokens a step may compute so that they make it no longer than a target. It learns what
// steps cost from the steps themselves; no tensors, no clock: times come in as numbers.
//
// The target is what prompts may add to a step of the streams alone: a stream's gap is to be at most twice its gap without them and
// the target, and chunks aim at kShareOfAlone of it and the target. So prompts get on, with chunks of a useful size, also where
// the streams alone take as long as the target.
//
// Model: ms = w0 + w1 * decodes + w2 * (rows, if some are prompts) + w3 * (sum of prompt positions) + w4 * (1, if some are prompts),
// fitted by recursive least squares that forgets (a step counts half after about 35 more). Rows are all of the step's, beyond
// kRowsOfBlock rounded up to whole blocks of so many: that is how kernels of many rows take them, so the 17th row costs
// as much as the 32nd. The fourth term is attention: the tokens of a long prompt get dearer as it goes on. The last is what many
// rows cost whatever their number.
//
// A chunk is the one that costs least a token, of those that keep to the target.
//
// The model is the mean, but clients feel the late steps. So a chunk beside streams is sized for a step as late as the
// kAllowedLate-th latest of the last kRemembered like it, and for kCareful steps after any late one as late as that: one is enough
// to make the very next ones smaller. Late by a ratio or by so many milliseconds, whichever is less: a machine that slows down
// does the one, another program that takes a core the other, and neither says that a step of another size would suffer more.
// If lateness comes in no particular order, the next step is among the kAllowedLate latest with a chance of kAllowedLate in
// kRemembered + 1, whatever the machine's noise looks like. A step that would have been late with no prompt in it (the machine
// stood still) teaches nothing about chunks: it is forgotten after those kCareful steps, in which everything might have got
// slower. What the streams take alone is only learned from steps of streams alone: while there are none, it is not believed to grow
// by more than kMostGrown, or a machine that gets slower would be taken for slower streams.
#pragma once

#include <array>
#include <deque>
#include <optional>

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

  static constexpr int kMinChunk = 8;        // a prompt always moves
  static constexpr int kColdChunk = 64;      // before anything is known
  static constexpr double kIdleStretch = 10;
  static constexpr int kRowsOfBlock = 16;
  static constexpr double kShareOfAlone = 1.25;
  static constexpr int kRemembered = 256;     // steps with prompt tokens beside streams
  static constexpr int kAllowedLate = 3;      // of them
  static constexpr int kCareful = 16;
  static constexpr double kMostGrown = 1.5;
  static constexpr double kAssumedLate = 1.2;  // before any is known; fades as they are

 private:
  static constexpr int kTerms = 5;
  using Vector = std::array<double, kTerms>;
  static Vector Features(int decodes, int prompt_tokens, double positions);
  static double Predict(const Vector& weights, const Vector& features);
  struct Lateness {
    double ratio = 1, excess_ms = 0;
  };

  double Alone(int decodes) const;
  void Fit(const StepCost& step);
  Lateness Late() const;

  const double target_ms_;
  const int most_tokens_;
  Vector weights_{};
  std::optional<Vector> weights_alone_;  // as they were after the last step of streams alone
  std::array<Vector, kTerms> covariance_{};
  int observed_ = 0;      // steps
  int largest_chunk_ = 0;  // so far: the model is not trusted far beyond what it has seen
  std::deque<StepCost> beside_;  // the last with prompt tokens beside streams, oldest first, at most kRemembered
};

}  // namespace hone
