// Statistics of measurements: pure functions on numbers, no clock, no file. Closed forms where there are, named methods
// where several exist, so that a figure can be recomputed elsewhere. What the intervals mean: docs/measure.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace hone {

// An estimate with an interval. `confidence` is the coverage the interval really has, which may be less than was asked
// for when there are too few values.
struct Interval {
  double value = 0, low = 0, high = 0;
  double confidence = 0;
};

double Mean(std::span<const double> values);      // 0 of none
double Variance(std::span<const double> values);  // of the sample (n - 1); 0 of fewer than two
double Median(std::span<const double> values);    // REQUIRES: not empty; the mean of the middle two if even
// Linear interpolation at fraction * (n - 1) of the sorted values (numpy's default, Hyndman-Fan 7). REQUIRES: not
// empty.
double Quantile(std::span<const double> values, double fraction);

double NormalCdf(double z);
double NormalQuantile(double p);                     // REQUIRES: 0 < p < 1
double BinomialCdf(int64_t k, int64_t n, double p);  // P(X <= k)

// The median and the narrowest pair of order statistics, equally far from both ends, that holds the true median with at
// least `confidence`, whatever the distribution; the whole range, with the confidence that it has, when the values are
// too few (1 - 2^(1-n): 6 values give 0.969, 8 give 0.992). REQUIRES: not empty.
Interval MedianInterval(std::span<const double> values, double confidence);

// The same for another quantile: the value is Quantile(), the ends are order statistics that hold the true quantile with
// at least `confidence`, each side with half of what may miss, whatever the distribution of independent values. An end
// that the values do not reach is the smallest or largest, and `confidence` says what is left. REQUIRES: not empty.
Interval QuantileInterval(std::span<const double> values, double fraction, double confidence);

// Student's t: the quantile p with `freedom` degrees. REQUIRES: 0 < p < 1, freedom >= 1.
double StudentQuantile(double p, int freedom);
// The mean with Student's interval: of values that are independent and about normal, such as one figure of several runs.
// One value has no interval (confidence 0). REQUIRES: not empty.
Interval StudentMean(std::span<const double> values, double confidence);

// The centre of values that are independent and spread alike to both sides, such as logarithms of ratios of paired runs: the
// median of the means of all pairs (Hodges and Lehmann) with the interval of Wilcoxon's signed-rank test, exact up to 60 values.
// A few that are far off hardly widen it, as they do Student's. The whole range, with the confidence that it has, when the
// values are too few. REQUIRES: 2 to 1000 values.
inline constexpr int kMostSignedRanks = 1000;
Interval SignedRankInterval(std::span<const double> values, double confidence);

// Wilson's interval of a share. REQUIRES: 0 <= right <= of, of > 0.
Interval WilsonInterval(int64_t right, int64_t of, double confidence);

// Two-sided exact McNemar test: the probability of a split at least this uneven if both are equally good. Capped at 1;
// 1 if b + c is 0.
double McNemarExact(int64_t b, int64_t c);

// Percentile bootstrap of the mean: `resamples` seeded draws. Same seed, same interval. REQUIRES: not empty.
Interval BootstrapMean(std::span<const double> values, double confidence, int resamples, uint64_t seed);

}  // namespace hone
