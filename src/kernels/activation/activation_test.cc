// Gated activations of every listed kernel against their formulas in long double, from subnormal numbers to infinities.
#include "kernels/activation/activation.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"
#include "kernels/kernel_lines_test.h"

namespace hone {
namespace {

const KernelLine kActivationLines[] = {
#define HONE_ACTIVATION_KERNEL(name, level) {#name, Isa::level},
#include "kernels/activation/kernels.inc"
#undef HONE_ACTIVATION_KERNEL
};

class ActivationTest : public KernelLineTest {};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr Activation kAll[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf};

// x times a sigmoid or a normal distribution, and how far its exponent's argument reaches: a relative error of the argument
// by eps becomes one of eps * |argument| in the result's tail.
struct Exact {
  long double value, argument;
};

Exact Formula(Activation activation, long double x) {
  const long double root = std::sqrt(2 / std::acos(-1.0L));
  switch (activation) {
    case Activation::kSilu: return {x / (1 + std::exp(-x)), x};
    case Activation::kGeluTanh: {
      const long double u = root * (x + 0.044715L * x * x * x);
      return {x / (1 + std::exp(-2 * u)), 2 * u};
    }
    default: return {0.5L * x * std::erfc(-x / std::sqrt(2.0L)), 0};
  }
}

std::vector<float> Inputs() {
  std::vector<float> inputs = {0.0f, -0.0f, 1e-45f, -1e-45f, 1e-40f, -1e-39f, 1.2e-38f, 1e-20f, -1e-10f, 88.7f, -88.7f,
                               100, -100, 103.9f, -103.9f, -104.5f, -120, 200, -200, 1000, -1000, 1e10f, -1e10f, 3e38f, -3e38f};
  for (double x = -110; x <= 110; x += 0.0173) inputs.push_back(static_cast<float>(x));
  for (double x = -8; x <= 8; x += 0.00071) inputs.push_back(static_cast<float>(x));
  return inputs;
}

TEST_P(ActivationTest, EqualsTheFormula) {
  const std::vector<float> gate = Inputs();
  const std::vector<float> up(gate.size(), 1.0f);
  std::vector<float> y(gate.size());
  for (const Activation activation : kAll) {
    GatedActivation(activation, gate.data(), up.data(), y.data(), gate.size(), isa());
    for (size_t i = 0; i < gate.size(); ++i) {
      const Exact exact = Formula(activation, gate[i]);
      const long double value = std::fabs(exact.value) < 1e-46L ? 0 : exact.value;
      // 12 roundings; those of the argument count |argument| times while the tail is above the smallest normal number. A
      // factor below it has an absolute error of its last place, which |x| <= 200 multiplies.
      const long double reach = std::fmin(std::fabs(exact.argument), 104.0L);
      const long double tolerance = std::fabs(value) * (12 + 3 * (gate[i] < 0 ? reach : 0)) * 0x1.0p-24L + 201 * 0x1.0p-149L;
      ASSERT_LE(std::fabs(y[i] - value), tolerance) << "x " << gate[i] << " activation " << static_cast<int>(activation);
    }
  }
}

TEST_P(ActivationTest, InfinitiesAndNan) {
  for (const Activation activation : kAll) {
    const float gate[] = {kInf, -kInf, std::nanf(""), 3e38f};
    const float up[] = {2, 2, 2, 0.5f};
    float y[4];
    GatedActivation(activation, gate, up, y, 4, isa());
    EXPECT_EQ(y[0], kInf);
    EXPECT_EQ(y[1], 0);
    EXPECT_TRUE(std::isnan(y[2]));
    EXPECT_EQ(y[3], 1.5e38f);
  }
}

TEST_P(ActivationTest, AnyLengthInPlaceTimesUp) {
  Rng rng(4);
  for (const Activation activation : kAll) {
    for (int n = 0; n < 70; ++n) {
      std::vector<float> gate(n + 1), up(n + 1), y(n + 1, -5);
      for (int i = 0; i <= n; ++i) gate[i] = static_cast<float>(rng.Uniform() * 8 - 4), up[i] = static_cast<float>(rng.Uniform());
      GatedActivation(activation, gate.data(), up.data(), y.data(), n, isa());
      EXPECT_EQ(y[n], -5);
      for (int i = 0; i < n; ++i) {
        float one;
        GatedActivation(activation, &gate[i], &up[i], &one, 1, isa());
        ASSERT_EQ(std::memcmp(&one, &y[i], 4), 0) << "the place of an element does not matter";
        ASSERT_NEAR(y[i], static_cast<double>(Formula(activation, gate[i]).value) * up[i], 4e-6);
      }
      std::vector<float> in_place = gate;
      GatedActivation(activation, in_place.data(), up.data(), in_place.data(), n, isa());
      EXPECT_EQ(std::memcmp(in_place.data(), y.data(), n * sizeof(float)), 0);
      in_place = up;
      GatedActivation(activation, gate.data(), in_place.data(), in_place.data(), n, isa());
      EXPECT_EQ(std::memcmp(in_place.data(), y.data(), n * sizeof(float)), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ActivationTest, testing::ValuesIn(kActivationLines), KernelLineName);

}  // namespace
}  // namespace hone
