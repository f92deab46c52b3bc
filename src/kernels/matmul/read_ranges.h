// What a thread will read: the range that it is in, and the one after it, as read_ahead.h asks for them. No intrinsics.
#pragma once

#include <stdint.h>

namespace hone {

constexpr int kReadStreams = 8;
constexpr int64_t kReadStride = 4096;                         // at most: a page a stream
constexpr int64_t kReadAtOnce = 128;                          // of a stream
constexpr int64_t kReadLead = kReadStreams * kReadStride;     // bytes between asking and reading
// Of eight rows x takes 40 KiB for each 2048 of K: there the lines asked for must be fewer, or they push it out of an L1 of 48 KiB.
constexpr int64_t kShortStride = 1536;

// All zero: nothing to read.
struct ReadRanges {
  const uint8_t* at;        // what is next of the first stream
  int64_t stride, left;     // bytes between streams; left of each
  int64_t owed;             // bytes to ask for
  const uint8_t* block_end;
  const uint8_t* end;       // of the range
  const uint8_t* next;      // and what is read after it, if known
  const uint8_t* next_end;
  int64_t most_stride;      // 0: kReadStride
  bool again;               // what is read should stay in L2 as well, as it is soon read again, or nothing else is known to be better
};

// The thread begins to read [begin, end). If that was announced, what is asked for goes on.
void BeginRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end);
// What it will read after the range that it is in. If it begins where that ends, both are one: blocks are not cut between.
void AnnounceRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end);

}  // namespace hone
