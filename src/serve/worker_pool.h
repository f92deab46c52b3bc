// WorkerPool: a few threads for work that is too long for the I/O thread: parsing, templates, tokenisation.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hone {

class WorkerPool {
 public:
  WorkerPool(int threads, size_t max_queue);
  ~WorkerPool();  // Stop()
  WorkerPool(const WorkerPool&) = delete;

  // False if the queue is full or the pool has stopped; `task` is then destroyed.
  bool Submit(std::function<void()> task);
  // Drops tasks that have not begun, waits for those that have. Not from a task.
  void Stop();

 private:
  void Loop();

  const size_t max_queue_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace hone
