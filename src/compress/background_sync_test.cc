#include "compress/background_sync.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <functional>
#include <thread>
#include <vector>

#include "base/test_no_threads.h"

namespace hone {
namespace {

constexpr uint64_t kMuch = uint64_t{1} << 30;

class BackgroundSyncTest : public testing::Test {
 protected:
  std::function<int()> Answer() {  // for the disk
    return [this] {
      const int answer = answer_;
      ++calls_;
      return answer;
    };
  }
  std::atomic<int> calls_{0}, answer_{0};
};

TEST_F(BackgroundSyncTest, MuchIsPutOnTheDiskBeforeTheEnd) {
  BackgroundSync sync(Answer());
  for (int turn = 1; turn <= 3; ++turn) {
    sync.Wrote(kMuch);
    while (calls_ < turn) std::this_thread::yield();
  }
  EXPECT_EQ(sync.Finish(), 0);
  EXPECT_EQ(calls_, 4);  // and once for what came last
}

TEST_F(BackgroundSyncTest, LittleWaitsForTheEnd) {
  BackgroundSync sync(Answer());
  sync.Wrote(1);
  EXPECT_EQ(sync.Finish(), 0);
  EXPECT_EQ(calls_, 1);
}

// The kernel tells an error to the first who asks: it must not be lost, whatever comes after.
TEST_F(BackgroundSyncTest, AnErrorIsKept) {
  calls_ = 0, answer_ = EIO;
  BackgroundSync early(Answer());
  early.Wrote(kMuch);
  while (calls_ < 1) std::this_thread::yield();
  answer_ = 0;
  EXPECT_EQ(early.Finish(), EIO);
  calls_ = 0, answer_ = ENOSPC;
  BackgroundSync late(Answer());
  EXPECT_EQ(late.Finish(), ENOSPC);
}

TEST_F(BackgroundSyncTest, ThreadsWriteTogetherAndAnEarlyEndIsNoHarm) {
  for (int turn = 0; turn < 20; ++turn) {
    calls_ = 0, answer_ = 0;
    BackgroundSync sync(Answer());
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 50; ++j) sync.Wrote(kMuch / 16);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (turn % 2 != 0) continue;
    EXPECT_EQ(sync.Finish(), 0);
  }
}

TEST_F(BackgroundSyncTest, WithoutAThreadAllWaitsForTheEnd) {
  const WithoutThreads held = TryWithoutThreads([this] {
    calls_ = 0, answer_ = EIO;
    BackgroundSync sync(Answer());
    sync.Wrote(kMuch);
    return sync.Finish() == EIO && calls_ == 1;
  });
  if (held == WithoutThreads::kCannotTry) GTEST_SKIP() << "threads cannot be forbidden here";
  EXPECT_EQ(held, WithoutThreads::kHeld);
}

}  // namespace
}  // namespace hone
