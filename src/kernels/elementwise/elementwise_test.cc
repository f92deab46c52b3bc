// Element-wise ops and softmax of every listed kernel against their formulas in double.
#include "kernels/elementwise/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernels/kernel_lines_test.h"

namespace hone {
namespace {

const KernelLine kElementwiseLines[] = {
#define HONE_ELEMENTWISE_KERNEL(name, level) {#name, Isa::level},
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
};

class ElementwiseTest : public KernelLineTest {};

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr double kEps = 0x1.0p-24;

std::vector<float> Numbers(size_t n, double size, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> numbers(n);
  for (float& x : numbers) x = static_cast<float>((rng.Uniform() * 2 - 1) * size);
  return numbers;
}

TEST_P(ElementwiseTest, AddScaledAndScaleAtAnyLength) {
  for (int n = 0; n < 100; ++n) {
    const std::vector<float> x = Numbers(n, 3, n), before = Numbers(n + 1, 2, n + 1000);
    std::vector<float> y = before, z = before;
    AddScaled(y.data(), x.data(), 0.37f, n, isa());
    Scale(z.data(), -1.7f, n, isa());
    for (int i = 0; i < n; ++i) {
      const double expected = before[i] + 0.37f * static_cast<double>(x[i]);
      ASSERT_NEAR(y[i], expected, kEps * std::fabs(expected));  // one rounding
      ASSERT_EQ(z[i], before[i] * -1.7f);
    }
    ASSERT_EQ(y[n], before[n]);
    ASSERT_EQ(z[n], before[n]);
  }
}

// Division, tanh (2 ulp and its polynomial's 4e-9) and a product: 5 eps, and the argument's error where tanh is steep.
TEST_P(ElementwiseTest, SoftCapEqualsTheFormula) {
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    std::vector<float> x = {0.0f, -0.0f, 1e-45f, -1e-40f, 1e-30f, 1e10f, -3e38f, kInfinite, -kInfinite};
    for (double v = -600; v < 600; v += 0.037) x.push_back(static_cast<float>(v));
    for (double v = -2; v < 2; v += 0.00037) x.push_back(static_cast<float>(v));
    std::vector<float> y = x;
    SoftCap(y.data(), cap, y.size(), isa());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = cap * std::tanh(static_cast<double>(x[i]) / cap);
      ASSERT_LE(std::fabs(y[i] - expected), 6 * kEps * std::fabs(expected) + cap * 0x1.0p-149) << x[i] << " cap " << cap;
    }
    float nan = std::nanf("");
    SoftCap(&nan, cap, 1, isa());
    EXPECT_TRUE(std::isnan(nan));
  }
}

// exp of an F32 difference d: |d| eps from the subtraction, 4 eps from exp and the factor; the sum in double adds nothing.
TEST_P(ElementwiseTest, SoftmaxEqualsTheFormula) {
  for (const int n : {1, 2, 7, 8, 15, 16, 17, 31, 33, 100, 1000, 32003, 151936}) {
    for (const double size : {0.01, 5.0, 60.0}) {
      std::vector<float> x = Numbers(n, size, n);
      if (n > 10) x[3] = -kInfinite, x[n - 1] = -kInfinite;
      const double max = *std::max_element(x.begin(), x.end());
      double sum = 0, total = 0;
      for (const float v : x) sum += std::exp(v - max);
      std::vector<float> y = x;
      y.push_back(-3);
      Softmax(y.data(), n, isa());
      ASSERT_EQ(y[n], -3);
      for (int i = 0; i < n; ++i) {
        const double expected = std::exp(x[i] - max) / sum;
        if (x[i] == -kInfinite) ASSERT_EQ(y[i], 0);
        else ASSERT_LE(std::fabs(y[i] - expected), (5 + std::fabs(x[i] - max)) * kEps * expected + 0x1.0p-148) << n << " " << i;
        total += y[i];
      }
      ASSERT_NEAR(total, 1, 4 * kEps + 60 * kEps);
    }
  }
}

TEST_P(ElementwiseTest, SoftmaxOfOneFiniteNumberIsCertain) {
  for (const int n : {1, 9, 20, 40}) {
    for (int at = 0; at < n; ++at) {
      std::vector<float> y(n, -kInfinite);
      y[at] = -1e30f;
      Softmax(y.data(), n, isa());
      for (int i = 0; i < n; ++i) ASSERT_EQ(y[i], i == at ? 1 : 0);
    }
  }
}

// exp of an F32 difference d: |d| eps, 4 more from exp, as in a softmax; the difference of two of them has 40 eps at most, and
// probabilities sum to one.
TEST_P(ElementwiseTest, DivergenceEqualsTheFormula) {
  const float p[] = {std::log(2.0f), 0, 0}, q[] = {5, 5, 5 + std::log(2.0f)};  // (1/2, 1/4, 1/4) and (1/4, 1/4, 1/2)
  EXPECT_NEAR(Divergence(p, q, 3, isa()), 0.25 * std::log(2.0), 100 * kEps);
  EXPECT_EQ(Divergence(q, q, 3, isa()), 0);
  for (const int n : {1, 2, 7, 8, 15, 16, 17, 31, 33, 100, 1000, 32003}) {
    for (const double size : {0.01, 5.0, 15.0, 60.0}) {
      std::vector<float> x = Numbers(n, size, n), y = Numbers(n, size, n + 1);
      if (n > 10) x[3] = -kInfinite, x[n - 1] = y[n - 1] = -kInfinite;  // impossible before
      const double max_x = *std::max_element(x.begin(), x.end()), max_y = *std::max_element(y.begin(), y.end());
      double sum_x = 0, sum_y = 0, product = 0, magnitude = 1;
      for (int i = 0; i < n; ++i) {
        const double b = x[i] - max_x, o = y[i] - max_y;
        if (b > -20) sum_x += std::exp(b), product += std::exp(b) * (b - o), magnitude = std::max(magnitude, std::fabs(b - o));
        if (o > -20) sum_y += std::exp(o);
      }
      const double expected = std::max(0.0, product / sum_x + std::log(sum_y) - std::log(sum_x));
      ASSERT_NEAR(Divergence(x.data(), y.data(), n, isa()), expected, 50 * kEps * magnitude) << n << " " << size;
    }
  }
}

// Wherever it is, a logit that is no number is not lost, nor one that was possible and is not any more.
TEST_P(ElementwiseTest, DivergenceOfDamagedLogitsIsNotFinite) {
  for (const int n : {1, 5, 16, 40}) {
    for (int at = 0; at < n; ++at) {
      std::vector<float> good(n, 1.0f), bad = good;
      bad[at] = std::nanf("");
      EXPECT_TRUE(std::isnan(Divergence(good.data(), bad.data(), n, isa()))) << n << " " << at;
      EXPECT_TRUE(std::isnan(Divergence(bad.data(), good.data(), n, isa()))) << n << " " << at;
      bad[at] = kInfinite;
      EXPECT_FALSE(std::isfinite(Divergence(good.data(), bad.data(), n, isa()))) << n << " " << at;
      bad[at] = -kInfinite;
      EXPECT_FALSE(std::isfinite(Divergence(good.data(), bad.data(), n, isa()))) << n << " " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ElementwiseTest, testing::ValuesIn(kElementwiseLines), KernelLineName);

}  // namespace
}  // namespace hone
