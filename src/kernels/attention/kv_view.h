// KvView: where one sequence's keys and values of one layer lie, as attention sees them. cache/ fills it, models/ passes it on.
//
// Paged: the token at position p lies in block blocks[p / kKvBlockTokens], at place p % kKvBlockTokens.
//
//   keys   + blocks[b] * block_stride:   | head 0 | head 1 | ... | head G-1 |   (values likewise)
//
// Inside a block, one head of E numbers a token:
//
//   type      keys                                     values
//   F32, F16  [E][32]                                  [32][E]
//   BF16      [E/2][32][2]: pairs of elements           [16][E][2]: pairs of tokens     (E odd: one element of zeros more in keys)
//   I8        32 scales (F32), then [E][32] of int8     32 scales (F32), then [32][E] of int8
//
// So scores of 32 tokens are one vector loop over E without a sum across lanes, and nothing is transposed when keys are read;
// StoreKv (attention.h) transposes once. The pairs of BF16 are what TDPBF16PS takes as its right operand, and one shift or mask
// away from F32. An I8 number is scale * code, the scale of a token and head being its largest magnitude / 127. Whole blocks are
// copied as bytes. See docs/kernels-attention.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hone {

inline constexpr int kKvBlockTokens = 32;
inline constexpr int kMaxHeadWidth = 1024;  // the largest E that Attention takes; models/ refuses more when it loads a file

enum class KvType : uint8_t { kF32, kF16, kBF16, kI8 };

// Of a number without its share of scales.
inline constexpr size_t KvElementBytes(KvType type) { return type == KvType::kF32 ? 4 : type == KvType::kI8 ? 1 : 2; }

// Bytes of the scales before the keys (or values) of one head in a block.
inline constexpr size_t KvScaleBytes(KvType type) { return type == KvType::kI8 ? kKvBlockTokens * sizeof(float) : 0; }

// Bytes of the keys (or values) of one head in a block.
inline constexpr size_t KvHeadBlockBytes(KvType type, int head_width) {
  const int width = type == KvType::kBF16 ? (head_width + 1) / 2 * 2 : head_width;
  return KvScaleBytes(type) + size_t{kKvBlockTokens} * width * KvElementBytes(type);
}

// Bytes of the keys and values of one token in one layer, scales counted.
inline constexpr size_t KvTokenBytes(KvType type, int kv_heads, int head_width) {
  return 2 * KvHeadBlockBytes(type, head_width) / kKvBlockTokens * kv_heads;
}

// Where element e of the token at `place` lies in a head's block, in bytes.
inline constexpr size_t KvKeyOffset(KvType type, int place, int e) {
  const size_t index = type == KvType::kBF16 ? (size_t(e / 2) * kKvBlockTokens + place) * 2 + e % 2 : size_t(e) * kKvBlockTokens + place;
  return KvScaleBytes(type) + index * KvElementBytes(type);
}
inline constexpr size_t KvValueOffset(KvType type, int head_width, int place, int e) {
  const size_t index =
      type == KvType::kBF16 ? (size_t(place / 2) * head_width + e) * 2 + place % 2 : size_t(place) * head_width + e;
  return KvScaleBytes(type) + index * KvElementBytes(type);
}

struct KvView {
  KvType type = KvType::kF32;
  int kv_heads = 0;        // G
  int head_width = 0;      // E, of keys and of values
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  size_t block_stride = 0;              // bytes from one block id to the next, the same for keys and values
  const int32_t* blocks = nullptr;      // block ids of the sequence, in order; borrowed

  // The 32 tokens of one head in the sequence's block `index` (position / kKvBlockTokens).
  std::byte* KeyBlock(int head, int index) const { return keys + Offset(head, index); }
  std::byte* ValueBlock(int head, int index) const { return values + Offset(head, index); }

 private:
  size_t Offset(int head, int index) const {
    return static_cast<size_t>(blocks[index]) * block_stride + static_cast<size_t>(head) * KvHeadBlockBytes(type, head_width);
  }
};

}  // namespace hone
