// Statistics against scipy's results and against the coverage that an interval promises.
#include "measure/statistics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/test_shared.h"

namespace hone {
namespace {

using nlohmann::json;

json Golden(const std::string& path) {
  std::ifstream in(path);
  return json::parse(in);
}

void ExpectClose(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, 1e-9 * std::max(1.0, std::fabs(want))) << what;
}

TEST(Statistics, WilsonAsScipySays) {
  HONE_NEED_SHARED(path, "goldens/eval/statistics.json");
  int cases = 0;
  const json golden = Golden(path);
  for (const json& item : golden["proportion_ci"]) {
    for (const char* level : {"0.9", "0.95", "0.99"}) {
      const Interval got = WilsonInterval(item["k"], item["n"], std::atof(level));
      ExpectClose(got.low, item[level]["wilson"][0], item.dump());
      ExpectClose(got.high, item[level]["wilson"][1], item.dump());
      ++cases;
    }
  }
  EXPECT_GT(cases, 10);
}

TEST(Statistics, McNemarAsScipySays) {
  HONE_NEED_SHARED(path, "goldens/eval/statistics.json");
  const json golden = Golden(path);
  EXPECT_GT(golden["mcnemar"].size(), 3u);
  for (const json& item : golden["mcnemar"]) {
    ExpectClose(McNemarExact(item["only_a"], item["only_b"]), item["exact_p"], item.dump());
  }
}

TEST(Statistics, QuantilesAsNumpySays) {
  HONE_NEED_SHARED(path, "goldens/eval/statistics.json");
  const json golden = Golden(path);
  for (const json& item : golden["percentiles"]) {
    const std::vector<double> x = item["x"];
    for (const auto& [percent, want] : item["linear"].items()) {
      ExpectClose(Quantile(x, std::atof(percent.c_str()) / 100), want, item["name"].get<std::string>() + " " + percent);
    }
    ExpectClose(Median(x), item["linear"]["50"], item["name"]);
  }
  for (const auto& [p, want] : golden["quantiles"]["normal"].items())
    ExpectClose(NormalQuantile(std::atof(p.c_str())), want, p);
}

TEST(Statistics, MeanVarianceAndNormal) {
  EXPECT_EQ(Mean({}), 0);
  EXPECT_EQ(Variance(std::vector<double>{5}), 0);
  EXPECT_DOUBLE_EQ(Variance(std::vector<double>{1, 2, 3, 4}), 5.0 / 3);
  EXPECT_NEAR(NormalCdf(1.959963984540054), 0.975, 1e-12);
  EXPECT_NEAR(NormalQuantile(0.0005), -NormalQuantile(0.9995), 1e-9);
  EXPECT_NEAR(BinomialCdf(2, 5, 0.5), 0.5, 1e-12);
  EXPECT_NEAR(BinomialCdf(0, 3, 0.1), 0.729, 1e-12);
  EXPECT_EQ(BinomialCdf(-1, 3, 0.1), 0);
  EXPECT_EQ(BinomialCdf(3, 3, 0.1), 1);
}

// Ranks of the textbook table of the sign test's interval: n = 10 gives the 2nd and 9th (97.9 %), n = 20 the 6th and
// 15th (95.9 %).
TEST(Statistics, MedianIntervalTakesTheTablesRanks) {
  std::vector<double> x(10);
  for (int i = 0; i < 10; ++i) x[i] = i + 1;
  Interval got = MedianInterval(x, 0.95);
  EXPECT_EQ(got.value, 5.5);
  EXPECT_EQ(got.low, 2);
  EXPECT_EQ(got.high, 9);
  EXPECT_NEAR(got.confidence, 0.978515625, 1e-12);
  x.resize(20);
  for (int i = 0; i < 20; ++i) x[i] = i + 1;
  got = MedianInterval(x, 0.95);
  EXPECT_EQ(got.low, 6);
  EXPECT_EQ(got.high, 15);
  EXPECT_NEAR(got.confidence, 0.958610535, 1e-9);
  // Too few: the whole range, and what it is worth.
  got = MedianInterval(std::vector<double>{3, 1, 2}, 0.95);
  EXPECT_EQ(got.low, 1);
  EXPECT_EQ(got.high, 3);
  EXPECT_DOUBLE_EQ(got.confidence, 0.75);
  got = MedianInterval(std::vector<double>{7}, 0.95);
  EXPECT_EQ(got.low, 7);
  EXPECT_EQ(got.confidence, 0);
}

// Skewed values whose median is known: the interval must hold it at least as often as it says.
TEST(Statistics, MedianIntervalCovers) {
  Rng rng(7);
  for (const int n : {6, 8, 12, 25}) {
    constexpr int kRepeats = 4000;
    int inside = 0;
    double promised = 0;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      std::vector<double> x(n);
      for (double& v : x) v = -std::log(1 - rng.Uniform());  // exponential: median ln 2
      const Interval interval = MedianInterval(x, 0.95);
      promised = interval.confidence;
      inside += interval.low <= M_LN2 && M_LN2 <= interval.high;
    }
    EXPECT_NEAR(static_cast<double>(inside) / kRepeats, promised, 0.015) << n;
    EXPECT_GE(promised, 0.95) << n;
  }
}

// Ranks of the textbook table of the signed-rank test: n = 8 allows sums up to 3 (96.1 %), n = 10 up to 8 (95.1 %), n = 20 up to
// 52; the approximation beyond the exact ones, n = 100, up to 1954 (the rounding of the table's 1955).
TEST(Statistics, SignedRankIntervalTakesTheTablesRanks) {
  for (const auto& [n, rank] : {std::pair(8, 3), std::pair(10, 8), std::pair(20, 52), std::pair(100, 1954)}) {
    std::vector<double> x, means;
    for (int i = 0; i < n; ++i) x.push_back(std::exp(0.1 * i));
    for (int i = 0; i < n; ++i) {
      for (int j = i; j < n; ++j) means.push_back(0.5 * (x[i] + x[j]));
    }
    std::sort(means.begin(), means.end());
    const Interval got = SignedRankInterval(x, 0.95);
    EXPECT_EQ(got.value, Median(means));
    EXPECT_EQ(got.low, means[rank]) << n;
    EXPECT_EQ(got.high, means[means.size() - 1 - rank]) << n;
    EXPECT_NEAR(got.confidence, n == 8 ? 0.9609375 : n == 10 ? 0.951171875 : 0.95, n > 10 ? 2e-3 : 1e-12);
  }
  const Interval few = SignedRankInterval(std::vector<double>{3, 1, 2}, 0.95);
  EXPECT_EQ(few.low, 1);
  EXPECT_EQ(few.high, 3);
  EXPECT_DOUBLE_EQ(few.confidence, 0.75);
}

// Heavy tails to both sides: holds the centre as often as it says, and one value that is far off moves it hardly at all.
TEST(Statistics, SignedRankIntervalCoversAndKeepsItsWidth) {
  Rng rng(23);
  for (const int n : {8, 10, 12, 20, 80}) {
    constexpr int kRepeats = 1500;
    int inside = 0;
    double promised = 0;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      std::vector<double> x(n);
      for (double& v : x) v = 5 + std::log(rng.Uniform() + 1e-12) * (rng.Uniform() < 0.5 ? 1 : -1);
      const Interval interval = SignedRankInterval(x, 0.95);
      promised = interval.confidence;
      inside += interval.low <= 5 && 5 <= interval.high;
    }
    EXPECT_NEAR(static_cast<double>(inside) / kRepeats, promised, 4 * std::sqrt(0.05 * 0.95 / kRepeats)) << n;
  }
  std::vector<double> x;
  for (int i = 0; i < 12; ++i) x.push_back(0.01 * (i % 4));
  const Interval calm = SignedRankInterval(x, 0.95);
  x[5] = 100;
  const Interval stalled = SignedRankInterval(x, 0.95), student = StudentMean(x, 0.95);
  EXPECT_LT(stalled.high - stalled.low, 3 * (calm.high - calm.low));
  EXPECT_GT(student.high - student.low, 30);
}

// On average over the shares about as often as it says; not for each of them, since counts are whole.
TEST(Statistics, WilsonCovers) {
  Rng rng(21);
  double sum = 0;
  int shares = 0;
  for (double share = 0.1; share < 0.95; share += 0.1, ++shares) {
    int inside = 0;
    for (int repeat = 0; repeat < 500; ++repeat) {
      int right = 0;
      for (int i = 0; i < 60; ++i) right += rng.Uniform() < share;
      const Interval interval = WilsonInterval(right, 60, 0.95);
      inside += interval.low <= share && share <= interval.high;
    }
    sum += inside / 500.0;
  }
  EXPECT_NEAR(sum / shares, 0.95, 0.015);
}

TEST(Statistics, BootstrapCoversAMean) {
  Rng rng(8);
  constexpr int kRepeats = 400;
  int inside = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<double> x(60);
    for (double& v : x) v = rng.Uniform();
    const Interval interval = BootstrapMean(x, 0.95, 500, repeat);
    inside += interval.low <= 0.5 && 0.5 <= interval.high;
  }
  EXPECT_GT(inside, 0.90 * kRepeats);
  EXPECT_LT(inside, 0.99 * kRepeats);
  const std::vector<double> x = {1, 2, 5};
  const Interval a = BootstrapMean(x, 0.9, 100, 3), b = BootstrapMean(x, 0.9, 100, 3);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
}

}  // namespace
}  // namespace hone
