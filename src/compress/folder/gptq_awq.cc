// The formats of GPTQ and AWQ (GEMM): codes 0 .. 2^b - 1 with a zero point, one F16 scale a group, matrices turned to
// [in, out]. Encode rounds to nearest; EncodeCodes takes what a better
// method has chosen.
#include <fmt/format.h>

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
    std::vector<uint8_t> codes(static_cast<size_t>(m.rows * m.columns)), zeros(static_cast<size_t>(m.rows * groups));
    threads.ParallelFor(static_cast<size_t>(m.rows), 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        for (int64_t g = 0; g < groups; ++g) {
          const float* x = m.w + static_cast<int64_t>(r) * m.columns + g * group;
          Grid grid = FindGrid(spec_, x, group);
          grid.scale = F16ToF32(std::max<uint16_t>(1, F32ToF16(grid.scale)));  // as stored; never 0
          if (!scheme_.symmetric && !awq_)
            grid.zero = std::clamp(grid.zero, 0.0f, static_cast<float>(HighestCode(spec_)));
          PutGrid(grid, m.rows, static_cast<int64_t>(r), g, out);
          zeros[r * groups + g] = static_cast<uint8_t>(grid.zero);
          for (int64_t i = 0; i < group; ++i)
            codes[r * m.columns + g * group + i] = static_cast<uint8_t>(EncodeUniform(spec_, grid, x[i]));
        }
      }
    });
    if (awq_) {
      PackAwq(codes, zeros, m.rows, m.columns, groups, out);
    } else {
      PackGptq(codes, zeros, m.rows, m.columns, groups, out);
      for (int64_t i = 0; i < m.columns; ++i) PutGroup(i, static_cast<int32_t>(i / group), out);
    }
  }

  bool takes_codes() const override { return true; }
  DType scale_type(DType) const override { return DType::kF16; }
  void EncodeCodes(const LinearCodes& m, std::span<std::vector<std::byte>> out, ThreadPool&) const override {
    const int64_t groups = m.columns / Group(m.columns);
    std::vector<uint8_t> zeros(m.grids.size());
    for (int64_t r = 0; r < m.rows; ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        PutGrid(m.grids[r * groups + g], m.rows, r, g, out);
        zeros[r * groups + g] = static_cast<uint8_t>(m.grids[r * groups + g].zero);
      }
    }
    if (awq_) return PackAwq(m.codes, zeros, m.rows, m.columns, groups, out);
    PackGptq(m.codes, zeros, m.rows, m.columns, groups, out);
    for (int64_t i = 0; i < m.columns; ++i) PutGroup(i, m.group_of[i], out);
  }

  void Decode(std::span<const std::span<const std::byte>> out, int64_t rows, int64_t columns, DType, int64_t first,
              int64_t count, float* w) const override {
    const int64_t group = Group(columns);
    const int bits = scheme_.bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t r = first; r < first + count; ++r) {
      for (int64_t i = 0; i < columns; ++i) {
        const int64_t g = awq_ ? i / group : GroupOf(out[3], i);
        uint32_t code = 0, zero = 0;
        if (awq_) {
          code = GetBits(out[0].data() + i * rows / 2, AwqPlace(r), 4);
          zero = GetBits(out[1].data() + g * rows / 2, AwqPlace(r), 4);
        } else {
          zero = GetBits(out[1].data() + g * rows * bits / 8, r, bits);
          zero = (zero + zeros_less_) & mask;
          uint32_t words[2] = {};
          const int64_t bit = i * bits, word = bit / 32;
          std::memcpy(&words[0], out[0].data() + 4 * (word * rows + r), 4);
          if (bit % 32 + bits > 32) std::memcpy(&words[1], out[0].data() + 4 * ((word + 1) * rows + r), 4);
          code = static_cast<uint32_t>(((uint64_t{words[1]} << 32 | words[0]) >> (bit % 32))) & mask;
        }
        const float scale = LoadAs(DType::kF16, out[2].data() + 2 * (g * rows + r));
        *w++ = scale * (static_cast<float>(code) - static_cast<float>(zero));
      }
    }
  }

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
  // Which nibble of a row of words holds column `r` of [in, out].
  static uint64_t AwqPlace(int64_t r) {
    static constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    return static_cast<uint64_t>(r / 8 * 8 + kNibble[r % 8]);
  }

  static void PackAwq(std::span<const uint8_t> codes, const std::vector<uint8_t>& zeros, int64_t rows,
                      int64_t columns, int64_t groups, std::span<std::vector<std::byte>> out) {
    for (int64_t i = 0; i < columns; ++i) {
      BitWriter words(out[0].data() + i * rows / 2);
      for (int64_t r = 0; r < rows; ++r) words.Put(AwqPlace(r), 4, codes[r * columns + i]);
    }
    for (int64_t g = 0; g < groups; ++g) {
      BitWriter words(out[1].data() + g * rows / 2);
      for (int64_t r = 0; r < rows; ++r) words.Put(AwqPlace(r), 4, zeros[r * groups + g]);
    }
  }

  void PackGptq(std::span<const uint8_t> codes, const std::vector<uint8_t>& zeros, int64_t rows, int64_t columns,
                int64_t groups, std::span<std::vector<std::byte>> out) const {
    const int bits = scheme_.bits;
    const uint32_t mask = (1u << bits) - 1;
    std::vector<std::byte> column(columns * bits / 8);
    for (int64_t r = 0; r < rows; ++r) {
      std::fill(column.begin(), column.end(), std::byte{0});
      BitWriter words(column.data());
      for (int64_t i = 0; i < columns; ++i) words.Put(i, bits, codes[r * columns + i]);
      for (size_t w = 0; w < column.size() / 4; ++w)
        std::memcpy(out[0].data() + 4 * (static_cast<int64_t>(w) * rows + r), column.data() + 4 * w, 4);
    }
    for (int64_t g = 0; g < groups; ++g) {
      BitWriter words(out[1].data() + g * rows * bits / 8);
      for (int64_t r = 0; r < rows; ++r)
        words.Put(r, bits, (zeros[r * groups + g] - zeros_less_) & mask);
    }
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
