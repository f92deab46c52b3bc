// See integer_matrix.h.
#include "models/quantized/integer_matrix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// One block of 32 codes with this scale and zero. REQUIRES: the type holds code - zero.
void PutBlock(DType type, const uint8_t* c, float scale, int zero, std::byte* out) {
  const uint16_t d = F32ToF16(scale);
  const auto put = [&](const auto& block) { std::memcpy(out, &block, sizeof(block)); };
  switch (type) {
    case DType::kQ4_0: {
      BlockQ4_0 block{.d = d, .qs = {}};
      const int offset = 8 - zero;
      for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<uint8_t>((c[j] + offset) | (c[j + 16] + offset) << 4);
      return put(block);
    }
    case DType::kQ4_1: {
      BlockQ4_1 block{.d = d, .m = F32ToF16(-scale * static_cast<float>(zero)), .qs = {}};
      for (int j = 0; j < 16; ++j) block.qs[j] = static_cast<uint8_t>(c[j] | c[j + 16] << 4);
      return put(block);
    }
    case DType::kQ5_0:
    case DType::kQ5_1: {
      const bool has_min = type == DType::kQ5_1;
      const int offset = has_min ? 0 : 16 - zero;
      uint32_t high = 0;
      uint8_t qs[16];
      for (int j = 0; j < 16; ++j) {
        const uint32_t low = static_cast<uint32_t>(c[j] + offset), upper = static_cast<uint32_t>(c[j + 16] + offset);
        qs[j] = static_cast<uint8_t>((low & 15) | (upper & 15) << 4);
        high |= (low >> 4 & 1) << j | (upper >> 4 & 1) << (j + 16);
      }
      const auto fill = [&](auto block) {
        std::memcpy(block.qh, &high, 4);
        std::memcpy(block.qs, qs, 16);
        put(block);
      };
      if (!has_min) return fill(BlockQ5_0{.d = d, .qh = {}, .qs = {}});
      return fill(BlockQ5_1{.d = d, .m = F32ToF16(-scale * static_cast<float>(zero)), .qh = {}, .qs = {}});
    }
    default: {
      HONE_CHECK(type == DType::kQ8_0);
      BlockQ8_0 block{.d = d, .qs = {}};
      for (int j = 0; j < 32; ++j) block.qs[j] = static_cast<int8_t>(c[j] - zero);
      return put(block);
    }
  }
}

}  // namespace

float ScaleTable::Value(int64_t row, int64_t group) const {
  const int64_t i = row * row_stride + group * group_stride;
  if (view.type == DType::kF32) return view.as<float>()[i] / divisor;
  const uint16_t bits = view.as<uint16_t>()[i];
  return (view.type == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits)) / divisor;
}

void IntegerMatrix::Plan(int bits, int64_t group, int64_t groups, std::vector<int32_t> group_of, int constant_zero,
                         ScaleTable scales) {
  bits_ = bits, group_ = group, groups_ = groups, group_of_ = std::move(group_of), scales_ = scales;
  const int top = (1 << bits) - 1;
  const int lowest = constant_zero >= 0 ? -constant_zero : -top, highest = constant_zero >= 0 ? top - constant_zero : top;
  const auto fits = [&](int low, int high) { return lowest >= low && highest <= high; };
  DType type, exact;
  if (fits(-8, 7)) {
    type = exact = DType::kQ4_0;
  } else if (fits(-16, 15)) {
    type = bits == 4 ? DType::kQ4_1 : DType::kQ5_0;
    exact = DType::kQ5_0;
  } else if (fits(-128, 127)) {
    type = bits == 5 ? DType::kQ5_1 : DType::kQ8_0;
    exact = DType::kQ8_0;
  } else {
    return;  // 8 bits with zeros
  }
  std::vector<int32_t> columns(columns_);
  std::iota(columns.begin(), columns.end(), 0);
  if (!group_of_.empty()) {
    std::stable_sort(columns.begin(), columns.end(), [&](int32_t a, int32_t b) { return group_of_[a] < group_of_[b]; });
  }
  keeps_codes_ = TakeGroups(type, std::move(columns), [this](int64_t column) { return GroupOf(column); });
  if (!keeps_codes_) return;
  if (scales_.view.type != DType::kF16 || scales_.divisor != 1) return;
  exact_type_ = exact;
  exact_order_ = order_;
}

void IntegerMatrix::Decode(int64_t first, int64_t count, float* w) const {
  std::vector<uint8_t> codes(count * columns_);
  ReadCodes(first, count, codes.data());
  std::vector<float> scales(groups_);
  std::vector<int> zeros(groups_);
  const uint8_t* c = codes.data();
  for (int64_t r = first; r < first + count; ++r) {
    for (int64_t g = 0; g < groups_; ++g) scales[g] = scales_.Value(r, g), zeros[g] = Zero(r, g);
    for (int64_t i = 0; i < columns_; ++i) {
      const int64_t g = GroupOf(i);
      *w++ = static_cast<float>(*c++ - zeros[g]) * scales[g];
    }
  }
}

Result<void> IntegerMatrix::Encode(int64_t first, int64_t count, DType type, std::byte* out) const {
  if (!keeps_codes_ || !IsBlock(type)) return QuantizedMatrix::Encode(first, count, type, out);
  std::vector<uint8_t> codes(count * columns_);
  ReadCodes(first, count, codes.data());
  const size_t block_bytes = Info(type).block_bytes;
  const int64_t elements = width(false);
  uint8_t gathered[32];
  for (int64_t r = 0; r < count; ++r) {
    const uint8_t* row = codes.data() + r * columns_;
    for (int64_t begin = 0; begin < elements; begin += 32, out += block_bytes) {
      const int64_t g = GroupOf(order_.empty() ? begin : order_[begin]);
      const float scale = scales_.Value(first + r, g);
      const int zero = Zero(first + r, g);
      const uint8_t* c = row + begin;
      if (!order_.empty()) {
        for (int j = 0; j < 32; ++j) {
          const int32_t column = order_[begin + j];
          gathered[j] = column == kNoColumn ? static_cast<uint8_t>(zero) : row[column];
        }
        c = gathered;
      }
      const float least = type == DType::kQ4_1 || type == DType::kQ5_1 ? scale * static_cast<float>(zero) : 0;
      if (!(std::fabs(scale) < 65520 && std::fabs(least) < 65520)) {  // NaN too
        return InvalidInput(fmt::format(
            "the scale of row {}, group {} is {}; wanted a finite number that F16 holds. The file is damaged, or was made "
            "from a model with NaN or infinities",
            first + r, g, scale));
      }
      PutBlock(type, c, scale, zero, out);
    }
  }
  return {};
}

Result<std::vector<int32_t>> ReadGroupIndex(const NamedTensor& tensor, int64_t columns, int64_t group, int64_t groups) {
  if (tensor.view.type != DType::kI32 || tensor.view.shape != Shape{columns}) {
    return InvalidInput(fmt::format("tensor {} is {} {}; wanted I32 [{}]", tensor.name, Info(tensor.view.type).name,
                                    tensor.view.shape.ToString(), columns));
  }
  std::vector<int32_t> group_of(columns);
  std::memcpy(group_of.data(), tensor.view.data, columns * sizeof(int32_t));
  bool plain = true;
  for (int64_t i = 0; i < columns; ++i) {
    if (group_of[i] < 0 || group_of[i] >= groups) {
      return InvalidInput(fmt::format("tensor {}: column {} is of group {}; wanted 0 to {}, the groups that have scales",
                                      tensor.name, i, group_of[i], groups - 1));
    }
    plain = plain && group_of[i] == i / group;
  }
  if (plain) group_of.clear();
  return group_of;
}

}  // namespace hone
