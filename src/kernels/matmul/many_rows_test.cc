// The path for many rows (BF16 tiles): every line of bf16_tiles.inc that this CPU has, for every type that takes it.
#include "kernels/matmul/many_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/dequantize/dequantize.h"
#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/ref.h"
#include "kernels/matmul/roof.h"
#include "kernels/matmul/test_weights.h"

namespace hone {
namespace {

// The bounds of docs/kernels-matmul.md: of one product, relative; of an output for Gaussian rows, rms over rms.
constexpr double kWorst = 0x1p-8 + 0.0052 + 0.0001, kRms = 0.0027;

struct ManyRowsCase {
  const Bf16Arithmetic* arithmetic;
  DType type;
};

std::vector<ManyRowsCase> AllCases() {
  std::vector<ManyRowsCase> cases;
  for (const Bf16Arithmetic& arithmetic : Bf16Arithmetics()) {
    for (const MatmulUnpack& unpack : MatmulUnpacks()) {
      if (unpack.isa == Isa::kScalar && unpack.type != DType::kF32) cases.push_back({&arithmetic, unpack.type});
    }
  }
  return cases;
}

std::string Name(const ManyRowsCase& c) {
  std::string name = std::string(IsaName(c.arithmetic->isa)) + "_" + std::string(Info(c.type).name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
std::string ManyRowsCaseName(const testing::TestParamInfo<ManyRowsCase>& info) { return Name(info.param); }
void PrintTo(const ManyRowsCase& c, std::ostream* out) { *out << Name(c); }

PackedMatrix Packed(const Tensor& weights, PackOptions options, int threads = 1) {
  ThreadPool pool(threads);
  auto packed = PackedMatrix::Pack(weights.view(), options, pool);
  EXPECT_TRUE(packed.has_value());
  return std::move(packed).value();
}

std::vector<float> ManyRowsProduct(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t m, int threads = 1,
                           const float* bias = nullptr, int64_t gap = 0) {
  ThreadPool pool(threads);
  MatmulScratch scratch(m, w.k());
  std::vector<float> y(m * (w.n() + gap), std::numeric_limits<float>::quiet_NaN());
  const MatmulJob job{&w, x, x_stride, y.data(), w.n() + gap, m, bias};
  Matmul({&job, 1}, scratch, pool);
  return y;
}

class ManyRowsTest : public testing::TestWithParam<ManyRowsCase> {
 protected:
  void SetUp() override {
    if (!ReadCpuFacts().Supports(GetParam().arithmetic->isa)) {
      GTEST_SKIP() << "this CPU lacks " << IsaName(GetParam().arithmetic->isa);
    }
  }
  DType type() const { return GetParam().type; }
  const PanelFormat& format() const { return *FindPanelFormat(type()); }
  PackedMatrix Pack(const Tensor& weights, int threads = 1) const {
    PackedMatrix packed = Packed(weights, {.isa = GetParam().arithmetic->isa}, threads);
    EXPECT_EQ(packed.many_rows(), GetParam().arithmetic);
    return packed;
  }
};

// Ragged M, N and K, with a bias and gaps between the rows of y, against double sums.
TEST_P(ManyRowsTest, StaysInItsBound) {
  Rng rng(11);
  const std::vector<int64_t> floats = {1, 2, 31, 33, 64, 127, 129, 511, 513, 700, 1100};
  const std::vector<int64_t> small = {32, 64, 96, 480, 512, 544, 1056}, large = {256, 512, 768, 1280};
  const std::vector<int64_t>& ks = format().is_float() ? floats : format().chunk == 256 ? large : small;
  const int64_t ms[] = {9, 15, 16, 17, 28, 29, 31, 32, 33, 36, 47, 48, 49, 63, 65, 80}, few = format().is_float() ? 0 : 4;
  for (const int64_t k : ks) {
    for (int round = 0; round < 2; ++round) {
      const int64_t m = ms[few + rng.Below(std::size(ms) - few)], n = 1 + rng.Below(80), stride = k + rng.Below(3), gap = rng.Below(3);
      SCOPED_TRACE(testing::Message() << "N " << n << " K " << k << " M " << m);
      const Tensor weights = RandomWeights(type(), n, k, rng.Next());
      const std::vector<float> x = RandomRows(m, stride, rng.Next());
      std::vector<float> bias(n);
      for (float& b : bias) b = RandomNormal(rng);
      const PackedMatrix packed = Pack(weights);
      const std::vector<float> y = ManyRowsProduct(packed, x.data(), stride, m, 2, bias.data(), gap);
      std::vector<double> want(m * n), magnitude(m * n);
      MatmulReference(weights.view(), x.data(), stride, m, bias.data(), want.data(), magnitude.data());
      for (int64_t i = 0; i < m * n; ++i) {
        ASSERT_NEAR(y[i / n * (n + gap) + i % n], want[i], kWorst * magnitude[i] + 1e-30) << "row " << i / n << " column " << i % n;
      }
      for (int64_t i = 0; i < m * gap; ++i) {
        ASSERT_TRUE(std::isnan(y[i / gap * (n + gap) + n + i % gap])) << "wrote past a row";
      }
    }
  }
}

TEST_P(ManyRowsTest, LosesLittleOnGaussianRows) {
  const int64_t k = 2048, n = 64, m = 32;
  const Tensor weights = RandomWeights(type(), n, k, 1);
  Rng rng(3);
  std::vector<float> x(m * k);
  for (float& v : x) v = RandomNormal(rng);
  const std::vector<float> y = ManyRowsProduct(Pack(weights), x.data(), k, m);
  std::vector<double> want(m * n);
  MatmulReference(weights.view(), x.data(), k, m, nullptr, want.data());
  double error2 = 0, want2 = 0, with = 0;
  for (int64_t i = 0; i < m * n; ++i) {
    error2 += std::pow(y[i] - want[i], 2), want2 += want[i] * want[i], with += y[i] * want[i];
  }
  RecordProperty("rms", std::to_string(std::sqrt(error2 / want2)));
  EXPECT_LT(std::sqrt(error2 / want2), kRms);
  EXPECT_NEAR(with / want2, 1.0, 0.0007) << "outputs are too large or too small on the whole";
}

// The bits of a row do not depend on its company, as long as it is many.
TEST_P(ManyRowsTest, BitsDependOnTheRowAlone) {
  const int64_t k = format().is_float() ? 700 : format().chunk == 256 ? 1280 : 1056, n = 330, m = 75;
  const Tensor weights = RandomWeights(type(), n, k, 1);
  const std::vector<float> x = RandomRows(m, k, 2);
  const PackedMatrix packed = Pack(weights, 3);
  const std::vector<float> all = ManyRowsProduct(packed, x.data(), k, m);
  for (const int threads : {2, 3, 5}) {
    const std::vector<float> other = ManyRowsProduct(packed, x.data(), k, m, threads);
    ASSERT_EQ(0, std::memcmp(all.data(), other.data(), all.size() * 4)) << threads << " threads";
  }
  for (const auto& [first, rows] : {std::pair{0, 28}, {46, 29}, {5, 32}, {11, 33}, {20, 47}, {3, 64}, {1, 74}}) {
    const std::vector<float> part = ManyRowsProduct(packed, x.data() + first * k, k, rows, 2);
    ASSERT_EQ(0, std::memcmp(all.data() + first * n, part.data(), part.size() * 4)) << first << " + " << rows;
  }
}

TEST_P(ManyRowsTest, SurvivesStrangeInputs) {
  const int64_t k = std::max<int64_t>(format().chunk * 2, 64), n = 20, m = 25;
  const PackedMatrix packed = Pack(RandomWeights(type(), n, k, 1));
  std::vector<float> x = RandomRows(m, k, 2);
  const std::vector<float> before = ManyRowsProduct(packed, x.data(), k, m);
  x[0 * k + 3] = std::numeric_limits<float>::quiet_NaN();
  x[17 * k + k - 1] = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < k; ++i) x[2 * k + i] = 0, x[3 * k + i] = 1e-42f * static_cast<float>(i % 5);
  const std::vector<float> y = ManyRowsProduct(packed, x.data(), k, m);
  for (int64_t row = 0; row < m; ++row) {
    for (int64_t i = row * n; i < (row + 1) * n; ++i) {
      if (row == 0) {
        ASSERT_TRUE(std::isnan(y[i]));
      } else if (row == 17) {
        ASSERT_FALSE(std::isfinite(y[i]));
      } else if (row == 2) {
        ASSERT_EQ(y[i], 0.0f);
      } else if (row == 3) {
        ASSERT_LT(std::fabs(y[i]), 1e-30f);
      } else {
        ASSERT_EQ(y[i], before[i]) << "a NaN reached row " << row;
      }
    }
  }
}

// Each weight alone: x is a unit vector, so an output is one BF16.
TEST_P(ManyRowsTest, EachWeightIsNearWhatWasStored) {
  const int64_t k = 256, n = 32;
  const Tensor weights = RandomWeights(type(), n, k, 21);
  std::vector<float> x(k * k);
  for (int64_t i = 0; i < k; ++i) x[i * k + i] = 1;
  const std::vector<float> y = ManyRowsProduct(Pack(weights), x.data(), k, k);
  std::vector<float> want(k);
  for (int64_t row = 0; row < n; ++row) {
    DequantizeRow(type(), weights.view().data + row * weights.view().row_bytes(), k, want.data());
    float largest = 0;
    for (const float w : want) largest = std::max(largest, std::fabs(w));
    for (int64_t i = 0; i < k; ++i) {
      const float got = y[i * n + row];
      ASSERT_EQ(std::bit_cast<uint32_t>(got) & 0xffff, 0u) << "not a BF16";
      if (type() == DType::kBF16) {
        ASSERT_EQ(got, want[i]);
      }
      ASSERT_NEAR(got, want[i], 0.0052 * std::fabs(want[i]) + 1e-4 * largest) << "row " << row << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, ManyRowsTest, testing::ValuesIn(AllCases()), ManyRowsCaseName);

// More rows than a block and more tiles than a pass, so that sums go through memory and blocks begin anew.
TEST(ManyRows, MoreThanABlock) {
  const Isa isa = ReadCpuFacts().best_isa();
  for (const DType type : {DType::kQ4_K, DType::kBF16}) {
    const int64_t k = 1280, n = 300, m = 1100;
    const std::vector<float> x = RandomRows(m, k, 2);
    const PackedMatrix packed = Packed(RandomWeights(type, n, k, 1), {.isa = isa});
    const std::vector<float> all = ManyRowsProduct(packed, x.data(), k, m, 2);
    for (const int64_t row : {0, 500, 511, 512, 1023, 1072}) {
      const std::vector<float> few = ManyRowsProduct(packed, x.data() + row * k, k, kRowsInParts + 1);
      ASSERT_EQ(0, std::memcmp(all.data() + row * n, few.data(), few.size() * 4)) << row;
    }
  }
}

// Experts: dozens of products in one call, of one row to dozens, some on either path, spread over the threads.
TEST(ManyRows, ManyJobsOfBothPaths) {
  const Isa isa = ReadCpuFacts().best_isa();
  constexpr int kJobs = 40;
  const int64_t k = 768;
  ThreadPool pool(3);
  std::vector<PackedMatrix> weights;
  std::vector<std::vector<float>> xs, ys, want;
  std::vector<MatmulJob> jobs;
  for (int i = 0; i < kJobs; ++i) {
    const DType type = i % 3 == 0 ? DType::kQ6_K : i % 3 == 1 ? DType::kQ4_0 : DType::kF32;
    const int64_t m = 1 + i * 7 % 40, n = 16 + i;
    weights.push_back(Packed(RandomWeights(type, n, k, i), {.isa = isa}));
    xs.push_back(RandomRows(m, k, 100 + i));
    ys.emplace_back(m * n);
    want.push_back(ManyRowsProduct(weights.back(), xs.back().data(), k, m));
  }
  for (int i = 0; i < kJobs; ++i) jobs.push_back({&weights[i], xs[i].data(), k, ys[i].data(), 16 + i, 1 + i * 7 % 40});
  MatmulScratch scratch(8, k);  // too small on purpose: it grows
  for (int round = 0; round < 2; ++round) {
    Matmul(jobs, scratch, pool);
    for (int i = 0; i < kJobs; ++i) ASSERT_EQ(ys[i], want[i]) << i;
  }
}

// Tiles are configured by each call on each of its threads, whatever ran there before.
TEST(ManyRows, TilesAreConfiguredAnew) {
  const Isa isa = ReadCpuFacts().best_isa();
  if (isa < Isa::kAmx) GTEST_SKIP() << "this CPU lacks AMX";
  const int64_t k = 512, n = 200, m = 70;
  const std::vector<float> x = RandomRows(m, k, 2);
  const PackedMatrix packed = Packed(RandomWeights(DType::kQ8_0, n, k, 1), {.isa = isa});
  const std::vector<float> want = ManyRowsProduct(packed, x.data(), k, m);
  ThreadPool pool(4);
  MatmulScratch scratch(m, k);
  for (int round = 0; round < 3; ++round) {
    ComputeRoof(ComputeUnit::kAmxInt8, pool);  // its own configuration, then none
    std::vector<float> y(m * n);
    const MatmulJob job{&packed, x.data(), k, y.data(), n, m};
    Matmul({&job, 1}, scratch, pool);
    ASSERT_EQ(y, want);
  }
}

TEST(ManyRows, WhoTakesThePath) {
  const Isa best = ReadCpuFacts().best_isa();
  const Tensor q4 = RandomWeights(DType::kQ4_0, 40, 64, 1), f32 = RandomWeights(DType::kF32, 40, 64, 1);
  EXPECT_EQ(Packed(q4, {.isa = std::min(best, Isa::kVnni)}).many_rows(), nullptr);
  EXPECT_EQ(Packed(q4, {.isa = best, .exact = true}).many_rows(), nullptr);
  EXPECT_EQ(Packed(q4, {.isa = best, .deterministic = true}).many_rows(), nullptr);
  EXPECT_EQ(Packed(f32, {.isa = best}).many_rows(), nullptr);
  EXPECT_EQ(Packed(q4, {.isa = best}).many_rows() != nullptr, best >= Isa::kBf16);
  // Deterministic: one row and many give the same bits.
  const std::vector<float> x = RandomRows(50, 64, 2);
  const PackedMatrix packed = Packed(q4, {.isa = best, .deterministic = true});
  const std::vector<float> all = ManyRowsProduct(packed, x.data(), 64, 50, 2);
  for (const int row : {0, 31, 49}) {
    const std::vector<float> alone = ManyRowsProduct(packed, x.data() + row * 64, 64, 1);
    EXPECT_EQ(0, std::memcmp(all.data() + row * 40, alone.data(), 160));
  }
}

}  // namespace
}  // namespace hone
