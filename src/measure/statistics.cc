// See statistics.h.
#include "measure/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random.h"

namespace hone {
namespace {

double SortedQuantile(const std::vector<double>& sorted, double fraction) {
  const double at = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(low);
  if (part == 0 || sorted[low] == sorted[high]) return sorted[low];
  return sorted[low] + part * (sorted[high] - sorted[low]);
}

std::vector<double> Sorted(std::span<const double> values) {
  HONE_CHECK(!values.empty(), "statistics of no values");
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double LogChoose(int64_t n, int64_t k) {
  return std::lgamma(static_cast<double>(n) + 1) - std::lgamma(static_cast<double>(k) + 1) -
         std::lgamma(static_cast<double>(n - k) + 1);
}

}  // namespace

double Mean(std::span<const double> values) {
  if (values.empty()) return 0;
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double Variance(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - mean) * (v - mean);
  return sum / static_cast<double>(values.size() - 1);
}

double Median(std::span<const double> values) { return SortedQuantile(Sorted(values), 0.5); }

double Quantile(std::span<const double> values, double fraction) { return SortedQuantile(Sorted(values), fraction); }

double NormalCdf(double z) { return 0.5 * std::erfc(-z * M_SQRT1_2); }

double NormalQuantile(double p) {
  HONE_CHECK(p > 0 && p < 1);
  // Bisection: slow, and exact to the last digits. The lower tail is where NormalCdf keeps its precision.
  if (p > 0.5) return -NormalQuantile(1 - p);
  double low = -40, high = 0;
  for (int i = 0; i < 200 && high - low > 1e-14; ++i) {
    const double middle = 0.5 * (low + high);
    (NormalCdf(middle) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

double BinomialCdf(int64_t k, int64_t n, double p) {
  if (k < 0) return 0;
  if (k >= n) return 1;
  if (p <= 0) return 1;
  if (p >= 1) return 0;
  double sum = 0;
  for (int64_t i = 0; i <= k; ++i) {
    sum +=
        std::exp(LogChoose(n, i) + static_cast<double>(i) * std::log(p) + static_cast<double>(n - i) * std::log1p(-p));
  }
  return std::min(1.0, sum);
}

Interval MedianInterval(std::span<const double> values, double confidence) {
  const std::vector<double> sorted = Sorted(values);
  const int64_t n = static_cast<int64_t>(sorted.size());
  // [x_(j), x_(n-1-j)] misses the median when at most j values lie on one side of it.
  int64_t j = 0;
  while (2 * (j + 1) < n - 1 && 1 - 2 * BinomialCdf(j + 1, n, 0.5) >= confidence) ++j;
  const double coverage = n == 1 ? 0 : 1 - 2 * BinomialCdf(j, n, 0.5);
  return {SortedQuantile(sorted, 0.5), sorted[j], sorted[n - 1 - j], coverage};
}

Interval QuantileInterval(std::span<const double> values, double fraction, double confidence) {
  const std::vector<double> sorted = Sorted(values);
  const int64_t n = static_cast<int64_t>(sorted.size());
  const double miss = (1 - confidence) / 2, value = SortedQuantile(sorted, fraction);
  if (fraction <= 0 || fraction >= 1) return {value, value, value, 0};
  // X values lie below the quantile: x_(j) (from 0) is above it with P(X <= j), x_(k) below it with P(X > k).
  std::vector<double> cdf(sorted.size() + 1);
  double sum = 0;
  for (int64_t i = 0; i <= n; ++i) {
    cdf[i] = sum += std::exp(LogChoose(n, i) + static_cast<double>(i) * std::log(fraction) +
                             static_cast<double>(n - i) * std::log1p(-fraction));
  }
  int64_t j = -1, k = n;
  while (j + 1 < n && cdf[j + 1] <= miss) ++j;
  while (k - 1 >= 0 && 1 - cdf[k - 1] <= miss) --k;
  const int64_t low = std::max<int64_t>(j, 0), high = std::min<int64_t>(k, n - 1);
  // An end that the values do not reach is no bound.
  const double coverage = j >= 0 && k < n ? confidence : std::clamp(cdf[high] - cdf[low], 0.0, 1.0);
  return {value, std::min(sorted[low], value), std::max(sorted[high], value), coverage};
}

namespace {

// The regularised incomplete beta function by Lentz's continued fraction.
double BetaFraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
  double h = d;
  for (int m = 1; m <= 500; ++m) {
    for (const double part : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 + part * d;
      c = 1 + part / c;
      d = 1 / (std::fabs(d) < kTiny ? kTiny : d);
      c = std::fabs(c) < kTiny ? kTiny : c;
      h *= d * c;
    }
    if (std::fabs(d * c - 1) < 1e-15) break;
  }
  return h;
}

double IncompleteBeta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * BetaFraction(a, b, x) / a;
  return 1 - front * BetaFraction(b, a, 1 - x) / b;
}

}  // namespace

double StudentQuantile(double p, int freedom) {
  HONE_CHECK(p > 0 && p < 1 && freedom >= 1);
  if (p < 0.5) return -StudentQuantile(1 - p, freedom);
  const double v = freedom;
  const auto above = [&](double t) { return 0.5 * IncompleteBeta(v / 2, 0.5, v / (v + t * t)); };  // P(T > t)
  double low = 0, high = 1;
  while (above(high) > 1 - p && high < 1e12) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (above(middle) > 1 - p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

Interval StudentMean(std::span<const double> values, double confidence) {
  HONE_CHECK(!values.empty());
  const double mean = Mean(values), n = static_cast<double>(values.size());
  if (values.size() < 2) return {mean, mean, mean, 0};
  const double half =
      StudentQuantile(0.5 + confidence / 2, static_cast<int>(values.size()) - 1) * std::sqrt(Variance(values) / n);
  return {mean, mean - half, mean + half, confidence};
}

namespace {

// The greatest r such that the sum of those of the ranks 1 to n for which a coin falls heads is r or less with a probability of
// at most `miss`, and that probability. -1 if even a sum of 0 is likelier.
int64_t RankSumBelow(int64_t n, double miss, double* probability) {
  constexpr int64_t kExact = 60;
  if (n > kExact) {
    const double m = static_cast<double>(n), error = std::sqrt(m * (m + 1) * (2 * m + 1) / 24);
    *probability = miss;
    return static_cast<int64_t>(std::floor(m * (m + 1) / 4 - 0.5 + NormalQuantile(miss) * error));
  }
  std::vector<double> chance(static_cast<size_t>(n * (n + 1) / 2) + 1);
  chance[0] = 1;
  for (int64_t rank = 1; rank <= n; ++rank) {
    for (int64_t sum = rank * (rank - 1) / 2; sum >= 0; --sum) chance[sum + rank] += chance[sum] /= 2;
  }
  double sum = 0;
  int64_t r = -1;
  while (sum + chance[r + 1] <= miss) sum += chance[++r];
  *probability = sum;
  return r;
}

}  // namespace

Interval SignedRankInterval(std::span<const double> values, double confidence) {
  const auto n = static_cast<int64_t>(values.size());
  HONE_CHECK(n >= 2 && n <= kMostSignedRanks);
  std::vector<double> means;
  for (size_t i = 0; i < values.size(); ++i) {
    for (size_t j = i; j < values.size(); ++j) means.push_back(0.5 * (values[i] + values[j]));
  }
  std::sort(means.begin(), means.end());
  double missed = 0;
  const int64_t r = RankSumBelow(n, (1 - confidence) / 2, &missed);
  const double value = SortedQuantile(means, 0.5);
  if (r < 0) return {value, means.front(), means.back(), 1 - std::ldexp(1.0, static_cast<int>(1 - n))};
  return {value, means[r], means[means.size() - 1 - r], 1 - 2 * missed};
}

Interval WilsonInterval(int64_t right, int64_t of, double confidence) {
  HONE_CHECK(of > 0 && right >= 0 && right <= of);
  const double z = NormalQuantile(0.5 + confidence / 2), n = static_cast<double>(of);
  const double p = static_cast<double>(right) / n, z2 = z * z;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = z / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {p, right == 0 ? 0 : std::max(0.0, centre - half), right == of ? 1 : std::min(1.0, centre + half), confidence};
}

double McNemarExact(int64_t b, int64_t c) {
  if (b + c == 0) return 1;
  return std::min(1.0, 2 * BinomialCdf(std::min(b, c), b + c, 0.5));
}

Interval BootstrapMean(std::span<const double> values, double confidence, int resamples, uint64_t seed) {
  HONE_CHECK(!values.empty() && resamples > 0);
  Rng rng(seed);
  std::vector<double> means(resamples);
  for (double& mean : means) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) sum += values[rng.Below(values.size())];
    mean = sum / static_cast<double>(values.size());
  }
  std::sort(means.begin(), means.end());
  return {Mean(values), SortedQuantile(means, 0.5 - confidence / 2), SortedQuantile(means, 0.5 + confidence / 2),
          confidence};
}

}  // namespace hone
