// RMSNorm of every listed kernel against its formula in long double.
#include "kernels/norm/norm.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "kernels/kernel_lines_test.h"

namespace hone {
namespace {

const KernelLine kNormLines[] = {
#define HONE_NORM_KERNEL(name, level) {#name, Isa::level},
#include "kernels/norm/kernels.inc"
#undef HONE_NORM_KERNEL
};

class NormTest : public KernelLineTest {};

std::vector<float> RowsOfNumbers(size_t n, double size, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> numbers(n);
  for (float& x : numbers) x = static_cast<float>((rng.Uniform() * 2 - 1) * size);
  return numbers;
}

// A sum of n squares in F32, 4 x 8 at least in parallel, is off by (n / 32 + 8) eps, its root by half; three roundings follow.
TEST_P(NormTest, EqualsTheFormula) {
  for (const int64_t width : {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 576, 1000, 2048, 4097}) {
    for (const double size : {1.0, 1e-4, 1e6}) {
      for (const bool weighted : {true, false}) {
        const int64_t rows = 3, stride = width + 5;
        const std::vector<float> x = RowsOfNumbers(rows * stride, size, width), w = RowsOfNumbers(width, 2, width + 1);
        std::vector<float> y(rows * stride, -7);
        const float eps = 1e-5f;
        RmsNorm({x.data(), stride, y.data(), stride, weighted ? w.data() : nullptr, eps, rows, width}, isa());
        const double tolerance = (static_cast<double>(width) / 64 + 8) * 0x1.0p-24;
        for (int64_t i = 0; i < rows; ++i) {
          long double sum = 0;
          for (int64_t j = 0; j < width; ++j) sum += static_cast<long double>(x[i * stride + j]) * x[i * stride + j];
          const long double factor = 1 / std::sqrt(sum / width + eps);
          for (int64_t j = 0; j < width; ++j) {
            const long double expected = x[i * stride + j] * factor * (weighted ? w[j] : 1.0f);
            ASSERT_LE(std::fabs(y[i * stride + j] - expected), tolerance * std::fabs(expected))
                << "width " << width << " row " << i << " element " << j;
          }
          for (int64_t j = width; j < stride; ++j) ASSERT_EQ(y[i * stride + j], -7) << "beyond the row";
        }
      }
    }
  }
}

TEST_P(NormTest, RowsAloneInPlaceGiveTheSameBits) {
  for (const int64_t width : {5, 24, 576, 1001}) {
    const int64_t rows = 9;
    const std::vector<float> x = RowsOfNumbers(rows * width, 3, width), w = RowsOfNumbers(width, 2, 1);
    std::vector<float> together(rows * width), alone = x;
    RmsNorm({x.data(), width, together.data(), width, w.data(), 1e-6f, rows, width}, isa());
    for (int64_t i = 0; i < rows; ++i) {
      float* row = alone.data() + i * width;
      RmsNorm({row, width, row, width, w.data(), 1e-6f, 1, width}, isa());
    }
    EXPECT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0);
  }
}

TEST_P(NormTest, ZerosStayZerosAndNansSpreadOverTheirRowOnly) {
  std::vector<float> x(3 * 40, 0.0f);
  x[45] = std::nanf("");
  RmsNorm({x.data(), 40, x.data(), 40, nullptr, 1e-6f, 3, 40}, isa());
  for (int i = 0; i < 120; ++i) {
    if (i / 40 == 1) EXPECT_TRUE(std::isnan(x[i])); else EXPECT_EQ(x[i], 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, NormTest, testing::ValuesIn(kNormLines), KernelLineName);

}  // namespace
}  // namespace hone
