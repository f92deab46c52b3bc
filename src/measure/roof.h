// The roof: what the machine at hand can do at best, measured. Every figure of a benchmark stands beside it.
//
// A figure is the best of several short rounds, since a peak is a limit; the median says how quiet the machine was.
// Bandwidth is reading, by 1, 2, 4 ... threads, from a buffer larger than the last cache. Peaks are of all threads
// together, a multiply and an add counting two. Units that the CPU, the system or --isa exclude are absent, with the
// reason. The loops themselves: kernels/matmul/roof.h. On disk: roof_cache.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/memory.h"
#include "base/runtime.h"
#include "kernels/matmul/roof.h"
#include "measure/machine.h"

namespace hone {

struct RoofFigure {
  double best = 0, median = 0;
};

struct Roof {
  std::string cpu;
  int cores = 0, cpus = 0, threads = 0;
  Isa isa = Isa::kScalar;
  long l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;
  MachineFacts machine;
  std::vector<KernelChoice> kernels;

  std::map<int, RoofFigure> read_gbs;           // by threads; the last is all of them
  std::map<ComputeUnit, RoofFigure> gops;       // of the units that can be used
  std::map<ComputeUnit, std::string> excluded;  // the others, and why
  RoofFigure barrier_ns;                        // one ThreadPool::Barrier; best is the lowest
  RoofFigure fork_join_ns;                      // one empty ThreadPool::Run
  double measured_s = 0;                        // what measuring took
  bool cached = false;

  std::optional<double> fp32_gflops() const;  // of the widest unit in use
  std::optional<double> Gops(ComputeUnit unit) const;
  double read_all_gbs() const { return read_gbs.empty() ? 0 : read_gbs.rbegin()->second.best; }
};

// Whether `unit` can run here under a cap of --isa; the reason if not.
std::optional<std::string> WhyNotUnit(const CpuFacts& cpu, Isa cap, ComputeUnit unit);

// Repeated short probes with one pool: what a benchmark takes right before and after its own rounds.
class RoofProbe {
 public:
  // Reserves the read buffer: larger than the last cache, at least 256 MiB, at most 1 GiB and a quarter of free memory.
  explicit RoofProbe(const Runtime& runtime);
  double ReadGbs();               // one pass over the buffer
  double Gops(ComputeUnit unit);  // some ten milliseconds. REQUIRES: !WhyNotUnit
  size_t bytes() const { return buffer_.size(); }

 private:
  friend Roof MeasureRoof(const Runtime& runtime, const std::function<void(double share)>& progress);
  double ReadGbs(ThreadPool& threads);
  const Runtime runtime_;
  Buffer buffer_;
};

// Measures everything: a few seconds. `progress` gets shares in [0, 1]; may be empty. Scalar code (--isa scalar) has no
// peaks.
Roof MeasureRoof(const Runtime& runtime, const std::function<void(double share)>& progress);

// The JSON of hone roof --json, and a table for people.
std::string RoofJson(const Roof& roof);
std::string RoofTable(const Roof& roof);

}  // namespace hone
