// Routing against worked examples and the sorted softmax in double.
#include "kernels/moe/route.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "base/random.h"

namespace hone {
namespace {

TEST(RouteExperts, WorkedExample) {
  // exp: 1, 2, 4, 1 -> softmax 1/8, 2/8, 4/8, 1/8.
  const float logits[] = {0, std::log(2.0f), std::log(4.0f), 0};
  int32_t ids[2];
  float weights[2];
  RouteExperts({4, 2, true, false}, logits, 1, ids, weights);
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(ids[1], 1);
  EXPECT_FLOAT_EQ(weights[0], 0.5f);
  EXPECT_FLOAT_EQ(weights[1], 0.25f);
  for (const auto& [softmax_first, renormalise] : {std::pair{true, true}, {false, true}, {false, false}}) {
    RouteExperts({4, 2, softmax_first, renormalise}, logits, 1, ids, weights);
    EXPECT_FLOAT_EQ(weights[0], 2.0f / 3);
    EXPECT_FLOAT_EQ(weights[1], 1.0f / 3);
  }
}

TEST(RouteExperts, EqualLogitsGoToLowerIds) {
  const float logits[] = {1, 3, 3, 1, 3, 0};
  int32_t ids[4];
  float weights[4];
  RouteExperts({6, 4, true, true}, logits, 1, ids, weights);
  EXPECT_EQ(std::vector<int32_t>(ids, ids + 4), (std::vector<int32_t>{1, 2, 4, 0}));
}

TEST(RouteExperts, EqualsASortedSoftmax) {
  Rng rng(8);
  for (int round = 0; round < 300; ++round) {
    const int experts = 1 + static_cast<int>(rng.Below(130)), chosen = 1 + static_cast<int>(rng.Below(std::min(experts, 9)));
    const bool renormalise = rng.Below(2) == 0;
    const int rows = 3;
    std::vector<float> logits(size_t(experts) * rows);
    for (float& x : logits) x = static_cast<float>(rng.Below(40)) / 4 - 5;  // many ties
    std::vector<int32_t> ids(size_t(chosen) * rows);
    std::vector<float> weights(ids.size());
    RouteExperts({experts, chosen, true, renormalise}, logits.data(), rows, ids.data(), weights.data());
    for (int i = 0; i < rows; ++i) {
      const float* row = logits.data() + size_t(i) * experts;
      std::vector<int32_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
      double all = 0, best = 0;
      for (int e = 0; e < experts; ++e) all += std::exp(static_cast<double>(row[e]));
      for (int j = 0; j < chosen; ++j) best += std::exp(static_cast<double>(row[order[j]]));
      for (int j = 0; j < chosen; ++j) {
        ASSERT_EQ(ids[size_t(i) * chosen + j], order[j]);
        const double expected = std::exp(static_cast<double>(row[order[j]])) / (renormalise ? best : all);
        ASSERT_NEAR(weights[size_t(i) * chosen + j], expected, 0x1.0p-23 * expected);
      }
    }
  }
}

TEST(RouteExperts, NansAndInfinitiesGiveDistinctValidIds) {
  const float nan = std::nanf(""), inf = HUGE_VALF;
  const std::vector<std::vector<float>> cases = {
      {nan, nan, nan, nan}, {nan, 1, nan, 2}, {-inf, -inf, -inf, -inf}, {inf, nan, inf, -inf}, {1, nan, -inf, nan}};
  for (const auto& logits : cases) {
    int32_t ids[3];
    float weights[3];
    RouteExperts({4, 3, true, true}, logits.data(), 1, ids, weights);
    const std::set<int32_t> distinct(ids, ids + 3);
    EXPECT_EQ(distinct.size(), 3u);
    EXPECT_TRUE(*distinct.begin() >= 0 && *distinct.rbegin() < 4);
  }
  int32_t ids[2];
  float weights[2];
  RouteExperts({4, 2, true, true}, cases[1].data(), 1, ids, weights);
  EXPECT_EQ(ids[0], 3);
  EXPECT_EQ(ids[1], 1);
}

}  // namespace
}  // namespace hone
