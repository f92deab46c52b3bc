// The formats of GPTQ and AWQ (GEMM): codes 0 .. 2^b - 1 with a zero point, one F16 scale a group, matrices turned to
// [in, out]. Encode rounds to nearest; EncodeCodes takes what a better
// method has chosen.
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

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
    for (int64_t i = 0; !awq_ && i < m.columns; ++i) PutGroup(i, static_cast<int32_t>(i / group), out);
    threads.ParallelFor(static_cast<size_t>(m.rows), static_cast<size_t>(Band()), [&](size_t begin, size_t end) {
      const auto codes = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(Band() * m.columns));
      std::vector<uint8_t> zeros(static_cast<size_t>(Band() * groups));
      std::vector<float> place(static_cast<size_t>(m.columns));
      std::vector<Grid> grids(static_cast<size_t>(groups));
      for (int64_t r0 = static_cast<int64_t>(begin); r0 < static_cast<int64_t>(end); r0 += Band()) {
        const int64_t band = std::min(Band(), static_cast<int64_t>(end) - r0);
        for (int64_t r = r0; r < r0 + band; ++r) {
          const float* row = m.Rows(r, 1, place.data());
          // All grids of a row first: each is a chain of operations that wait for one another.
          for (int64_t g = 0; g < groups; ++g) {
            float least, most;
            slices_->range(row + g * group, group, &least, &most);
            Grid& grid = grids[g] = GridOfRange(spec_, least, most);
            grid.scale = F16ToF32(std::max<uint16_t>(1, F32ToF16(grid.scale)));  // as stored; never 0
            grid.zero = std::clamp(grid.zero, 0.0f, static_cast<float>(top));
          }
          for (int64_t g = 0; g < groups; ++g) {
            PutGrid(grids[g], m.rows, r, g, out);
            zeros[g * band + r - r0] = static_cast<uint8_t>(grids[g].zero);
            slices_->round(row + g * group, group, grids[g].scale, grids[g].zero, top, &codes[(r - r0) * m.columns + g * group]);
          }
        }
        PackBand(codes.get(), r0, band, m.rows, m.columns, out);
        PackZeros(zeros, r0, band, m.rows, groups, out);
        if (m.made) m.made(r0, band, nullptr);
      }
    });
  }
  bool tells_rows() const override { return true; }

  bool takes_codes() const override { return true; }
  DType scale_type(DType) const override { return DType::kF16; }
  void EncodeCodes(const LinearCodes& m, std::span<std::vector<std::byte>> out, ThreadPool& threads) const override {
    const int64_t groups = m.columns / Group(m.columns);
    threads.ParallelFor(static_cast<size_t>(m.rows), static_cast<size_t>(Band()), [&](size_t begin, size_t end) {
      std::vector<uint8_t> zeros(static_cast<size_t>(Band() * groups));
      for (int64_t r0 = static_cast<int64_t>(begin); r0 < static_cast<int64_t>(end); r0 += Band()) {
        const int64_t band = std::min(Band(), static_cast<int64_t>(end) - r0);
        for (int64_t r = r0; r < r0 + band; ++r) {
          for (int64_t g = 0; g < groups; ++g) {
            PutGrid(m.grids[r * groups + g], m.rows, r, g, out);
            zeros[g * band + r - r0] = static_cast<uint8_t>(m.grids[r * groups + g].zero);
          }
        }
        PackBand(m.codes.data() + r0 * m.columns, r0, band, m.rows, m.columns, out);
        PackZeros(zeros, r0, band, m.rows, groups, out);
      }
    });
    for (int64_t i = 0; !awq_ && i < m.columns; ++i) PutGroup(i, m.group_of[i], out);
  }

  void Decode(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, DType, int64_t first,
              int64_t count, float* w) const override {
    ForRows(out, rows, columns, first, count, [&](int64_t r) { return w + (r - first) * columns; }, [](int64_t, const float*) {});
  }
  void DecodeRows(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, DType, int64_t first,
                  int64_t count, FunctionRef<void(int64_t row, const float* w)> visit) const override {
    std::vector<float> w(static_cast<size_t>(columns));
    ForRows(out, rows, columns, first, count, [&](int64_t) { return w.data(); }, visit);
  }

  int64_t rows_together() const override { return Band(); }
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
    for (int64_t i = 0; awq_ && i < columns; i += group) runs.push_back({i, group, i / group});
    for (int64_t i = 0; !awq_ && i < columns; ++i) {
      const int64_t g = GroupOf(out[3], i);
      if (runs.empty() || runs.back().group != g) runs.push_back({i, 0, g});
      ++runs.back().count;
    }
    return runs;
  }
  // done(row, w) for rows whose weights are put to place(row).
  void ForRows(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, int64_t first, int64_t count,
               auto&& place, auto&& done) const {
    const int bits = scheme_.bits;
    const uint32_t mask = (1u << bits) - 1;
    const std::vector<Run> runs = Runs(out, columns, Group(columns));
    const int64_t most = std::min(awq_ ? Band() / kEight : Band(), count + 1);  // rows of words at once
    const auto words = std::make_unique_for_overwrite<uint32_t[]>(static_cast<size_t>(most * WordsOfRow(columns)));
    const auto codes = std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(kEight * columns));
    for (int64_t r0 = first, end = 0; r0 < first + count; r0 = end) {
      end = std::min(first + count, r0 / Band() * Band() + Band());
      UnpackLines(out[0], r0, end, rows, columns, words.get());
      for (int64_t r = r0; r < end; ++r) {
        if (r == r0 || r % kEight == 0) UnpackEight(words.get(), r, r0, end, columns, codes.get());
        float* w = place(r);
        for (const Run& run : runs) {
          const int64_t g = run.group;
          const float scale = LoadAs(DType::kF16, out[2].data() + 2 * (g * rows + r));
          const uint32_t zero = awq_ ? CodeAt(out[1].data() + g * rows / 2, AwqPlace(r), 4)
                                     : (CodeAt(out[1].data() + g * rows * bits / 8, r, bits) + zeros_less_) & mask;
          slices_->dequantize(&codes[r % kEight * columns + run.first], run.count, scale, static_cast<float>(zero), w + run.first);
        }
        done(r, w);
      }
    }
  }
  // Which nibble of a row of words holds column `r` of [in, out].
  static uint64_t AwqPlace(int64_t r) {
    static constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return static_cast<uint64_t>(r / 8 * 8 + kNibble[r % 8]);
  }

  static constexpr int64_t kEight = 8;  // rows of one of AWQ's words
  // Rows that are packed together: a line of 64 bytes of AWQ's words; GPTQ's two lines, which hold whole words of zeros.
  int64_t Band() const { return awq_ ? 16 * kEight : 32; }
  // Words of a band lie [words, columns] where they are made and taken apart, and [columns, words] in the file. Rows of words of
  // AWQ's begin a line later than the one before, or else all of them share a few places of the first cache.
  int64_t WordsOfRow(int64_t columns) const { return awq_ ? columns + 16 : columns * scheme_.bits / 32; }

  // Rows [r0, r0 + band) of codes [band, columns].
  void PackBand(const uint8_t* codes, int64_t r0, int64_t band, int64_t rows, int64_t columns,
                std::span<std::vector<std::byte>> out) const {
    const int64_t stride = WordsOfRow(columns), lines = awq_ ? columns : stride, count = awq_ ? band / kEight : band;
    const auto words = std::make_unique_for_overwrite<uint32_t[]>(static_cast<size_t>(count * stride));
    for (int64_t i = 0; i < count; ++i) {
      if (awq_) PackEight(codes + i * kEight * columns, columns, columns, &words[i * stride]);
      else slices_->pack(codes + i * columns, columns, scheme_.bits, reinterpret_cast<std::byte*>(&words[i * stride]));
    }
    const int64_t words_of_line = awq_ ? rows / kEight : rows;
    uint32_t* to = reinterpret_cast<uint32_t*>(out[0].data()) + (awq_ ? r0 / kEight : r0);
    int64_t line = 0;
    for (; line + 4 <= lines; line += 4) {
      int64_t i = 0;
      for (; i + 4 <= count; i += 4) Turn(&words[i * stride + line], stride, to + line * words_of_line + i, words_of_line);
      for (; i < count; ++i) {
        for (int64_t k = line; k < line + 4; ++k) to[k * words_of_line + i] = words[i * stride + k];
      }
    }
    for (; line < lines; ++line) {
      for (int64_t i = 0; i < count; ++i) to[line * words_of_line + i] = words[i * stride + line];
    }
  }

  // The words that hold rows [begin, end) of one band.
  void UnpackLines(std::span<const std::byte> in, int64_t begin, int64_t end, int64_t rows, int64_t columns,
                   uint32_t* words) const {
    const int64_t stride = WordsOfRow(columns), lines = awq_ ? columns : stride;
    const int64_t first = awq_ ? begin / kEight : begin, count = (awq_ ? (end + kEight - 1) / kEight : end) - first;
    const int64_t words_of_line = awq_ ? rows / kEight : rows;
    const std::byte* from = in.data() + 4 * first;
    int64_t line = 0;
    for (; line + 4 <= lines; line += 4) {
      int64_t i = 0;
      for (; i + 4 <= count; i += 4) Turn(from + 4 * (line * words_of_line + i), words_of_line, &words[i * stride + line], stride);
      for (; i < count; ++i) {
        for (int64_t k = line; k < line + 4; ++k) std::memcpy(&words[i * stride + k], from + 4 * (k * words_of_line + i), 4);
      }
    }
    for (; line < lines; ++line) {
      for (int64_t i = 0; i < count; ++i) std::memcpy(&words[i * stride + line], from + 4 * (line * words_of_line + i), 4);
    }
  }
  // Rows r and those after it up to a multiple of eight, at their places among eight, of words that begin with row `first`'s.
  void UnpackEight(const uint32_t* words, int64_t r, int64_t first, int64_t end, int64_t columns, uint8_t* codes) const {
    const int64_t stride = WordsOfRow(columns);
    if (awq_) return SplitEight(&words[(r / kEight - first / kEight) * stride], columns, codes);
    for (; r < end; ++r) {
      slices_->unpack(reinterpret_cast<const std::byte*>(&words[(r - first) * stride]), columns, scheme_.bits,
                      codes + r % kEight * columns);
      if (r % kEight == kEight - 1) return;
    }
  }

  // Four words of each of four rows, `stride` words apart, to four words of each of four columns.
  static void Turn(const void* in, int64_t stride, uint32_t* out, int64_t out_stride) {
    const auto* from = static_cast<const std::byte*>(in);
    const auto row = [&](int64_t k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + 4 * k * stride)); };
    const __m128i a = row(0), b = row(1), c = row(2), d = row(3);
    const __m128i low[2] = {_mm_unpacklo_epi32(a, b), _mm_unpacklo_epi32(c, d)};
    const __m128i high[2] = {_mm_unpackhi_epi32(a, b), _mm_unpackhi_epi32(c, d)};
    const auto put = [&](int64_t k, __m128i v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out + k * out_stride), v); };
    put(0, _mm_unpacklo_epi64(low[0], low[1]));
    put(1, _mm_unpackhi_epi64(low[0], low[1]));
    put(2, _mm_unpacklo_epi64(high[0], high[1]));
    put(3, _mm_unpackhi_epi64(high[0], high[1]));
  }

  // AWQ's order: the low half of a word's byte holds the first of a pair of rows, its high half the second.
  static constexpr int kRowsOfByte[4][2] = {{0, 2}, {4, 6}, {1, 3}, {5, 7}};

  // `count` columns of eight rows of codes, `columns` apart, to a word each.
  static void PackEight(const uint8_t* codes, int64_t columns, int64_t count, uint32_t* words) {
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      __m128i bytes[4];  // of sixteen words
      for (int b = 0; b < 4; ++b) {
        const auto row = [&](int k) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + k * columns + i)); };
        bytes[b] = _mm_or_si128(row(kRowsOfByte[b][0]), _mm_slli_epi16(row(kRowsOfByte[b][1]), 4));
      }
      const __m128i low[2] = {_mm_unpacklo_epi8(bytes[0], bytes[1]), _mm_unpackhi_epi8(bytes[0], bytes[1])};
      const __m128i high[2] = {_mm_unpacklo_epi8(bytes[2], bytes[3]), _mm_unpackhi_epi8(bytes[2], bytes[3])};
      for (int h = 0; h < 2; ++h) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(words + i + 8 * h), _mm_unpacklo_epi16(low[h], high[h]));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(words + i + 8 * h + 4), _mm_unpackhi_epi16(low[h], high[h]));
      }
    }
    for (; i < count; ++i) {
      words[i] = 0;
      for (int b = 0; b < 4; ++b) {
        const uint32_t byte = codes[kRowsOfByte[b][0] * columns + i] | codes[kRowsOfByte[b][1] * columns + i] << 4;
        words[i] |= byte << (8 * b);
      }
    }
  }

  // Back: a word of each of `columns` columns to eight rows of codes.
  static void SplitEight(const uint32_t* in, int64_t columns, uint8_t* codes) {
    int64_t i = 0;
    for (; i + 16 <= columns; i += 16) {
      __m128i words[4];
      for (int q = 0; q < 4; ++q) {
        words[q] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + 4 * q));
        // Their first bytes together, then their second ...
        words[q] = _mm_shuffle_epi8(words[q], _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
      }
      const __m128i low[2] = {_mm_unpacklo_epi32(words[0], words[1]), _mm_unpacklo_epi32(words[2], words[3])};
      const __m128i high[2] = {_mm_unpackhi_epi32(words[0], words[1]), _mm_unpackhi_epi32(words[2], words[3])};
      const __m128i bytes[4] = {_mm_unpacklo_epi64(low[0], low[1]), _mm_unpackhi_epi64(low[0], low[1]),
                                _mm_unpacklo_epi64(high[0], high[1]), _mm_unpackhi_epi64(high[0], high[1])};
      const __m128i half = _mm_set1_epi8(15);
      for (int b = 0; b < 4; ++b) {
        const auto put = [&](int row, __m128i v) {
          _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + row * columns + i), _mm_and_si128(v, half));
        };
        put(kRowsOfByte[b][0], bytes[b]);
        put(kRowsOfByte[b][1], _mm_srli_epi16(bytes[b], 4));
      }
    }
    for (; i < columns; ++i) {
      for (int k = 0; k < kEight; ++k) codes[k * columns + i] = static_cast<uint8_t>(in[i] >> (4 * AwqPlace(k)) & 15);
    }
  }

  // Of rows [r0, r0 + band). zeros: [groups, band], which are lost.
  void PackZeros(std::vector<uint8_t>& zeros, int64_t r0, int64_t band, int64_t rows, int64_t groups,
                 std::span<std::vector<std::byte>> out) const {
    const uint8_t mask = static_cast<uint8_t>((1 << scheme_.bits) - 1);
    for (uint8_t& zero : zeros) zero = static_cast<uint8_t>((zero - zeros_less_) & mask);
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* of_group = zeros.data() + g * band;
      std::byte* to = out[1].data() + (g * rows + r0) * scheme_.bits / 8;
      if (!awq_) {
        PackBits(of_group, band, scheme_.bits, to);
        continue;
      }
      for (int64_t r = 0; r < band; r += kEight) {
        uint32_t word;
        PackEight(of_group + r, 1, 1, &word);
        std::memcpy(to + r / 2, &word, 4);
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
