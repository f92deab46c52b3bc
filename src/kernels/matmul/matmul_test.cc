// Every kernel of kernels.inc that this CPU has, against ref.cc and against itself in other company.
#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/digest.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/ref.h"
#include "kernels/matmul/test_weights.h"

namespace hone {
namespace {

constexpr double kUlp = 0x1.0p-24;  // half an ulp of 1: the error of one float operation, relative

bool CpuHas(Isa isa) {
  static const CpuFacts facts = ReadCpuFacts();
  return facts.Supports(isa);
}

// One product with its own scratch and threads; dense y.
std::vector<float> Product(const PackedMatrix& w, const float* x, int64_t x_stride, int64_t m, int threads = 1,
                           const float* bias = nullptr) {
  ThreadPool pool(threads);
  MatmulScratch scratch(m, w.k());
  std::vector<float> y(m * w.n(), std::numeric_limits<float>::quiet_NaN());
  const MatmulJob job{&w, x, x_stride, y.data(), w.n(), m, bias};
  Matmul({&job, 1}, scratch, pool);
  return y;
}

PackedMatrix Packed(const Tensor& weights, Isa isa, bool exact, int threads = 1, int terms = 1) {
  ThreadPool pool(threads);
  auto packed = PackedMatrix::Pack(weights.view(), {.isa = isa, .exact = exact, .input_terms = terms}, pool);
  EXPECT_TRUE(packed.has_value());
  return std::move(packed).value();
}

// A row rounded by `round`, to one term or two.
struct Rounded {
  std::vector<int8_t> codes, second;
  std::vector<float> scales;
  std::vector<int32_t> sums, second_sums;
  std::vector<uint8_t> wide;
  bool operator==(const Rounded&) const = default;
};
Rounded RoundedBy(RoundRowFn round, const float* x, int64_t k, int terms, bool skips = false) {
  Rounded r{std::vector<int8_t>(k), std::vector<int8_t>(k), std::vector<float>(k / 32), std::vector<int32_t>(k / 16),
            std::vector<int32_t>(k / 16), std::vector<uint8_t>(k / 32)};
  round(x, k, {r.codes.data(), r.scales.data(), r.sums.data(), terms == 2 ? r.second.data() : nullptr, r.second_sums.data(),
               skips ? r.wide.data() : nullptr});
  return r;
}

// What the int8 path multiplies: x rounded to codes, as floats.
std::vector<float> RoundedRows(const std::vector<float>& x, int64_t stride, int64_t m, int64_t k, int terms, bool skips) {
  std::vector<float> out(m * k);
  for (int64_t row = 0; row < m; ++row) {
    const Rounded r = RoundedBy(RoundRowScalar, x.data() + row * stride, k, terms, terms == 2 && skips);
    for (int64_t i = 0; i < k; ++i) {
      const int code = terms == 2 ? kDigits * r.codes[i] + r.second[i] : r.codes[i];
      out[row * k + i] = static_cast<float>(code) * r.scales[i / 32];
    }
  }
  return out;
}

// Largest weight of a panel format's terms: |scale| * code + |min| instead of |weight|, since those are what cancels.
double TermsOverWeights(const PanelFormat& format) { return format.has_min ? 4.0 * (1 << format.bits) : 1.0; }

// Every (arithmetic, type, exact) of the list; the name says which one failed.
struct KernelCase {
  Isa isa;
  DType type;
  bool exact;
};

std::vector<KernelCase> AllKernels() {
  std::vector<KernelCase> cases;
  for (const MatmulArithmetic& arithmetic : MatmulArithmetics()) {
    for (const MatmulUnpack& unpack : MatmulUnpacks()) {
      if (unpack.isa != Isa::kScalar) continue;
      cases.push_back({arithmetic.isa, unpack.type, false});
      if (unpack.codes != nullptr) cases.push_back({arithmetic.isa, unpack.type, true});
    }
  }
  return cases;
}

std::string Name(const KernelCase& kernel) {
  std::string name(IsaName(kernel.isa));
  for (char& c : name) c = c == '-' ? '_' : c;
  return name + "_" + std::string(Info(kernel.type).name) + (kernel.exact ? "_exact" : "");
}
std::string CaseName(const testing::TestParamInfo<KernelCase>& info) { return Name(info.param); }
void PrintTo(const KernelCase& kernel, std::ostream* out) { *out << Name(kernel); }

class MatmulKernelTest : public testing::TestWithParam<KernelCase> {
 protected:
  void SetUp() override {
    if (!CpuHas(GetParam().isa)) GTEST_SKIP() << "this CPU lacks " << IsaName(GetParam().isa);
  }
  const MatmulKernel& kernel() const { return FindMatmulKernel(GetParam().type, GetParam().isa, GetParam().exact); }
  int64_t chunk() const { return kernel().format->chunk; }
  PackedMatrix Pack(const Tensor& weights, int threads = 1, int terms = 1) const {
    return Packed(weights, GetParam().isa, GetParam().exact, threads, terms);
  }
  // K = 1..5 blocks and longer than several stretches; any K for floats.
  std::vector<int64_t> SizesOfK() const {
    if (kernel().format->is_float()) return {1, 2, 31, 127, 128, 129, 300, 1000};
    if (chunk() == 256) return {256, 512, 768, 1280, 2304};
    return {32, 64, 96, 160, 512, 544, 1632};
  }
};

// Against double sums over what the kernel multiplies (rounded rows for int8): only float rounding may differ.
TEST_P(MatmulKernelTest, AgreesWithTheReference) {
  Rng rng(7);
  const int64_t ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 20};
  for (const int64_t k : SizesOfK()) {
    for (int64_t n = 1; n <= 40; n += 1 + rng.Below(9)) {
      const int64_t m = ms[rng.Below(std::size(ms))], stride = k + rng.Below(3);
      SCOPED_TRACE(testing::Message() << "N " << n << " K " << k << " M " << m);
      const Tensor weights = RandomWeights(GetParam().type, n, k, rng.Next());
      const std::vector<float> x = RandomRows(m, stride, rng.Next());
      std::vector<float> bias(n);
      for (float& b : bias) b = RandomNormal(rng);
      const int terms_of_x = 1 + static_cast<int>(rng.Below(2));
      const PackedMatrix packed = Pack(weights, 1, terms_of_x);
      ASSERT_EQ(packed.kernel().exact, GetParam().exact);
      const std::vector<float> y = Product(packed, x.data(), stride, m, 1, bias.data());

      const bool rounded = packed.kernel().uses_codes();
      const std::vector<float> same = rounded ? RoundedRows(x, stride, m, k, terms_of_x, packed.kernel().skips_terms()) : x;
      std::vector<double> want(m * n), magnitude(m * n);
      MatmulReference(weights.view(), same.data(), rounded ? k : stride, m, bias.data(), want.data(), magnitude.data());
      // Float operations on the way of one term: two products and two sums a group, or a chain of 64 and its sum.
      const double steps = rounded ? 4.0 * k / packed.kernel().format->group + 4 : kFloatChain + k / kFloatChain + 6;
      const double terms = TermsOverWeights(*packed.kernel().format);
      for (int64_t i = 0; i < m * n; ++i) {
        ASSERT_NEAR(y[i], want[i], steps * kUlp * terms * magnitude[i]) << "at " << i;
      }
    }
  }
}

// The extreme codes all at once, times the extreme inputs: where 16-bit sums would saturate.
TEST_P(MatmulKernelTest, ExtremeCodesStayExact) {
  if (kernel().format->is_float()) return;
  const int64_t k = std::max<int64_t>(chunk(), 64), n = 32, m = 3;
  std::vector<float> x(m * k);
  for (int64_t i = 0; i < k; ++i) x[i] = 2, x[k + i] = -2, x[2 * k + i] = i % 2 == 0 ? 2 : -2;
  for (const int fill : {0x00, 0x7f, 0x80, 0xff}) {
    for (const int terms : {1, 2}) {
      Tensor weights = RandomWeights(GetParam().type, n, k, 1);
      FillCodes(weights, fill);
      const PackedMatrix packed = Pack(weights, 1, terms);
      const std::vector<float> y = Product(packed, x.data(), k, m);
      std::vector<double> want(m * n), magnitude(m * n);
      MatmulReference(weights.view(), x.data(), k, m, nullptr, want.data(), magnitude.data());
      for (int64_t i = 0; i < m * n; ++i) {
        ASSERT_NEAR(y[i], want[i], 1e-5 * TermsOverWeights(*packed.kernel().format) * magnitude[i])
            << "fill " << fill << ", " << terms << " terms, at " << i;
      }
    }
  }
}

// The bits of a row do not depend on its company: alone, in any batch, on any number of threads, beside other jobs.
TEST_P(MatmulKernelTest, BitsDependOnTheRowAlone) {
  const int64_t k = kernel().format->is_float() ? 333 : chunk() == 256 ? 1280 : 1056, n = 200, m = 37;
  const Tensor weights = RandomWeights(GetParam().type, n, k, 1);
  const std::vector<float> x = RandomRows(m, k, 2);
  const PackedMatrix packed = Pack(weights, 3);
  const std::vector<float> all = Product(packed, x.data(), k, m);
  for (const int threads : {2, 3, 5}) {
    const std::vector<float> other = Product(packed, x.data(), k, m, threads);
    ASSERT_EQ(0, std::memcmp(all.data(), other.data(), all.size() * 4)) << threads << " threads";
  }
  for (const auto& [first, rows] : {std::pair{0, 1}, {36, 1}, {5, 2}, {11, 6}, {20, 7}, {3, 13}, {1, 24}}) {
    const std::vector<float> part = Product(packed, x.data() + first * k, k, rows, 2);
    ASSERT_EQ(0, std::memcmp(all.data() + first * n, part.data(), part.size() * 4)) << first << " + " << rows;
  }
  // Beside small jobs with other weights and inputs, in one call.
  const PackedMatrix small = Pack(RandomWeights(GetParam().type, 17, k, 3));
  const std::vector<float> small_alone = Product(small, x.data() + k, k, 2);
  std::vector<float> y(m * n), y1(2 * 17), y2(2 * 17);
  const MatmulJob jobs[] = {{&small, x.data() + k, k, y1.data(), 17, 2}, {&packed, x.data(), k, y.data(), n, m},
                            {&packed, x.data(), k, nullptr, 0, 0},       {&small, x.data() + k, k, y2.data(), 17, 2}};
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    MatmulScratch scratch(m, k);
    Matmul(jobs, scratch, pool);
    ASSERT_EQ(0, std::memcmp(all.data(), y.data(), y.size() * 4));
    ASSERT_EQ(0, std::memcmp(small_alone.data(), y1.data(), y1.size() * 4));
    ASSERT_EQ(0, std::memcmp(small_alone.data(), y2.data(), y2.size() * 4));
  }
}

TEST_P(MatmulKernelTest, SurvivesStrangeInputs) {
  const int64_t k = std::max<int64_t>(chunk() * 2, 64), n = 20;
  const std::vector<float> usual = RandomRows(5, k, 2);
  std::vector<float> x = usual;
  x[0 * k + 3] = std::numeric_limits<float>::quiet_NaN();
  x[1 * k + k - 1] = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < k; ++i) x[2 * k + i] = 0, x[3 * k + i] = 1e-42f * static_cast<float>(i % 5);
  for (const int terms : {1, 2}) {
    const PackedMatrix packed = Pack(RandomWeights(GetParam().type, n, k, 1), 1, terms);
    const std::vector<float> before = Product(packed, usual.data(), k, 5), y = Product(packed, x.data(), k, 5);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_TRUE(std::isnan(y[i]));
      ASSERT_FALSE(std::isfinite(y[n + i]));
      ASSERT_EQ(y[2 * n + i], 0.0f);
      ASSERT_LT(std::fabs(y[3 * n + i]), 1e-30f);
      ASSERT_EQ(y[4 * n + i], before[4 * n + i]) << "a NaN reached another row";
    }
  }
}

// Packed bytes stay at the file's bytes, and what is packed is what was stored.
TEST_P(MatmulKernelTest, PanelsHoldTheFilesBytes) {
  const int64_t k = kernel().format->is_float() ? 200 : chunk() * 5, n = 48;
  const Tensor weights = RandomWeights(GetParam().type, n, k, 1);
  EXPECT_EQ(Pack(weights).bytes(), weights.view().bytes());
  EXPECT_LE(Pack(RandomWeights(GetParam().type, 33, k, 1)).bytes(), BytesFor(GetParam().type, 48 * k));
}

INSTANTIATE_TEST_SUITE_P(Kernels, MatmulKernelTest, testing::ValuesIn(AllKernels()), CaseName);

// Two terms: the same company rule, and what is lost is what the second digit loses, 1/255 of one term.
TEST(Matmul, TwoInputTermsKeepFifteenBits) {
  const Isa isa = ReadCpuFacts().best_isa();
  ThreadPool pool(2);
  for (const MatmulUnpack& unpack : MatmulUnpacks()) {
    if (unpack.isa != Isa::kScalar || unpack.codes == nullptr) continue;
    const int64_t k = 2048, n = 40, m = 5;
    const Tensor weights = RandomWeights(unpack.type, n, k, 1);
    const std::vector<float> x = RandomRows(m, k, 2);
    double error[3] = {};
    for (const int terms : {1, 2}) {
      const auto packed = PackedMatrix::Pack(weights.view(), {.isa = isa, .input_terms = terms}, pool);
      ASSERT_TRUE(packed);
      const std::vector<float> y = Product(*packed, x.data(), k, m, 2);
      std::vector<double> want(m * n), magnitude(m * n);
      MatmulReference(weights.view(), x.data(), k, m, nullptr, want.data(), magnitude.data());
      for (int64_t i = 0; i < m * n; ++i) error[terms] = std::max(error[terms], std::fabs(y[i] - want[i]) / magnitude[i]);
      for (int64_t row = 0; row < m; ++row) {
        const std::vector<float> alone = Product(*packed, x.data() + row * k, k, 1, 1);
        ASSERT_EQ(0, std::memcmp(alone.data(), y.data() + row * n, alone.size() * 4));
      }
    }
    // Float rounding of the sums (TermsOverWeights tells how much larger than the result they are) is all that may be left. (Where
    // only wide groups have two terms: GroupsThatAreNotWideLoseLittle.)
    if (FindMatmulKernel(unpack.type, isa, false).skips_terms()) continue;
    const double floats = 4.0 * k / 32 * kUlp * TermsOverWeights(*FindPanelFormat(unpack.type));
    EXPECT_LT(error[2], error[1] / 100 + floats) << Info(unpack.type).name;
  }
}

// Int8 kernels against double sums over the rows as they were: rounding x loses at most half a step of each group's scale,
// and about half a percent of the result for Gaussian rows.
TEST(Matmul, RoundingOfInputsStaysInItsBound) {
  const Isa isa = ReadCpuFacts().best_isa();
  for (const MatmulUnpack& unpack : MatmulUnpacks()) {
    if (unpack.isa != Isa::kScalar || unpack.codes == nullptr) continue;
    const int64_t k = 2048, n = 64, m = 4;
    const Tensor weights = RandomWeights(unpack.type, n, k, 1);
    Rng rng(3);
    std::vector<float> x(m * k);
    for (float& v : x) v = RandomNormal(rng);
    const std::vector<float> y = Product(Packed(weights, std::min(isa, Isa::kVnni), false), x.data(), k, m);
    std::vector<double> want(m * n);
    MatmulReference(weights.view(), x.data(), k, m, nullptr, want.data());
    double error2 = 0, want2 = 0;
    std::vector<float> w(k);
    for (int64_t col = 0; col < n; ++col) {
      DequantizeRow(unpack.type, weights.view().data + col * weights.view().row_bytes(), k, w.data());
      for (int64_t row = 0; row < m; ++row) {
        double bound = 1e-4 * std::fabs(want[row * n + col]) + 1e-4;
        for (int64_t g = 0; g < k; g += 32) {
          double amax = 0, sum = 0;
          for (int64_t i = g; i < g + 32; ++i) {
            amax = std::max<double>(amax, std::fabs(x[row * k + i]));
            sum += std::fabs(w[i]);
          }
          bound += amax / 254 * sum;
        }
        const double error = y[row * n + col] - want[row * n + col];
        ASSERT_LE(std::fabs(error), bound) << Info(unpack.type).name;
        error2 += error * error, want2 += want[row * n + col] * want[row * n + col];
      }
    }
    EXPECT_LT(std::sqrt(error2 / want2), 0.007) << Info(unpack.type).name;
  }
}

// Every unpack line: the bits of the scalar line; and the scalar line is DequantizeRow, bit for bit.
TEST(Matmul, UnpackingIsDequantisation) {
  for (const MatmulUnpack& line : MatmulUnpacks()) {
    if (!CpuHas(line.isa)) continue;
    SCOPED_TRACE(std::string(Info(line.type).name) + " " + std::string(IsaName(line.isa)));
    const int64_t k = 512, n = 16;
    const Tensor weights = RandomWeights(line.type, n, k, 5);
    const PackedMatrix packed = Packed(weights, Isa::kScalar, false);
    const PanelFormat& format = packed.kernel().format[0];
    for (int64_t k0 = 0; k0 < k; k0 += format.stretch()) {
      const int part = format.stretch();
      const uint8_t* chunks = reinterpret_cast<const uint8_t*>(packed.Find(0, 0, k0));
      std::vector<uint8_t> codes(part * 16);
      std::vector<float> scales(part), mins(part), values(part * 16);
      if (line.codes != nullptr) line.codes(chunks, part, chunks, codes.data(), scales.data(), mins.data());
      else line.floats(chunks, part, chunks, values.data());
      std::vector<float> want(k);
      for (int row = 0; row < n; ++row) {
        DequantizeRow(line.type, weights.view().data + row * weights.view().row_bytes(), k, want.data());
        for (int i = 0; i < part; ++i) {
          float got = values[i * 16 + row];
          if (line.codes != nullptr) {
            const int at = i / format.group * 16 + row, code = codes[i / 4 * 64 + row * 4 + i % 4];
            ASSERT_LT(code, 1 << format.bits);
            got = scales[at] * static_cast<float>(code - format.offset);
            if (format.has_min) got += mins[at];
          }
          ASSERT_EQ(got, want[k0 + i]) << "row " << row << " element " << k0 + i;
        }
      }
    }
  }
}

// All RoundRow lines give the scalar line's bits, NaN and infinity included.
TEST(Matmul, RoundingIsTheSameOnEveryIsa) {
  const int64_t k = 320;
  std::vector<float> x = RandomRows(4, k, 9);
  x[5] = std::numeric_limits<float>::quiet_NaN();
  x[40] = std::numeric_limits<float>::infinity();
  x[70] = std::numeric_limits<float>::max();
  for (int i = 96; i < 128; ++i) x[i] = 1e-31f;
  for (int i = 128; i < 160; ++i) x[i] = static_cast<float>(i - 128) - 15.5f;  // ties
  for (const MatmulArithmetic& line : MatmulArithmetics()) {
    if (!CpuHas(line.isa)) continue;
    for (int row = 0; row < 4; ++row) {
      for (const auto& [terms, skips] : {std::pair{1, false}, {2, false}, {2, true}}) {
        SCOPED_TRACE(testing::Message() << IsaName(line.isa) << ", " << terms << " terms" << (skips ? " where wide" : ""));
        const Rounded got = RoundedBy(line.round_row, x.data() + row * k, k, terms, skips);
        const Rounded want = RoundedBy(RoundRowScalar, x.data() + row * k, k, terms, skips);
        EXPECT_EQ(got.wide, want.wide);
        EXPECT_EQ(got.codes, want.codes);
        EXPECT_EQ(got.second, want.second);
        EXPECT_EQ(got.sums, want.sums);
        EXPECT_EQ(got.second_sums, want.second_sums);
        EXPECT_EQ(0, std::memcmp(got.scales.data(), want.scales.data(), k / 8));
      }
    }
  }
  EXPECT_TRUE(CpuHas(Isa::kScalar));
}

// Two terms are two digits that kernels of int8 can multiply, within the stated bound of what they stand for.
TEST(Matmul, TwoTermsAreDigitsWithinTheirBound) {
  const int64_t k = 4096;
  Rng rng(4);
  std::vector<float> x = RandomRows(1, k, 3);
  for (int64_t g = 0; g < k; g += 64) {  // numbers between two digits, beside a largest of a whole number of steps
    for (int64_t i = g; i < g + 32; ++i) x[i] = static_cast<float>(kDigits * (static_cast<int>(rng.Below(255)) - 127) + 127) + 0.25f * static_cast<float>(rng.Below(8));
    x[g] = kTwoTermSteps;
  }
  const Rounded r = RoundedBy(RoundRowScalar, x.data(), k, 2);
  for (int64_t i = 0; i < k; ++i) {
    float amax = 0;
    for (int64_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) amax = std::max(amax, std::fabs(x[j]));
    ASSERT_GE(std::min(r.codes[i], r.second[i]), -127);
    ASSERT_NEAR(x[i], r.scales[i / 32] * static_cast<float>(kDigits * r.codes[i] + r.second[i]), amax / 64516) << i;
  }
}

// Where only groups that stand out are wide, others are one digit, the second, and small enough for it: what they lose is below
// sqrt(kWideSquares) / 254 of the root mean square of their row.
TEST(Matmul, GroupsThatAreNotWideLoseLittle) {
  const int64_t k = 4096;
  Rng rng(4);
  std::vector<float> x = RandomRows(1, k, 3);
  for (int64_t i = 0; i < k; ++i) x[i] *= i / 32 % 8 == 3 ? 9.0f : 1.0f;
  x[77] = 100;
  double squares = 0;
  for (const float v : x) squares += double{v} * v;
  const double rms = std::sqrt(squares / static_cast<double>(k));
  const Rounded r = RoundedBy(RoundRowScalar, x.data(), k, 2, true);
  int64_t wide = 0;
  for (int64_t g = 0; g < k / 32; ++g) {
    double amax = 0;
    for (int64_t i = 32 * g; i < 32 * g + 32; ++i) amax = std::max<double>(amax, std::fabs(x[i]));
    ASSERT_EQ(r.wide[g] != 0, amax * amax >= kWideSquares * rms * rms) << g;
    wide += r.wide[g];
    for (int64_t i = 32 * g; i < 32 * g + 32; ++i) {
      ASSERT_TRUE(r.wide[g] || r.codes[i] == 0) << i;
      ASSERT_NEAR(x[i], r.scales[g] * static_cast<float>(kDigits * r.codes[i] + r.second[i]),
                  r.wide[g] ? amax / 64516 : std::sqrt(kWideSquares) * rms / 253.9) << i;
    }
  }
  EXPECT_GT(wide, k / 32 / 10);
  EXPECT_LT(wide, k / 32 / 2);
}

// More rows than one block of rows, so that tiles are visited several times.
TEST(Matmul, MoreRowsThanABlock) {
  const Isa isa = std::min(ReadCpuFacts().best_isa(), Isa::kVnni);
  for (const DType type : {DType::kQ5_K, DType::kF16}) {
    const int64_t k = 256, n = 70, m = 1100;
    const std::vector<float> x = RandomRows(m, k, 2);
    const PackedMatrix packed = Packed(RandomWeights(type, n, k, 1), isa, false);
    const std::vector<float> all = Product(packed, x.data(), k, m, 2);
    for (const int64_t row : {0, 511, 512, 513, 1023, 1024, 1099}) {
      const std::vector<float> alone = Product(packed, x.data() + row * k, k, 1);
      ASSERT_EQ(0, std::memcmp(all.data() + row * n, alone.data(), n * 4)) << row;
    }
  }
}

// Experts: dozens of small products in one call, few rows each, spread over the threads.
TEST(Matmul, ManySmallJobs) {
  const Isa isa = std::min(ReadCpuFacts().best_isa(), Isa::kVnni);
  constexpr int kJobs = 50;
  const int64_t k = 256;
  ThreadPool pool(3);
  std::vector<PackedMatrix> weights;
  std::vector<std::vector<float>> xs, ys, want;
  std::vector<MatmulJob> jobs;
  for (int i = 0; i < kJobs; ++i) {
    const DType type = i % 3 == 0 ? DType::kQ6_K : i % 3 == 1 ? DType::kQ4_0 : DType::kBF16;
    weights.push_back(Packed(RandomWeights(type, 16 + i, k, i), isa, false));
    xs.push_back(RandomRows(1 + i % 5, k, 100 + i));
    ys.emplace_back((1 + i % 5) * (16 + i));
    want.push_back(Product(weights.back(), xs.back().data(), k, 1 + i % 5));
  }
  for (int i = 0; i < kJobs; ++i) jobs.push_back({&weights[i], xs[i].data(), k, ys[i].data(), 16 + i, 1 + i % 5});
  MatmulScratch scratch(8, k);  // too small on purpose: it grows
  Matmul(jobs, scratch, pool);
  for (int i = 0; i < kJobs; ++i) EXPECT_EQ(ys[i], want[i]) << i;
}

// Files of panels outlive the program that wrote them.
TEST(Matmul, ChangedPanelsRaiseTheirNumber) {
  ThreadPool threads(1);
  Digest128 digest;
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                           DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
                           DType::kMXFP4, DType::kTQ2_0, DType::kNF4}) {
    Tensor weight(type, Shape{40, 768});
    Rng rng(1);
    for (size_t i = 0; i < weight.view().bytes(); ++i) weight.data()[i] = std::byte(rng.Next());
    std::vector<std::byte> place(PackedMatrix::BytesOf(type, 40, 768));
    const auto packed = PackedMatrix::Pack(weight.view(), {.place = place}, threads);
    ASSERT_TRUE(packed.has_value());
    digest.Bytes(place.data(), place.size());
  }
  EXPECT_EQ(digest.Hex(), "109fd7e37d8a8d38366a85dd61a80a8b") << "the bytes of panels have changed: raise kPanelLayout, and write the new digest here";
  EXPECT_EQ(kPanelLayout, 2u);
}

TEST(Matmul, NothingToDo) {
  ThreadPool pool(2);
  MatmulScratch scratch(4, 64);
  Matmul({}, scratch, pool);
  const PackedMatrix none = Packed(RandomWeights(DType::kQ8_0, 0, 64, 1), Isa::kScalar, false);
  const PackedMatrix empty_k = Packed(RandomWeights(DType::kF32, 3, 0, 1), Isa::kScalar, false);
  const float x[64] = {}, bias[3] = {1, 2, 3};
  float y[3] = {9, 9, 9};
  const MatmulJob jobs[] = {{&none, x, 64, y, 3, 1}, {&empty_k, x, 0, y, 3, 1, bias}};
  Matmul(jobs, scratch, pool);
  EXPECT_EQ(y[0], 1);
  EXPECT_EQ(y[2], 3);
}

TEST(Matmul, PackRefusesWhatItCannotMultiply) {
  ThreadPool pool(1);
  const Tensor vector(DType::kF32, Shape{8});
  EXPECT_FALSE(PackedMatrix::Pack(vector.view(), {}, pool).has_value());
  const Tensor ints(DType::kI32, Shape{8, 8});
  const auto refused = PackedMatrix::Pack(ints.view(), {}, pool);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("I32"), std::string::npos);
  std::byte data[1024] = {};
  EXPECT_FALSE(PackedMatrix::Pack({DType::kQ4_K, Shape{1, 300}, data}, {}, pool).has_value());
  EXPECT_TRUE(CanMatmul(DType::kQ4_K));
  EXPECT_FALSE(CanMatmul(DType::kIQ2_XS));
}

}  // namespace
}  // namespace hone
