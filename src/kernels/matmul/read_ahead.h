// Asking for weights before they are read. A core that follows one stream of addresses has too few requests under way to keep
// memory busy: eight streams side by side, each in a page of its own, give 20 to 35 % more (docs/kernels-matmul.md). So while a
// thread reads 32 KiB in order, it asks for the 32 KiB after them, two lines of each eighth in turn (one or eight give less).
//
// Only hints: any range will do, and nothing that is computed depends on it.
#pragma once

#include <stdint.h>

#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/read_ranges.h"

namespace hone {
namespace {

// Moves on to the next block; false if no more is known, and then at most kReadLead stays owed. Inline whatever it costs: the registers
// of the loop that asks would go to memory around a call.
__attribute__((always_inline)) inline bool NextReadBlock(ReadRanges* ranges) {
  if (ranges->block_end >= ranges->end) {
    if (ranges->next >= ranges->next_end) {
      if (ranges->owed > kReadLead) ranges->owed = kReadLead;
      return false;
    }
    ranges->block_end = ranges->next, ranges->end = ranges->next_end;
    ranges->next = ranges->next_end = nullptr;
  }
  const int64_t left = (ranges->end - ranges->block_end) / kReadStreams / kReadAtOnce * kReadAtOnce;
  ranges->stride = left < kReadAtOnce ? kReadAtOnce : left > ranges->most_stride ? ranges->most_stride : left;
  ranges->left = ranges->stride;
  ranges->at = ranges->block_end;
  ranges->block_end += kReadStreams * ranges->stride;
  return true;
}

// Lines that are read once need not push others out of L2 and L3 when they leave L1, which leaves memory more time (bench/RESULTS.md).
template <auto kHint>
__attribute__((always_inline)) inline void AskStreams(const char* at, int64_t stride) {
  for (int i = 0; i < kReadStreams; ++i) {
    for (int j = 0; j < kReadAtOnce; j += 64) _mm_prefetch(at + i * stride + j, kHint);
  }
}

// To be called when `bytes` more were read; asks for as many.
inline void AskAhead(ReadRanges* ranges, int bytes) {
  ranges->owed += bytes;
  while (ranges->owed >= kReadStreams * kReadAtOnce) {
    if (ranges->left == 0 && !NextReadBlock(ranges)) return;
    const char* at = reinterpret_cast<const char*>(ranges->at);
    const int64_t stride = ranges->stride;
    if (ranges->again) {
      AskStreams<_MM_HINT_T0>(at, stride);
    } else {
      AskStreams<_MM_HINT_NTA>(at, stride);
    }
    ranges->at += kReadAtOnce, ranges->left -= kReadAtOnce, ranges->owed -= kReadStreams * kReadAtOnce;
  }
}

}  // namespace
}  // namespace hone
