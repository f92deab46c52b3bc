// Fork-join over an epoch counter: Run publishes the task by raising the epoch, workers answer by lowering `running_`.
#include "base/threads.h"

#include <immintrin.h>
#include <sched.h>

#include <algorithm>

#include "base/check.h"

namespace hone {
namespace {

// About 100 microseconds of pauses: long enough to bridge the gaps between ops of a step, short enough to be idle soon.
constexpr int kSpins = 2000;
// After this many pauses a waiter also yields, so that a machine with more threads than cores still moves.
constexpr int kSpinsBeforeYield = 256;

template <typename Done>
void SpinUntil(Done done) {
  for (int spins = 0; !done(); ++spins) {
    _mm_pause();
    if (spins >= kSpinsBeforeYield) sched_yield();
  }
}

}  // namespace

ThreadPool::ThreadPool(int count) : count_(count) {
  HONE_CHECK(count >= 1);
  threads_.reserve(count - 1);
  for (int worker = 1; worker < count; ++worker) threads_.emplace_back([this, worker] { WorkerLoop(worker); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(FunctionRef<void(int)> fn) {
  if (count_ == 1) return fn(0);
  task_ = &fn;
  running_.store(count_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1);  // seq_cst: ordered against the sleepers_ check in WorkerLoop
  if (sleepers_.load() > 0) epoch_.notify_all();
  fn(0);
  SpinUntil([this] { return running_.load(std::memory_order_acquire) == 0; });
}

void ThreadPool::WorkerLoop(int worker) {
  uint32_t seen = 0;
  for (;;) {
    int spins = 0;
    while (epoch_.load(std::memory_order_acquire) == seen) {
      if (++spins < kSpins) {
        _mm_pause();
        if (spins % kSpinsBeforeYield == 0) sched_yield();
        continue;
      }
      sleepers_.fetch_add(1);
      epoch_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    ++seen;
    if (stop_.load()) return;
    (*task_)(worker);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void ThreadPool::Barrier() {
  if (count_ == 1) return;
  const uint32_t phase = barrier_phase_.load(std::memory_order_relaxed);
  if (barrier_waiting_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
    barrier_waiting_.store(0, std::memory_order_relaxed);
    barrier_phase_.fetch_add(1, std::memory_order_release);
    return;
  }
  SpinUntil([&] { return barrier_phase_.load(std::memory_order_acquire) != phase; });
}

std::pair<size_t, size_t> ThreadPool::Range(size_t n, size_t grain, int worker) const {
  const size_t grains = (n + grain - 1) / grain;
  const size_t begin = grains * worker / count_, end = grains * (worker + 1) / count_;
  return {std::min(n, begin * grain), std::min(n, end * grain)};
}

void ThreadPool::ParallelFor(size_t n, size_t grain, FunctionRef<void(size_t, size_t)> fn) {
  if (n <= grain) {  // one range: no need to wake anybody
    if (n > 0) fn(0, n);
    return;
  }
  Run([&](int worker) {
    const auto [begin, end] = Range(n, grain, worker);
    if (begin < end) fn(begin, end);
  });
}

}  // namespace hone
