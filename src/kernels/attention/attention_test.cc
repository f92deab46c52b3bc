// Attention and StoreKv of every listed kernel: against plain sums in double over the rounded cache, and bit for bit against
// themselves under other chunks of the prompt, other company in the step, and other thread counts.
#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "kernels/attention/task.h"
#include "kernels/kernel_lines_test.h"
#include "tensor/float16.h"

namespace hone {
namespace {

const KernelLine kAttentionLines[] = {
#define HONE_ATTENTION_KERNEL(name, level, tile_rows, splits, heads) {#name, Isa::level},
#include "kernels/attention/kernels.inc"
#undef HONE_ATTENTION_KERNEL
};

bool Splits(Isa isa) {
#define HONE_ATTENTION_KERNEL(name, level, tile_rows, splits, heads) \
  if (isa == Isa::level) return splits;
#include "kernels/attention/kernels.inc"
#undef HONE_ATTENTION_KERNEL
  return false;
}

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

float Normal(Rng* rng) {
  const double u = 1 - rng->Uniform(), v = rng->Uniform();
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v));
}

std::vector<float> Normals(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> numbers(n);
  for (float& x : numbers) x = Normal(&rng);
  return numbers;
}

// What a token's numbers read as once stored: the definition of kv_view.h in plain code.
std::vector<float> Stored(KvType type, const float* x, int width) {
  std::vector<float> stored(x, x + width);
  float most = 0;
  for (const float v : stored) most = std::max(most, std::fabs(v));
  for (float& v : stored) {
    if (type == KvType::kF16) v = F16ToF32(F32ToF16(v));
    if (type == KvType::kBF16) v = Bf16ToF32(F32ToBf16(v));
    if (type == KvType::kI8) v = most > 0 ? most / 127 * std::nearbyint(v * (127 / most)) : 0;
  }
  return stored;
}

std::vector<float> StoredRows(KvType type, const std::vector<float>& rows, int width) {
  std::vector<float> stored;
  for (size_t i = 0; i < rows.size(); i += width) {
    const std::vector<float> row = Stored(type, rows.data() + i, width);
    stored.insert(stored.end(), row.begin(), row.end());
  }
  return stored;
}

// Whether attention.h lets this call round q and weights to BF16.
bool IsRounded(Isa isa, KvType type, int width) { return isa >= Isa::kBf16 && type != KvType::kF32 && width <= 256; }

// One sequence with its queries, keys and values in F32, and a cache whose blocks lie in a shuffled order between blocks of
// nobody. What was never stored is NaN, so a kernel that reads too far cannot pass.
struct Sequence {
  int tokens, heads, kv_heads, width;
  KvType type;
  std::vector<float> q, k, v;
  std::vector<int32_t> blocks;
  size_t block_bytes;
  std::vector<std::byte> keys, values;

  Sequence(int t, int h, int g, int e, KvType kv_type, uint64_t seed)
      : tokens(t), heads(h), kv_heads(g), width(e), type(kv_type), q(Normals(size_t(t) * h * e, seed)),
        k(Normals(size_t(t) * g * e, seed + 1)), v(Normals(size_t(t) * g * e, seed + 2)) {
    const int used = (t + kKvBlockTokens - 1) / kKvBlockTokens, all = used + 3;
    blocks.resize(all);
    std::iota(blocks.begin(), blocks.end(), 0);
    Rng rng(seed + 3);
    for (int i = all - 1; i > 0; --i) std::swap(blocks[i], blocks[rng.Below(i + 1)]);
    block_bytes = g * KvHeadBlockBytes(type, e) + 64;
    keys.assign(block_bytes * all, std::byte{0xff});
    values = keys;
  }

  KvView View() {
    return {type, kv_heads, width, keys.data(), values.data(), block_bytes, blocks.data()};
  }
  KvStoreJob StoreJob(int begin, int end) {
    const int64_t stride = int64_t{kv_heads} * width;
    return {k.data() + begin * stride, stride, v.data() + begin * stride, stride, end - begin, begin, View()};
  }
  AttentionJob Job(int begin, int end, std::vector<float>* out) {
    const int64_t stride = int64_t{heads} * width;
    return {q.data() + begin * stride, stride, out->data() + begin * stride, stride, end - begin, begin, View()};
  }
  std::vector<float> Out() const { return std::vector<float>(q.size(), kNan); }

  // Stores all tokens, then attends in one call.
  std::vector<float> Whole(const AttentionParams& params, Isa isa, ThreadPool& threads) {
    const KvStoreJob store[] = {StoreJob(0, tokens)};
    StoreKv(store, isa, threads);
    std::vector<float> out = Out();
    const AttentionJob job[] = {Job(0, tokens, &out)};
    Attention(job, params, isa, threads);
    return out;
  }
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The formula of attention.h for one row, in double, with a bound of what F32 arithmetic may add: scores are off by
// (E + 8) eps times their sum of absolute products (a soft cap shrinks that), a weight by as much relatively and 16 eps, and
// the sums over n tokens by n eps of the mean of |v|. On AMX q is off by 2^-9 of itself, F16 and I8 keys and values too, a score
// by as much of the sum of absolute products and 128 eps for each step, and a weight by 0.73 %.
struct Expected {
  std::vector<double> value, bound;
};

Expected Reference(const Sequence& s, const std::vector<float>& keys, const std::vector<float>& values,
                   const AttentionParams& params, int i, int h, bool rounded) {
  const int g = h / (s.heads / s.kv_heads), first = params.window > 0 ? std::max(0, i - params.window + 1) : 0;
  constexpr double kEps = 0x1.0p-24, kBf16 = 0x1.0p-9;
  const double q_error = rounded ? kBf16 : 0, kv_error = rounded && s.type != KvType::kBF16 ? kBf16 : 0;
  std::vector<double> scores;
  double max = params.sinks != nullptr ? params.sinks[h] : -HUGE_VAL, score_error = 0;
  for (int p = first; p <= i; ++p) {
    double dot = 0, size = 0;
    for (int e = 0; e < s.width; ++e) {
      const double product = double{s.q[(size_t(i) * s.heads + h) * s.width + e]} *
                             keys[(size_t(p) * s.kv_heads + g) * s.width + e] * params.scale;
      dot += product;
      size += std::fabs(product);
    }
    score_error = std::max(score_error, kEps * (s.width + 8) * (size + 1));
    scores.push_back(params.soft_cap > 0 ? params.soft_cap * std::tanh(dot / params.soft_cap) : dot);
    score_error = std::max(score_error, kEps * 8 * std::fabs(scores.back()) + kEps * (s.width + 8) * size);
    if (rounded) score_error = std::max(score_error, size * (q_error + kv_error) + kEps * (s.width + 8) * (size + 128));
    max = std::max(max, scores.back());
  }
  const double weight_error = score_error + (rounded ? 0.0073 : 0);
  double sum = params.sinks != nullptr ? std::exp(params.sinks[h] - max) : 0;
  for (double& score : scores) sum += score = std::exp(score - max);
  Expected expected{std::vector<double>(s.width), std::vector<double>(s.width)};
  for (int e = 0; e < s.width; ++e) {
    double size = 0;
    for (int p = first; p <= i; ++p) {
      const double v = values[(size_t(p) * s.kv_heads + g) * s.width + e];
      expected.value[e] += scores[p - first] / sum * v;
      size += scores[p - first] / sum * std::fabs(v);
    }
    expected.bound[e] = size * (2 * weight_error * (1 + weight_error) + kv_error + (16 + (i - first)) * kEps);
  }
  return expected;
}

// Every element within its bound, and on AMX all of them together within 0.4 % (0.5 % where keys and values are rounded too).
void ExpectNear(const Sequence& s, const AttentionParams& params, const std::vector<float>& out, Isa isa, int row_step = 1) {
  const bool rounded = IsRounded(isa, s.type, s.width);
  const std::vector<float> keys = StoredRows(s.type, s.k, s.width), values = StoredRows(s.type, s.v, s.width);
  double squares = 0, error_squares = 0;
  for (int i = 0; i < s.tokens; i += row_step) {
    for (int h = 0; h < s.heads; ++h) {
      const Expected expected = Reference(s, keys, values, params, i, h, rounded);
      for (int e = 0; e < s.width; ++e) {
        const double error = std::fabs(out[(size_t(i) * s.heads + h) * s.width + e] - expected.value[e]);
        ASSERT_LE(error, expected.bound[e]) << "row " << i << " head " << h << " element " << e;
        squares += expected.value[e] * expected.value[e];
        error_squares += error * error;
      }
    }
  }
  const double rms = rounded ? s.type == KvType::kBF16 ? 0.004 : 0.005 : 1e-5;
  ASSERT_LE(std::sqrt(error_squares), rms * std::sqrt(squares));
}

class AttentionTest : public KernelLineTest {
 protected:
  ThreadPool one_{1}, two_{2};
};

constexpr KvType kTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kI8};

uint32_t Bits(KvType type, float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return type == KvType::kF32 ? bits : type == KvType::kF16 ? F32ToF16(x) : F32ToBf16(x);
}

TEST_P(AttentionTest, StoreKvRoundsTransposesAndTouchesNothingElse) {
  const std::vector<float> special = {0.0f, -0.0f, kInfinity, -kInfinity, 65504, 65519.9f, 65520, -70000, 1e-8f, 5.9604645e-8f,
                                      2.98e-8f, 6.1e-5f, 3.4e38f, 1e-40f, 1.00048828125f, 1.00146484375f, 1.00390625f};
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBF16}) {
    for (const int width : {1, 7, 8, 16, 20, 33, 64, 80}) {
      Sequence s(70, 2, 2, width, type, 7 + width);
      for (size_t i = 0; i < s.k.size(); ++i) {
        if (i % 3 == 0) s.k[i] = special[i / 3 % special.size()];
        if (i % 3 == 1) s.v[i] = special[i / 3 % special.size()];
      }
      const KvStoreJob jobs[] = {s.StoreJob(3, 4), s.StoreJob(5, 67)};
      StoreKv(jobs, isa(), two_);
      const size_t bytes = KvElementBytes(type);
      for (int p = 0; p < s.tokens; ++p) {
        for (int g = 0; g < 2; ++g) {
          for (int e = 0; e < width; ++e) {
            const std::byte* key = s.View().KeyBlock(g, p / 32) + KvKeyOffset(type, p % 32, e);
            const std::byte* value = s.View().ValueBlock(g, p / 32) + KvValueOffset(type, width, p % 32, e);
            const size_t from = (size_t(p) * 2 + g) * width + e;
            const bool stored = p == 3 || (p >= 5 && p < 67);
            for (const auto& [at, x] : {std::pair{key, s.k[from]}, std::pair{value, s.v[from]}}) {
              uint32_t found = 0;
              std::memcpy(&found, at, bytes);
              const uint32_t wanted = stored ? Bits(type, x) : bytes == 4 ? 0xffffffff : 0xffff;
              ASSERT_EQ(found, wanted) << x << " position " << p << " element " << e << " width " << width;
            }
          }
        }
      }
    }
  }
}

// Codes and scales of I8, and that no number moves by more than half a step, which is 1/254 of its token's largest.
TEST_P(AttentionTest, StoredCodesAreWithinHalfAStep) {
  for (const int width : {1, 7, 16, 20, 64, 80}) {
    Sequence s(70, 2, 2, width, KvType::kI8, 7 + width);
    std::fill_n(s.k.begin(), width, 0.0f);                       // token 0, head 0: no scale
    std::fill_n(s.k.begin() + width, width, 1e-38f);             // head 1: too small for one
    for (int e = 0; e < width; ++e) s.v[e] = 3e38f - e * 1e36f;  // and a large one
    const KvStoreJob jobs[] = {s.StoreJob(0, 1), s.StoreJob(3, 67)};
    StoreKv(jobs, isa(), two_);
    for (int p = 0; p < s.tokens; ++p) {
      for (int g = 0; g < 2; ++g) {
        for (const bool is_key : {true, false}) {
          const std::byte* block = is_key ? s.View().KeyBlock(g, p / 32) : s.View().ValueBlock(g, p / 32);
          const float* x = (is_key ? s.k : s.v).data() + (size_t(p) * 2 + g) * width;
          const bool stored = p == 0 || (p >= 3 && p < 67);
          float scale, most = 0;
          std::memcpy(&scale, block + (p % 32) * 4, 4);
          for (int e = 0; e < width; ++e) most = std::max(most, std::fabs(x[e]));
          if (most < 0x1.0p-100f) most = 0;
          ASSERT_TRUE(!stored || scale == most / 127);
          for (int e = 0; e < width; ++e) {
            const std::byte at = block[is_key ? KvKeyOffset(KvType::kI8, p % 32, e) : KvValueOffset(KvType::kI8, width, p % 32, e)];
            if (!stored) {
              ASSERT_EQ(at, std::byte{0xff});
              continue;
            }
            const double read = double{scale} * static_cast<int8_t>(at);
            ASSERT_LE(std::fabs(read - x[e]), scale * 0.5000002 + 0x1.0p-100) << "position " << p << " element " << e;
          }
        }
      }
    }
  }
}

// A number that is not finite makes its token's head NaN as a whole in I8: rows that see it are NaN, the others as before.
TEST_P(AttentionTest, CodesOfInfinityAreNan) {
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    Sequence s(40, 2, 2, 20, KvType::kI8, 3);
    const AttentionParams params{2, 0.2f, 0, 0, nullptr};
    const std::vector<float> clean = s.Whole(params, isa(), one_);
    s.v[size_t(20) * 40 + 7] = bad;  // head 0
    const std::vector<float> dirty = s.Whole(params, isa(), one_);
    for (int i = 0; i < 40; ++i) {
      for (int e = 0; e < 40; ++e) {
        if (i >= 20 && e < 20) EXPECT_TRUE(std::isnan(dirty[i * 40 + e])); else EXPECT_EQ(dirty[i * 40 + e], clean[i * 40 + e]);
      }
    }
  }
}

TEST_P(AttentionTest, StoredNanStaysNan) {
  for (const KvType type : {KvType::kF16, KvType::kBF16}) {
    Sequence s(1, 1, 1, 8, type, 1);
    const uint32_t patterns[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7fffffff, 0xff800001, 0x7fbfffff, 0x7f808000, 0x7f801fff};
    std::memcpy(s.v.data(), patterns, sizeof patterns);
    const KvStoreJob jobs[] = {s.StoreJob(0, 1)};
    StoreKv(jobs, isa(), one_);
    for (int e = 0; e < 8; ++e) {
      uint16_t bits;
      std::memcpy(&bits, s.View().ValueBlock(0, 0) + KvValueOffset(type, 8, 0, e), 2);
      EXPECT_TRUE(std::isnan(type == KvType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits))) << patterns[e];
    }
  }
}

struct Case {
  int tokens, heads, kv_heads, width, window;
  float soft_cap;
  bool sinks;
};

// Random shapes with every feature, then the widths of real models.
std::vector<Case> Cases() {
  std::vector<Case> cases = {{33, 4, 4, 64, 0, 0, false},  {65, 8, 2, 128, 0, 0, false}, {40, 6, 2, 80, 7, 0, true},
                             {50, 4, 1, 256, 0, 50, false}, {37, 3, 3, 96, 0, 0, true},   {45, 71, 1, 64, 0, 0, false},
                             {5, 2, 1, 576, 0, 0, false},   {3, 1, 1, 1024, 0, 0, false}, {1, 1, 1, 1, 0, 0, false}};
  Rng rng(11);
  const int widths[] = {1, 2, 8, 12, 16, 20, 24, 32, 40, 48, 64};
  for (int i = 0; i < 40; ++i) {
    const int g = 1 + static_cast<int>(rng.Below(3)), group = 1 + static_cast<int>(rng.Below(9));
    cases.push_back({1 + static_cast<int>(rng.Below(140)), g * group, g, widths[rng.Below(std::size(widths))],
                     rng.Below(2) ? 1 + static_cast<int>(rng.Below(100)) : 0,
                     rng.Below(3) == 0 ? static_cast<float>(1 + rng.Below(30)) : 0.0f, rng.Below(3) == 0});
  }
  return cases;
}

AttentionParams ParamsOf(const Case& c, const std::vector<float>& sinks) {
  return {c.heads, 1 / std::sqrt(static_cast<float>(c.width)), c.soft_cap, c.window, c.sinks ? sinks.data() : nullptr};
}

TEST_P(AttentionTest, EqualsPlainSumsInDouble) {
  uint64_t seed = 100;
  for (const Case& c : Cases()) {
    const std::vector<float> sinks = Normals(c.heads, seed);
    const KvType type = static_cast<KvType>(seed % 4);
    Sequence s(c.tokens, c.heads, c.kv_heads, c.width, type, ++seed);
    SCOPED_TRACE(testing::Message() << "T " << c.tokens << " H " << c.heads << " G " << c.kv_heads << " E " << c.width
                                    << " window " << c.window << " cap " << c.soft_cap << " sinks " << c.sinks);
    const AttentionParams params = ParamsOf(c, sinks);
    ExpectNear(s, params, s.Whole(params, isa(), two_), isa(), c.heads > 64 ? 11 : 1);
    if (HasFatalFailure()) return;
  }
}

TEST_P(AttentionTest, LongContextCrossesChunks) {
  for (const KvType type : kTypes) {
    for (const int window : {0, 600}) {
      Sequence s(1100, 4, 2, 16, type, 5);
      const AttentionParams params{4, 0.5f, 0, window, nullptr};
      ExpectNear(s, params, s.Whole(params, isa(), two_), isa(), 37);
      if (HasFatalFailure()) return;
    }
  }
}

// Scores that rise by 16 a block: far beyond any maximum guessed from the first block. Each row is the mean of the values that it
// sees in its last block, the others' weights being below e^-16.
TEST_P(AttentionTest, RisingScoresLeaveTheLastBlock) {
  for (const KvType type : kTypes) {
    for (const float slope : {16.0f, 256.0f, 65536.0f}) {
      Sequence s(700, 2, 1, 32, type, 9);
      std::fill(s.k.begin(), s.k.end(), 0.0f);
      std::fill(s.q.begin(), s.q.end(), 0.0f);
      for (int i = 0; i < s.tokens * 2; ++i) s.q[size_t(i) * 32] = slope;
      for (int p = 0; p < s.tokens; ++p) s.k[size_t(p) * 32] = static_cast<float>(p / 32);
      const std::vector<float> values = StoredRows(type, s.v, 32);
      const std::vector<float> out = s.Whole({2, 1.0f, 0, 0, nullptr}, isa(), one_);
      for (int i = 0; i < s.tokens; ++i) {
        for (int e = 0; e < 32; ++e) {
          double mean = 0;
          for (int p = i / 32 * 32; p <= i; ++p) mean += values[size_t(p) * 32 + e] / (i % 32 + 1);
          const double tolerance = IsRounded(isa(), type, 32) && type != KvType::kBF16 ? 0x1.0p-7 + 1e-4 : 1e-4;  // values below 4 to BF16
          ASSERT_NEAR(out[size_t(i) * 64 + e], mean, tolerance) << "row " << i << " type " << static_cast<int>(type) << " " << slope;
        }
      }
    }
  }
}

// An exact call has no tiles in it.
TEST_P(AttentionTest, ExactIsF32Arithmetic) {
  if (isa() < Isa::kBf16) return;
  Sequence s(300, 4, 2, 64, KvType::kBF16, 5);
  AttentionParams params{4, 0.125f, 0, 0, nullptr};
  const std::vector<float> plain = s.Whole(params, Isa::kAvx512, two_), rounded = s.Whole(params, isa(), two_);
  params.exact = true;
  EXPECT_TRUE(SameBits(s.Whole(params, isa(), two_), plain));
  EXPECT_FALSE(SameBits(rounded, plain));
}

// A few rows alone of an I8 cache take F32 arithmetic where the caller leaves the choice; all others what they always take.
TEST_P(AttentionTest, FastestForFewRows) {
  if (isa() < Isa::kBf16) return;
  for (const KvType type : {KvType::kI8, KvType::kBF16}) {
    for (const int rows : {1, 4, 5, 40}) {
      Sequence s(rows, 4, 2, 64, type, 11);
      AttentionParams params{4, 0.2f, 0, 0, nullptr};
      const std::vector<float> always = s.Whole(params, isa(), two_), f32 = s.Whole(params, Isa::kAvx512, two_);
      params.fastest_for_few = true;
      EXPECT_TRUE(SameBits(s.Whole(params, isa(), two_), type == KvType::kI8 && rows <= 4 ? f32 : always)) << rows;
    }
  }
}

// Large scores: the weights are one-hot to F32, and the output is that token's value, exactly.
TEST_P(AttentionTest, OneHotWeightsCopyTheValue) {
  Sequence s(70, 1, 1, 32, KvType::kF32, 9);
  std::fill(s.k.begin(), s.k.end(), 0.0f);
  std::fill(s.q.begin(), s.q.end(), 0.0f);
  for (int i = 0; i < s.tokens; ++i) s.q[size_t(i) * 32 + i % 32] = 1000;
  for (int p = 0; p < 32; ++p) s.k[size_t(p) * 32 + p] = 10;
  const std::vector<float> out = s.Whole({1, 1.0f, 0, 0, nullptr}, isa(), one_);
  for (int i = 31; i < s.tokens; ++i) {
    for (int e = 0; e < 32; ++e) ASSERT_EQ(out[size_t(i) * 32 + e], s.v[size_t(i % 32) * 32 + e]);
  }
}

TEST_P(AttentionTest, AnEndlessSinkLeavesNothing) {
  Sequence s(40, 2, 1, 8, KvType::kF32, 3);
  const float sinks[] = {1e4f, -kInfinity};
  const std::vector<float> out = s.Whole({2, 1.0f, 0, 0, sinks}, isa(), one_);
  const std::vector<float> plain = s.Whole({2, 1.0f, 0, 0, nullptr}, isa(), one_);
  for (int i = 0; i < s.tokens; ++i) {
    for (int e = 0; e < 8; ++e) {
      EXPECT_EQ(out[size_t(i) * 16 + e], 0);
      EXPECT_EQ(out[size_t(i) * 16 + 8 + e], plain[size_t(i) * 16 + 8 + e]);
    }
  }
}

// A prompt in chunks of 1, or of random sizes, beside other sequences or not, on 1, 2, 3 or 5 threads: the same bits. Each
// chunk is stored before it attends, as in a model.
TEST_P(AttentionTest, BitsDoNotDependOnChunksCompanyOrThreads) {
  uint64_t seed = 500;
  ThreadPool three(3), five(5);
  ThreadPool* pools[] = {&one_, &two_, &three, &five};
  for (const Case& c : Cases()) {
    if (!Splits(isa()) && c.heads * c.width > 640) continue;  // plain code: slow
    const std::vector<float> sinks = Normals(c.heads, seed);
    const AttentionParams params = ParamsOf(c, sinks);
    const KvType type = static_cast<KvType>(seed % 4);
    Sequence s(c.tokens, c.heads, c.kv_heads, c.width, type, ++seed);
    Sequence other(77, c.heads, c.kv_heads, c.width, type, seed + 1000);
    const std::vector<float> whole = s.Whole(params, isa(), one_);
    const std::vector<float> other_whole = other.Whole(params, isa(), two_);
    Rng rng(seed);
    for (int variant = 0; variant < 3; ++variant) {
      Sequence again(c.tokens, c.heads, c.kv_heads, c.width, type, seed);
      std::vector<float> out = again.Out(), other_out = other.Out();
      for (int begin = 0, end; begin < c.tokens; begin = end) {
        end = variant == 0 ? begin + 1 : std::min<int>(c.tokens, begin + 1 + static_cast<int>(rng.Below(60)));
        ThreadPool& pool = *pools[rng.Below(4)];
        const KvStoreJob store[] = {again.StoreJob(begin, end)};
        StoreKv(store, isa(), pool);
        std::vector<AttentionJob> jobs = {again.Job(begin, end, &out)};
        if (variant == 2) jobs.insert(jobs.begin() + rng.Below(2), other.Job(0, 77, &other_out));
        Attention(jobs, params, isa(), pool);
      }
      ASSERT_TRUE(SameBits(whole, out)) << "T " << c.tokens << " H " << c.heads << " G " << c.kv_heads << " E " << c.width
                                        << " window " << c.window << " variant " << variant;
      ASSERT_TRUE(variant != 2 || SameBits(other_whole, other_out));
    }
  }
}

// Decoding far into a sequence, where few tasks make the plan split keys by chunks: the bits of the prompt's rows.
TEST_P(AttentionTest, BitsOfSplitDecodingAreThoseOfThePrompt) {
  ThreadPool five(5);
  for (const KvType type : kTypes) {
    if (!Splits(isa()) && type != KvType::kF32) continue;
    for (const int window : {0, 700}) {
      const float sinks[] = {0.5f, -1, 2, 0};
      const AttentionParams params{4, 0.3f, window > 0 ? 20.0f : 0.0f, window, type == KvType::kF16 ? sinks : nullptr};
      Sequence s(1400, 4, 2, 20, type, 77);
      std::vector<float> prompt = s.Whole(params, isa(), two_), out = s.Out();
      for (const int row : {100, 511, 512, 600, 1023, 1024, 1211, 1399}) {
        for (ThreadPool* pool : {&one_, &two_, &five}) {
          const AttentionJob jobs[] = {s.Job(row, row + 1, &out)};
          Attention(jobs, params, isa(), *pool);
          ASSERT_EQ(std::memcmp(out.data() + row * 80, prompt.data() + row * 80, 80 * sizeof(float)), 0)
              << "row " << row << " threads " << pool->count() << " window " << window;
        }
        const AttentionJob several[] = {s.Job(row - 5, row + 1, &out)};  // 12 rows a KV head, over a chunk's edge
        Attention(several, params, isa(), five);
        ASSERT_EQ(std::memcmp(out.data() + (row - 5) * 80, prompt.data() + (row - 5) * 80, 6 * 80 * sizeof(float)), 0);
      }
    }
  }
}

// Decoding one token takes several KV heads at once where kernels do: the bits of the prompt's rows, for widths and groups on both sides
// of what those kernels take, with windows, soft caps and sinks, alone and beside others. Numbers whose scores rise by more than a
// block's maximum foretells, and what is not finite, take their detours.
TEST_P(AttentionTest, BitsOfDecodingAreThoseOfThePrompt) {
  ThreadPool five(5);
  const struct { int kv_heads, group, width, tokens, window; float soft_cap; bool sinks; float slope; } shapes[] = {
      {8, 4, 64, 300, 0, 0, false, 0},   {3, 3, 96, 150, 0, 0, true, 0},   {2, 1, 128, 530, 0, 0, false, 0}, {5, 8, 32, 170, 45, 0, false, 0},
      {1, 4, 256, 140, 0, 30, false, 0}, {6, 5, 64, 170, 33, 20, true, 0}, {2, 9, 64, 70, 0, 0, false, 0},   {4, 2, 80, 70, 0, 0, false, 0},
      {3, 7, 160, 70, 0, 0, false, 0},   {2, 4, 64, 700, 0, 0, false, 16}, {3, 2, 32, 540, 600, 0, true, 256}, {2, 6, 64, 300, 64, 40, false, 16}};
  for (const auto& c : shapes) {
    const int heads = c.kv_heads * c.group;
    if (!Splits(isa()) && heads * c.width > 640) continue;  // plain code: slow
    for (const float odd : {0.0f, kNan, kInfinity}) {
      if (odd != 0 && c.tokens > 200) continue;
      const std::vector<float> sinks = Normals(heads, 4);
      const AttentionParams params{heads, 1 / std::sqrt(static_cast<float>(c.width)), c.soft_cap, c.window, c.sinks ? sinks.data() : nullptr};
      Sequence s(c.tokens, heads, c.kv_heads, c.width, KvType::kBF16, 31), other(45, heads, c.kv_heads, c.width, KvType::kBF16, 32);
      for (int p = 0; c.slope > 0 && p < c.tokens; ++p) {
        for (int h = 0; h < heads; ++h) s.q[(size_t(p) * heads + h) * c.width] = c.slope * static_cast<float>(h % 3);  // some heads only
        for (int g = 0; g < c.kv_heads; ++g) s.k[(size_t(p) * c.kv_heads + g) * c.width] = static_cast<float>(p / 32 * 4);
      }
      if (odd != 0) {
        s.k[(size_t(50) * c.kv_heads + c.kv_heads - 1) * c.width + 3] = odd;
        s.v[size_t(61) * c.kv_heads * c.width + 5] = -odd;
      }
      const std::vector<float> prompt = s.Whole(params, isa(), two_), beside = other.Whole(params, isa(), two_);
      const size_t row_floats = size_t(heads) * c.width;
      std::vector<float> out = s.Out(), other_out = other.Out();
      for (int row : {0, 1, 31, 32, 44, 49, 50, 63, 64, 69, 100, 127, 128, 139, 149, 169, 200, 255, 299, 511, 512, 529, 539, 699}) {
        if (row >= c.tokens) continue;
        for (ThreadPool* pool : {&one_, &two_, &five}) {
          std::vector<AttentionJob> jobs = {s.Job(row, row + 1, &out)};
          if (pool == &five) jobs.push_back(other.Job(44, 45, &other_out));
          std::fill_n(out.begin() + row * row_floats, row_floats, 7.0f);
          Attention(jobs, params, isa(), *pool);
          ASSERT_EQ(std::memcmp(out.data() + row * row_floats, prompt.data() + row * row_floats, row_floats * sizeof(float)), 0)
              << "row " << row << " G " << c.kv_heads << " group " << c.group << " E " << c.width << " threads " << pool->count() << " " << odd;
        }
        ASSERT_EQ(std::memcmp(other_out.data() + 44 * row_floats, beside.data() + 44 * row_floats, row_floats * sizeof(float)), 0);
      }
    }
  }
}

// A row does not see later tokens at all: infinite or NaN ones change no bit. Nothing crashes where they are seen.
TEST_P(AttentionTest, LaterInfinitiesAndNansDoNotReachBack) {
  for (const KvType type : kTypes) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (const bool in_keys : {false, true}) {
        Sequence s(90, 4, 2, 24, type, 21);
        const AttentionParams params{4, 0.2f, 0, 40, nullptr};
        const std::vector<float> clean = s.Whole(params, isa(), one_);
        (in_keys ? s.k : s.v)[size_t(45) * 48 + 5] = bad;
        const std::vector<float> dirty = s.Whole(params, isa(), two_);
        for (int i = 0; i < s.tokens; ++i) {
          const bool sees = i >= 45 && i < 85;
          const bool same = std::memcmp(clean.data() + i * 96, dirty.data() + i * 96, 96 * sizeof(float)) == 0;
          ASSERT_EQ(same, !sees) << i << " in keys " << in_keys << " " << bad << " type " << static_cast<int>(type);
        }
      }
    }
  }
}

TEST_P(AttentionTest, NoJobsAndNoRowsAreFine) {
  Sequence s(4, 1, 1, 8, KvType::kF32, 2);
  std::vector<float> out = s.Out();
  Attention({}, {1, 1.0f, 0, 0, nullptr}, isa(), two_);
  const AttentionJob jobs[] = {s.Job(2, 2, &out), s.Job(0, 0, &out)};
  Attention(jobs, {1, 1.0f, 0, 0, nullptr}, isa(), two_);
  for (const float x : out) EXPECT_TRUE(std::isnan(x));
  const KvStoreJob store[] = {s.StoreJob(1, 1)};
  StoreKv(store, isa(), two_);
  for (const std::byte b : s.keys) EXPECT_EQ(b, std::byte{0xff});
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionTest, testing::ValuesIn(kAttentionLines), KernelLineName);

}  // namespace
}  // namespace hone
