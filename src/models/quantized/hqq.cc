// HQQ (half-quadratic quantisation) as the hqq library writes it into safetensors: w = (code - zero) * scale with float
// zeros, groups over the flattened matrix; everything about a matrix lies in small tensors beside its codes. Up to 4 bits
// in groups within rows run as Q4_1, whose codes are the file's and whose least weight is -zero * scale rounded to F16.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "models/quantized/hqq_layout.h"
#include "models/quantized/integer_matrix.h"
#include "models/quantized/quantized_folder.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

class HqqMatrix final : public QuantizedMatrix {
 public:
  explicit HqqMatrix(const QuantizedSource& source) : QuantizedMatrix(source.where(), source.rows, source.columns) {}

  Result<void> Read(const QuantizedSource& source) {
    for (const char* suffix :
         {".W_q", ".scale", ".zero", ".nbits", ".group_size", ".axis", ".packing", ".shape", ".compute_dtype",
          ".unpack_view_dtype", ".view_as_float", ".quant_scale", ".quant_zero", ".offload_meta", ".encoded_state_dict",
          ".stores_quant_config", ".channel_wise", ".optimize", ".round_zero"}) {
      if (const NamedTensor* tensor = source.Find(suffix); tensor != nullptr) tensors_.push_back(tensor);
    }
    for (const char* flag : {".view_as_float", ".quant_scale", ".quant_zero"}) {
      HONE_TRY(const int64_t set, Number(source, flag, 0));
      if (set != 0)
        return source.Bad(fmt::format("{} is set: codes as floats and scales quantised once more are not read", flag + 1));
    }
    HONE_TRY(group_, Number(source, ".group_size", -1));
    HONE_TRY(axis_, Number(source, ".axis", 1));
    const int64_t n = rows_ * columns_;
    if (group_ < 1 || n % group_ != 0 || axis_ < 0 || axis_ > 1)
      return source.Bad(fmt::format("groups of {} along axis {}; wanted ones that divide {} weights, axis 0 or 1", group_,
                                    axis_, n));
    const int64_t groups = n / group_;
    const NamedTensor* packing = source.Find(".packing");
    const bool named = packing != nullptr && packing->view.type == DType::kU8 && packing->view.shape.rank() == 1;
    const std::string_view name(named ? reinterpret_cast<const char*>(packing->view.data) : "",
                                named ? static_cast<size_t>(packing->view.shape[0]) : 0);
    layout_ = HqqLayout::Make(name, axis_ == 1 ? groups : group_, axis_ == 1 ? group_ : groups);
    if (layout_.parts == 0 || !layout_.whole())
      return source.Bad(fmt::format("packing is \"{}\"; wanted 8bit_u8, 4bit_u8, 3bit_32, 2bit_u8 or 1bit_u8 with whole "
                                    "words",
                                    name.substr(0, 32)));
    HONE_TRY(const NamedTensor* words, source.Need(".W_q", {layout_.word_bytes == 4 ? DType::kI32 : DType::kU8},
                                                   Shape{layout_.word_rows(), layout_.columns}));
    const Shape wanted = axis_ == 1 ? Shape{groups, 1} : Shape{1, groups};
    HONE_TRY(const NamedTensor* scale, source.Need(".scale", {DType::kF16, DType::kBF16, DType::kF32}, wanted));
    HONE_TRY(const NamedTensor* zero, source.Need(".zero", {DType::kF16, DType::kBF16, DType::kF32}, wanted));
    words_ = words->view.data;
    scale_ = {.view = scale->view, .row_stride = 1};
    zero_ = {.view = zero->view, .row_stride = 1};
    HONE_TRY(const int64_t bits, Number(source, ".nbits", layout_.bits));
    stored_ = fmt::format("hqq {}-bit, groups of {}", bits, group_);
    if (axis_ == 1 && layout_.bits <= 4 && columns_ % group_ == 0) {
      std::vector<int32_t> columns(columns_);
      std::iota(columns.begin(), columns.end(), 0);
      TakeGroups(DType::kQ4_1, std::move(columns), [this](int64_t column) { return column / group_; });
    }
    return {};
  }

  void Decode(int64_t first, int64_t count, float* w) const override {
    for (int64_t i = first * columns_; i < (first + count) * columns_; ++i) {
      const int64_t row = i / layout_.columns, column = i % layout_.columns, group = axis_ == 1 ? row : column;
      const float code = static_cast<float>(layout_.Get(words_, row, column));
      *w++ = (code - zero_.Value(group, 0)) * scale_.Value(group, 0);
    }
  }

 private:
  // A tensor of one byte.
  Result<int64_t> Number(const QuantizedSource& source, const char* suffix, int64_t otherwise) const {
    const NamedTensor* tensor = source.Find(suffix);
    if (tensor == nullptr) return otherwise;
    if (tensor->view.type != DType::kU8 || tensor->view.shape.elements() != 1)
      return source.Bad(fmt::format("tensor {} is {} {}; wanted one U8", tensor->name, Info(tensor->view.type).name,
                                    tensor->view.shape.ToString()));
    return static_cast<int64_t>(tensor->view.as<uint8_t>()[0]);
  }

  Result<void> Encode(int64_t first, int64_t count, DType type, std::byte* out) const override {
    if (type != DType::kQ4_1) return QuantizedMatrix::Encode(first, count, type, out);
    const int64_t elements = width(false);
    for (int64_t i = 0; i < count * elements; i += 32, out += sizeof(BlockQ4_1)) {
      const auto column = [&](int64_t j) -> int64_t { return order_.empty() ? i % elements + j : order_[i % elements + j]; };
      const int64_t group = ((first + i / elements) * columns_ + column(0)) / group_;
      const float scale = scale_.Value(group, 0), least = -zero_.Value(group, 0) * scale;
      if (!(std::fabs(scale) < 65520 && std::fabs(least) < 65520)) {  // NaN too
        return InvalidInput(fmt::format("scale {} and zero {} of group {} are no finite numbers that F16 holds; the file "
                                        "is damaged",
                                        scale, zero_.Value(group, 0), group));
      }
      BlockQ4_1 block{.d = F32ToF16(scale), .m = F32ToF16(least), .qs = {}};
      const auto code = [&](int64_t j) { return column(j) == kNoColumn ? 0 : layout_.Get(words_, group, column(j) % group_); };
      for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<uint8_t>(code(j) | code(j + 16) << 4);
      std::memcpy(out, &block, sizeof(block));
    }
    return {};
  }

  const std::byte* words_ = nullptr;
  HqqLayout layout_;
  int64_t group_ = 0, axis_ = 1;
  ScaleTable scale_, zero_;
};

}  // namespace

Result<void> CheckHqq(const JsonConfig&) { return {}; }

Result<std::shared_ptr<const QuantizedMatrix>> OpenHqq(const QuantizedSource& source) {
  if (source.Find(".W_q") == nullptr) return std::shared_ptr<const QuantizedMatrix>();
  auto matrix = std::make_shared<HqqMatrix>(source);
  HONE_RETURN_IF_ERROR(matrix->Read(source));
  return std::shared_ptr<const QuantizedMatrix>(std::move(matrix));
}

}  // namespace hone
