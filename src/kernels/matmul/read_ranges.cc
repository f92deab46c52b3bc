// See read_ranges.h.
#include "kernels/matmul/read_ranges.h"

namespace hone {

void BeginRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end) {
  const bool goes_on = ranges->block_end >= begin && ranges->block_end <= end + kReadStreams * kReadAtOnce && ranges->block_end != nullptr;
  if (!goes_on) *ranges = {.owed = kReadLead, .block_end = begin, .again = ranges->again};
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
