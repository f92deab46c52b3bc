// KvView: where one sequence's keys and values of one layer lie, as attention sees them. cache/ fills it, models/ passes it on.
//
// Paged: the token at position p lies in block blocks[p / kKvBlockTokens], at place p % kKvBlockTokens. Inside a block, a head's
// keys lie transposed, [E][kKvBlockTokens], its values [kKvBlockTokens][E], elements of `type`:
//
//   keys   + blocks[b] * block_stride:   | head 0: E rows of 32 tokens | head 1 | ... | head G-1 |
//   values + blocks[b] * block_stride:   | head 0: 32 rows of E        | head 1 | ... | head G-1 |
//
// So scores of 32 tokens are one vector loop over E without a sum across lanes, and nothing is transposed when keys are read;
// StoreKv (attention.h) transposes once. Whole blocks are copied as bytes. See docs/kernels-attention.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hone {

inline constexpr int kKvBlockTokens = 32;
inline constexpr int kMaxHeadWidth = 1024;  // the largest E that Attention takes; models/ refuses more when it loads a file

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

  // The 32 tokens of one head in the sequence's block `index` (position / kKvBlockTokens).
  std::byte* KeyBlock(int head, int index) const { return keys + Offset(head, index); }      // [E][32]
  std::byte* ValueBlock(int head, int index) const { return values + Offset(head, index); }  // [32][E]

 private:
  size_t Offset(int head, int index) const {
    return static_cast<size_t>(blocks[index]) * block_stride +
           static_cast<size_t>(head) * kKvBlockTokens * head_width * KvElementBytes(type);
  }
};

}  // namespace hone
