// See read_ranges.h.
#include "kernels/matmul/read_ranges.h"

namespace hone {

void BeginRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end) {
  const bool goes_on = ranges->block_end >= begin && ranges->block_end <= end + kReadStreams * kReadAtOnce && ranges->block_end != nullptr;
  const int64_t most = ranges->most_stride > 0 ? ranges->most_stride : kReadStride;
  if (!goes_on) *ranges = {.owed = kReadStreams * most, .block_end = begin, .most_stride = most, .again = ranges->again};
  ranges->end = end;
}

void AnnounceRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end) {
  if (begin == ranges->end && end > begin) {
    ranges->end = end;
  } else {
    ranges->next = begin, ranges->next_end = end;
  }
}

}  // namespace hone
