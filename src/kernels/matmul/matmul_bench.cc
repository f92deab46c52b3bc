// Share of the hardware's roof that matmul reaches, for the shapes of a 1B model. Roofs (read bandwidth, int8 and F32 peaks)
// are measured with the same threads before and after each run of a kernel; medians count. Answers are checked against the
// reference before anything is timed.
//
//   kernels_bench --benchmark_filter='Decode/Q4_0'      HONE_BENCH_THREADS=1,2 picks thread counts, HONE_ISA caps the ISA
//
// Decode: GB/s of packed bytes and % of the read roof. Prefill (512 rows): Gop/s and % of the roof of the unit that it uses.
#include <benchmark/benchmark.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/cpu.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/many_rows.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/ref.h"
#include "kernels/matmul/roof.h"
#include "kernels/matmul/test_weights.h"

namespace hone {
namespace {

struct Size {
  int64_t n, k;
};
constexpr Size kSizes[] = {{2048, 2048}, {512, 2048}, {8192, 2048}, {2048, 8192}, {128256, 2048}};
constexpr int64_t kPrefillRows = 512;

// One thread is timed by the time it had on a CPU, so that other programs disturb less; several by the wall clock.
double Now(int threads) {
  if (threads > 1) return Clock().Now();
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Work a second of fn, which returns the work that it did.
template <typename F>
double Rate(int threads, F fn) {
  const double begin = Now(threads), work = fn();
  return work / (Now(threads) - begin);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Alternates roof, kernel, roof ... and reports medians, so that a noisy moment hits neither alone.
template <typename Roof, typename Kernel>
void Measure(benchmark::State& state, int threads, const char* unit, Roof roof, Kernel kernel) {
  kernel();  // page tables, caches
  std::vector<double> roofs, rates;
  for (auto _ : state) {
    roofs.push_back(Rate(threads, roof));
    rates.push_back(Rate(threads, kernel));
  }
  roofs.push_back(Rate(threads, roof));
  state.counters[unit] = Median(rates) / 1e9;
  state.counters[std::string("roof_") + unit] = Median(roofs) / 1e9;
  state.counters["%roof"] = 100 * Median(rates) / Median(roofs);
}

Isa CappedIsa() {
  const char* cap = std::getenv("HONE_ISA");
  const auto isa = ResolveIsa(ReadCpuFacts(), cap != nullptr ? cap : "auto");
  return isa.has_value() ? *isa : ReadCpuFacts().best_isa();
}

// Weights of a decode bench are copied until they exceed every cache, so that each pass reads memory.
constexpr size_t kBytesPastCaches = size_t{768} << 20;

struct Bench {
  Bench(DType type, Size size, int thread_count, bool exact)
      : threads(thread_count), scratch(kPrefillRows, size.k), source(RandomWeights(type, std::min<int64_t>(size.n, 2048), size.k, 1)),
        size_(size), exact_(exact) {}

  // `copies` packed matrices of the size, each from the same stored rows repeated.
  bool PackCopies(int copies) {
    Tensor all(source.type(), Shape{size_.n, size_.k});
    const size_t bytes = source.view().bytes();
    for (size_t at = 0; at < all.view().bytes(); at += bytes) {
      std::memcpy(all.data() + at, source.data(), std::min(bytes, all.view().bytes() - at));
    }
    for (int i = 0; i < copies; ++i) {
      auto packed = PackedMatrix::Pack(all.view(), {CappedIsa(), exact_}, threads);
      if (!packed.has_value()) return false;
      weights.push_back(std::move(packed).value());
    }
    return true;
  }

  void Multiply(const PackedMatrix& w, int64_t m) {
    const MatmulJob job{&w, x.data(), size_.k, y.data(), size_.n, m};
    Matmul({&job, 1}, scratch, threads);
  }

  // The first 64 outputs of two rows against double sums; the int8 path may lose 2 % of the size of the result.
  bool AnswersAreRight(int64_t m) {
    x = RandomRows(m, size_.k, 2);
    y.assign(m * size_.n, 0.0f);
    Multiply(weights[0], m);
    const int64_t rows = std::min<int64_t>(m, 2), n = std::min<int64_t>(64, size_.n);
    std::vector<double> want(rows * n);
    MatmulReference(source.view().Rows(0, n), x.data(), size_.k, rows, nullptr, want.data());
    double error = 0, total = 0;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < n; ++i) {
        error += std::pow(y[row * size_.n + i] - want[row * n + i], 2), total += std::pow(want[row * n + i], 2);
      }
    }
    return error <= total * 4e-4;
  }

  ThreadPool threads;
  MatmulScratch scratch;
  Tensor source;
  std::vector<PackedMatrix> weights;
  std::vector<float> x, y;

 private:
  Size size_;
  bool exact_;
};

void Decode(benchmark::State& state, DType type, Size size, int thread_count, bool exact) {
  Bench bench(type, size, thread_count, exact);
  const size_t bytes = BytesFor(type, size.n * size.k);
  if (!bench.PackCopies(static_cast<int>(std::max<size_t>(1, kBytesPastCaches / bytes))) || !bench.AnswersAreRight(1)) {
    return state.SkipWithError("wrong answer");
  }
  if (CappedIsa() == Isa::kScalar) return state.SkipWithError("no roof for scalar code");
  std::vector<std::span<const std::byte>> buffers;
  for (const PackedMatrix& w : bench.weights) buffers.push_back({w.Find(0, 0, 0), w.bytes()});
  const auto roof = [&] { return ReadRoof(CappedIsa(), buffers, bench.threads); };
  const auto kernel = [&] {
    double total = 0;
    for (const PackedMatrix& w : bench.weights) bench.Multiply(w, 1), total += static_cast<double>(w.bytes());
    return total;
  };
  Measure(state, thread_count, "GB/s", roof, kernel);
  state.SetLabel(std::string(bench.weights[0].kernel_name()));
}

void Prefill(benchmark::State& state, DType type, Size size, int thread_count, bool exact) {
  Bench bench(type, size, thread_count, exact);
  if (!bench.PackCopies(1) || !bench.AnswersAreRight(kPrefillRows)) return state.SkipWithError("wrong answer");
  if (CappedIsa() == Isa::kScalar) return state.SkipWithError("no roof for scalar code");
  const MatmulKernel& kernel = bench.weights[0].kernel();
  const Bf16Arithmetic* tiled = bench.weights[0].many_rows();
  const ComputeUnit unit = tiled != nullptr ? UnitOf(*tiled) : UnitOf(kernel.arithmetic->isa, kernel.uses_codes());
  const auto roof = [&] { return ComputeRoof(unit, bench.threads); };
  Measure(state, thread_count, "Gop/s", roof, [&] {
    bench.Multiply(bench.weights[0], kPrefillRows);
    return 2.0 * static_cast<double>(kPrefillRows * size.n * size.k);
  });
  state.SetLabel(std::string(tiled ? Info(type).name : kernel.name) + " against " + std::string(ComputeUnitName(unit)));
}

std::vector<int> ThreadCounts() {
  const char* text = std::getenv("HONE_BENCH_THREADS");
  if (text == nullptr) return {1, std::max(2, ReadCpuFacts().physical_cores)};
  std::vector<int> counts;
  for (const char* p = text; *p != 0;) {
    char* end = nullptr;
    const long n = std::strtol(p, &end, 10);
    if (end == p) break;
    counts.push_back(static_cast<int>(std::clamp(n, 1L, 1024L)));
    p = *end == ',' ? end + 1 : end;
  }
  return counts;
}

const bool kRegistered = [] {
  for (const int threads : ThreadCounts()) {
    for (const MatmulUnpack& unpack : MatmulUnpacks()) {
      if (unpack.isa != Isa::kScalar) continue;
      for (const bool exact : {false, true}) {
        if (exact && unpack.codes == nullptr) continue;
        for (const Size size : kSizes) {
          const std::string suffix = std::string(Info(unpack.type).name) + (exact ? ".exact" : "") + "/" +
                                     std::to_string(size.n) + "x" + std::to_string(size.k) + "/threads:" + std::to_string(threads);
          benchmark::RegisterBenchmark(("Decode/" + suffix).c_str(), Decode, unpack.type, size, threads, exact)->Iterations(7);
          benchmark::RegisterBenchmark(("Prefill/" + suffix).c_str(), Prefill, unpack.type, size, threads, exact)->Iterations(5);
        }
      }
    }
  }
  return true;
}();

}  // namespace
}  // namespace hone
