// See block_rounder.h. What scale and offset each element of a block has is asked of the reader itself: the block is
// read with all codes at one value, then at another.
#include "compress/gguf/block_rounder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compress/gguf/block_quantizers.h"
#include "kernels/dequantize/dequantize.h"

namespace hone {
namespace {

constexpr int kMaxBlock = 256;
constexpr std::array<float, 16> kIq4{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr std::array<float, 16> kMxfp4{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct CodeRange {
  int bits = 0;                                 // 0: not a type for this
  const std::array<float, 16>* table = nullptr;  // nullptr: code c has value c
};

CodeRange CodesOf(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
      return {4};
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return {5};
    case DType::kQ8_0:
      return {8};
    case DType::kQ2_K:
      return {2};
    case DType::kQ3_K:
      return {3};
    case DType::kQ6_K:
      return {6};
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
      return {4, &kIq4};
    case DType::kMXFP4:
      return {4, &kMxfp4};
    default:
      return {};
  }
}

// `width` bits of *byte from bit `shift` on become `value`.
void PutBits(std::byte* byte, int shift, int width, int value) {
  const unsigned mask = ((1u << width) - 1) << shift;
  *byte = static_cast<std::byte>((static_cast<unsigned>(*byte) & ~mask) | (static_cast<unsigned>(value) << shift & mask));
}

class BlockRounder : public ColumnRounder {
 public:
  BlockRounder(DType type, Isa isa, const GptqFactor& factor, std::span<std::byte> rows)
      : type_(type),
        isa_(isa),
        factor_(factor),
        rows_(rows),
        codes_(CodesOf(type)),
        block_(Info(type).block_elements),
        block_bytes_(Info(type).block_bytes),
        row_bytes_(BytesFor(type, factor.columns)) {
    HONE_CHECK(codes_.bits > 0 && block_ <= kMaxBlock && factor.columns % block_ == 0);
  }

  void Begin(int64_t, const float*, const float*) override {}

  void Enter(int64_t row, int64_t at, const float* w) override {
    const int64_t number = factor_.order[at] / block_;
    here_ = rows_.data() + row * row_bytes_ + number * block_bytes_;
    alignas(64) float natural[kMaxBlock], importance[kMaxBlock];
    for (int i = 0; i < block_; ++i) natural[factor_.order[at + i] % block_] = w[i];
    for (int i = 0; i < block_; ++i) importance[i] = factor_.importance[number * block_ + i];
    QuantizeRow(type_, isa_, natural, block_, UsesImportance(type_) ? importance : nullptr, here_);
    // Codes 0 and, of tables, the one of value 1; else the highest.
    const int low = 0, high = codes_.table == nullptr ? (1 << codes_.bits) - 1 : codes_.table == &kIq4 ? 8 : 1;
    alignas(64) float at_low[kMaxBlock], at_high[kMaxBlock];
    alignas(64) std::byte trial[512];
    std::memcpy(trial, here_, block_bytes_);
    for (int i = 0; i < block_; ++i) PutCode(type_, trial, i, low);
    DequantizeRow(type_, trial, block_, at_low);
    for (int i = 0; i < block_; ++i) PutCode(type_, trial, i, high);
    DequantizeRow(type_, trial, block_, at_high);
    const float span = Value(high) - Value(low);
    for (int i = 0; i < block_; ++i) {
      scale_[i] = (at_high[i] - at_low[i]) / span;
      base_[i] = at_low[i] - Value(low) * scale_[i];
    }
  }

  float Round(int64_t, int64_t at, float weight) override {
    const int i = static_cast<int>(factor_.order[at] % block_);
    if (scale_[i] == 0) return base_[i];
    const float wanted = (weight - base_[i]) / scale_[i];
    int code = 0;
    if (codes_.table == nullptr) {
      code = static_cast<int>(std::nearbyint(std::clamp(wanted, 0.0f, static_cast<float>((1 << codes_.bits) - 1))));
    } else {
      for (int c = 1; c < 16; ++c) {
        if (std::fabs((*codes_.table)[c] - wanted) < std::fabs((*codes_.table)[code] - wanted)) code = c;
      }
    }
    PutCode(type_, here_, i, code);
    return base_[i] + scale_[i] * Value(code);
  }

 private:
  float Value(int code) const { return codes_.table == nullptr ? static_cast<float>(code) : (*codes_.table)[code]; }

  const DType type_;
  const Isa isa_;
  const GptqFactor& factor_;
  const std::span<std::byte> rows_;
  const CodeRange codes_;
  const int64_t block_, block_bytes_, row_bytes_;
  std::byte* here_ = nullptr;  // the block that is being written
  float scale_[kMaxBlock] = {}, base_[kMaxBlock] = {};
};

}  // namespace

bool CanSweep(DType type) { return CodesOf(type).bits > 0; }

SweepOptions BlockSweep(DType type, Isa isa) {
  const int64_t block = Info(type).block_elements;
  return {.span = block, .block = std::max<int64_t>(128, block), .fresh = true, .isa = isa};
}

void PutCode(DType type, std::byte* block, int i, int code) {
  const int half = i / 16 % 2, low = i % 16;  // of types with blocks of 32
  switch (type) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return PutBits(block + 2 + low, 4 * half, 4, code);
    case DType::kMXFP4:
      return PutBits(block + 1 + low, 4 * half, 4, code);
    case DType::kQ4_1:
      return PutBits(block + 4 + low, 4 * half, 4, code);
    case DType::kQ5_0:
      PutBits(block + 2 + i / 8, i % 8, 1, code >> 4);
      return PutBits(block + 6 + low, 4 * half, 4, code & 15);
    case DType::kQ5_1:
      PutBits(block + 4 + i / 8, i % 8, 1, code >> 4);
      return PutBits(block + 8 + low, 4 * half, 4, code & 15);
    case DType::kQ8_0:
      block[2 + i] = static_cast<std::byte>(code - 128);
      return;
    case DType::kIQ4_XS:
      return PutBits(block + 8 + i / 32 * 16 + low, 4 * half, 4, code);
    case DType::kQ2_K:
      return PutBits(block + 16 + i / 128 * 32 + i % 32, 2 * (i % 128 / 32), 2, code);
    case DType::kQ3_K:
      PutBits(block + i % 32, i / 32, 1, code >> 2);
      return PutBits(block + 32 + i / 128 * 32 + i % 32, 2 * (i % 128 / 32), 2, code & 3);
    case DType::kQ4_K:
      return PutBits(block + 16 + i / 64 * 32 + i % 32, 4 * (i / 32 % 2), 4, code);
    case DType::kQ5_K:
      PutBits(block + 16 + i % 32, i / 32, 1, code >> 4);
      return PutBits(block + 48 + i / 64 * 32 + i % 32, 4 * (i / 32 % 2), 4, code & 15);
    case DType::kQ6_K: {
      const int quarter = i % 128 / 32;
      PutBits(block + i / 128 * 64 + quarter % 2 * 32 + i % 32, 4 * (quarter / 2), 4, code & 15);
      return PutBits(block + 128 + i / 128 * 32 + i % 32, 2 * quarter, 2, code >> 4);
    }
    default:
      HONE_CHECK(false, "codes of this type are not put one by one");
  }
}

std::unique_ptr<ColumnRounder> MakeBlockRounder(DType type, Isa isa, const GptqFactor& factor,
                                                std::span<std::byte> rows) {
  return std::make_unique<BlockRounder>(type, isa, factor, rows);
}

}  // namespace hone
