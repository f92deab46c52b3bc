// Fork-join over an epoch counter: Run publishes the task by raising the epoch; the last worker to finish says so.
#include "base/threads.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <system_error>

#include "base/check.h"

namespace hone {
namespace {

// Turns of waiting, each a pause of some 15 to 60 ns. Sleeping after 50 to 100 microseconds bridges the gaps between the ops of
// a step and is soon idle. From kTurnsBeforeYield on the CPU is offered to others every few turns: if the thread that is waited
// for has none, it gets this one.
constexpr int kTurns = 2000;
constexpr int kTurnsBeforeYield = 1000;
constexpr int kTurnsAYield = 16;
// Lines asked for in one turn: few enough to notice at once that the wait is over. One of each eighth, since memory serves several
// streams faster than one.
constexpr int kStreams = 8;

void Pin(std::thread& thread, int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);  // refused: the thread stays free
}

}  // namespace

ThreadPool::ThreadPool(int count, std::span<const int> cpus) : count_(count), places_(count) {
  HONE_CHECK(count >= 1);
  threads_.reserve(count - 1);
  for (int worker = 1; worker < count; ++worker) {
    try {
      threads_.emplace_back([this, worker] { WorkerLoop(worker); });
    } catch (const std::system_error&) {  // a limit of processes or of memory; no worker has run anything yet
      count_ = worker;
      return;
    }
    if (static_cast<size_t>(worker) < cpus.size()) Pin(threads_.back(), cpus[worker]);
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// Waits until `value` is no longer `old`. Whoever changes it does so with seq_cst and then looks at `sleepers`: either it sees
// this thread there, or this thread sees the change when it goes to sleep.
template <typename T>
void ThreadPool::WaitWhile(std::atomic<T>& value, T old, std::atomic<int>& sleepers, Place* place) {
  for (int turn = 0; turn < kTurns; ++turn) {
    if (value.load(std::memory_order_acquire) != old) return;
    if (place != nullptr && place->next_lines > 0) {
      for (int i = 0; i < kStreams; ++i) {
        _mm_prefetch(reinterpret_cast<const char*>(place->next) + i * place->next_stride, _MM_HINT_T1);
      }
      place->next += 64, --place->next_lines;
      continue;
    }
    _mm_pause();
    if (turn >= kTurnsBeforeYield && turn % kTurnsAYield == 0) sched_yield();
  }
  sleepers.fetch_add(1);
  while (value.load() == old) value.wait(old);
  sleepers.fetch_sub(1);
}

void ThreadPool::Run(FunctionRef<void(int)> fn) {
  if (count_ == 1) return fn(0);
  ++waits_;
  task_ = &fn;
  running_.store(count_ - 1, std::memory_order_relaxed);
  const uint32_t epoch = epoch_.fetch_add(1) + 1;
  if (epoch_sleepers_.load() > 0) epoch_.notify_all();
  places_[0].next_lines = 0;
  fn(0);
  WaitWhile(done_epoch_, epoch - 1, done_sleepers_, &places_[0]);
}

void ThreadPool::WorkerLoop(int worker) {
  Place& place = places_[worker];
  for (uint32_t seen = 0;; ++seen) {
    WaitWhile(epoch_, seen, epoch_sleepers_, &place);
    if (stop_.load()) return;
    place.next_lines = 0;
    (*task_)(worker);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
    done_epoch_.store(seen + 1);
    if (done_sleepers_.load() > 0) done_epoch_.notify_all();
  }
}

void ThreadPool::Barrier() {
  if (count_ == 1) return;
  const uint32_t phase = barrier_phase_.load(std::memory_order_relaxed);
  if (barrier_waiting_.fetch_add(1, std::memory_order_acq_rel) == count_ - 1) {
    ++waits_;  // one thread at a time comes here, and the join orders it before worker 0 reads it
    barrier_waiting_.store(0, std::memory_order_relaxed);
    barrier_phase_.fetch_add(1);
    if (barrier_sleepers_.load() > 0) barrier_phase_.notify_all();
    return;
  }
  WaitWhile(barrier_phase_, phase, barrier_sleepers_, nullptr);
}

void ThreadPool::ReadNext(int worker, const std::byte* data, size_t bytes) {
  Place& place = places_[worker];
  place.next = data;
  place.next_lines = bytes / kStreams / 64;
  place.next_stride = place.next_lines * 64;
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
