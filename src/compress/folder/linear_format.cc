// The list of formats, and the few things they share.
#include "compress/folder/linear_format.h"

#include <cstring>
#include <memory>

#include "base/check.h"
#include "tensor/float16.h"

namespace hone {

#define HONE_LINEAR_FORMAT(method, format, Make) Result<std::unique_ptr<LinearFormat>> Make(const LinearScheme& scheme);
#include "compress/folder/formats.inc"
#undef HONE_LINEAR_FORMAT

Result<std::unique_ptr<LinearFormat>> MakeLinearFormat(const LinearScheme& scheme, Isa isa) {
  std::string known;
#define HONE_LINEAR_FORMAT(method_name, format_name, Make)             \
  if (scheme.method == method_name && scheme.format == format_name) {  \
    HONE_TRY(std::unique_ptr<LinearFormat> format, Make(scheme));      \
    format->slices_ = &SlicesFor(isa);                                 \
    return format;                                                     \
  }                                                                    \
  known += (known.empty() ? "" : ", ") + std::string(method_name) + " in " + std::string(format_name);
#include "compress/folder/formats.inc"
#undef HONE_LINEAR_FORMAT
  return UsageError("--method " + scheme.method + " with --format " + scheme.format + " is not there; wanted one of " +
                    known);
}

void LinearFormat::EncodeCodes(const LinearCodes&, std::span<std::vector<std::byte>>, ThreadPool&) const {
  HONE_CHECK(false, "this format takes no codes");
}

void LinearFormat::DecodeRows(std::span<const std::span<const std::byte>> outputs, int64_t rows, int64_t columns, DType dtype,
                              int64_t first, int64_t count, FunctionRef<void(int64_t row, const float* w)> visit) const {
  const auto w = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count * columns));
  Decode(outputs, rows, columns, dtype, first, count, w.get());
  for (int64_t r = 0; r < count; ++r) visit(first + r, &w[r * columns]);
}

void StoreAs(DType dtype, float x, std::byte* out) {
  if (dtype == DType::kF32) return void(std::memcpy(out, &x, sizeof(x)));
  const uint16_t half = dtype == DType::kF16 ? F32ToF16(x) : F32ToBf16(x);
  std::memcpy(out, &half, sizeof(half));
}

float LoadAs(DType dtype, const std::byte* in) {
  if (dtype == DType::kF32) {
    float x;
    std::memcpy(&x, in, sizeof(x));
    return x;
  }
  uint16_t half;
  std::memcpy(&half, in, sizeof(half));
  return dtype == DType::kF16 ? F16ToF32(half) : Bf16ToF32(half);
}

}  // namespace hone
