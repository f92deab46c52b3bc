// Rounds and comparisons on made-up machines: what is thrown away, what an injected slowdown and an A/A run are called.
#include "measure/rounds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "base/random.h"

namespace hone {
namespace {

using Works = std::vector<std::function<double()>>;

TEST(RoundsTest, TakesWhatWasAskedAndTurnsTheOrder) {
  std::string order;
  const Works works = {[&] {
                         order += 'a';
                         return 1.0;
                       },
                       [&] {
                         order += 'b';
                         return 2.0;
                       }};
  const Rounds rounds = TakeRounds(
      works,
      [&] {
        order += '.';
        return 10.0;
      },
      {.rounds = 3}, nullptr);
  EXPECT_EQ(order, ".a.b.b.a.a.b.");
  ASSERT_EQ(rounds.rounds(), 3);
  EXPECT_EQ(rounds.seconds[0], (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(rounds.seconds[1], (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(rounds.roofs[0], (std::vector<double>{10, 10, 10}));
  EXPECT_EQ(rounds.retaken, 0);
  EXPECT_TRUE(rounds.steady);
}

TEST(RoundsTest, RetakesARoundWhoseRoofsDisagree) {
  std::deque<double> roofs = {10, 10, 8, 8, 8.5, 8.4};
  double time = 0;
  const Works works = {[&] { return ++time; }};
  const Rounds rounds = TakeRounds(
      works,
      [&] {
        const double r = roofs.front();
        roofs.pop_front();
        return r;
      },
      {.rounds = 3}, nullptr);
  // 10-10 good, 10-8 thrown away, 8-8 good, 8-8.5 good.
  EXPECT_EQ(rounds.seconds[0], (std::vector<double>{1, 3, 4}));
  EXPECT_EQ(rounds.retaken, 1);
  EXPECT_TRUE(rounds.steady);
  EXPECT_DOUBLE_EQ(rounds.roofs[0][2], 8.25);
}

TEST(RoundsTest, AMachineThatNeverAgreesGivesMarkedFigures) {
  int calls = 0;
  const Works works = {[] { return 1.0; }};
  const Rounds rounds = TakeRounds(
      works, [&] { return ++calls % 2 ? 10.0 : 5.0; }, {.rounds = 4}, nullptr);
  EXPECT_EQ(rounds.rounds(), 4);
  EXPECT_FALSE(rounds.steady);
  EXPECT_EQ(calls, 1 + 4 * (1 + kRetakes));  // bounded
}

TEST(RoundsTest, BudgetEndsLongRowsAndStopEndsAll) {
  const Works works = {[] { return 20.0; }};
  const auto roof = [] { return 1.0; };
  EXPECT_EQ(TakeRounds(works, roof, {.rounds = 7, .least_rounds = 3, .budget_s = 25}, nullptr).rounds(), 3);
  EXPECT_EQ(TakeRounds(works, roof, {.rounds = 7, .least_rounds = 3, .budget_s = 0}, nullptr).rounds(), 7);
  int asked = 0;
  const Rounds stopped = TakeRounds(works, roof, {.rounds = 7}, [&] { return ++asked > 2; });
  EXPECT_EQ(stopped.rounds(), 2);
  EXPECT_TRUE(stopped.stopped);
}

// A machine whose speed drifts and jitters; b is `factor` times slower than a.
Comparison SimulatedComparison(double factor, double jitter, int rounds, uint64_t seed) {
  Rng rng(seed);
  double drift = 1;
  const auto noisy = [&](double seconds) {
    return seconds * drift * (1 + jitter * (rng.Uniform() + rng.Uniform() + rng.Uniform() - 1.5));
  };
  const Works works = {[&] { return noisy(1.0); }, [&] { return noisy(factor); }};
  const Rounds taken = TakeRounds(
      works,
      [&] {
        drift *= 1 + 0.02 * (rng.Uniform() - 0.5);
        return 1 / drift;
      },
      {.rounds = rounds}, nullptr);
  return ComparePaired(taken.seconds[0], taken.seconds[1]);
}

TEST(CompareTest, AnAaRunIsNoDifferenceAndFivePercentIsFound) {
  int false_alarms = 0, found = 0;
  constexpr int kRepeats = 400;
  for (int i = 0; i < kRepeats; ++i) {
    const Comparison same = SimulatedComparison(1.0, 0.02, kCompareRounds, 1000 + i);
    EXPECT_TRUE(same.verdict == "no difference" || same.verdict == "faster" || same.verdict == "slower");
    false_alarms += same.verdict != "no difference";
    const Comparison slower = SimulatedComparison(1.05, 0.02, kCompareRounds, 5000 + i);
    found += slower.verdict == "faster";  // a against a slower b
  }
  EXPECT_LE(false_alarms, kRepeats / 50);  // 0.8 % expected
  EXPECT_GE(found, kRepeats * 9 / 10);
}

TEST(CompareTest, TooFewRoundsTellNothing) {
  const std::vector<double> a(kCompareRounds - 1, 1.0), b(kCompareRounds - 1, 2.0);
  EXPECT_EQ(ComparePaired(a, b).verdict, "not enough rounds");
  EXPECT_EQ(ComparePaired({}, {}).verdict, "not enough rounds");
  const std::vector<double> a8(kCompareRounds, 1.0), b8(kCompareRounds, 2.0);
  EXPECT_EQ(ComparePaired(a8, b8).verdict, "faster");
  EXPECT_DOUBLE_EQ(ComparePaired(a8, b8).ratio.value, 2);
  EXPECT_EQ(ComparePaired(b8, a8).verdict, "slower");
}

TEST(CompareTest, RunsApartNeedTheSameRoof) {
  const Interval a{100, 98, 102, 0.95}, b{90, 88, 92, 0.95}, c{99, 97, 101, 0.95};
  EXPECT_EQ(CompareApart(a, 20, b, 20.5).verdict, "faster");
  EXPECT_EQ(CompareApart(b, 20, a, 20.5).verdict, "slower");
  EXPECT_EQ(CompareApart(a, 20, c, 20).verdict, "no difference");
  EXPECT_EQ(CompareApart(a, 20, b, 15).verdict, "roofs differ");
  EXPECT_EQ(CompareApart(a, 20, b, 0).verdict, "roofs differ");
}

}  // namespace
}  // namespace hone
