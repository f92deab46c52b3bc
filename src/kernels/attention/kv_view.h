// KvView: where one sequence's keys and values of one layer lie, as attention sees them. cache/ fills it, models/ passes it on.
//
// Paged: the token at position p lies in block blocks[p / kKvBlockTokens], row p % kKvBlockTokens. Inside a block the layout is
// [G][kKvBlockTokens][E] for keys and for values, elements of `type`.
//
//   keys + blocks[b] * block_stride:   | head 0: 32 rows of E | head 1: 32 rows of E | ... | head G-1 |
#pragma once

#include <cstddef>
#include <cstdint>

namespace hone {

inline constexpr int kKvBlockTokens = 32;

enum class KvType : uint8_t { kF32, kF16, kBF16 };

inline constexpr size_t KvElementBytes(KvType type) { return type == KvType::kF32 ? 4 : 2; }

struct KvView {
  KvType type = KvType::kF32;
  int kv_heads = 0;        // G
  int head_width = 0;      // E, of keys and of values
  std::byte* keys = nullptr;
  std::byte* values = nullptr;
  size_t block_stride = 0;              // bytes from one block id to the next, the same for keys and values
  const int32_t* blocks = nullptr;      // block ids of the sequence, in order; borrowed

  std::byte* KeyRow(int head, int position) const { return keys + Offset(head, position); }
  std::byte* ValueRow(int head, int position) const { return values + Offset(head, position); }

 private:
  size_t Offset(int head, int position) const {
    const size_t row = static_cast<size_t>(head) * kKvBlockTokens + position % kKvBlockTokens;
    return static_cast<size_t>(blocks[position / kKvBlockTokens]) * block_stride + row * head_width * KvElementBytes(type);
  }
};

}  // namespace hone
