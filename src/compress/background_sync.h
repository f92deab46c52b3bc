// BackgroundSync: a file goes to the disk while others still write to it, so that little is left to wait for in the end. Asking
// the kernel to write pages back is not enough: the disk's own cache is emptied only when a file is synchronised.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace hone {

class BackgroundSync {
 public:
  // `sync` puts all that was written so far on the disk: 0 or an errno. Where no thread can be started all of it waits for the end.
  explicit BackgroundSync(std::function<int()> sync);
  ~BackgroundSync();
  BackgroundSync(const BackgroundSync&) = delete;

  void Wrote(uint64_t bytes);  // thread-safe
  // All that was written is on the disk, or the errno of the first that failed, now or before: the kernel tells each once.
  int Finish();

 private:
  void Loop();
  void Stop();
  const std::function<int()> sync_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  uint64_t waiting_ = 0;  // bytes since the last time
  bool stop_ = false;
  int error_ = 0;
  std::thread thread_;
};

}  // namespace hone
