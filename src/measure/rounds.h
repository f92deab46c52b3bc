// Timing beside a roof: rounds of one or two works, interleaved, with the roof measured before, between and after.
// Clockless: whoever calls says what a work and a roof are, so that the rules can be tested with made-up figures.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "measure/statistics.h"

namespace hone {

inline constexpr double kRoofAgreement = 0.10;  // roofs of a round that differ by more are not the same machine
inline constexpr int kRetakes = 2;              // at most so many extra rounds for each asked for

struct RoundRules {
  int rounds = 7;
  int least_rounds = 3;  // once `budget_s` is used up
  double budget_s = 0;   // of work and roofs together; 0: none
};

struct Rounds {
  // [work][round]: seconds, and the roof then (mean of before and after that work).
  std::vector<std::vector<double>> seconds, roofs;
  int retaken = 0;     // rounds thrown away because their roofs disagreed
  bool steady = true;  // false: too few rounds agreed, so the least disagreeing of the others were taken too
  bool stopped = false;
  int rounds() const { return seconds.empty() ? 0 : static_cast<int>(seconds[0].size()); }
};

// Takes rounds: roof, work, roof, work, roof. The order of two works turns around every round. A work returns its
// seconds, a roof its rate. `stop` is asked before each round and may be empty; then what was taken so far is returned,
// `stopped`.
Rounds TakeRounds(std::span<const std::function<double()>> works, const std::function<double()>& roof,
                  const RoundRules& rules, const std::function<bool()>& stop);

// Whether B's rate differs from A's: the interval of the paired ratio of rates a / b.
struct Comparison {
  Interval ratio;       // of A's rate to B's
  std::string verdict;  // "faster", "slower" (A), "no difference", "not enough rounds"
};
inline constexpr double kCompareConfidence = 0.99;
inline constexpr int kCompareRounds = 8;  // the fewest whose range holds the median with kCompareConfidence

Comparison ComparePaired(std::span<const double> seconds_a, std::span<const double> seconds_b);

// The same for two runs that were not interleaved: intervals of the rates, and the roofs of each run. The roofs must
// agree (else "roofs differ"), and the intervals must not touch for a difference.
Comparison CompareApart(const Interval& a, double roof_a, const Interval& b, double roof_b);

}  // namespace hone
