// ThreadPool: a fixed set of persistent threads that run one function together (fork-join), made for steps of a few
// microseconds. Between calls workers spin for a short while, then sleep in the kernel; an idle pool uses no CPU.
//
// No globals: the pool is made in main and passed down. One caller at a time: Run must not be called concurrently, nor from
// inside a running function.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "base/function_ref.h"

namespace hone {

class ThreadPool {
 public:
  // `count` threads take part in each Run, the caller included. REQUIRES: count >= 1.
  explicit ThreadPool(int count);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int count() const { return count_; }

  // Calls fn(worker) once for every worker in [0, count()), worker 0 on the calling thread; returns when all are done.
  void Run(FunctionRef<void(int worker)> fn);

  // Inside Run: waits until every worker has called Barrier as often as this one. All workers must call it.
  void Barrier();

  // Splits [0, n) into count() contiguous ranges, multiples of `grain` but for the last, and calls fn(begin, end) for each
  // non-empty range. The split depends only on n, grain and count(), so a range stays with its thread (first touch).
  void ParallelFor(size_t n, size_t grain, FunctionRef<void(size_t begin, size_t end)> fn);

  // The range of `worker` in that split.
  std::pair<size_t, size_t> Range(size_t n, size_t grain, int worker) const;

 private:
  void WorkerLoop(int worker);

  const int count_;
  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint32_t> epoch_{0};      // rises by one a Run
  alignas(64) std::atomic<int> running_{0};         // workers that have not finished the current Run
  alignas(64) std::atomic<int> barrier_waiting_{0};
  alignas(64) std::atomic<uint32_t> barrier_phase_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  const FunctionRef<void(int)>* task_ = nullptr;
};

}  // namespace hone
