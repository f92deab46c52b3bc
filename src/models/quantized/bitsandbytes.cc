// bitsandbytes: NF4 and FP4, two codes of a table of 16 a byte, the high half first, in blocks that run over the flattened
// matrix, whose largest magnitudes may be codes themselves (double quantisation). They keep their codes where blocks are
// whole 32s of a row: NF4 in the type of that name, FP4, whose levels but one are whole 12ths, in Q5_0. And LLM.int8():
// signed bytes with one largest magnitude a row. The outliers that LLM.int8() multiplies apart are columns of activations,
// not of the file: hone's activations stay as they are, so there is nothing to take apart.
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

class Int8Rows final : public IntegerMatrix {
 public:
  explicit Int8Rows(const QuantizedSource& source) : IntegerMatrix(source.where(), source.rows, source.columns) {}

  Result<void> Read(const QuantizedSource& source) {
    HONE_TRY(const NamedTensor* codes, source.Need(".weight", {DType::kI8}, Shape{rows_, columns_}));
    HONE_TRY(const NamedTensor* largest, source.Need(".SCB", {DType::kF32}, Shape{rows_}));
    tensors_ = {codes, largest};
    if (const NamedTensor* format = source.Find(".weight_format"); format != nullptr) {
      tensors_.push_back(format);
      if (format->view.bytes() == 1 && static_cast<uint8_t>(format->view.data[0]) != 0) {
        return source.Bad(fmt::format("tensor {} is {}; wanted 0, rows one after the other. Save the model again with a recent "
                                      "bitsandbytes", format->name, static_cast<int>(format->view.data[0])));
      }
    }
    codes_ = codes->view.as<uint8_t>();
    stored_ = "bitsandbytes INT8, whole rows";
    Plan(8, columns_, 1, {}, 128, {.view = largest->view, .row_stride = 1, .divisor = 127});
    return {};
  }

 private:
  void ReadCodes(int64_t first, int64_t count, uint8_t* codes) const override {
    const uint8_t* from = codes_ + first * columns_;
    for (int64_t i = 0; i < count * columns_; ++i) codes[i] = from[i] ^ 0x80;  // + 128
  }
  int Zero(int64_t, int64_t) const override { return 128; }

  const uint8_t* codes_ = nullptr;
};

class Codes4 final : public QuantizedMatrix {
 public:
  explicit Codes4(const QuantizedSource& source) : QuantizedMatrix(source.where(), source.rows, source.columns) {}

  Result<void> Read(const QuantizedSource& source, std::string_view kind) {
    const int64_t n = rows_ * columns_;
    HONE_TRY(const NamedTensor* codes, source.Need(".weight", {DType::kU8}, Shape{(n + 1) / 2, 1}));
    const std::string state_name = fmt::format(".weight.quant_state.bitsandbytes__{}", kind);
    const NamedTensor* state = source.Find(state_name);
    HONE_CHECK(state != nullptr);
    if (state->view.type != DType::kU8) return source.Bad("tensor " + state->name + " is not U8: the text of a JSON object");
    const std::string_view text(state->view.as<char>(), state->view.bytes());
    HONE_TRY(const JsonConfig said, JsonConfig::Parse(text.substr(0, text.find('\0')), where_ + state_name));
    HONE_TRY(block_, said.Int("blocksize"));
    HONE_TRY(const std::vector<int64_t> shape, said.Ints("shape"));
    if (block_ < 1) return source.Bad(fmt::format("blocksize is {}; wanted 1 or more", block_));
    block_ = std::min(block_, n);  // a matrix of less than a block is one
    if (shape != std::vector<int64_t>{rows_, columns_}) {
      return source.Bad(fmt::format("its state is of a matrix of another shape than [{}, {}]", rows_, columns_));
    }
    const int64_t blocks = (n + block_ - 1) / block_;
    HONE_TRY(const NamedTensor* map, source.Need(".weight.quant_map", {DType::kF32}, Shape{16}));
    std::memcpy(map_, map->view.data, sizeof(map_));
    HONE_TRY(const NamedTensor* largest, source.Need(".weight.absmax", {DType::kU8, DType::kF32}, Shape{blocks}));
    tensors_ = {codes, state, map, largest};
    largest_ = largest->view;
    if (largest_.type == DType::kU8) {
      HONE_TRY(nested_block_, said.Int("nested_blocksize"));
      HONE_TRY(const double offset, said.Number("nested_offset"));
      if (nested_block_ < 1) return source.Bad(fmt::format("nested_blocksize is {}; wanted 1 or more", nested_block_));
      nested_block_ = std::min(nested_block_, blocks);
      offset_ = static_cast<float>(offset);
      HONE_TRY(const NamedTensor* nested, source.Need(".weight.nested_absmax", {DType::kF32},
                                                      Shape{(blocks + nested_block_ - 1) / nested_block_}));
      HONE_TRY(const NamedTensor* nested_map, source.Need(".weight.nested_quant_map", {DType::kF32}, Shape{256}));
      nested_ = nested->view.as<float>(), nested_map_ = nested_map->view.as<float>();
      tensors_.push_back(nested), tensors_.push_back(nested_map);
    }
    codes_ = codes->view.as<uint8_t>();
    stored_ = fmt::format("bitsandbytes {}, blocks of {}", kind == "nf4" ? "NF4" : "FP4", block_);
    if (columns_ % 32 == 0 && block_ % 32 == 0) {
      if (Holds(kNf4Values, kNf4Steps, 0.5f)) type_ = DType::kNF4;
      if (Holds(kFp4Values, 12, 0.1f)) type_ = DType::kQ5_0;
    }
    return {};
  }

  void Decode(int64_t first, int64_t count, float* w) const override {
    const int64_t end = (first + count) * columns_;
    for (int64_t i = first * columns_; i < end;) {
      const float largest = Largest(i / block_);
      for (const int64_t stop = std::min(end, (i / block_ + 1) * block_); i < stop; ++i) {
        const uint8_t pair = codes_[i / 2];
        *w++ = map_[i % 2 == 0 ? pair >> 4 : pair & 15] * largest;
      }
    }
  }

 private:
  // FP4's levels times 12; the second, 1/16 of a step, becomes 0.
  static constexpr int8_t kFp4Values[16] = {0, 0, 8, 12, 4, 6, 2, 3, 0, 0, -8, -12, -4, -6, -2, -3};

  // Whether each level of the file's table, in `steps` to 1, is that close to its value of this one.
  bool Holds(const int8_t (&values)[16], float steps, float close) const {
    for (int i = 0; i < 16; ++i) {
      if (!(std::fabs(map_[i] * steps - static_cast<float>(values[i])) <= close)) return false;
    }
    return true;
  }

  Result<void> Encode(int64_t first, int64_t count, DType type, std::byte* out) const override {
    if (type != DType::kNF4 && type != DType::kQ5_0) return QuantizedMatrix::Encode(first, count, type, out);
    for (int64_t i = first * columns_; i < (first + count) * columns_; i += 32, out += Info(type).block_bytes) {
      const float scale = Largest(i / block_) / (type == DType::kNF4 ? kNf4Steps : 12);
      if (!(std::fabs(scale) < 65520)) {  // NaN too
        return InvalidInput(fmt::format("the largest magnitude of row {}, block {} is {}; wanted a finite number that F16 holds. The "
                                        "file is damaged, or was made from a model with NaN or infinities",
                                        i / columns_, i / block_, Largest(i / block_)));
      }
      uint8_t codes[32];
      for (int j = 0; j < 32; j += 2) {
        const uint8_t pair = codes_[(i + j) / 2];
        codes[j] = pair >> 4, codes[j + 1] = pair & 15;
      }
      if (type == DType::kNF4) {
        BlockNF4 block{.d = F32ToF16(scale), .qs = {}};
        for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<uint8_t>(codes[j] | codes[j + 16] << 4);
        std::memcpy(out, &block, sizeof(block));
        continue;
      }
      BlockQ5_0 block{.d = F32ToF16(scale), .qh = {}, .qs = {}};
      uint32_t high = 0;
      for (int j = 0; j < 16; ++j) {
        const uint32_t low = static_cast<uint32_t>(kFp4Values[codes[j]] + 16), upper = static_cast<uint32_t>(kFp4Values[codes[j + 16]] + 16);
        block.qs[j] = static_cast<uint8_t>((low & 15) | (upper & 15) << 4);
        high |= (low >> 4) << j | (upper >> 4) << (j + 16);
      }
      std::memcpy(block.qh, &high, sizeof(high));
      std::memcpy(out, &block, sizeof(block));
    }
    return {};
  }

  float Largest(int64_t block) const {
    if (nested_ == nullptr) return largest_.as<float>()[block];
    const float scaled = nested_map_[largest_.as<uint8_t>()[block]] * nested_[block / nested_block_];
    return scaled + offset_;
  }

  const uint8_t* codes_ = nullptr;
  TensorView largest_;
  float map_[16] = {};
  int64_t block_ = 64, nested_block_ = 256;
  const float *nested_ = nullptr, *nested_map_ = nullptr;
  float offset_ = 0;
};

template <typename Matrix, typename... More>
MaybeMatrix Open(std::shared_ptr<Matrix> matrix, const QuantizedSource& source, More... more) {
  HONE_RETURN_IF_ERROR(matrix->Read(source, more...));
  return std::shared_ptr<const QuantizedMatrix>(std::move(matrix));
}

}  // namespace

Result<void> CheckBitsandbytes(const JsonConfig& config) {
  HONE_TRY(const std::string storage, config.String("bnb_4bit_quant_storage", "uint8"));
  if (storage == "uint8") return {};
  return Unsupported(fmt::format("{}: bnb_4bit_quant_storage is \"{}\"; known: uint8", config.origin(), storage));
}

MaybeMatrix OpenBitsandbytes(const QuantizedSource& source) {
  const NamedTensor* weight = source.Find(".weight");
  if (weight == nullptr) return std::shared_ptr<const QuantizedMatrix>();
  if (weight->view.type == DType::kI8) return Open(std::make_shared<Int8Rows>(source), source);
  if (weight->view.type != DType::kU8) return std::shared_ptr<const QuantizedMatrix>();
  for (const std::string_view kind : {"nf4", "fp4"}) {
    if (source.Find(fmt::format(".weight.quant_state.bitsandbytes__{}", kind)) == nullptr) continue;
    return Open(std::make_shared<Codes4>(source), source, kind);
  }
  return source.Bad(fmt::format("tensor {} is U8, but there is no {}.weight.quant_state.bitsandbytes__nf4 (or __fp4) beside it; "
                                "save the model again with a recent bitsandbytes", weight->name, source.module));
}

}  // namespace hone
