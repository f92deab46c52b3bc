// See convert_rows.h.
#include "models/convert_rows.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/dequantize/dequantize.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// Stores `x` as `type` and returns what it reads back as.
float Store(float x, DType type, std::byte* out) {
  if (type == DType::kF32) {
    std::memcpy(out, &x, sizeof(x));
    return x;
  }
  const uint16_t half = type == DType::kF16 ? F32ToF16(x) : F32ToBf16(x);
  std::memcpy(out, &half, sizeof(half));
  return type == DType::kF16 ? F16ToF32(half) : Bf16ToF32(half);
}

}  // namespace

void ConvertRows(const TensorView& view, int64_t begin, int64_t count, bool plus_one, DType type, std::byte* out,
                 RoundingCount* tally) {
  const int64_t width = view.shape.back();
  tally->values += static_cast<uint64_t>(width * count);
  if (type == view.type && !plus_one) {
    std::memcpy(out, view.data + begin * view.row_bytes(), view.row_bytes() * count);
    return;
  }
  HONE_CHECK(type == DType::kF32 || type == DType::kF16 || type == DType::kBF16);
  std::vector<float> row(width);
  for (int64_t i = begin; i < begin + count; ++i) {
    DequantizeRow(view.type, view.data + i * view.row_bytes(), width, row.data());
    for (const float value : row) {
      const float x = plus_one ? 1 + value : value;
      const float back = Store(x, type, out);
      // 1 + w in F32 is how GGUF stores it; the rounding of that sum is part of the value.
      tally->rounded += back != x && !std::isnan(x);
      tally->overflowed += std::isfinite(x) && std::isinf(back);
      tally->not_finite += !std::isfinite(x);
      out += BytesFor(type, 1);
    }
  }
}

}  // namespace hone
