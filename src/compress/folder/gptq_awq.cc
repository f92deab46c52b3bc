// The formats of GPTQ and AWQ (GEMM): codes 0 .. 2^b - 1 with a zero point, one F16 scale a group, matrices turned to
// [in, out]. Encode rounds to nearest; EncodeCodes takes what a better
// method has chosen.
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compress/folder/linear_format.h"
#include "compress/numbers/uniform.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// GPTQ packs along the input for weights and along the output for zeros, low bits first; version 1 stores zero - 1, and
// asymmetric files are version 2 unless another is asked for, where a zero point of 0 survives.
// AWQ packs along the output, eight codes a word in the order 0 2 4 6 1 3 5 7.
class TurnedFormat : public LinearFormat {
 public:
  TurnedFormat(const LinearScheme& scheme, bool awq)
      : scheme_(scheme),
        awq_(awq),
        zeros_less_(scheme.zeros_version == 1 || (scheme.zeros_version == 0 && scheme.symmetric) ? 1 : 0),
        spec_{awq ? GridRule::kAwq : GridRule::kGptq, scheme.bits, scheme.symmetric} {
    spec_.holds_zero = true;
  }

  Result<void> Check(int64_t rows, int64_t columns) const override {
    const int64_t group = Group(columns);
    if (columns % group != 0)
      return Unsupported(
          fmt::format("{} columns are no whole groups of {}; choose a --group that divides them", columns, group));
    if (awq_ && rows % 8 != 0) return Unsupported(fmt::format("{} rows: AWQ packs eight a word", rows));
    if (!awq_ && (columns % 32 != 0 || rows * scheme_.bits % 32 != 0)) {
      return Unsupported(fmt::format("[{}, {}]: GPTQ packs whole 32-bit words of {}-bit codes both ways", rows, columns,
                                     scheme_.bits));
    }
    return {};
  }

  std::vector<TensorInfo> Outputs(const std::string& module, int64_t rows, int64_t columns, DType) const override {
    const int64_t groups = columns / Group(columns), bits = scheme_.bits;
    if (awq_) {
      return {{module + ".qweight", DType::kI32, Shape{columns, rows / 8}},
              {module + ".qzeros", DType::kI32, Shape{groups, rows / 8}},
              {module + ".scales", DType::kF16, Shape{groups, rows}}};
    }
    return {{module + ".qweight", DType::kI32, Shape{columns * bits / 32, rows}},
            {module + ".qzeros", DType::kI32, Shape{groups, rows * bits / 32}},
            {module + ".scales", DType::kF16, Shape{groups, rows}},
            {module + ".g_idx", DType::kI32, Shape{columns}}};
  }

  void Encode(const LinearWeight& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const int64_t group = Group(m.columns), groups = m.columns / group;
    const int top = HighestCode(spec_);
    std::vector<uint8_t> zeros(static_cast<size_t>(m.rows * groups));  // [groups, rows]
    threads.ParallelFor(static_cast<size_t>(m.rows), kBand, [&](size_t begin, size_t end) {
      std::vector<uint8_t> codes(static_cast<size_t>(kBand * m.columns));
      std::vector<float> place(static_cast<size_t>(m.columns));
      for (int64_t r0 = static_cast<int64_t>(begin); r0 < static_cast<int64_t>(end); r0 += kBand) {
        const int64_t band = std::min(kBand, static_cast<int64_t>(end) - r0);
        for (int64_t r = r0; r < r0 + band; ++r) {
          const float* row = m.Rows(r, 1, place.data());
          for (int64_t g = 0; g < groups; ++g) {
            const float* x = row + g * group;
            float least, most;
            slices_->range(x, group, &least, &most);
            Grid grid = GridOfRange(spec_, least, most);
            grid.scale = F16ToF32(std::max<uint16_t>(1, F32ToF16(grid.scale)));  // as stored; never 0
            grid.zero = std::clamp(grid.zero, 0.0f, static_cast<float>(top));
            PutGrid(grid, m.rows, r, g, out);
            zeros[g * m.rows + r] = static_cast<uint8_t>(grid.zero);
            slices_->round(x, group, grid.scale, grid.zero, top, &codes[(r - r0) * m.columns + g * group]);
          }
        }
        PackBand(codes.data(), r0, band, m.rows, m.columns, out);
      }
    });
    PackZeros(zeros, m.rows, groups, out);
    for (int64_t i = 0; !awq_ && i < m.columns; ++i) PutGroup(i, static_cast<int32_t>(i / group), out);
  }

  bool takes_codes() const override { return true; }
  DType scale_type(DType) const override { return DType::kF16; }
  void EncodeCodes(const LinearCodes& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const int64_t groups = m.columns / Group(m.columns);
    std::vector<uint8_t> zeros(m.grids.size());  // [groups, rows]
    threads.ParallelFor(static_cast<size_t>(m.rows), kBand, [&](size_t begin, size_t end) {
      for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r) {
        for (int64_t g = 0; g < groups; ++g) {
          PutGrid(m.grids[r * groups + g], m.rows, r, g, out);
          zeros[g * m.rows + r] = static_cast<uint8_t>(m.grids[r * groups + g].zero);
        }
      }
      for (int64_t r0 = static_cast<int64_t>(begin); r0 < static_cast<int64_t>(end); r0 += kBand) {
        const int64_t band = std::min(kBand, static_cast<int64_t>(end) - r0);
        PackBand(m.codes.data() + r0 * m.columns, r0, band, m.rows, m.columns, out);
      }
    });
    PackZeros(zeros, m.rows, groups, out);
    for (int64_t i = 0; !awq_ && i < m.columns; ++i) PutGroup(i, m.group_of[i], out);
  }

  void Decode(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, DType, int64_t first,
              int64_t count, float* w) const override {
    const int64_t group = Group(columns);
    const int bits = scheme_.bits;
    const uint32_t mask = (1u << bits) - 1;
    std::vector<uint8_t> codes(static_cast<size_t>(std::min(kBand, count) * columns));
    const std::vector<Run> runs = Runs(out, columns, group);
    for (int64_t r0 = first; r0 < first + count; r0 += kBand) {
      const int64_t band = std::min(kBand, first + count - r0);
      UnpackBand(out[0], r0, band, rows, columns, codes.data());
      for (int64_t r = r0; r < r0 + band; ++r, w += columns) {
        for (const Run& run : runs) {
          const int64_t g = run.group;
          const float scale = LoadAs(DType::kF16, out[2].data() + 2 * (g * rows + r));
          const uint32_t zero = awq_ ? CodeAt(out[1].data() + g * rows / 2, AwqPlace(r), 4)
                                     : (CodeAt(out[1].data() + g * rows * bits / 8, r, bits) + zeros_less_) & mask;
          slices_->dequantize(&codes[(r - r0) * columns + run.first], run.count, scale, static_cast<float>(zero), w + run.first);
        }
      }
    }
  }

  int64_t rows_together() const override { return 16; }  // a line of words
  std::string ConfigJson(DType) const override {
    const int64_t group = scheme_.group > 0 ? scheme_.group : -1;
    if (awq_) {
      return fmt::format(
          "{{\"bits\": 4, \"group_size\": {}, \"modules_to_not_convert\": null, \"quant_method\": \"awq\", "
          "\"version\": \"gemm\", "
          "\"zero_point\": true}}",
          group);
    }
    const char* version = zeros_less_ == 1 ? "gptq" : "gptq_v2";
    return fmt::format(
        "{{\"bits\": {}, \"checkpoint_format\": \"{}\", \"desc_act\": {}, \"format\": \"{}\", \"group_size\": {}, "
        "\"lm_head\": false, "
        "\"meta\": {{\"quantizer\": [\"hone:{}\"]}}, \"pack_dtype\": \"int32\", \"quant_method\": \"gptq\", \"sym\": "
        "{}}}",
        scheme_.bits, version, scheme_.method == "gptq" && scheme_.order == "activation", version, group, HONE_VERSION,
        scheme_.symmetric);
  }
  std::vector<std::pair<std::string, std::string>> Files(DType dtype) const override {
    if (awq_) return {};
    return {{"quantize_config.json", ConfigJson(dtype) + "\n"}};
  }

 private:
  int64_t Group(int64_t columns) const { return scheme_.group > 0 ? scheme_.group : columns; }
  // Columns that lie together and share a group.
  struct Run {
    int64_t first, count, group;
  };
  std::vector<Run> Runs(std::span<const std::span<const std::byte>> out, int64_t columns, int64_t group) const {
    std::vector<Run> runs;
    for (int64_t i = 0; i < columns; ++i) {
      const int64_t g = awq_ ? i / group : GroupOf(out[3], i);
      if (runs.empty() || runs.back().group != g) runs.push_back({i, 0, g});
      ++runs.back().count;
    }
    return runs;
  }
  // Which nibble of a row of words holds column `r` of [in, out].
  static uint64_t AwqPlace(int64_t r) {
    static constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return static_cast<uint64_t>(r / 8 * 8 + kNibble[r % 8]);
  }

  // Rows that are packed together: 64 bytes of the words of a turned matrix, or whole words of them.
  static constexpr int64_t kBand = 128;

  // Rows [r0, r0 + band) of codes [band, columns].
  void PackBand(const uint8_t* codes, int64_t r0, int64_t band, int64_t rows, int64_t columns,
                std::span<std::vector<std::byte>> out) const {
    std::byte* to = out[0].data();
    if (awq_) {
      // A few columns of all rows first: their lines fill up before others take their places in the cache.
      for (int64_t i = 0; i < columns; i += 16) {
        const int64_t count = std::min<int64_t>(16, columns - i);
        for (int64_t r = 0; r < band; r += 8)
          PackEight(codes + r * columns + i, columns, count, to + (i * rows + r0 + r) / 2, rows / 2);
      }
      return;
    }
    constexpr int64_t kAtOnce = 16;
    const int64_t words = columns * scheme_.bits / 32;
    std::vector<uint32_t> packed(static_cast<size_t>(kAtOnce * words));
    for (int64_t r = 0; r < band; r += kAtOnce) {
      const int64_t count = std::min(kAtOnce, band - r);
      for (int64_t i = 0; i < count; ++i)
        slices_->pack(codes + (r + i) * columns, columns, scheme_.bits, reinterpret_cast<std::byte*>(&packed[i * words]));
      for (int64_t w = 0; w < words; ++w) {
        uint32_t line[kAtOnce];
        for (int64_t i = 0; i < count; ++i) line[i] = packed[i * words + w];
        std::memcpy(to + 4 * (w * rows + r0 + r), line, static_cast<size_t>(4 * count));
      }
    }
  }
  void UnpackBand(std::span<const std::byte> in, int64_t r0, int64_t band, int64_t rows, int64_t columns,
                  uint8_t* codes) const {
    if (awq_) {
      const int64_t begin = r0 / 8 * 8, end = r0 + band;  // words of eight rows
      int64_t i = 0;
      for (; begin == r0 && band % 8 == 0 && i + 16 <= columns; i += 16) {
        for (int64_t r = begin; r < end; r += 8)
          UnpackSixteen(in.data() + (i * rows + r) / 2, rows / 2, codes + (r - r0) * columns + i, columns);
      }
      for (; i < columns; ++i) {
        for (int64_t r = begin; r < end; r += 8) {
          uint32_t word;
          std::memcpy(&word, in.data() + (i * rows + r) / 2, 4);
          for (int64_t k = std::max(r, r0); k < std::min(r + 8, end); ++k)
            codes[(k - r0) * columns + i] = static_cast<uint8_t>(word >> (4 * (AwqPlace(k) % 8)) & 15);
        }
      }
      return;
    }
    const int64_t words = columns * scheme_.bits / 32;
    std::vector<uint32_t> packed(static_cast<size_t>(band * words));
    for (int64_t w = 0; w < words; ++w) {
      for (int64_t i = 0; i < band; ++i)
        std::memcpy(&packed[i * words + w], in.data() + 4 * (w * rows + r0 + i), 4);
    }
    for (int64_t i = 0; i < band; ++i)
      slices_->unpack(reinterpret_cast<const std::byte*>(&packed[i * words]), columns, scheme_.bits, codes + i * columns);
  }

  // AWQ's order: the low half of a word's byte holds the first of a pair of rows, its high half the second.
  static constexpr int kRowsOfByte[4][2] = {{0, 2}, {4, 6}, {1, 3}, {5, 7}};

  // `count` columns of eight rows of codes to a word each, the words `stride` bytes apart.
  static void PackEight(const uint8_t* codes, int64_t columns, int64_t count, std::byte* out, int64_t stride) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      __m128i bytes[4];  // of sixteen words
      for (int b = 0; b < 4; ++b) {
        const auto row = [&](int k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + k * columns + i)); };
        bytes[b] = _mm_or_si128(row(kRowsOfByte[b][0]), _mm_slli_epi16(row(kRowsOfByte[b][1]), 4));
      }
      const __m128i low[2] = {_mm_unpacklo_epi8(bytes[0], bytes[1]), _mm_unpackhi_epi8(bytes[0], bytes[1])};
      const __m128i high[2] = {_mm_unpacklo_epi8(bytes[2], bytes[3]), _mm_unpackhi_epi8(bytes[2], bytes[3])};
      uint32_t words[16];
      for (int h = 0; h < 2; ++h) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(words + 8 * h), _mm_unpacklo_epi16(low[h], high[h]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(words + 8 * h + 4), _mm_unpackhi_epi16(low[h], high[h]));
      }
      for (int j = 0; j < 16; ++j) std::memcpy(out + (i + j) * stride, &words[j], 4);
    }
    for (; i < count; ++i) {
      uint32_t word = 0;
      for (int b = 0; b < 4; ++b) {
        const uint32_t byte = codes[kRowsOfByte[b][0] * columns + i] | codes[kRowsOfByte[b][1] * columns + i] << 4;
        word |= byte << (8 * b);
      }
      std::memcpy(out + i * stride, &word, 4);
    }
  }

  // Sixteen words, `stride` bytes apart, to eight rows of sixteen codes.
  static void UnpackSixteen(const std::byte* in, int64_t stride, uint8_t* codes, int64_t columns) {
    __m128i words[4];
    for (int q = 0; q < 4; ++q) {
      int32_t four[4];
      for (int j = 0; j < 4; ++j) std::memcpy(&four[j], in + (4 * q + j) * stride, 4);
      words[q] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(four));
      // Their first bytes together, then their second ...
      words[q] = _mm_shuffle_epi8(words[q], _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    }
    const __m128i low[2] = {_mm_unpacklo_epi32(words[0], words[1]), _mm_unpacklo_epi32(words[2], words[3])};
    const __m128i high[2] = {_mm_unpackhi_epi32(words[0], words[1]), _mm_unpackhi_epi32(words[2], words[3])};
    const __m128i bytes[4] = {_mm_unpacklo_epi64(low[0], low[1]), _mm_unpackhi_epi64(low[0], low[1]),
                              _mm_unpacklo_epi64(high[0], high[1]), _mm_unpackhi_epi64(high[0], high[1])};
    const __m128i half = _mm_set1_epi8(15);
    for (int b = 0; b < 4; ++b) {
      const auto put = [&](int row, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + row * columns), _mm_and_si128(v, half)); };
      put(kRowsOfByte[b][0], bytes[b]);
      put(kRowsOfByte[b][1], _mm_srli_epi16(bytes[b], 4));
    }
  }

  // zeros: [groups, rows].
  void PackZeros(std::vector<uint8_t>& zeros, int64_t rows, int64_t groups, std::span<std::vector<std::byte>> out) const {
    const uint8_t mask = static_cast<uint8_t>((1 << scheme_.bits) - 1);
    for (uint8_t& zero : zeros) zero = static_cast<uint8_t>((zero - zeros_less_) & mask);
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* of_group = zeros.data() + g * rows;
      if (awq_) {
        for (int64_t r = 0; r < rows; r += 8) PackEight(of_group + r, 1, 1, out[1].data() + (g * rows + r) / 2, 4);
      } else {
        PackBits(of_group, rows, scheme_.bits, out[1].data() + g * rows * scheme_.bits / 8);
      }
    }
  }

  // Code `index` of words of `bits` bits.
  static uint32_t CodeAt(const std::byte* words, uint64_t index, int bits) {
    const uint64_t bit = index * bits;
    uint16_t two = static_cast<uint8_t>(words[bit / 8]);
    if (bit % 8 + bits > 8) two = static_cast<uint16_t>(two | static_cast<uint8_t>(words[bit / 8 + 1]) << 8);
    return (static_cast<uint32_t>(two) >> (bit % 8)) & ((1u << bits) - 1);
  }

  static void PutGrid(const Grid& grid, int64_t rows, int64_t r, int64_t g, std::span<std::vector<std::byte>> out) {
    const uint16_t half = F32ToF16(grid.scale);
    std::memcpy(out[2].data() + 2 * (g * rows + r), &half, 2);
  }
  static void PutGroup(int64_t column, int32_t group, std::span<std::vector<std::byte>> out) {
    std::memcpy(out[3].data() + 4 * column, &group, 4);
  }
  static int32_t GroupOf(std::span<const std::byte> g_idx, int64_t column) {
    int32_t group;
    std::memcpy(&group, g_idx.data() + 4 * column, 4);
    return group;
  }

  const LinearScheme scheme_;
  const bool awq_;
  const uint32_t zeros_less_;  // what GPTQ's stored zeros are less than the zeros
  GridSpec spec_;
};

}  // namespace

Result<std::unique_ptr<LinearFormat>> MakeGptqFormat(const LinearScheme& scheme) {
  if (scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8) {
    return UsageError("the gptq format holds 2, 3, 4 or 8 bits, not --bits " + std::to_string(scheme.bits));
  }
  return std::unique_ptr<LinearFormat>(new TurnedFormat(scheme, false));
}

Result<std::unique_ptr<LinearFormat>> MakeAwqFormat(const LinearScheme& scheme) {
  if (scheme.bits != 4) return UsageError("the awq format holds 4 bits, not --bits " + std::to_string(scheme.bits));
  if (scheme.symmetric) return UsageError("the awq format has zero points: give --asym");
  if (scheme.method == "gptq" && scheme.order == "activation")
    return UsageError("the awq format holds no groups in another order; --order static or group, or --format gptq");
  return std::unique_ptr<LinearFormat>(new TurnedFormat(scheme, true));
}

}  // namespace hone
