// Which ranges are asked for as one.
#include "kernels/matmul/read_ranges.h"

#include <gtest/gtest.h>

#include <vector>

namespace hone {
namespace {

TEST(ReadRanges, RangesThatTouchAreOneAndOthersFollow) {
  const std::vector<uint8_t> bytes(400);
  const uint8_t* p = bytes.data();
  ReadRanges ranges = {};
  BeginRange(&ranges, p, p + 100);
  EXPECT_EQ(ranges.owed, kReadLead);
  AnnounceRange(&ranges, p + 100, p + 150);
  EXPECT_EQ(ranges.end, p + 150) << "a block may go on beyond 100";
  EXPECT_EQ(ranges.next, nullptr);

  ranges.block_end = p + 128, ranges.owed = 7;
  BeginRange(&ranges, p + 100, p + 150);
  EXPECT_EQ(ranges.block_end, p + 128) << "what is asked for goes on";
  EXPECT_EQ(ranges.owed, 7);
  AnnounceRange(&ranges, p + 200, p + 300);
  EXPECT_EQ(ranges.end, p + 150);
  EXPECT_EQ(ranges.next, p + 200);
  EXPECT_EQ(ranges.next_end, p + 300);

  BeginRange(&ranges, p + 300, p + 400);  // another than was announced
  EXPECT_EQ(ranges.block_end, p + 300);
  EXPECT_EQ(ranges.owed, kReadLead);
}

TEST(ReadRanges, WhereFewLinesMayWaitALeadIsShort) {
  const std::vector<uint8_t> bytes(100);
  ReadRanges ranges = {.most_stride = kShortStride, .again = true};
  BeginRange(&ranges, bytes.data(), bytes.data() + 100);
  EXPECT_EQ(ranges.owed, kReadStreams * kShortStride);
  EXPECT_EQ(ranges.most_stride, kShortStride);
  EXPECT_TRUE(ranges.again);
}

TEST(ReadRanges, NothingIsAnnouncedByAnEmptyRange) {
  const std::vector<uint8_t> bytes(100);
  ReadRanges ranges = {};
  BeginRange(&ranges, bytes.data(), bytes.data() + 100);
  AnnounceRange(&ranges, nullptr, nullptr);
  EXPECT_EQ(ranges.end, bytes.data() + 100);
  EXPECT_GE(ranges.next, ranges.next_end);
}

}  // namespace
}  // namespace hone
