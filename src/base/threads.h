// ThreadPool: a fixed set of persistent threads that run one function together (fork-join), made for steps of a few
// microseconds. Waiting threads spin for a short while (giving their CPU to whoever wants it), then sleep in the kernel: an idle
// pool uses no CPU, and a pool with more threads than CPUs makes progress at the pace of the CPUs.
//
// No globals: the pool is made in main and passed down. One caller at a time: Run must not be called concurrently, nor from
// inside a running function.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/function_ref.h"

namespace hone {

class ThreadPool {
 public:
  // `count` threads take part in each Run, the caller included; fewer, as count() tells, where no more can be started. `cpus`: the
  // thread of worker i > 0 stays on CPU cpus[i] if there is one that this process may use; the caller's thread, which is not the
  // pool's, stays free. REQUIRES: count >= 1.
  explicit ThreadPool(int count, std::span<const int> cpus = {});
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

  // Inside Run, by `worker`: what it will read after this Run. While it waits for the others it asks for these bytes, so memory
  // is not idle across a join. A hint: any address will do, it need not stay valid, and the last call counts.
  void ReadNext(int worker, const std::byte* data, size_t bytes);

  // How often threads have waited for each other so far: every Run that was shared out, and every Barrier inside one.
  uint64_t waits() const { return waits_; }

 private:
  // What belongs to one worker, on its own cache line.
  struct alignas(64) Place {
    const std::byte* next = nullptr;
    size_t next_lines = 0, next_stride = 0;  // left of each stream; from one to the next
  };

  void WorkerLoop(int worker);
  template <typename T>
  void WaitWhile(std::atomic<T>& value, T old, std::atomic<int>& sleepers, Place* place);

  int count_;
  std::vector<std::thread> threads_;
  std::vector<Place> places_;
  alignas(64) std::atomic<uint32_t> epoch_{0};      // rises by one a Run
  alignas(64) std::atomic<int> running_{0};         // workers that have not finished the current Run
  alignas(64) std::atomic<int> barrier_waiting_{0};
  alignas(64) std::atomic<uint32_t> barrier_phase_{0};
  alignas(64) std::atomic<uint32_t> done_epoch_{0};  // the last Run that all workers have finished
  // Threads asleep on epoch_, done_epoch_, barrier_phase_: nobody is woken by a system call where nobody sleeps.
  alignas(64) std::atomic<int> epoch_sleepers_{0};
  std::atomic<int> done_sleepers_{0}, barrier_sleepers_{0};
  std::atomic<bool> stop_{false};
  const FunctionRef<void(int)>* task_ = nullptr;
  uint64_t waits_ = 0;  // written by worker 0
};

}  // namespace hone
