// Rotary embedding of every listed kernel against its formula in double, both orders, partial widths.
#include "kernels/rope/rope.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "kernels/kernel_lines_test.h"

namespace hone {
namespace {

const KernelLine kRopeLines[] = {
#define HONE_ROPE_KERNEL(name, level) {#name, Isa::level},
#include "kernels/rope/kernels.inc"
#undef HONE_ROPE_KERNEL
};

class RopeTest : public KernelLineTest {};

struct Tables {
  std::vector<float> cos, sin;
  Tables(int length, int pairs) : cos(size_t(length) * pairs), sin(cos.size()) {
    for (int p = 0; p < length; ++p) {
      for (int j = 0; j < pairs; ++j) {
        const double angle = p * std::pow(10000.0, -static_cast<double>(j) / pairs);
        cos[size_t(p) * pairs + j] = static_cast<float>(std::cos(angle));
        sin[size_t(p) * pairs + j] = static_cast<float>(std::sin(angle));
      }
    }
  }
};

// A rotated number is off by two roundings of its two products.
TEST_P(RopeTest, EqualsTheFormulaAndLeavesTheRest) {
  Rng rng(3);
  const struct { int width, rotary; } shapes[] = {{64, 64}, {128, 128}, {80, 32}, {96, 96}, {8, 8},   {12, 12}, {20, 20},
                                                  {20, 6},  {16, 2},    {64, 0},  {34, 34}, {256, 64}, {7, 6}};
  for (const auto& [width, rotary] : shapes) {
    for (const RopeOrder order : {RopeOrder::kHalf, RopeOrder::kInterleaved}) {
      const int heads = 3, rows = 4, pairs = rotary / 2, stride = heads * width + 3;
      const Tables tables(50, pairs);
      const int32_t positions[] = {0, 7, 49, 7};
      std::vector<float> x(size_t(rows) * stride);
      for (float& v : x) v = static_cast<float>(rng.Uniform() * 4 - 2);
      const std::vector<float> before = x;
      Rope({x.data(), stride, rows, heads, width, rotary, order, positions, tables.cos.data(), tables.sin.data()}, isa());
      std::vector<bool> rotated(x.size());
      for (int i = 0; i < rows; ++i) {
        for (int h = 0; h < heads; ++h) {
          for (int j = 0; j < pairs; ++j) {
            const size_t head = size_t(i) * stride + size_t(h) * width;
            const size_t a = head + (order == RopeOrder::kHalf ? j : 2 * j);
            const size_t b = head + (order == RopeOrder::kHalf ? j + pairs : 2 * j + 1);
            const double c = tables.cos[size_t(positions[i]) * pairs + j], s = tables.sin[size_t(positions[i]) * pairs + j];
            const double size = std::fabs(before[a]) + std::fabs(before[b]), tolerance = 2 * 0x1.0p-24 * size;
            ASSERT_NEAR(x[a], before[a] * c - before[b] * s, tolerance) << width << " " << rotary << " pair " << j;
            ASSERT_NEAR(x[b], before[b] * c + before[a] * s, tolerance) << width << " " << rotary << " pair " << j;
            rotated[a] = rotated[b] = true;
          }
        }
      }
      for (size_t i = 0; i < x.size(); ++i) ASSERT_TRUE(rotated[i] || x[i] == before[i]) << i;
    }
  }
}

TEST_P(RopeTest, RowsAloneGiveTheSameBits) {
  for (const RopeOrder order : {RopeOrder::kHalf, RopeOrder::kInterleaved}) {
    const int heads = 2, width = 20, rows = 7;
    const Tables tables(30, 10);
    const int32_t positions[] = {3, 29, 0, 14, 5, 6, 7};
    Rng rng(5);
    std::vector<float> together(rows * heads * width);
    for (float& v : together) v = static_cast<float>(rng.Uniform());
    std::vector<float> alone = together;
    Rope({together.data(), heads * width, rows, heads, width, width, order, positions, tables.cos.data(), tables.sin.data()},
         isa());
    for (int i = 0; i < rows; ++i) {
      for (int h = 0; h < heads; ++h) {
        Rope({alone.data() + (i * heads + h) * width, width, 1, 1, width, width, order, positions + i, tables.cos.data(),
              tables.sin.data()}, isa());
      }
    }
    EXPECT_EQ(std::memcmp(together.data(), alone.data(), together.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RopeTest, testing::ValuesIn(kRopeLines), KernelLineName);

}  // namespace
}  // namespace hone
