// Against sums in double of the rounded numbers; sizes that no panel and no tile divides; rows by themselves give the same bits.
#include "kernels/dense/second_moments.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/cpu.h"
#include "base/random.h"
#include "tensor/float16.h"

namespace hone {
namespace {

TEST(SecondMomentsBf16, SameAsPlainLoops) {
  const CpuFacts cpu = ReadCpuFacts();
  if (!cpu.Supports(Isa::kBf16)) GTEST_SKIP() << "this CPU lacks AVX-512 BF16, or a fast one";
  Rng rng(3);
  for (const auto& [columns, tokens] : {std::pair<int64_t, int64_t>{1, 2}, {16, 6}, {37, 300}, {64, 258}, {130, 1026}, {200, 50}}) {
    const int64_t panels = (columns + 15) / 16, pairs = tokens / 2, stride = 16 * (pairs + 3);
    std::vector<float> x(static_cast<size_t>(tokens * columns));
    for (float& v : x) v = static_cast<float>(rng.Uniform() - 0.3) * 3;
    std::vector<uint32_t> words(static_cast<size_t>(panels * stride), 0x7fc07fc0u);  // NaN where nothing is written
    for (int64_t t = 0; t < pairs; ++t)
      PairRowsBf16(&x[2 * t * columns], &x[(2 * t + 1) * columns], columns, words.data() + 16 * t, stride);
    for (float& v : x) v = Bf16ToF32(F32ToBf16(v));
    std::vector<float> h(static_cast<size_t>(columns * columns), 2.0f), parts = h;
    const SecondMomentsArgs args{words.data(), pairs, stride, columns, h.data()};
    AddSecondMomentsBf16(args, 0, columns);
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        double sum = 0, size = 2;
        for (int64_t t = 0; t < tokens; ++t) {
          const double product = double{x[t * columns + i]} * double{x[t * columns + j]};
          sum += product, size += std::fabs(product);
        }
        // Every addition rounds once, of at most `size`.
        ASSERT_NEAR(h[i * columns + j], 2 + sum, static_cast<double>(tokens + 1) * 0x1.0p-24 * size) << columns << " " << i << " " << j;
      }
    }
    SecondMomentsArgs apart = args;
    apart.h = parts.data();
    for (int64_t first = 0; first < columns; first += 16) AddSecondMomentsBf16(apart, first, std::min(first + 16, columns));
    for (int64_t i = 0; i < columns; ++i) {
      for (int64_t j = 0; j <= i; ++j) ASSERT_EQ(h[i * columns + j], parts[i * columns + j]);
    }
  }
}

TEST(SecondMomentsBf16, NotANumberStaysOne) {
  const CpuFacts cpu = ReadCpuFacts();
  if (!cpu.Supports(Isa::kBf16)) GTEST_SKIP() << "this CPU lacks AVX-512 BF16, or a fast one";
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(2 * 20, 1.0f), h(20 * 20);
    x[20 + 17] = bad;
    std::vector<uint32_t> words(2 * 16);
    PairRowsBf16(&x[0], &x[20], 20, words.data(), 16);
    AddSecondMomentsBf16({words.data(), 1, 16, 20, h.data()}, 0, 20);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(std::isfinite(h[i * 20 + i]), i != 17) << bad << " " << i;
  }
}

}  // namespace
}  // namespace hone
