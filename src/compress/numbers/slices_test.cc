// Every table of slices against the scalar definitions, weight by weight.
#include "compress/numbers/slices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/cpu.h"
#include "base/random.h"
#include "compress/numbers/small_floats.h"
#include "compress/numbers/uniform.h"
#include "tensor/float16.h"

namespace hone {
namespace {

float RoundedTo(DType dtype, float x) {
  return dtype == DType::kF16 ? F16ToF32(F32ToF16(x)) : dtype == DType::kBF16 ? Bf16ToF32(F32ToBf16(x)) : x;
}

class SlicesTest : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!ReadCpuFacts().Supports(GetParam())) GTEST_SKIP() << "this CPU lacks " << IsaName(GetParam());
  }
  const Slices& slices() const { return SlicesFor(GetParam()); }
  // Numbers of all magnitudes, halves of steps, both zeros.
  std::vector<float> Numbers(int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) {
      const float sign = rng_.Below(2) == 0 ? 1.0f : -1.0f;
      switch (rng_.Below(5)) {
        case 0: v = sign * 0; break;
        case 1: v = sign * 0.25f * static_cast<float>(rng_.Below(64)); break;
        case 2:
          v = sign * std::ldexp(1.0f + static_cast<float>(rng_.Below(1u << 23)) / (1 << 23), static_cast<int>(rng_.Below(60)) - 40);
          break;
        default: v = sign * 8 * static_cast<float>(rng_.Below(1u << 24)) / (1 << 24);
      }
    }
    return x;
  }
  Rng rng_{3};
};

constexpr int64_t kLengths[] = {1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 64, 100, 1000};
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

TEST_P(SlicesTest, RoundAsTheDefinitions) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = Numbers(n);
    std::vector<uint8_t> codes(n), wanted(n);
    for (const float scale : {1.0f, 0.5f, 0.013f, 1e-6f, 1e30f}) {
      for (const int bits : {2, 3, 4, 8}) {
        const int top = (1 << bits) - 1;
        const GridSpec gptq{GridRule::kGptq, bits};
        for (const int zero : {0, top / 3, top}) {
          slices().round(x.data(), n, scale, static_cast<float>(zero), top, codes.data());
          for (int64_t i = 0; i < n; ++i) wanted[i] = static_cast<uint8_t>(EncodeUniform(gptq, {scale, static_cast<float>(zero)}, x[i]));
          ASSERT_EQ(codes, wanted) << scale << " " << bits << " " << zero;
        }
        const int half = 1 << (bits - 1);
        for (const DType dtype : kTypes) {
          for (const int zero : {-half, 0, half - 1}) {
            slices().round_in(dtype, x.data(), n, scale, static_cast<float>(zero), half, codes.data());
            for (int64_t i = 0; i < n; ++i) {
              const float code = RoundedTo(dtype, RoundedTo(dtype, x[i] / scale) + static_cast<float>(zero));
              wanted[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(code), -1.0f * half, half - 1.0f) + half);
            }
            ASSERT_EQ(codes, wanted) << scale << " " << bits << " " << zero << " " << Info(dtype).name;
          }
        }
      }
    }
    std::vector<int8_t> bytes(n), wanted_bytes(n);
    slices().round_to_bytes(x.data(), n, 33.3f, bytes.data());
    for (int64_t i = 0; i < n; ++i) wanted_bytes[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x[i] * 33.3f), -127.0f, 127.0f));
    EXPECT_EQ(bytes, wanted_bytes);
  }
}

TEST_P(SlicesTest, SmallFloatsAsTheDefinitions) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = Numbers(n);
    std::vector<uint8_t> codes(n), wanted(n);
    for (const float scale : {1.0f, 0.017f, 3.0f, 0x1.0p-127f, 0x1.0p100f}) {
      for (const DType dtype : kTypes) {
        slices().to_e4m3(dtype, x.data(), n, scale, codes.data());
        for (int64_t i = 0; i < n; ++i) wanted[i] = EncodeSmallFloat(kE4M3, RoundedTo(dtype, x[i] / scale));
        ASSERT_EQ(codes, wanted) << scale << " " << Info(dtype).name;
      }
      slices().to_e5m2(x.data(), n, scale, codes.data());
      for (int64_t i = 0; i < n; ++i) wanted[i] = EncodeSmallFloat(kE5M2, x[i] / scale);
      ASSERT_EQ(codes, wanted) << scale << " E5M2";
    }
  }
}

TEST_P(SlicesTest, BlocksOfFourBitFloatsAsTheDefinitions) {
  for (const int block : {16, 32, 64, 112}) {
    for (const int64_t blocks : {1, 2, 5}) {
      std::vector<float> x = Numbers(blocks * block), scales(blocks), largest(blocks);
      for (int64_t i = 0; i < 11; ++i) x[i] = static_cast<float>(i - 5) * 1e38f;
      slices().largest(x.data(), blocks, block, largest.data());
      for (int64_t b = 0; b < blocks; ++b) {
        float wanted = 0;
        for (int i = 0; i < block; ++i) wanted = std::max(wanted, std::fabs(x[b * block + i]));
        EXPECT_EQ(largest[b], wanted);
      }
      for (const float scale : {1.0f, 0.017f, 3.0f, 0.25f, 0x1.0p-149f, 0x1.0p-127f, 0x1.0p-126f, 0x1.0p100f, 0x1.0p126f, 0x1.0p127f}) {
        for (int64_t b = 0; b < blocks; ++b) scales[b] = b % 2 == 0 ? scale : scale * 0.75f + 0x1.0p-149f;
        std::vector<std::byte> packed(blocks * block / 2 + 1, std::byte{0xa5});
        slices().to_e2m1(x.data(), blocks, block, scales.data(), packed.data());
        for (int64_t i = 0; i < blocks * block; ++i) {
          const float scaled = x[i] / scales[i / block];
          const int wanted = scaled == 0 ? 0 : EncodeSmallFloat(kE2M1, std::clamp(scaled, -6.0f, 6.0f));
          ASSERT_EQ(static_cast<int>(packed[i / 2]) >> (i % 2 == 0 ? 0 : 4) & 15, wanted) << x[i] << " / " << scales[i / block];
        }
        EXPECT_EQ(packed.back(), std::byte{0xa5}) << "written past the end";
      }
    }
  }
}

TEST_P(SlicesTest, RangesCountsAndComparisons) {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = Numbers(n), y = Numbers(n);
    float least, most;
    slices().range(x.data(), n, &least, &most);
    EXPECT_EQ(least, *std::min_element(x.begin(), x.end()));
    EXPECT_EQ(most, *std::max_element(x.begin(), x.end()));
    float bounds[15];
    for (int i = 0; i < 15; ++i) bounds[i] = static_cast<float>(i - 7) * 0.5f;
    std::vector<uint8_t> counts(n), codes(n);
    slices().count_below(x.data(), n, 0.5f, bounds, counts.data());
    std::vector<float> back(n);
    for (int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(counts[i], std::lower_bound(bounds, bounds + 15, x[i] * 0.5f) - bounds) << x[i];
      codes[i] = static_cast<uint8_t>(rng_.Below(256));
    }
    slices().dequantize(codes.data(), n, 0.037f, 129, back.data());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(back[i], static_cast<float>(codes[i] - 129) * 0.037f);
    double errors = 1, power = 2, largest = 0, first_errors = 1, first_power = 2, first_largest = 0, sum = 1;
    slices().compare(x.data(), y.data(), n, &errors, &power, &largest);
    kSlicesV2.compare(x.data(), y.data(), n, &first_errors, &first_power, &first_largest);
    EXPECT_EQ(errors, first_errors);
    EXPECT_EQ(power, first_power);
    double wanted_largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      sum += std::pow(double{x[i]} - y[i], 2);
      wanted_largest = std::max(wanted_largest, std::fabs(double{x[i]} - y[i]));
    }
    EXPECT_NEAR(errors, sum, 1e-12 * sum);
    EXPECT_EQ(largest, wanted_largest);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -HUGE_VALF}) {
      std::vector<float> damaged = x;
      EXPECT_TRUE(slices().finite(damaged.data(), n));
      damaged[rng_.Below(static_cast<uint32_t>(n))] = bad;
      EXPECT_FALSE(slices().finite(damaged.data(), n));
    }
  }
}

TEST_P(SlicesTest, CodesAreComparedAsTheDefinition) {
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(i - 7) / 8.1f;
  for (const int64_t block : {16, 64, 80}) {
    for (const int64_t blocks : {1, 2, 31, 32, 33, 100}) {
      std::vector<float> x(blocks * block), scales(blocks);
      std::vector<std::byte> packed(x.size() / 2);
      for (std::byte& pair : packed) pair = static_cast<std::byte>(rng_.Below(256));
      for (int64_t b = 0; b < blocks; ++b) {
        scales[b] = b % 5 == 3 ? 0 : std::ldexp(1.0f + static_cast<float>(rng_.Below(1000)) / 1000, static_cast<int>(rng_.Below(80)) - 40);
        for (int64_t i = b * block; i < (b + 1) * block; ++i)
          x[i] = scales[b] * (static_cast<float>(rng_.Below(1u << 20)) / (1 << 19) - 1);
      }
      std::vector<CodeSums> sums(blocks), first_sums(blocks);
      double errors = 0, largest = 0, first_errors = 0, first_largest = 0, wanted_errors = 0, wanted_largest = 0;
      slices().compare_codes(x.data(), packed.data(), blocks, block, values, scales.data(), sums.data(), &errors, &largest);
      kSlicesV2.compare_codes(x.data(), packed.data(), blocks, block, values, scales.data(), first_sums.data(), &first_errors,
                              &first_largest);
      EXPECT_EQ(errors, first_errors);
      EXPECT_EQ(largest, first_largest);
      for (int64_t b = 0; b < blocks; ++b) {
        EXPECT_EQ(sums[b].product, first_sums[b].product);
        EXPECT_EQ(sums[b].power, first_sums[b].power);
        double product = 0, power = 0;
        for (int64_t i = b * block; i < (b + 1) * block; ++i) {
          const int pair = static_cast<int>(packed[i / 2]);
          const double s = scales[b], v = values[i % 2 == 0 ? pair >> 4 : pair & 15], e = x[i] - s * v;
          wanted_errors += e * e;
          wanted_largest = std::max(wanted_largest, std::fabs(e));
          product += s > 0 ? e * v / s : 0;
          power += v * v;
        }
        EXPECT_NEAR(sums[b].product, product, 1e-5 * static_cast<double>(block));
        EXPECT_NEAR(sums[b].power, power, 1e-5 * power);
      }
      EXPECT_NEAR(errors, wanted_errors, 1e-5 * wanted_errors);
      EXPECT_NEAR(largest, wanted_largest, 1e-6 * wanted_largest);
    }
  }
}

TEST_P(SlicesTest, ReadsAndLooksUpAsTheDefinitions) {
  for (const int64_t n : kLengths) {
    std::vector<float> x = Numbers(n), back(n);
    std::vector<uint16_t> halves(n);
    for (int64_t i = 0; i < n; ++i) halves[i] = F32ToBf16(x[i]);
    EXPECT_TRUE(slices().from_bf16(reinterpret_cast<const std::byte*>(halves.data()), n, back.data()));
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(back[i], Bf16ToF32(halves[i]));
    for (const uint16_t bad : {0x7f80, 0xff80, 0x7fc0, 0xff81}) {
      std::vector<uint16_t> damaged = halves;
      damaged[rng_.Below(static_cast<uint32_t>(n))] = bad;
      EXPECT_FALSE(slices().from_bf16(reinterpret_cast<const std::byte*>(damaged.data()), n, back.data())) << bad;
    }
    std::vector<std::byte> bytes(n);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng_.Below(256));
    slices().from_bytes(bytes.data(), n, 0.037f, back.data());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(back[i], static_cast<float>(static_cast<int8_t>(bytes[i])) * 0.037f);
    float values[16];
    for (float& value : values) value = Numbers(1)[0];
    for (const bool high_first : {false, true}) {
      for (const int64_t blocks : {1, 2, 3}) {
        const int64_t block = n / blocks / 2 * 2;
        const float scales[3] = {0.3f, 1.7f, 0x1.0p-20f};
        slices().look_up(bytes.data(), blocks, block, values, high_first, scales, back.data());
        for (int64_t i = 0; i < blocks * block; ++i) {
          const int pair = static_cast<int>(bytes[i / 2]);
          ASSERT_EQ(back[i], values[(i % 2 == 0) == high_first ? pair >> 4 : pair & 15] * scales[i / block]);
        }
      }
    }
    uint8_t codes[16];
    for (int i = 0; i < 16; ++i) codes[i] = static_cast<uint8_t>((7 * i + 3) % 16);
    // Bounds far apart, many of them near zero, evenly within -1 .. 1 and a little to the side of that.
    for (const auto& [step, shift] : {std::pair{0.5f, 0.0f}, {0.01f, 0.0f}, {0.125f, 0.0f}, {0.1f, 0.03f}}) {
      float bounds[15];
      for (int i = 0; i < 15; ++i) bounds[i] = static_cast<float>(i - 7) * step + shift;
      std::vector<float> near = x;  // some of them at a bound, or beside one
      for (int64_t i = 0; i < n; i += 3) near[i] = 2 * std::nextafter(bounds[i % 15], static_cast<float>(i % 2 == 0 ? -9 : 9));
      for (int64_t i = 1; i < n; i += 3) near[i] = 2 * bounds[i % 15];
      std::vector<uint8_t> packed((n + 1) / 2 + 1, 0xa5), wanted((n + 1) / 2 + 1);
      const float half = 0.5f;
      slices().to_codebook(near.data(), 1, n, &half, bounds, codes, packed.data());
      for (int64_t i = 0; i < n; ++i) {
        const uint8_t code = codes[std::lower_bound(bounds, bounds + 15, near[i] * 0.5f) - bounds];
        wanted[i / 2] = static_cast<uint8_t>(wanted[i / 2] | (i % 2 == 0 ? code << 4 : code));
      }
      wanted.back() = 0xa5;  // not written past the end
      ASSERT_EQ(packed, wanted) << n << " " << step;
      // Blocks, a factor each.
      if (n % 16 != 0) continue;
      const float factors[2] = {half, 0.3f};
      std::vector<uint8_t> of_blocks(packed.size(), 0xa5), one(packed.size());
      slices().to_codebook(near.data(), 2, n / 2, factors, bounds, codes, of_blocks.data());
      slices().to_codebook(near.data(), 1, n / 2, &factors[0], bounds, codes, one.data());
      slices().to_codebook(near.data() + n / 2, 1, n / 2, &factors[1], bounds, codes, one.data() + n / 4);
      one.back() = 0xa5;
      ASSERT_EQ(of_blocks, one) << n << " " << step;
    }
    // The nearest of 256, by looking at all.
    std::vector<float> ladder(256);
    for (int i = 0; i < 256; ++i) ladder[i] = std::pow(static_cast<float>(i - 100) / 64, 3.0f);
    std::vector<uint8_t> at(n + 1, 0xa5);
    slices().to_nearest(x.data(), n, 0.25f, 1.5f, ladder.data(), at.data());
    for (int64_t i = 0; i < n; ++i) {
      const float v = (x[i] - 0.25f) * 1.5f;
      for (const float value : ladder) ASSERT_LE(std::fabs(ladder[at[i]] - v), std::fabs(value - v)) << n << " " << v;
    }
    EXPECT_EQ(at.back(), 0xa5);
    // Of two as near the upper one; beyond the ends the first and the last.
    std::vector<float> ends(n);
    for (int64_t i = 0; i < n; ++i) ends[i] = i % 3 == 0 ? 127.5f : i % 3 == 1 ? -9.0f : 999.0f;
    for (int i = 0; i < 256; ++i) ladder[i] = static_cast<float>(i);
    slices().to_nearest(ends.data(), n, 0, 1, ladder.data(), at.data());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(at[i], i % 3 == 0 ? 128 : i % 3 == 1 ? 0 : 255) << n;
  }
  std::vector<std::byte> all(256);
  for (int i = 0; i < 256; ++i) all[i] = static_cast<std::byte>(i);
  std::vector<float> back(256);
  for (const float scale : {1.0f, 0.017f, 0x1.0p-120f}) {
    for (const bool e5m2 : {false, true}) {
      (e5m2 ? slices().from_e5m2 : slices().from_e4m3)(all.data(), 256, scale, back.data());
      for (int i = 0; i < 256; ++i) {
        const float wanted = DecodeSmallFloat(e5m2 ? kE5M2 : kE4M3, static_cast<uint8_t>(i)) * scale;
        if (std::isnan(wanted)) {
          EXPECT_TRUE(std::isnan(back[i])) << i;
        } else {
          EXPECT_EQ(back[i], wanted) << i;
          EXPECT_EQ(std::signbit(back[i]), std::signbit(wanted)) << i;
        }
      }
    }
  }
}

TEST_P(SlicesTest, PacksAllWidthsAndLengths) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (int64_t n = 1; n <= 40; ++n) {
      std::vector<uint8_t> codes(n), back(n);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(rng_.Below(1u << bits));
      std::vector<std::byte> packed((n * bits + 7) / 8 + 1, std::byte{0xa5});
      slices().pack(codes.data(), n, bits, packed.data());
      for (int64_t bit = 0; bit < n * bits; ++bit) {
        ASSERT_EQ(static_cast<int>(packed[bit / 8]) >> (bit % 8) & 1, codes[bit / bits] >> (bit % bits) & 1) << bits << " " << n;
      }
      EXPECT_EQ(packed.back(), std::byte{0xa5}) << "written past the end";
      slices().unpack(packed.data(), n, bits, back.data());
      EXPECT_EQ(back, codes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vectors, SlicesTest, testing::Values(Isa::kScalar, Isa::kAvx2, Isa::kAvx512),
                         [](const auto& one) { return std::string(IsaName(one.param)); });

}  // namespace
}  // namespace hone
