// The kernels for few rows give the bits of the general path.
#include "kernels/matmul/few_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "kernels/matmul/kernel.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/test_weights.h"
#include "tensor/blocks.h"

namespace hone {
namespace {

constexpr int64_t kMostOfOneJob = 256;

std::vector<float> FewRowsProduct(const PackedMatrix& w, const float* x, int64_t m, int threads) {
  ThreadPool pool(threads);
  MatmulScratch scratch(m, w.k());
  std::vector<float> y(m * w.n());
  const MatmulJob job{&w, x, w.k(), y.data(), w.n(), m};
  Matmul({&job, 1}, scratch, pool);
  return y;
}

// What the general path makes of rows `x`: codes and scales unpacked into memory, multiply_codes of the kernel's ISA.
std::vector<float> GeneralPath(const PackedMatrix& w, const float* x, int64_t m) {
  const MatmulKernel& kernel = w.kernel();
  const PanelFormat& format = *kernel.format;
  const int64_t k = w.k(), n = w.n(), terms = w.input_terms(), k32 = k / 32, groups = k / format.group;
  std::vector<int8_t> codes(terms * m * k);
  std::vector<float> scales(m * k32), sums(m * groups), y(m * n);
  std::vector<int32_t> init(terms * m * groups);
  for (int64_t row = 0; row < m; ++row) {
    std::vector<int32_t> of[2] = {std::vector<int32_t>(k / 16), std::vector<int32_t>(k / 16)};
    std::vector<uint8_t> wide(k32);
    kernel.arithmetic->round_row(x + row * k, k, {.codes = &codes[row * k],
                                                  .scales = &scales[row * k32],
                                                  .sums = of[0].data(),
                                                  .second = terms == 2 ? &codes[(m + row) * k] : nullptr,
                                                  .second_sums = of[1].data(),
                                                  .wide = terms == 2 && kernel.skips_terms() ? wide.data() : nullptr});
    for (int64_t g = 0; g < groups; ++g) {
      int32_t sum = 0;
      for (int64_t term = 0; term < terms; ++term) {
        const int32_t part = format.group == 16 ? of[term][g] : of[term][2 * g] + of[term][2 * g + 1];
        init[(term * m + row) * groups + g] = -format.offset * part;
        sum = kDigits * sum + part;
      }
      sums[row * groups + g] = scales[row * k32 + g * format.group / 32] * static_cast<float>(sum);
    }
  }
  for (int64_t tile = 0; tile < w.tile_count(); ++tile) {
    std::vector<float> accumulator(m * kTileColumns);
    for (int64_t k0 = 0; k0 < k; k0 += format.stretch()) {
      const int part = static_cast<int>(std::min<int64_t>(k - k0, format.stretch()));
      std::vector<uint8_t> unpacked[2];
      std::vector<float> scale[2], min[2];
      for (int panel = 0; panel < 2; ++panel) {
        unpacked[panel].resize(part * kPanelRows), scale[panel].resize(part * kPanelRows), min[panel].resize(part * kPanelRows);
        const auto* chunks = reinterpret_cast<const uint8_t*>(w.Find(tile, std::min(panel, w.panels_of(tile) - 1), k0));
        kernel.unpack->codes(chunks, part, chunks, unpacked[panel].data(), scale[panel].data(), min[panel].data());
      }
      kernel.arithmetic->multiply_codes({.codes = {unpacked[0].data(), unpacked[1].data()},
                                         .scales = {scale[0].data(), scale[1].data()},
                                         .mins = {min[0].data(), min[1].data()},
                                         .k = part,
                                         .group = format.group,
                                         .bits = format.bits,
                                         .has_min = format.has_min,
                                         .terms = static_cast<int>(terms),
                                         .term_rows = m,
                                         .x = &codes[k0],
                                         .x_stride = k,
                                         .x_scales = &scales[k0 / 32],
                                         .x_scale_stride = k32,
                                         .x_init = &init[k0 / format.group],
                                         .x_sums = &sums[k0 / format.group],
                                         .x_group_stride = groups,
                                         .rows = static_cast<int>(m),
                                         .accumulator = accumulator.data(),
                                         .ahead = unpacked[0].data(),
                                         .ahead_bytes = 0});
    }
    for (int64_t i = 0; i < m * kTileColumns; ++i) {
      const int64_t column = tile * kTileColumns + i % kTileColumns;
      if (column < n) y[i / kTileColumns * n + column] = accumulator[i];
    }
  }
  return y;
}

// Every line, every number of rows, one and two input terms, tiles of one and two panels, K of whole and of broken stretches.
TEST(FewRows, BitsOfTheGeneralPath) {
  const CpuFacts facts = ReadCpuFacts();
  constexpr int64_t kMany = kRowsToBlock + 3;
  for (const MatmulFewRows& line : MatmulFewRowsKernels()) {
    if (!facts.Supports(line.isa)) continue;
    const bool floats = FindPanelFormat(line.type)->is_float();
    const int64_t chunk = FindPanelFormat(line.type)->chunk;
    for (const int terms : floats ? std::vector<int>{1} : std::vector<int>{1, 2}) {
      for (const int64_t k : floats ? std::vector<int64_t>{1, 63, 64, 65, 128, 129, 255, 512, 1001}
                                    : std::vector<int64_t>{chunk, 3 * chunk, 1280, 2048}) {
        SCOPED_TRACE(testing::Message() << Info(line.type).name << " " << IsaName(line.isa) << " K " << k << " terms " << terms);
        const int64_t n = 75;  // two whole tiles and one of a single panel
        ThreadPool pool(1);
        const auto packed = PackedMatrix::Pack(RandomWeights(line.type, n, k, 3).view(), {.isa = line.isa, .input_terms = terms, .deterministic = true}, pool);
        ASSERT_TRUE(packed);
        ASSERT_EQ(packed->kernel().few_rows, line.run);
        const std::vector<float> x = RandomRows(kMany, k, 4);
        const std::vector<float> all = FewRowsProduct(*packed, x.data(), kMany, 1);
        ASSERT_TRUE(floats || all == GeneralPath(*packed, x.data(), kMany));
        for (int64_t rows = 1; rows <= kRowsInParts; ++rows) {
          const int64_t first = kMany - rows;
          const std::vector<float> few = FewRowsProduct(*packed, x.data() + first * k, rows, rows % 3 + 1);
          ASSERT_EQ(0, std::memcmp(all.data() + first * n, few.data(), few.size() * sizeof(float))) << rows << " rows";
        }
      }
    }
  }
}

// The largest codes beside the largest numbers of either sign: what words and their sums have room for (few_rows_words_vnni.h).
TEST(FewRows, LargestNumbersHaveRoom) {
  const CpuFacts facts = ReadCpuFacts();
  const int64_t n = 32, k = 256;
  Tensor weights = RandomWeights(DType::kQ8_0, n, k, 3);
  auto* blocks = reinterpret_cast<BlockQ8_0*>(weights.data());
  for (int64_t i = 0; i < n * k; ++i) {  // every pattern of four signs, in every place of a quad
    blocks[i / 32].qs[i % 32] = i / k >> (i % 4) & 1 ? 127 : -128;
  }
  std::vector<float> x(kMostOfOneJob * k);
  for (size_t i = 0; i < x.size(); ++i) {
    const float magnitude = static_cast<int64_t>(i) % k / 32 == static_cast<int64_t>(i) / k % 8 ? 3.0f : 0.375f;  // one group of a row is wide
    x[i] = i / k >> (i / 4 % 2 * 4 + i % 4) & 1 ? magnitude : -magnitude;
  }
  for (const MatmulFewRows& line : MatmulFewRowsKernels()) {
    if (line.type != DType::kQ8_0 || !facts.Supports(line.isa)) continue;
    ThreadPool pool(1);
    const auto packed = PackedMatrix::Pack(weights.view(), {.isa = line.isa, .input_terms = 2, .deterministic = true}, pool);
    ASSERT_TRUE(packed);
    const std::vector<float> all = GeneralPath(*packed, x.data(), kMostOfOneJob);
    for (int64_t first = 0; first < kMostOfOneJob; first += kFewRows) {
      const std::vector<float> few = FewRowsProduct(*packed, x.data() + first * k, kFewRows, 1);
      ASSERT_EQ(0, std::memcmp(all.data() + first * n, few.data(), few.size() * sizeof(float))) << IsaName(line.isa) << " row " << first;
    }
  }
}

// Rows that are not finite, hardly are, or are hardly anything: each alone among usual ones, which keep their bits.
TEST(FewRows, StrangeRowsStayAlone) {
  const CpuFacts facts = ReadCpuFacts();
  constexpr int64_t kMany = kRowsToBlock + 3;
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const MatmulFewRows& line : MatmulFewRowsKernels()) {
    if (!facts.Supports(line.isa)) continue;
    const PanelFormat* format = FindPanelFormat(line.type);
    const int64_t n = 48, k = format->is_float() ? 200 : 2 * std::max<int64_t>(format->chunk, 64);
    const std::vector<float> usual = RandomRows(kMany, k, 4);
    for (const int terms : format->is_float() ? std::vector<int>{1} : std::vector<int>{1, 2}) {
      SCOPED_TRACE(testing::Message() << Info(line.type).name << " " << IsaName(line.isa) << " terms " << terms);
      ThreadPool pool(1);
      const auto packed = PackedMatrix::Pack(RandomWeights(line.type, n, k, 3).view(), {.isa = line.isa, .input_terms = terms, .deterministic = true}, pool);
      ASSERT_TRUE(packed);
      for (const float value : {kNan, kInf, -kInf, 3.4e38f, -1e30f, 1e-30f, 1e-42f, 0.0f}) {
        std::vector<float> x = usual;
        constexpr int64_t kStrange = kMany - 2;
        for (int64_t i = 0; i < k; ++i) {
          float& at = x[kStrange * k + i];
          at = std::isfinite(value) ? (at < 0 ? -value : value) : i == k / 2 ? value : at;
        }
        const std::vector<float> all = FewRowsProduct(*packed, x.data(), kMany, 1), before = FewRowsProduct(*packed, usual.data(), kMany, 1);
        for (int64_t rows = 2; rows <= kRowsInParts; ++rows) {
          const int64_t first = kMany - rows;
          const std::vector<float> few = FewRowsProduct(*packed, x.data() + first * k, rows, 1);
          for (int64_t i = 0; i < rows * n; ++i) {
            const bool strange = first + i / n == kStrange;
            const float wanted = (strange ? all : before)[first * n + i];
            if (strange && std::isnan(wanted) && std::isnan(few[i])) continue;
            ASSERT_EQ(0, std::memcmp(&wanted, &few[i], sizeof(float))) << value << ", row " << i / n << " of " << rows << ": " << wanted << " " << few[i];
          }
          if (!std::isfinite(value)) {
            for (int64_t i = 0; i < n; ++i) ASSERT_FALSE(std::isfinite(few[(kStrange - first) * n + i])) << value;
          }
        }
      }
    }
  }
}

// The formats that most models come in have a line at each ISA that decodes well.
TEST(FewRows, CommonFormatsAreListed) {
  for (const DType type : {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0, DType::kIQ4_NL, DType::kNF4, DType::kMXFP4, DType::kQ4_K,
                           DType::kQ5_K, DType::kQ6_K, DType::kIQ4_XS, DType::kTQ2_0, DType::kBF16, DType::kF16}) {
    for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kAmx}) {
      EXPECT_NE(FindMatmulKernel(type, isa, false).few_rows, nullptr) << Info(type).name << " " << IsaName(isa);
    }
    EXPECT_EQ(FindMatmulKernel(type, Isa::kScalar, false).few_rows, nullptr);
  }
  EXPECT_EQ(FindMatmulKernel(DType::kQ4_0, Isa::kVnni, true).few_rows, nullptr) << "exact: F32 activations";
}

}  // namespace
}  // namespace hone
