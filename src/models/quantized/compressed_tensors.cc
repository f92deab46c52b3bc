// compressed-tensors: whole numbers packed in 32-bit words (pack-quantized) or in bytes (int-quantized), FP8 under scales
// of a tensor, a row or a block (float-quantized), FP4 in blocks (nvfp4-pack-, mxfp4-pack-quantized). Which of them a
// matrix is, its tensors say; one folder may mix them. NVFP4 runs as Q6_K where 256 divides the row: its values are whole
// multiples of half a scale, and the scales of 16 blocks are whole multiples of one number unless they differ 8-fold. Activations are not quantised here, whatever the file suggests.
// And FP8 folders with `weight_scale_inv`, as DeepSeek's releases are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "models/quantized/integer_matrix.h"
#include "models/quantized/quantized_folder.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

using MaybeMatrix = Result<std::shared_ptr<const QuantizedMatrix>>;

// Scales of activations, which nothing reads, belong to the matrix too.
void AddUnread(const QuantizedSource& source, std::vector<const NamedTensor*>* tensors) {
  for (const char* suffix : {".weight_shape", ".input_scale", ".input_zero_point", ".input_global_scale", ".output_scale"}) {
    if (const NamedTensor* tensor = source.Find(suffix); tensor != nullptr) tensors->push_back(tensor);
  }
}

// [out, groups], or one number for all.
Result<const NamedTensor*> NeedScales(const QuantizedSource& source, int64_t* groups, ScaleTable* table) {
  const NamedTensor* scales = source.Find(".weight_scale");
  const bool one = scales != nullptr && scales->view.shape.elements() == 1 && source.rows > 1;
  const Shape shape = scales == nullptr ? Shape{} : scales->view.shape;
  *groups = shape.rank() == 2 && !one ? shape[1] : 1;
  if (*groups < 1 || source.columns % *groups != 0) {
    return source.Bad(fmt::format("tensor {} is {}; its groups do not divide {} columns", scales->name, shape.ToString(), source.columns));
  }
  const Shape wanted = one || (shape.rank() == 1 && shape == Shape{source.rows}) ? shape : Shape{source.rows, *groups};
  HONE_TRY(scales, source.Need(".weight_scale", {DType::kF16, DType::kBF16, DType::kF32}, wanted));
  *table = {.view = scales->view, .row_stride = one ? 0 : *groups, .group_stride = 1};
  return scales;
}

std::string GroupText(const QuantizedSource& source, int64_t groups) {
  return groups == 1 ? "whole rows" : fmt::format("groups of {}", source.columns / groups);
}

class PackedIntegers final : public IntegerMatrix {
 public:
  explicit PackedIntegers(const QuantizedSource& source) : IntegerMatrix(source.where(), source.rows, source.columns) {}

  Result<void> Read(const QuantizedSource& source) {
    const NamedTensor* words = source.Find(".weight_packed");
    HONE_TRY(const int64_t width, Bits(source, words->view.shape));
    HONE_TRY(words, source.Need(".weight_packed", {DType::kI32}, words->view.shape));
    int64_t group_count = 0;
    ScaleTable table;
    HONE_TRY(const NamedTensor* scales, NeedScales(source, &group_count, &table));
    tensors_ = {words, scales};
    AddUnread(source, &tensors_);
    words_ = words->view.data;
    row_bytes_ = words->view.row_bytes();
    per_word_ = words->view.shape[1] == Dense(columns_, width) ? 0 : static_cast<int>(32 / width);

    if (const NamedTensor* found = source.Find(".weight_zero_point"); found != nullptr) {
      const bool dense = found->view.shape.rank() == 2 && found->view.shape[0] == Dense(rows_, width);
      zeros_per_word_ = dense ? 0 : static_cast<int>(32 / width);
      HONE_TRY(const NamedTensor* zeros,
               source.Need(".weight_zero_point", {DType::kI32},
                           Shape{dense ? Dense(rows_, width) : Padded(rows_, width), group_count}));
      zeros_ = zeros->view.as<uint32_t>();
      zero_words_ = zeros->view.shape[0];
      tensors_.push_back(zeros);
    }
    std::vector<int32_t> group_of;
    if (const NamedTensor* index = source.Find(".weight_g_idx"); index != nullptr) {
      tensors_.push_back(index);
      // -1 everywhere: made without an order, never filled in.
      const int32_t* first = index->view.as<int32_t>();
      const bool unset = index->view.type == DType::kI32 && index->view.shape == Shape{columns_} &&
                         std::all_of(first, first + columns_, [](int32_t group) { return group == -1; });
      if (!unset) {
        HONE_TRY(group_of, ReadGroupIndex(*index, columns_, columns_ / group_count, group_count).Context(where_));
      }
    }
    stored_ = fmt::format("compressed-tensors {}-bit, {}{}{}", width, GroupText(source, group_count),
                          zeros_ != nullptr ? ", zero points" : "", group_of.empty() ? "" : ", act-order");
    middle_ = 1 << (width - 1);
    Plan(static_cast<int>(width), columns_ / group_count, group_count, std::move(group_of), zeros_ != nullptr ? -1 : middle_, table);
    return {};
  }

 private:
  static int64_t Dense(int64_t n, int64_t bits) { return (n * bits + 31) / 32; }
  static int64_t Padded(int64_t n, int64_t bits) { return (n + 32 / bits - 1) / (32 / bits); }  // what older tools wrote

  // Of the widths that the configuration speaks of, the one that makes rows of so many words.
  Result<int64_t> Bits(const QuantizedSource& source, const Shape& shape) const {
    std::string known;
    if (shape.rank() == 2 && shape[0] == rows_) {
      HONE_TRY(const JsonConfig groups, source.config.Object("config_groups"));
      for (const std::string& name : groups.Keys()) {
        HONE_TRY(const JsonConfig group, groups.Object(name));
        if (!group.IsObject("weights")) continue;
        HONE_TRY(const JsonConfig weights, group.Object("weights"));
        HONE_TRY(const int64_t bits, weights.Int("num_bits"));
        if (bits < 2 || bits > 8) {
          return source.Bad(fmt::format("num_bits of {} is {}; packed whole numbers of 2 to 8 bits are read", name, bits));
        }
        if (shape[1] == Dense(columns_, bits) || shape[1] == Padded(columns_, bits)) return bits;
        known += fmt::format("{}{}", known.empty() ? "" : " or ", bits);
      }
    }
    return source.Bad(fmt::format("tensor {}.weight_packed is {}; wanted [{}, words of {} columns of {} bits]", source.module,
                                  shape.ToString(), rows_, columns_, known.empty() ? "2 to 8" : known));
  }

  void ReadCodes(int64_t first, int64_t count, uint8_t* codes) const override {
    for (int64_t r = first; r < first + count; ++r) {
      const std::byte* row = words_ + r * row_bytes_;
      if (per_word_ == 0) {
        for (int64_t i = 0; i < columns_; ++i) *codes++ = static_cast<uint8_t>(DenseCode(row, i, bits()));
      } else {
        for (int64_t i = 0; i < columns_; ++i) {
          *codes++ = static_cast<uint8_t>(DenseCode(row + i / per_word_ * 4, i % per_word_, bits()));
        }
      }
    }
  }
  int Zero(int64_t row, int64_t group) const override {
    if (zeros_ == nullptr) return middle_;
    const int width = bits();
    const int64_t bit = zeros_per_word_ == 0 ? row * width : row / zeros_per_word_ * 32 + row % zeros_per_word_ * width;
    const int64_t word = bit / 32;
    uint64_t both = zeros_[word * groups() + group];
    if (word + 1 < zero_words_) both |= uint64_t{zeros_[(word + 1) * groups() + group]} << 32;
    return static_cast<int>(both >> (bit % 32) & ((1u << width) - 1));
  }

  const std::byte* words_ = nullptr;
  size_t row_bytes_ = 0;
  int per_word_ = 0, zeros_per_word_ = 0;  // 0: codes follow each other across words
  const uint32_t* zeros_ = nullptr;
  int64_t zero_words_ = 0;
  int middle_ = 0;
};

class ByteIntegers final : public IntegerMatrix {
 public:
  explicit ByteIntegers(const QuantizedSource& source) : IntegerMatrix(source.where(), source.rows, source.columns) {}

  Result<void> Read(const QuantizedSource& source) {
    HONE_TRY(const NamedTensor* codes, source.Need(".weight", {DType::kI8}, Shape{rows_, columns_}));
    int64_t group_count = 0;
    ScaleTable table;
    HONE_TRY(const NamedTensor* scales, NeedScales(source, &group_count, &table));
    tensors_ = {codes, scales};
    AddUnread(source, &tensors_);
    codes_ = codes->view.as<uint8_t>();
    int constant = 128;
    if (source.Find(".weight_zero_point") != nullptr) {
      HONE_TRY(const NamedTensor* zeros, source.Need(".weight_zero_point", {DType::kI8}, scales->view.shape));
      tensors_.push_back(zeros);
      zeros_ = zeros->view.as<int8_t>();
      zero_stride_ = table.row_stride;
      if (std::any_of(zeros_, zeros_ + zeros->view.shape.elements(), [](int8_t zero) { return zero != 0; })) constant = -1;
    }
    stored_ = fmt::format("compressed-tensors INT8, {}{}", GroupText(source, group_count), constant < 0 ? ", zero points" : "");
    Plan(8, columns_ / group_count, group_count, {}, constant, table);
    return {};
  }

 private:
  void ReadCodes(int64_t first, int64_t count, uint8_t* codes) const override {
    const uint8_t* from = codes_ + first * columns_;
    for (int64_t i = 0; i < count * columns_; ++i) codes[i] = from[i] ^ 0x80;  // + 128
  }
  int Zero(int64_t row, int64_t group) const override {
    return 128 + (zeros_ != nullptr ? zeros_[row * zero_stride_ + group] : 0);
  }

  const uint8_t* codes_ = nullptr;
  const int8_t* zeros_ = nullptr;
  int64_t zero_stride_ = 0;
};

// Values of a table of 256 under scales of blocks of rows and columns: numbers, or powers of two (MXFP8).
class Fp8Matrix final : public QuantizedMatrix {
 public:
  explicit Fp8Matrix(const QuantizedSource& source) : QuantizedMatrix(source.where(), source.rows, source.columns) {}

  // `block`: rows and columns that share a scale where the tensor of scales is neither one number nor one a row.
  Result<void> Read(const QuantizedSource& source, std::string_view scale_suffix, std::pair<int64_t, int64_t> block) {
    HONE_TRY(const NamedTensor* codes, source.Need(".weight", {DType::kF8_E4M3, DType::kF8_E5M2}, Shape{rows_, columns_}));
    const NamedTensor* scales = source.Find(scale_suffix);
    const Shape shape = scales == nullptr ? Shape{} : scales->view.shape;
    const int64_t block_rows = std::min(block.first, rows_), block_columns = std::min(block.second, columns_);
    const Shape blocks{(rows_ + block_rows - 1) / block_rows, (columns_ + block_columns - 1) / block_columns};
    Shape wanted = blocks;
    if (shape.elements() == 1 && scales != nullptr) {
      wanted = shape, block_rows_ = rows_, block_columns_ = columns_;
    } else if (shape == Shape{rows_, 1} || shape == Shape{rows_}) {
      wanted = shape, block_rows_ = 1, block_columns_ = columns_;
    } else {
      block_rows_ = block_rows, block_columns_ = block_columns;
    }
    HONE_TRY(scales, source.Need(scale_suffix, {DType::kF16, DType::kBF16, DType::kF32, DType::kU8, DType::kF8_E8M0}, wanted));
    tensors_ = {codes, scales};
    AddUnread(source, &tensors_);
    codes_ = codes->view.as<uint8_t>();
    if (IsPowers(scales->view.type)) powers_ = scales->view.as<uint8_t>();
    const bool e5m2 = codes->view.type == DType::kF8_E5M2;
    const int64_t across = (columns_ + block_columns_ - 1) / block_columns_;
    scales_ = {.view = scales->view, .row_stride = across, .group_stride = 1};
    for (int i = 0; i < 256; ++i) table_[i] = e5m2 ? E5m2Value(static_cast<uint8_t>(i)) : E4m3Value(static_cast<uint8_t>(i));
    const std::string shared = across > 1 || (block_rows_ > 1 && block_rows_ < rows_) ? fmt::format("scales of {} x {}", block_rows_, block_columns_)
                               : block_rows_ == 1 ? "scales of rows" : "one scale";
    stored_ = fmt::format("{} {}, {}", powers_ != nullptr ? "MXFP8" : "FP8", e5m2 ? "E5M2" : "E4M3", shared);
    return {};
  }

  void Decode(int64_t first, int64_t count, float* w) const override {
    for (int64_t r = first; r < first + count; ++r) {
      const uint8_t* row = codes_ + r * columns_;
      for (int64_t begin = 0; begin < columns_; begin += block_columns_) {
        const int64_t down = r / block_rows_, across = begin / block_columns_;
        const float scale = powers_ != nullptr ? E8m0Value(powers_[down * scales_.row_stride + across]) : scales_.Value(down, across);
        const int64_t end = std::min(columns_, begin + block_columns_);
        for (int64_t i = begin; i < end; ++i) *w++ = table_[row[i]] * scale;
      }
    }
  }

  static bool IsPowers(DType scales) { return scales == DType::kU8 || scales == DType::kF8_E8M0; }

 private:
  const uint8_t *codes_ = nullptr, *powers_ = nullptr;  // powers_: of two, in place of scales_' numbers
  ScaleTable scales_;
  int64_t block_rows_ = 1, block_columns_ = 1;
  float table_[256];
};

// Two E2M1 codes a byte, the low half first. NVFP4: blocks of 16 under E4M3 / global; MXFP4: of 32 under a power of two.
class Fp4Matrix final : public QuantizedMatrix {
 public:
  Fp4Matrix(const QuantizedSource& source, bool nvidia)
      : QuantizedMatrix(source.where(), source.rows, source.columns), nvidia_(nvidia), block_(nvidia ? 16 : 32) {}

  Result<void> Read(const QuantizedSource& source) {
    if (columns_ % block_ != 0) return source.Bad(fmt::format("{} columns are no whole blocks of {}", columns_, block_));
    HONE_TRY(const NamedTensor* codes, source.Need(".weight_packed", {DType::kU8}, Shape{rows_, columns_ / 2}));
    HONE_TRY(const NamedTensor* scales, source.Need(".weight_scale", {nvidia_ ? DType::kF8_E4M3 : DType::kU8},
                                                    Shape{rows_, columns_ / block_}));
    tensors_ = {codes, scales};
    AddUnread(source, &tensors_);
    if (nvidia_) {
      HONE_TRY(const NamedTensor* global, source.Need(".weight_global_scale", {DType::kF32}, Shape{1}));
      global_ = global->view.as<float>()[0];
      tensors_.push_back(global);
      if (!(std::isfinite(global_) && global_ > 0)) {
        return source.Bad(fmt::format("tensor {} is {}; wanted a number above 0", global->name, global_));
      }
    }
    codes_ = codes->view.as<uint8_t>();
    scales_ = scales->view.as<uint8_t>();
    stored_ = nvidia_ ? "NVFP4" : "MXFP4";
    type_ = !nvidia_ ? DType::kMXFP4 : columns_ % 256 == 0 ? DType::kQ6_K : DType::kQ8_0;
    exact_type_ = nvidia_ ? DType::kF32 : DType::kMXFP4;
    return {};
  }

  void Decode(int64_t first, int64_t count, float* w) const override {
    for (int64_t i = first * columns_; i < (first + count) * columns_; i += block_) {
      const uint8_t code = scales_[i / block_];
      const float scale = nvidia_ ? E4m3Value(code) / global_ : E8m0Value(code);
      for (int j = 0; j < block_; j += 2) {
        const uint8_t pair = codes_[(i + j) / 2];
        *w++ = E2m1Value(pair & 15) * scale;
        *w++ = E2m1Value(pair >> 4) * scale;
      }
    }
  }

 private:
  Result<void> Encode(int64_t first, int64_t count, DType type, std::byte* out) const override {
    if (type == DType::kQ6_K) return EncodeQ6(first, count, out);
    if (type != DType::kMXFP4) return QuantizedMatrix::Encode(first, count, type, out);
    for (int64_t i = first * columns_; i < (first + count) * columns_; i += 32, out += sizeof(BlockMXFP4)) {
      const uint8_t* pairs = codes_ + i / 2;
      BlockMXFP4 block{.e = scales_[i / 32], .qs = {}};
      if (block.e == 255) return InvalidInput(fmt::format("the scale of row {}, block {} is NaN", i / columns_, i % columns_ / 32));
      for (int j = 0; j < 16; j += 2) {  // elements j and j + 1 lie in pairs[j / 2]; those 16 further in the next eight bytes
        block.qs[j] = static_cast<uint8_t>((pairs[j / 2] & 15) | (pairs[8 + j / 2] & 15) << 4);
        block.qs[j + 1] = static_cast<uint8_t>((pairs[j / 2] >> 4) | (pairs[8 + j / 2] & 0xf0));
      }
      std::memcpy(out, &block, sizeof(block));
    }
    return {};
  }

  // Blocks of 256: d * scale * (code - 32) with code - 32 twice an E2M1 value, d a power of two over twice the tensor's scale.
  Result<void> EncodeQ6(int64_t first, int64_t count, std::byte* out) const {
    static constexpr int kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (int64_t begin = first * columns_; begin < (first + count) * columns_; begin += 256, out += sizeof(BlockQ6_K)) {
      BlockQ6_K block{};
      float scales[16], largest = 0;
      for (int b = 0; b < 16; ++b) scales[b] = E4m3Value(scales_[begin / 16 + b]), largest = std::max(largest, std::fabs(scales[b]));
      int exponent = 0;
      std::frexp(largest, &exponent);  // largest < 2^exponent
      const float unit = std::ldexp(1.0f, exponent - 7), d = unit / (2 * global_);
      block.d = F32ToF16(d);
      for (int b = 0; b < 16; ++b) {
        if (!std::isfinite(scales[b]) || !(d < 65520)) {
          return InvalidInput(fmt::format("row {}: the scale of block {} is NaN, or beyond F16 with the tensor's {}", begin / columns_,
                                          begin % columns_ / 16 + b, global_));
        }
        block.scales[b] = static_cast<int8_t>(std::nearbyint(scales[b] / unit));
      }
      for (int i = 0; i < 256; ++i) {
        const uint8_t pair = codes_[(begin + i) / 2];
        const unsigned code = static_cast<unsigned>(32 + kTwice[i % 2 == 0 ? pair & 15 : pair >> 4]);
        const int half = i / 128, row = i % 128 / 32, l = i % 32;
        block.ql[half * 64 + row % 2 * 32 + l] |= static_cast<uint8_t>((code & 15) << (row / 2 * 4));
        block.qh[half * 32 + l] |= static_cast<uint8_t>((code >> 4) << (2 * row));
      }
      std::memcpy(out, &block, sizeof(block));
    }
    return {};
  }

  const bool nvidia_;
  const int block_;
  const uint8_t *codes_ = nullptr, *scales_ = nullptr;
  float global_ = 1;
};

template <typename Matrix, typename... More>
MaybeMatrix OpenMatrix(std::shared_ptr<Matrix> matrix, const QuantizedSource& source, More... more) {
  HONE_RETURN_IF_ERROR(matrix->Read(source, more...));
  return std::shared_ptr<const QuantizedMatrix>(std::move(matrix));
}

// The block of the first group of the configuration that has one.
Result<std::pair<int64_t, int64_t>> BlockOf(const QuantizedSource& source) {
  std::pair<int64_t, int64_t> block{128, 128};
  if (!source.config.IsObject("config_groups")) return block;
  HONE_TRY(const JsonConfig groups, source.config.Object("config_groups"));
  for (const std::string& name : groups.Keys()) {
    HONE_TRY(const JsonConfig group, groups.Object(name));
    if (!group.IsObject("weights")) continue;
    HONE_TRY(const JsonConfig weights, group.Object("weights"));
    if (!weights.IsArray("block_structure")) continue;
    HONE_TRY(const std::vector<int64_t> sizes, weights.Ints("block_structure"));
    if (sizes.size() == 2 && sizes[0] > 0 && sizes[1] > 0) return std::pair{sizes[0], sizes[1]};
    return source.Bad("block_structure of " + name + " is not two numbers above 0");
  }
  return block;
}

}  // namespace

Result<void> CheckCompressedTensors(const JsonConfig& config) {
  for (const char* key : {"transform_config", "sparsity_config"}) {
    if (!config.IsObject(key)) continue;
    HONE_TRY(const JsonConfig object, config.Object(key));
    HONE_TRY(const std::string format, object.String("format", ""));
    if (object.Keys().empty() || format == "dense") continue;
    return Unsupported(fmt::format("{}: {} is {}; hone reads folders without it", config.origin(), key, object.Dump().substr(0, 120)));
  }
  return {};
}

MaybeMatrix OpenCompressedTensors(const QuantizedSource& source) {
  if (const NamedTensor* packed = source.Find(".weight_packed"); packed != nullptr) {
    if (packed->view.type != DType::kU8) return OpenMatrix(std::make_shared<PackedIntegers>(source), source);
    const NamedTensor* scales = source.Find(".weight_scale");
    const bool nvidia = source.Find(".weight_global_scale") != nullptr || (scales != nullptr && scales->view.type == DType::kF8_E4M3);
    return OpenMatrix(std::make_shared<Fp4Matrix>(source, nvidia), source);
  }
  const NamedTensor* weight = source.Find(".weight");
  if (weight == nullptr) return std::shared_ptr<const QuantizedMatrix>();
  if (weight->view.type == DType::kI8) return OpenMatrix(std::make_shared<ByteIntegers>(source), source);
  if (weight->view.type != DType::kF8_E4M3) return std::shared_ptr<const QuantizedMatrix>();
  HONE_TRY(auto block, BlockOf(source));
  const NamedTensor* scales = source.Find(".weight_scale");
  if (scales != nullptr && Fp8Matrix::IsPowers(scales->view.type)) block = {1, 32};
  return OpenMatrix(std::make_shared<Fp8Matrix>(source), source, std::string_view(".weight_scale"), block);
}

Result<void> CheckFp8(const JsonConfig& config) {
  HONE_TRY(const std::string format, config.String("fmt", "e4m3"));
  for (const std::string_view known : {"e4m3", "e5m2"}) {
    if (known == format) return {};
  }
  return Unsupported(fmt::format("{}: fmt is \"{}\"; known: e4m3, e5m2", config.origin(), format));
}

MaybeMatrix OpenFp8(const QuantizedSource& source) {
  const NamedTensor* weight = source.Find(".weight");
  const DType type = weight == nullptr ? DType::kF32 : weight->view.type;  // which of the two, not what fmt calls it
  if (type != DType::kF8_E4M3 && type != DType::kF8_E5M2) return std::shared_ptr<const QuantizedMatrix>();
  std::pair<int64_t, int64_t> block{128, 128};
  if (source.config.IsArray("weight_block_size")) {
    HONE_TRY(const std::vector<int64_t> sizes, source.config.Ints("weight_block_size"));
    if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1) return source.Bad("weight_block_size is not two numbers above 0");
    block = {sizes[0], sizes[1]};
  }
  const char* scales = source.Find(".weight_scale_inv") != nullptr ? ".weight_scale_inv" : ".weight_scale";
  return OpenMatrix(std::make_shared<Fp8Matrix>(source), source, std::string_view(scales), block);
}

}  // namespace hone
