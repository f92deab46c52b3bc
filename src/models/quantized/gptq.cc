// GPTQ: codes of 2, 3, 4 or 8 bits packed along the input in 32-bit words, one word a column of the turned matrix;
// zeros packed along the output, one less than they are in version 1; scales F16 [groups, out]; g_idx tells each column's
// group. AWQ (GEMM): eight 4-bit codes a word along the output, in the order 0 2 4 6 1 3 5 7; zeros as they are.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "models/quantized/integer_matrix.h"
#include "models/quantized/quantized_folder.h"

namespace hone {
namespace {

// Whether all words are `word`.
bool AllWords(const TensorView& view, uint32_t word) {
  const uint32_t* words = view.as<uint32_t>();
  return std::all_of(words, words + view.shape.elements(), [word](uint32_t x) { return x == word; });
}

uint32_t Repeated(uint32_t code, int bits) {
  uint32_t word = 0;
  for (int shift = 0; shift < 32; shift += bits) word |= code << shift;
  return word;
}

// Scales [groups, out]; an error for other shapes. How many groups there are is what this tensor says.
Result<const NamedTensor*> NeedScales(const QuantizedSource& source, int64_t* groups) {
  const NamedTensor* scales = source.Find(".scales");
  const bool known = scales != nullptr && scales->view.shape.rank() == 2;
  *groups = known ? scales->view.shape[0] : 1;
  if (known && (*groups < 1 || *groups > source.columns)) {
    return source.Bad(fmt::format("tensor {} has {} rows; wanted one a group, 1 to {}", scales->name, *groups, source.columns));
  }
  return source.Need(".scales", {DType::kF16, DType::kBF16, DType::kF32}, Shape{*groups, source.rows});
}

// Columns of a group: what the configuration says if that makes so many groups, else what divides evenly.
Result<int64_t> GroupSize(const QuantizedSource& source, int64_t groups) {
  HONE_TRY(int64_t said, source.config.Int("group_size", -1));
  said = std::min(said, source.columns);
  if (groups == 1) return source.columns;
  if (said > 0 && (source.columns + said - 1) / said == groups) return said;
  if (source.columns % groups == 0) return source.columns / groups;
  return source.Bad(fmt::format("{} groups of scales for {} columns with group_size {}; wanted {} groups", groups,
                                source.columns, said, said > 0 ? (source.columns + said - 1) / said : 1));
}

class GptqMatrix final : public IntegerMatrix {
 public:
  static Result<std::shared_ptr<const QuantizedMatrix>> Open(const QuantizedSource& source) {
    const NamedTensor* words = source.Find(".qweight");
    if (words == nullptr) return std::shared_ptr<const QuantizedMatrix>();
    auto matrix = std::make_shared<GptqMatrix>(source);
    HONE_RETURN_IF_ERROR(matrix->Read(source, *words));
    return std::shared_ptr<const QuantizedMatrix>(std::move(matrix));
  }
  explicit GptqMatrix(const QuantizedSource& source) : IntegerMatrix(source.where(), source.rows, source.columns) {}

 private:
  Result<void> Read(const QuantizedSource& source, const NamedTensor& words) {
    const Shape& packed = words.view.shape;
    const int64_t bits = packed.rank() == 2 ? packed[0] * 32 / columns_ : 0;
    if ((bits != 2 && bits != 3 && bits != 4 && bits != 8) || packed[0] * 32 != columns_ * bits || packed[1] != rows_ ||
        words.view.type != DType::kI32) {
      HONE_TRY(int64_t said, source.config.Int("bits", 4));
      said = std::clamp<int64_t>(said, 1, 32);
      return source.Bad(fmt::format("tensor {} is {} {}; wanted I32 [{}, {}] for a matrix [{}, {}] of {} bits (2, 3, 4 and 8 are read)",
                                    words.name, Info(words.view.type).name, packed.ToString(), columns_ * said / 32, rows_,
                                    rows_, columns_, said));
    }
    if (rows_ * bits % 32 != 0) {
      return source.Bad(fmt::format("{} rows of {} bits are no whole 32-bit words of zeros", rows_, bits));
    }
    int64_t group_count = 0;
    HONE_TRY(const NamedTensor* scales, NeedScales(source, &group_count));
    HONE_TRY(const NamedTensor* zeros, source.Need(".qzeros", {DType::kI32}, Shape{group_count, rows_ * bits / 32}));
    HONE_TRY(const int64_t group, GroupSize(source, group_count));
    tensors_ = {&words, zeros, scales};
    std::vector<int32_t> group_of;
    if (const NamedTensor* index = source.Find(".g_idx"); index != nullptr) {
      HONE_TRY(group_of, ReadGroupIndex(*index, columns_, group, group_count).Context(where_));
      tensors_.push_back(index);
    } else {
      HONE_TRY(const bool ordered, source.config.Bool("desc_act", false));
      if (ordered && group_count > 1) {
        return source.Bad("desc_act is true, but there is no tensor g_idx that tells each column's group; get the whole folder");
      }
    }
    HONE_TRY(int64_t version, Version(source.config));
    const int middle = 1 << (bits - 1);
    // Some files call themselves by the wrong version. Where all zeros are the middle, which version it is is plain to see.
    HONE_TRY(const bool symmetric, source.config.Bool("sym", true));
    if (symmetric && bits != 3) {
      const uint32_t as_v1 = Repeated(static_cast<uint32_t>(middle - 1), static_cast<int>(bits));
      const uint32_t as_v2 = Repeated(static_cast<uint32_t>(middle), static_cast<int>(bits));
      if (version == 1 && AllWords(zeros->view, as_v2)) version = 2;
      else if (version == 2 && AllWords(zeros->view, as_v1)) version = 1;
    }
    added_ = version == 1 ? 1 : 0;
    words_ = words.view.as<uint32_t>();
    zeros_ = zeros->view;
    const uint32_t stored_middle = static_cast<uint32_t>(middle - added_);
    const bool constant = bits != 3 && AllWords(zeros->view, Repeated(stored_middle, static_cast<int>(bits)));
    stored_ = fmt::format("gptq {}-bit, {}{}", bits, group_count == 1 ? "whole rows" : fmt::format("groups of {}", group),
                          group_of.empty() ? "" : ", act-order");
    Plan(static_cast<int>(bits), group, group_count, std::move(group_of), constant ? middle : -1,
         {.view = scales->view, .row_stride = 1, .group_stride = rows_});
    return {};
  }

  static Result<int64_t> Version(const JsonConfig& config) {
    const char* key = config.Has("checkpoint_format") ? "checkpoint_format" : "format";
    HONE_TRY(const std::string name, config.String(key, "gptq"));
    return name == "gptq_v2" ? 2 : 1;
  }

  void ReadCodes(int64_t first, int64_t count, uint8_t* codes) const override {
    const int width = bits();
    const uint32_t mask = (1u << width) - 1;
    const int64_t word_rows = columns_ * width / 32;
    if (width != 3) {
      const int per_word = 32 / width;
      constexpr int64_t kStretch = 64;  // of words, whose cache lines stay near while all rows take their part
      for (int64_t begin = 0; begin < word_rows; begin += kStretch) {
        const int64_t end = std::min(word_rows, begin + kStretch);
        for (int64_t r = 0; r < count; ++r) {
          uint8_t* out = codes + r * columns_ + begin * per_word;
          for (int64_t w = begin; w < end; ++w) {
            const uint32_t word = words_[w * rows_ + first + r];
            for (int i = 0; i < per_word; ++i) *out++ = static_cast<uint8_t>(word >> (i * width) & mask);
          }
        }
      }
      return;
    }
    for (int64_t w = 0; w < word_rows; w += 3) {  // three words hold 32 codes
      for (int64_t r = 0; r < count; ++r) {
        uint32_t three[4] = {};
        for (int i = 0; i < 3; ++i) three[i] = words_[(w + i) * rows_ + first + r];
        uint8_t* out = codes + r * columns_ + w / 3 * 32;
        for (int i = 0; i < 32; ++i) {
          const int bit = 3 * i;
          const uint64_t both = uint64_t{three[bit / 32 + 1]} << 32 | three[bit / 32];
          out[i] = static_cast<uint8_t>(both >> (bit % 32) & 7);
        }
      }
    }
  }
  int Zero(int64_t row, int64_t group) const override {
    const uint32_t stored = DenseCode(zeros_.data + group * rows_ * bits() / 8, row, bits());
    return static_cast<int>((stored + static_cast<uint32_t>(added_)) & ((1u << bits()) - 1));
  }

  const uint32_t* words_ = nullptr;
  TensorView zeros_;
  int added_ = 0;
};

class AwqMatrix final : public IntegerMatrix {
 public:
  static Result<std::shared_ptr<const QuantizedMatrix>> Open(const QuantizedSource& source) {
    if (source.Find(".qweight") == nullptr) return std::shared_ptr<const QuantizedMatrix>();
    auto matrix = std::make_shared<AwqMatrix>(source);
    HONE_RETURN_IF_ERROR(matrix->Read(source));
    return std::shared_ptr<const QuantizedMatrix>(std::move(matrix));
  }
  explicit AwqMatrix(const QuantizedSource& source) : IntegerMatrix(source.where(), source.rows, source.columns) {}

 private:
  Result<void> Read(const QuantizedSource& source) {
    if (rows_ % 8 != 0) return source.Bad(fmt::format("{} rows; AWQ packs eight a word", rows_));
    HONE_TRY(const NamedTensor* words, source.Need(".qweight", {DType::kI32}, Shape{columns_, rows_ / 8}));
    int64_t group_count = 0;
    HONE_TRY(const NamedTensor* scales, NeedScales(source, &group_count));
    HONE_TRY(const NamedTensor* zeros, source.Need(".qzeros", {DType::kI32}, Shape{group_count, rows_ / 8}));
    HONE_TRY(const int64_t group, GroupSize(source, group_count));
    tensors_ = {words, zeros, scales};
    words_ = words->view.data;
    zeros_ = zeros->view.data;
    stored_ = fmt::format("awq 4-bit, {}", group_count == 1 ? "whole rows" : fmt::format("groups of {}", group));
    Plan(4, group, group_count, {}, AllWords(zeros->view, 0x88888888) ? 8 : -1,
         {.view = scales->view, .row_stride = 1, .group_stride = rows_});
    return {};
  }

  static uint8_t Nibble(const std::byte* words, int64_t row) {
    static constexpr int kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t place = row / 8 * 8 + kPlace[row % 8];
    const auto pair = static_cast<uint8_t>(words[place / 2]);
    return place % 2 == 0 ? pair & 15 : pair >> 4;
  }
  void ReadCodes(int64_t first, int64_t count, uint8_t* codes) const override {
    constexpr int64_t kStretch = 256;  // of columns, whose cache lines stay near while all rows take their part
    for (int64_t begin = 0; begin < columns_; begin += kStretch) {
      const int64_t end = std::min(columns_, begin + kStretch);
      for (int64_t r = 0; r < count; ++r) {
        const std::byte* words = words_ + begin * rows_ / 2;
        for (int64_t i = begin; i < end; ++i, words += rows_ / 2) codes[r * columns_ + i] = Nibble(words, first + r);
      }
    }
  }
  int Zero(int64_t row, int64_t group) const override { return Nibble(zeros_ + group * rows_ / 2, row); }
  int64_t rows_at_once() const override { return 128; }  // a cache line of words

  const std::byte *words_ = nullptr, *zeros_ = nullptr;
};

}  // namespace

Result<void> CheckGptq(const JsonConfig& config) {
  for (const char* key : {"checkpoint_format", "format"}) {
    HONE_TRY(const std::string name, config.String(key, "gptq"));
    if (name == "gptq" || name == "gptq_v2") continue;
    return Unsupported(fmt::format("{}: {} is \"{}\"; known: gptq, gptq_v2. Use a folder in one of these", config.origin(), key, name));
  }
  HONE_TRY(const std::string words, config.String("pack_dtype", "int32"));
  if (words != "int32") return Unsupported(fmt::format("{}: pack_dtype is \"{}\"; known: int32", config.origin(), words));
  return {};
}

Result<std::shared_ptr<const QuantizedMatrix>> OpenGptq(const QuantizedSource& source) { return GptqMatrix::Open(source); }

Result<void> CheckAwq(const JsonConfig& config) {
  HONE_TRY(const std::string version, config.String("version", "gemm"));
  if (const std::string_view name = version; name != "gemm" && name != "GEMM") {
    return Unsupported(fmt::format("{}: version is \"{}\"; known: gemm. Use a GEMM folder of the model", config.origin(), version));
  }
  HONE_TRY(const int64_t bits, config.Int("bits", 4));
  if (bits != 4) return Unsupported(fmt::format("{}: bits is {}; AWQ folders of 4 bits are read", config.origin(), bits));
  return {};
}

Result<std::shared_ptr<const QuantizedMatrix>> OpenAwq(const QuantizedSource& source) { return AwqMatrix::Open(source); }

}  // namespace hone
