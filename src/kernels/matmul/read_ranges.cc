// See read_ranges.h.
#include "kernels/matmul/read_ranges.h"

namespace hone {

void BeginRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end) {
  const bool goes_on = ranges->block_end >= begin && ranges->block_end <= end + kReadStreams * 64 && ranges->block_end != nullptr;
  if (!goes_on) *ranges = {.owed = kReadLead, .block_end = begin};
  ranges->end = end;
}

void AnnounceRange(ReadRanges* ranges, const uint8_t* begin, const uint8_t* end) { ranges->next = begin, ranges->next_end = end; }

}  // namespace hone
