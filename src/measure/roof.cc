// See roof.h.
#include "measure/roof.h"

#include <algorithm>

#include "base/check.h"
#include "cache/free_memory.h"
#include "measure/statistics.h"

namespace hone {
namespace {

constexpr int kReadRounds = 9;
constexpr int kComputeRounds = 20;
constexpr int kBarrierRounds = 15;
constexpr int kBarriers = 2000;  // of one round
constexpr int kForkJoins = 500;
// More threads than cores wait for each other's time slices, so that a round takes a hundred times as long. Then there
// are fewer of them, and shorter ones.
constexpr int kFewestRounds = 3;
constexpr double kRoundsSeconds = 3;  // of the rounds of one figure: no more are begun
constexpr int kTrial = 10;            // barriers or forks that say how many fit into a round
constexpr double kRoundSeconds = 0.25;

RoofFigure Highest(const std::vector<double>& rates) {
  return {*std::max_element(rates.begin(), rates.end()), Median(rates)};
}

RoofFigure Lowest(const std::vector<double>& times) {
  return {*std::min_element(times.begin(), times.end()), Median(times)};
}

std::vector<double> TimedRounds(const Clock& clock, int most, const std::function<double()>& round) {
  const double start_s = clock.Now();
  std::vector<double> figures;
  while (static_cast<int>(figures.size()) < most &&
         (static_cast<int>(figures.size()) < kFewestRounds || clock.Now() - start_s < kRoundsSeconds)) {
    figures.push_back(round());
  }
  return figures;
}

// How often something is done in a round, if `trial_s` was the time of kTrial.
int TimesOfRound(int most, double trial_s) {
  return static_cast<int>(std::clamp(kRoundSeconds * kTrial / std::max(1e-9, trial_s), 1.0 * kTrial, 1.0 * most));
}

double BarrierNs(const Runtime& runtime, int times) {
  double elapsed_s = 0;
  runtime.threads->Run([&](int worker) {
    runtime.threads->Barrier();  // all are awake
    const double begin_s = runtime.clock->Now();
    for (int i = 0; i < times; ++i) runtime.threads->Barrier();
    if (worker == 0) elapsed_s = runtime.clock->Now() - begin_s;
  });
  return elapsed_s * 1e9 / times;
}

double ForkJoinNs(const Runtime& runtime, int times) {
  const double begin_s = runtime.clock->Now();
  for (int i = 0; i < times; ++i) runtime.threads->Run([](int) {});
  return (runtime.clock->Now() - begin_s) * 1e9 / times;
}

std::vector<int> ThreadCounts(int all) {
  std::vector<int> counts;
  for (int n = 1; n < all; n *= 2) counts.push_back(n);
  counts.push_back(all);
  return counts;
}

size_t ReadBufferBytes(const CpuFacts& cpu) {
  constexpr size_t kMiB = size_t{1} << 20;
  size_t bytes = std::clamp<size_t>(2 * static_cast<size_t>(std::max(0L, cpu.l3_bytes)), 256 * kMiB, 1024 * kMiB);
  if (const uint64_t free_bytes = FreeMemoryBytes(); free_bytes > 0) bytes = std::min<size_t>(bytes, free_bytes / 4);
  return std::max(bytes, 16 * kMiB) / (2 * kMiB) * (2 * kMiB);
}

// For a CPU without AVX2.
double ReadPlain(const Buffer& buffer, ThreadPool& threads) {
  threads.Run([&](int worker) {
    const auto [begin, end] = threads.Range(buffer.size() / 8, 512, worker);
    const uint64_t* words = buffer.as<uint64_t>();
    uint64_t sum = 0;
    for (size_t i = begin; i < end; ++i) sum += words[i];
    asm volatile("" ::"r"(sum));
  });
  return static_cast<double>(buffer.size());
}

}  // namespace

std::optional<double> Roof::Gops(ComputeUnit unit) const {
  const auto it = gops.find(unit);
  if (it == gops.end()) return std::nullopt;
  return it->second.best;
}

std::optional<double> Roof::fp32_gflops() const {
  const auto wide = Gops(ComputeUnit::kFmaAvx512);
  return wide ? wide : Gops(ComputeUnit::kFmaAvx2);
}

std::optional<std::string> WhyNotUnit(const CpuFacts& cpu, Isa cap, ComputeUnit unit) {
  if (unit == ComputeUnit::kBf16Avx512) {  // comes without AMX too (Zen 4)
    if (!cpu.avx512bf16) return cpu.cpuid_avx512 ? "this CPU has no AVX-512 BF16" : "this CPU has no AVX-512";
    if (!cpu.Supports(Isa::kVnni) || cap < Isa::kVnni) return WhyNot(cpu, cap, Isa::kVnni);
    return std::nullopt;
  }
  const std::string why = WhyNot(cpu, cap, IsaOf(unit));
  return why.empty() ? std::nullopt : std::optional(why);
}

RoofProbe::RoofProbe(const Runtime& runtime) : runtime_(runtime), buffer_(ReadBufferBytes(*runtime.cpu)) {
  runtime_.threads->ParallelFor(buffer_.size(), 4096,
                                [&](size_t begin, size_t end) {  // the reader of a page touches it first
                                  for (size_t i = begin; i < end; i += 64)
                                    buffer_.data()[i] = static_cast<std::byte>(i >> 6);
                                });
}

double RoofProbe::ReadGbs(ThreadPool& threads) {
  const std::vector<std::span<const std::byte>> buffers = {{buffer_.data(), buffer_.size()}};
  const double start_s = runtime_.clock->Now();
  const double bytes = runtime_.cpu->Supports(Isa::kAvx2)
                           ? ReadRoof(std::max(runtime_.isa, Isa::kAvx2), buffers, threads)
                           : ReadPlain(buffer_, threads);
  return bytes / std::max(1e-9, runtime_.clock->Now() - start_s) / 1e9;
}

double RoofProbe::ReadGbs() { return ReadGbs(*runtime_.threads); }

double RoofProbe::Gops(ComputeUnit unit) {
  const double start_s = runtime_.clock->Now();
  const double ops = ComputeRoof(unit, *runtime_.threads);
  return ops / std::max(1e-9, runtime_.clock->Now() - start_s) / 1e9;
}

Roof MeasureRoof(const Runtime& runtime, const std::function<void(double share)>& progress) {
  const double start_s = runtime.clock->Now();
  const CpuFacts& cpu = *runtime.cpu;
  Roof roof;
  roof.cpu = cpu.brand;
  roof.cores = cpu.physical_cores, roof.cpus = cpu.logical_cpus, roof.threads = runtime.threads->count();
  roof.isa = runtime.isa;
  roof.l1d_bytes = cpu.l1d_bytes, roof.l2_bytes = cpu.l2_bytes, roof.l3_bytes = cpu.l3_bytes;
  roof.machine = ReadMachineFacts();
  roof.kernels = ChosenKernels(cpu, runtime.isa);

  const std::vector<int> counts = ThreadCounts(roof.threads);
  const double steps = static_cast<double>(std::size(kComputeUnits) + counts.size() + 2);
  double done = 0;
  const auto step = [&] {
    ++done;
    if (progress) progress(done / steps);
  };

  RoofProbe probe(runtime);
  for (const int count : counts) {
    ThreadPool threads(count);
    probe.ReadGbs(threads);  // wakes the threads, maps the pages
    roof.read_gbs[count] = Highest(TimedRounds(*runtime.clock, kReadRounds, [&] { return probe.ReadGbs(threads); }));
    step();
  }
  for (const ComputeUnit unit : kComputeUnits) {
    if (auto why = WhyNotUnit(cpu, runtime.isa, unit)) {
      roof.excluded[unit] = *std::move(why);
    } else {
      probe.Gops(unit);  // the clock changes with the width of the vectors
      roof.gops[unit] = Highest(TimedRounds(*runtime.clock, kComputeRounds, [&] { return probe.Gops(unit); }));
    }
    step();
  }

  const int barriers = TimesOfRound(kBarriers, BarrierNs(runtime, kTrial) * 1e-9 * kTrial);
  roof.barrier_ns = Lowest(TimedRounds(*runtime.clock, kBarrierRounds, [&] { return BarrierNs(runtime, barriers); }));
  step();
  const int forks = TimesOfRound(kForkJoins, ForkJoinNs(runtime, kTrial) * 1e-9 * kTrial);
  roof.fork_join_ns = Lowest(TimedRounds(*runtime.clock, kBarrierRounds, [&] { return ForkJoinNs(runtime, forks); }));
  step();
  roof.measured_s = runtime.clock->Now() - start_s;
  return roof;
}

}  // namespace hone
