// Rope tables against closed forms and against numbers of the papers' own examples worked out by hand.
#include "models/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace hone {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;

TEST(RopeTable, PlainFrequenciesFallGeometrically) {
  const RopeConfig rope{.theta = 10000, .rotary_width = 8};
  const std::vector<double> f = RopeFrequencies(rope, false);
  ASSERT_EQ(f.size(), 4u);
  EXPECT_DOUBLE_EQ(f[0], 1);
  EXPECT_NEAR(f[1], 0.1, 1e-15);
  EXPECT_NEAR(f[2], 0.01, 1e-16);
  EXPECT_NEAR(f[3], 0.001, 1e-17);
  EXPECT_EQ(RopeAttentionFactor(rope), 1);
}

TEST(RopeTable, LinearDivides) {
  const std::vector<double> f =
      RopeFrequencies({.theta = 10000, .rotary_width = 8, .scaling = RopeScaling::kLinear, .factor = 4}, false);
  EXPECT_NEAR(f[0], 0.25, 1e-15);
  EXPECT_NEAR(f[3], 0.00025, 1e-17);
}

TEST(RopeTable, Llama3KeepsShortWavesDividesLongOnesAndBlendsBetween) {
  // Original context 1000: waves below 250 tokens stay, above 1000 are divided by 8, 500 lies at smooth = (2 - 1) / 3.
  const RopeConfig base{.rotary_width = 4, .scaling = RopeScaling::kLlama3, .factor = 8, .original_context = 1000};
  const auto second = [&](double wavelength) {
    RopeConfig rope = base;
    rope.theta = std::pow(wavelength / kTwoPi, 2);                 // f_1 = theta^-1/2
    return RopeFrequencies(rope, false)[1] * wavelength / kTwoPi;  // relative to the plain frequency
  };
  EXPECT_NEAR(second(200), 1, 1e-12);
  EXPECT_NEAR(second(2000), 1.0 / 8, 1e-12);
  EXPECT_NEAR(second(500), (1.0 / 3) + (2.0 / 3) / 8, 1e-12);
}

TEST(RopeTable, YarnRampsBetweenRoundedIndices) {
  RopeConfig rope{
      .theta = 10000, .rotary_width = 128, .scaling = RopeScaling::kYarn, .factor = 16, .original_context = 4096};
  // d ln(4096 / (32 * 2 pi)) / (2 ln 10000) = 20.94 -> 20;  d ln(4096 / (2 pi)) / (2 ln 10000) = 45.03 -> 46.
  const std::vector<double> f = RopeFrequencies(rope, false);
  const auto ratio = [&](int j) { return f[j] / std::pow(10000, -2.0 * j / 128); };
  EXPECT_NEAR(ratio(0), 1, 1e-12);
  EXPECT_NEAR(ratio(20), 1, 1e-12);
  EXPECT_NEAR(ratio(33), 1 - (13.0 / 26) * (15.0 / 16), 1e-12);
  EXPECT_NEAR(ratio(46), 1.0 / 16, 1e-12);
  EXPECT_NEAR(ratio(63), 1.0 / 16, 1e-12);
  EXPECT_NEAR(RopeAttentionFactor(rope), 0.1 * std::log(16.0) + 1, 1e-12);
  rope.attention_factor = 1.5;
  EXPECT_EQ(RopeAttentionFactor(rope), 1.5);
  rope.truncate = false;
  const double low = 128 * std::log(4096 / (32 * kTwoPi)) / (2 * std::log(10000.0));
  const double high = 128 * std::log(4096 / kTwoPi) / (2 * std::log(10000.0));
  EXPECT_NEAR(RopeFrequencies(rope, false)[33] / std::pow(10000, -2.0 * 33 / 128),
              1 - (33 - low) / (high - low) * (15.0 / 16), 1e-12);
}

TEST(RopeTable, LongRopeHasTwoSetsOfFactorsAndOneScale) {
  const RopeConfig rope{.theta = 10000,
                        .rotary_width = 4,
                        .scaling = RopeScaling::kLongRope,
                        .factor = 32,
                        .original_context = 4096,
                        .short_factor = {1, 2},
                        .long_factor = {4, 5}};
  EXPECT_NEAR(RopeFrequencies(rope, false)[1], 0.01 / 2, 1e-15);
  EXPECT_NEAR(RopeFrequencies(rope, true)[0], 1.0 / 4, 1e-15);
  EXPECT_NEAR(RopeFrequencies(rope, true)[1], 0.01 / 5, 1e-15);
  EXPECT_NEAR(RopeAttentionFactor(rope), std::sqrt(1 + std::log(32.0) / std::log(4096.0)), 1e-12);  // Phi-3's 1.19024
  EXPECT_NEAR(RopeAttentionFactor(rope), 1.19024, 1e-5);
}

TEST(RopeTable, DivisorsOfTheFileComeOnTop) {
  const std::vector<double> f =
      RopeFrequencies({.theta = 10000, .rotary_width = 4, .frequency_divisors = {1, 8}}, false);
  EXPECT_NEAR(f[0], 1, 1e-15);
  EXPECT_NEAR(f[1], 0.01 / 8, 1e-16);
}

TEST(RopeTable, GrowsAndKeepsItsValues) {
  const RopeConfig rope{
      .theta = 10000, .rotary_width = 6, .scaling = RopeScaling::kLinear, .factor = 2, .attention_factor = 1.25};
  RopeTable table(rope, false);
  const std::vector<double> f = RopeFrequencies(rope, false);
  for (const int positions : {1, 3, 2, 500, 70000}) {
    table.Extend(positions);
    for (const int p : {0, positions / 2, positions - 1}) {
      for (int j = 0; j < 3; ++j) {
        EXPECT_EQ(table.cos()[p * 3 + j], static_cast<float>(std::cos(p * f[j]) * 1.25)) << p << " " << j;
        EXPECT_EQ(table.sin()[p * 3 + j], static_cast<float>(std::sin(p * f[j]) * 1.25)) << p << " " << j;
      }
    }
  }
}

TEST(RopeTable, NoRotaryWidthIsAnEmptyTable) {
  RopeTable table({.rotary_width = 0}, false);
  table.Extend(100);
  EXPECT_TRUE(RopeFrequencies({.rotary_width = 0}, false).empty());
}

}  // namespace
}  // namespace hone
