// See quantized_matrix.h.
#include "models/quantized/quantized_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// Scale amax / 127, rounded to F16 before the codes are made with it. False: a number that is not finite, or too large.
bool RoundToQ8(const float* x, int64_t columns, std::byte* out) {
  for (int64_t begin = 0; begin < columns; begin += 32, x += 32, out += sizeof(BlockQ8_0)) {
    float amax = 0, sum = 0;
    for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(x[i])), sum += x[i] * 0;
    BlockQ8_0 block{.d = F32ToF16(amax / 127), .qs = {}};
    const float d = F16ToF32(block.d);
    if (sum != 0 || !std::isfinite(d)) return false;
    const float inverse = d > 0 ? 1 / d : 0;
    for (int i = 0; i < 32; ++i) {
      block.qs[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x[i] * inverse), -127.0f, 127.0f));
    }
    std::memcpy(out, &block, sizeof(block));
  }
  return true;
}

// To whole blocks.
void FillUp(std::vector<int32_t>* order) { order->resize((order->size() + 31) / 32 * 32, QuantizedMatrix::kNoColumn); }

std::vector<int32_t> Counted(int64_t columns) {
  std::vector<int32_t> order(columns);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

QuantizedMatrix::QuantizedMatrix(std::string where, int64_t rows, int64_t columns)
    : where_(std::move(where)), rows_(rows), columns_(columns) {
  if (columns % 32 == 0) return;
  order_ = Counted(columns);
  FillUp(&order_);
}

bool QuantizedMatrix::TakeGroups(DType type, std::vector<int32_t> columns, FunctionRef<int64_t(int64_t)> group_of) {
  std::vector<int32_t> order;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (i > 0 && group_of(columns[i]) != group_of(columns[i - 1])) FillUp(&order);
    order.push_back(columns[i]);
  }
  FillUp(&order);
  if (BytesFor(type, order.size()) > BytesFor(DType::kQ8_0, (columns_ + 31) / 32 * 32)) return false;
  if (order == Counted(columns_)) order.clear();
  type_ = type, order_ = std::move(order);
  return true;
}

float E4m3Value(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7f) == 0x7f) return std::nanf("");
  const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                        : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code & 0x80 ? -magnitude : magnitude;
}

float E5m2Value(uint8_t code) { return F16ToF32(static_cast<uint16_t>(code << 8)); }

float E2m1Value(uint8_t code) {
  static constexpr float kValues[16] = {0,     0.5f,  1,     1.5f,  2,     3,     4,     6,
                                        -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return kValues[code & 15];
}

float E8m0Value(uint8_t code) { return std::ldexp(1.0f, int{code} - 127); }

uint64_t QuantizedMatrix::file_bytes() const {
  uint64_t bytes = 0;
  for (const NamedTensor* tensor : tensors_) bytes += tensor->view.bytes();
  return bytes;
}

void QuantizedMatrix::Release(const Checkpoint& checkpoint) const {
  for (const NamedTensor* tensor : tensors_) checkpoint.Release(tensor->view);
}

Result<Tensor> QuantizedMatrix::Transcode(int64_t first, int64_t count, bool exact, ThreadPool& threads) const {
  HONE_CHECK(first >= 0 && count >= 0 && first + count <= rows_);
  Tensor out(type(exact), Shape{count, width(exact)});
  const size_t row_bytes = out.view().row_bytes();
  const int64_t unit = rows_at_once();
  std::mutex mutex;
  Result<void> problem;
  threads.ParallelFor(static_cast<size_t>((count + unit - 1) / unit), 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const int64_t from = static_cast<int64_t>(i) * unit;
      Result<void> done = Encode(first + from, std::min(unit, count - from), type(exact), out.data() + from * row_bytes);
      if (done) continue;
      const std::lock_guard lock(mutex);
      if (problem) problem = std::move(done);
    }
  });
  if (!problem) return std::move(problem).error().Context(where_);
  return out;
}

Result<void> QuantizedMatrix::TranscodeRow(int64_t row, bool exact, std::byte* out) const {
  return Encode(row, 1, type(exact), out).Context(where_);
}

Result<void> QuantizedMatrix::Encode(int64_t first, int64_t count, DType type, std::byte* out) const {
  const bool rounded = type == DType::kQ8_0;
  HONE_CHECK(rounded || type == DType::kF32);
  std::vector<float> row(rounded ? (columns_ + 31) / 32 * 32 : columns_);  // filled up with zeros
  const size_t row_bytes = BytesFor(type, row.size());
  for (int64_t r = first; r < first + count; ++r, out += row_bytes) {
    Decode(r, 1, row.data());
    bool finite = true;
    if (rounded) {
      finite = RoundToQ8(row.data(), std::ssize(row), out);
    } else {
      for (const float x : row) finite = finite && std::isfinite(x);
      std::memcpy(out, row.data(), row_bytes);
    }
    if (!finite) {
      return InvalidInput(fmt::format(
          "row {} holds a weight that is not finite, or a scale beyond F16; the file is damaged or was made from a model "
          "that is (its original can be checked with hone logits)",
          r));
    }
  }
  return {};
}

}  // namespace hone
