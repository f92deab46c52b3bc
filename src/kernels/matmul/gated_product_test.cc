// The feed-forward product in one pass against three jobs of Matmul: the same bits.
#include "kernels/matmul/gated_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/many_rows.h"
#include "kernels/matmul/test_weights.h"

namespace hone {
namespace {

struct Weights {
  PackedMatrix gate, up, down;
};

Weights PackAll(DType type, int64_t k, int64_t f, int64_t n, const PackOptions& options, ThreadPool& threads) {
  const auto pack = [&](int64_t rows, int64_t columns, uint64_t seed) {
    const Tensor weights = RandomWeights(type, rows, columns, seed);
    auto packed = PackedMatrix::Pack(weights.view(), options, threads);
    EXPECT_TRUE(packed.has_value());
    return std::move(packed).value();
  };
  return {pack(f, k, 1), pack(f, k, 2), pack(n, f, 3)};
}

void Activate(float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) gate[i] = std::max(gate[i], 0.0f) * up[i];
}

bool Gated(const Weights& w, const std::vector<float>& x, int64_t m, std::vector<float>& y, ThreadPool& threads) {
  GatedProduct product(m, w.gate.k(), w.gate.n());
  const auto relu = [](float* gate, const float* up, int64_t n) { Activate(gate, up, n); };
  const FunctionRef<void(float*, const float*, int64_t)> activate = relu;
  y.assign(m * w.down.n(), std::numeric_limits<float>::quiet_NaN());
  return product.Run({.gate = &w.gate,
                      .up = &w.up,
                      .down = &w.down,
                      .x = x.data(),
                      .x_stride = w.gate.k(),
                      .y = y.data(),
                      .y_stride = w.down.n(),
                      .m = m,
                      .activate = &activate},
                     threads);
}

std::vector<float> OneByOne(const Weights& w, const std::vector<float>& x, int64_t m, ThreadPool& threads) {
  const int64_t f = w.gate.n(), n = w.down.n(), k = w.gate.k();
  MatmulScratch scratch(m, std::max(k, f));
  std::vector<float> gate(m * f), up(m * f), y(m * n);
  const MatmulJob first[] = {{&w.gate, x.data(), k, gate.data(), f, m}, {&w.up, x.data(), k, up.data(), f, m}};
  Matmul(first, scratch, threads);
  Activate(gate.data(), up.data(), m * f);
  const MatmulJob last{&w.down, gate.data(), f, y.data(), n, m};
  Matmul({&last, 1}, scratch, threads);
  return y;
}

class GatedProductTest : public testing::TestWithParam<DType> {};

TEST_P(GatedProductTest, HasTheBitsOfThreeProducts) {
  const Isa isa = ReadCpuFacts().best_isa();
  if (FindBf16Arithmetic(GetParam(), isa) == nullptr) GTEST_SKIP() << "no tiles here";
  struct Shape {
    int64_t m, k, f, n;
  };
  // Rows past a block of 512, F of more tiles than a unit and less than a stretch, ragged N.
  for (const auto& [m, k, f, n] : {Shape{kRowsInParts + 1, 256, 256, 33}, Shape{77, 512, 768, 96}, Shape{545, 256, 1280, 17}}) {
    SCOPED_TRACE(testing::Message() << m << " rows, K " << k << ", F " << f << ", N " << n);
    for (const int count : {1, 3}) {
      ThreadPool threads(count);
      const Weights w = PackAll(GetParam(), k, f, n, {.isa = isa}, threads);
      const std::vector<float> x = RandomRows(m, k, 5), want = OneByOne(w, x, m, threads);
      std::vector<float> y;
      ASSERT_TRUE(Gated(w, x, m, y, threads));
      EXPECT_EQ(std::memcmp(y.data(), want.data(), sizeof(float) * y.size()), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GatedProductTest, testing::Values(DType::kQ4_0, DType::kQ4_K, DType::kQ6_K, DType::kBF16, DType::kF16),
                         [](const testing::TestParamInfo<DType>& type) { return std::string(Info(type.param).name); });

TEST(GatedProduct, LeavesToOthersWhatTilesDoNotTake) {
  const Isa isa = ReadCpuFacts().best_isa();
  ThreadPool threads(1);
  std::vector<float> y;
  const std::vector<float> x = RandomRows(64, 256, 5);
  EXPECT_FALSE(Gated(PackAll(DType::kQ4_0, 256, 256, 32, {.isa = isa}, threads), x, 5, y, threads)) << "few rows";
  EXPECT_FALSE(Gated(PackAll(DType::kF32, 256, 256, 32, {.isa = isa}, threads), x, 64, y, threads)) << "F32";
  EXPECT_FALSE(Gated(PackAll(DType::kQ4_0, 256, 256, 32, {.isa = isa, .exact = true}, threads), x, 64, y, threads)) << "exact";
  EXPECT_FALSE(Gated(PackAll(DType::kBF16, 256, 272, 32, {.isa = isa}, threads), x, 64, y, threads)) << "F no multiple of 32";
  for (const float v : y) ASSERT_TRUE(std::isnan(v)) << "was touched";
}

}  // namespace
}  // namespace hone
