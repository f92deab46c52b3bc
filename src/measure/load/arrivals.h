// When requests are sent: arrival processes as pure functions of a seed. No clock: a schedule is a list of seconds.
//
// Open loops (constant, poisson, gamma, ramp, trace) fix the times beforehand, whatever the server does; a closed loop
// has none and sends when an answer is complete. Gaps of poisson and gamma are those of `vllm bench serve`: gamma with
// shape `burstiness`, then scaled so that n requests take exactly n / rate seconds. docs/measure.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/result.h"

namespace hone {

enum class ArrivalKind { kClosed, kConstant, kPoisson, kGamma, kRamp, kTrace };

struct ArrivalSpec {
  ArrivalKind kind = ArrivalKind::kClosed;
  double rate = 0;        // requests a second; ramp: at the start
  double rate_to = 0;     // ramp: at the end
  double burstiness = 1;  // gamma: shape; 1 is poisson, below 1 bursty, above 1 smoother
};

Result<ArrivalKind> ParseArrivalKind(std::string_view name);
std::string ArrivalName(ArrivalKind kind);

// n seconds from the start, none below the one before. The same seed gives the same times. REQUIRES: neither kClosed
// nor kTrace, n >= 0, rates and burstiness above 0.
std::vector<double> ArrivalTimes(const ArrivalSpec& spec, int n, uint64_t seed);

// One draw of each distribution. REQUIRES: shape > 0.
double DrawNormal(Rng& rng);
double DrawExponential(Rng& rng);          // mean 1
double DrawGamma(Rng& rng, double shape);  // mean and variance `shape` (Marsaglia and Tsang, 2000)

}  // namespace hone
