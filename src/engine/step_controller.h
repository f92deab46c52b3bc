// StepController: how many prompt tokens a step may compute so that they make it no longer than a target. It learns what
// steps cost from the steps themselves; no tensors, no clock: times come in as numbers.
//
// The target is what prompts may add to a step of the streams alone, so a stream's gap is at most its gap without them and the
// target; and prompts get on, with chunks of a useful size, also where the streams alone take as long as the target.
//
// Model: ms = w0 + w1 * decodes + w2 * prompt tokens + w3 * (sum of their positions), every w at least 0, fitted by least squares
// of relative errors. The last term is attention: the tokens of a long prompt get dearer as it goes on. Steps with prompt tokens
// and steps without are forgotten apart (a step counts half after 35 more of its kind), so what prompts cost is still known after
// hours without one. The first step brings memory in and teaches nothing.
//
// The model is the mean, but clients feel the late steps. So a chunk beside streams is sized for a step as late as the latest of
// the last kRemembered like it, by the ratio of its time to what the model of today says: one late step is enough to make the
// next ones smaller. Once kSecond are known it is the second latest: if lateness comes in no particular order, the next step is
// later than that with a chance of 2 in kRemembered + 1, whatever the machine's noise looks like, and it is the 99th percentile
// of gaps that is to be kept. A step that would have been late with no prompt in it (the machine
// stood still) teaches nothing about chunks: it makes them careful for kCareful steps, in case everything got slower, and is
// forgotten. What the streams take alone is only learned from steps of streams alone: while there are none, it is not believed to
// grow by more than kMostGrown, or a machine that gets slower would be taken for slower streams.
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

  // Prompt tokens of the next step, LeastChunk to most_tokens (most_tokens if that is less). A step without a stream
  // that waits for its next token may take kIdleStretch times the target in all. Larger steps have whole eights of rows.
  int Budget(const SchedulerDemand& demand) const;
  void Observe(const StepCost& step);
  double Predict(int decodes, int prompt_tokens, double positions) const;

  // A prompt always moves. At its beginning no chunk is smaller than kMinChunk: a token of less is dearer, and where many short
  // prompts arrive they would wait for each other. From kFar on attention, which costs a token the same in any chunk, is much of a
  // step: there half of kMinChunk costs a token hardly more, and is what keeps steps in bounds on a machine that others slow down.
  static int LeastChunk(int position) { return position < kFar ? kMinChunk : kMinFarChunk; }
  static constexpr int kMinChunk = 16, kMinFarChunk = 8, kFar = 1024;
  static constexpr int kRowsTogether = 8, kWholeFrom = 40;  // decodes and prompt tokens of a step, from so many on: a multiple
  static constexpr int kColdChunk = 64;      // before anything is known
  static constexpr double kIdleStretch = 10;
  static constexpr int kRemembered = 256;     // steps with prompt tokens beside streams
  static constexpr int kSecond = 128;         // known, from which on the second latest counts
  static constexpr int kCareful = 16;         // of the last of them
  static constexpr double kMostGrown = 1.5;
  static constexpr double kAssumedLate = 1.1;  // the latest of them all before any is known; fades as they are

 private:
  static constexpr int kTerms = 4;
  using Vector = std::array<double, kTerms>;
  struct Sums {  // over steps: features by features and features by ms, each step divided by the square of its ms
    std::array<Vector, kTerms> squares{};
    Vector products{};
  };
  static Vector Features(int decodes, int prompt_tokens, double positions);
  static double Predict(const Vector& weights, const Vector& features);
  static Vector Solve(const Sums& sums);
  double Alone(int decodes) const;
  void Fit(const StepCost& step);
  double Lateness() const;

  const double target_ms_;
  const int most_tokens_;
  Vector weights_{};
  std::optional<Vector> weights_alone_;  // as they were after the last step of streams alone
  std::array<Sums, 2> sums_{};  // of steps without prompt tokens; with
  int observed_ = 0;       // steps
  int largest_chunk_ = 0;  // so far: the model is not trusted far beyond what it has seen
  std::deque<StepCost> beside_;  // the last with prompt tokens beside streams, oldest first, at most kRemembered
};

}  // namespace hone
