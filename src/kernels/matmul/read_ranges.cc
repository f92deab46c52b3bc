// See read_ranges.h.
#include "kernels/matmul/read_ranges.h"

#include <algorithm>

namespace hone {

bool NextReadBlock(ReadRanges* ranges) {
  if (ranges->block_end >= ranges->end) {
    if (ranges->next >= ranges->next_end) {
      ranges->owed = std::min(ranges->owed, kReadLead);
      return false;
    }
    ranges->block_end = ranges->next, ranges->end = ranges->next_end;
    ranges->next = ranges->next_end = nullptr;
  }
  const int64_t left = ranges->end - ranges->block_end;
  ranges->stride = std::clamp<int64_t>(left / kReadStreams / 64 * 64, 64, kReadStride);
  ranges->lines = ranges->stride / 64;
  ranges->at = ranges->block_end;
  ranges->block_end += kReadStreams * ranges->stride;
  return true;
}

void BeginRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end) {
  const bool goes_on = ranges->block_end >= begin && ranges->block_end <= end + kReadStreams * 64 && ranges->block_end != nullptr;
  if (!goes_on) *ranges = {.owed = kReadLead, .block_end = begin};
  ranges->end = end;
}

void AnnounceRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end) { ranges->next = begin, ranges->next_end = end; }

}  // namespace hone
