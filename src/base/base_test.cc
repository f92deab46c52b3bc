// Results, threads, buffers, random numbers, ISA names.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/nearest_name.h"
#include "base/random.h"
#include "base/result.h"
#include "base/test_no_threads.h"
#include "base/test_shared.h"
#include "base/threads.h"
#include "base/user_path.h"

namespace hone {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0) return InvalidInput("odd");
  return n / 2;
}
Result<int> Quarter(int n) {
  HONE_TRY(const int half, Half(n).Context("first half"));
  HONE_RETURN_IF_ERROR(Half(half));
  return half / 2;
}

TEST(Result, PassesValuesAndErrors) {
  EXPECT_EQ(*Quarter(8), 2);
  EXPECT_EQ(Quarter(7).error().message, "first half: odd");
  EXPECT_EQ(Quarter(6).error().message, "odd");
  EXPECT_EQ(Quarter(6).error().code, ErrorCode::kInvalidInput);
}

TEST(ThreadPool, EveryWorkerRunsOnceAndBarriersHold) {
  for (const int count : {1, 2, 3, 7}) {
    ThreadPool pool(count);
    std::vector<int> ran(count);
    std::atomic<int> before{0};
    for (int round = 0; round < 200; ++round) {
      pool.Run([&](int worker) {
        before.fetch_add(1);
        pool.Barrier();
        EXPECT_EQ(before.load() % count, 0);
        pool.Barrier();
        ++ran[worker];
      });
    }
    EXPECT_EQ(ran, std::vector<int>(count, 200));
  }
}

TEST(ThreadPool, ParallelForCoversEachIndexOnceInWholeGrains) {
  for (const int count : {1, 2, 3, 5}) {
    ThreadPool pool(count);
    for (const size_t n : {0u, 1u, 15u, 16u, 17u, 100u, 1000u}) {
      std::vector<std::atomic<int>> hits(n);
      pool.ParallelFor(n, 16, [&](size_t begin, size_t end) {
        EXPECT_EQ(begin % 16, 0u);
        for (size_t i = begin; i < end; ++i) hits[i].fetch_add(1);
      });
      for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
    }
  }
}

// Every way to wait: spinning, yielding, asleep in the kernel (workers, the caller, a barrier); with more threads than CPUs too.
TEST(ThreadPool, SleepersWake) {
  for (const int count : {2, 9}) {
    ThreadPool pool(count);
    std::atomic<int> ran{0};
    for (int round = 0; round < 6; ++round) {
      if (round % 2 == 0) usleep(3000);  // workers fall asleep between two runs
      pool.Run([&](int worker) {
        if (worker == round % count) usleep(3000);  // the others fall asleep at the barrier
        pool.Barrier();
        if (worker == 1) usleep(3000);  // the caller falls asleep at the join
        ran.fetch_add(1);
      });
      EXPECT_EQ(ran.load(), (round + 1) * count);
    }
    EXPECT_EQ(pool.waits(), 12u);  // a run and a barrier a round
  }
}

TEST(ThreadPool, IdlePoolUsesNoCpu) {
  ThreadPool pool(4);
  pool.Run([](int) {});
  usleep(20000);
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  usleep(50000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double used = static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(used, 0.04) << "three spinning workers would use up to 0.15 s";
}

TEST(ThreadPool, GoesOnWithTheThreadsThatThereAre) {
  const WithoutThreads held = TryWithoutThreads([] {
    ThreadPool pool(4);
    int runs = 0;
    size_t sum = 0;
    pool.Run([&](int worker) {
      runs += 1 + worker;
      pool.Barrier();
    });
    pool.ParallelFor(100, 3, [&](size_t begin, size_t end) { sum += end - begin; });
    return pool.count() == 1 && runs == 1 && sum == 100;
  });
  if (held == WithoutThreads::kCannotTry) GTEST_SKIP() << "threads cannot be forbidden here";
  EXPECT_EQ(held, WithoutThreads::kHeld);
}

TEST(ThreadPool, AnyAddressMayBeReadNext) {
  ThreadPool pool(2);
  for (int round = 0; round < 50; ++round) {
    pool.Run([&](int worker) {
      pool.ReadNext(worker, reinterpret_cast<const std::byte*>(uintptr_t{4096}), 300000);  // nothing is mapped there
      if (worker == round % 2) usleep(100);
    });
  }
}

TEST(ThreadPool, PinnedWorkersStayOnTheirCpu) {
  const CpuFacts facts = ReadCpuFacts();
  ASSERT_EQ(facts.core_cpus.size(), static_cast<size_t>(facts.physical_cores));
  ThreadPool pool(facts.physical_cores, facts.core_cpus);
  pool.Run([&](int worker) {
    if (worker > 0) {
      EXPECT_EQ(sched_getcpu(), facts.core_cpus[worker]);
    }
  });
  ThreadPool odd(3, std::vector<int>{0, 100000, -1});  // CPUs that do not exist: nothing is pinned
  std::atomic<int> ran{0};
  odd.Run([&](int) { ran.fetch_add(1); });
  EXPECT_EQ(ran.load(), 3);
}

TEST(Buffer, AlignedZeroedAndMovable) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{1000}, size_t{5} << 20}) {
    Buffer buffer(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    for (size_t i = 0; i < bytes; i += 997) EXPECT_EQ(buffer.data()[i], std::byte{0});
    Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.size(), bytes);
    EXPECT_EQ(buffer.size(), 0u);
  }
}

TEST(MappedFile, MissingAndEmptyFilesAreErrorsWithThePath) {
  const auto missing = MappedFile::Open("/no/such/file");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("/no/such/file"), std::string::npos);
  EXPECT_FALSE(MappedFile::Open("/tmp"));
  const std::string fifo = TestPath("fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_FALSE(MappedFile::Open(fifo));  // and does not wait for a writer
  unlink(fifo.c_str());
}

TEST(Rng, UniformStaysInRangeAndSeedsRepeat) {
  Rng a(1), b(1), c(2);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double u = a.Uniform();
    EXPECT_EQ(u, b.Uniform());
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
  EXPECT_NE(Rng(1).Next(), c.Next());
  for (int i = 0; i < 1000; ++i) ASSERT_LT(a.Below(7), 7u);
}

TEST(Cpu, IsaFlagsResolve) {
  CpuFacts facts;  // nothing: scalar only
  EXPECT_EQ(*ResolveIsa(facts, "auto"), Isa::kScalar);
  EXPECT_FALSE(ResolveIsa(facts, "avx2"));
  EXPECT_FALSE(ResolveIsa(facts, "sse9"));
  facts.avx2 = facts.fma = facts.f16c = facts.bmi2 = true;
  EXPECT_EQ(*ResolveIsa(facts, "avx2"), Isa::kAvx2);
  EXPECT_FALSE(ResolveIsa(facts, "avx512"));
  facts.avx512f = facts.avx512bw = facts.avx512dq = facts.avx512vl = facts.avx512vnni = true;
  EXPECT_EQ(*ResolveIsa(facts, "avx512"), Isa::kVnni);
  EXPECT_EQ(*ResolveIsa(facts, "auto"), Isa::kVnni);
  EXPECT_EQ(*ResolveIsa(facts, "scalar"), Isa::kScalar);
  facts.avx512bf16 = true;
  EXPECT_EQ(*ResolveIsa(facts, "auto"), Isa::kVnni) << "slow VDPBF16PS";
  facts.fast_bf16 = true;
  EXPECT_EQ(*ResolveIsa(facts, "auto"), Isa::kBf16);
  EXPECT_EQ(*ResolveIsa(facts, "avx512"), Isa::kBf16);
  EXPECT_FALSE(ResolveIsa(facts, "amx"));
  facts.avx512vbmi = facts.amx_tile = facts.amx_int8 = facts.amx_bf16 = true;
  EXPECT_EQ(*ResolveIsa(facts, "auto"), Isa::kAmx);
  facts.fast_bf16 = false;
  EXPECT_EQ(*ResolveIsa(facts, "avx512"), Isa::kVnni);
}

TEST(NearestName, SuggestsWhatWasMeant) {
  const std::vector<std::string> known = {"temperature", "top_k", "top_p", "stop"};
  EXPECT_EQ(NearestName("temprature", known), "temperature");
  EXPECT_EQ(NearestName("tpo_k", known), "top_k");
  EXPECT_EQ(NearestName("stp", known), "stop");
  EXPECT_EQ(NearestName("frequency", known), "");
  EXPECT_EQ(NearestName("", known), "");
  EXPECT_EQ(NearestName(std::string(100000, 'x'), known), "");
}

TEST(UserPath, FollowsTheXdgSpecification) {
  std::string saved[2];
  const char* names[] = {"XDG_STATE_HOME", "HOME"};
  for (int i = 0; i < 2; ++i) saved[i] = std::getenv(names[i]) == nullptr ? "" : std::getenv(names[i]);
  const auto path = [&](const char* state, const char* home) {
    setenv("XDG_STATE_HOME", state, 1), setenv("HOME", home, 1);
    return UserPath(UserFolder::kState, "x");
  };
  EXPECT_EQ(path("/s", "/h"), "/s/hone/x");
  EXPECT_EQ(path("relative", "/h"), "/h/.local/state/hone/x");
  EXPECT_EQ(path("", "/h"), "/h/.local/state/hone/x");
  EXPECT_EQ(path("", ""), "");
  for (int i = 0; i < 2; ++i) saved[i].empty() ? unsetenv(names[i]) : setenv(names[i], saved[i].c_str(), 1);
}

}  // namespace
}  // namespace hone
