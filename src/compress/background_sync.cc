// See background_sync.h.
#include "compress/background_sync.h"

#include <system_error>
#include <utility>

namespace hone {
namespace {

constexpr uint64_t kStepBytes = uint64_t{64} << 20;  // of each time

}  // namespace

BackgroundSync::BackgroundSync(std::function<int()> sync) : sync_(std::move(sync)) {
  try {
    thread_ = std::thread([this] { Loop(); });
  } catch (const std::system_error&) {
  }
}

BackgroundSync::~BackgroundSync() { Stop(); }

void BackgroundSync::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void BackgroundSync::Wrote(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  waiting_ += bytes;
  if (waiting_ >= kStepBytes) changed_.notify_one();
}

void BackgroundSync::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || waiting_ >= kStepBytes; });
    if (stop_) return;
    waiting_ = 0;
    lock.unlock();
    const int error = sync_();
    lock.lock();
    if (error_ == 0) error_ = error;
  }
}

int BackgroundSync::Finish() {
  Stop();
  const int error = sync_();
  return error_ != 0 ? error_ : error;
}

}  // namespace hone
