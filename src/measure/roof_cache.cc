// See roof_cache.h.
#include "measure/roof_cache.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/user_path.h"
#include "measure/entries_file.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;
constexpr size_t kMostEntries = 16;
constexpr int kProbes = 2;  // counts what changed how a roof is measured: figures from before are not comparable

}  // namespace

std::string RoofCachePath() { return UserPath(UserFolder::kCache, "roof.json"); }

std::string RoofKey(const Runtime& runtime, const MachineFacts& machine) {
  const CpuFacts& cpu = *runtime.cpu;
  return fmt::format(
      "{} | {} cores, {} CPUs, {} threads | {} of {} | {} | microcode {} | {} bytes, huge pages {} | hone {}, probes {}",
      cpu.brand, cpu.physical_cores, cpu.logical_cpus, runtime.threads->count(), IsaName(runtime.isa),
      IsaName(cpu.best_isa()), machine.system, machine.microcode, machine.memory_bytes, machine.huge_pages,
      HONE_VERSION, kProbes);
}

bool LoadRoof(const std::string& path, const std::string& key, Roof* roof) {
  for (const ordered_json& entry : ReadEntries(path)) {
    if (!EntrySays(entry, "key", key)) continue;
    const auto it = entry.find("roof");
    Roof read;
    if (it == entry.end() || !ReadRoofFigures(*it, &read)) return false;
    roof->read_gbs = read.read_gbs, roof->gops = read.gops;
    roof->barrier_ns = read.barrier_ns, roof->fork_join_ns = read.fork_join_ns, roof->measured_s = read.measured_s;
    roof->cached = true;
    return true;
  }
  return false;
}

Result<void> SaveRoof(const std::string& path, const std::string& key, const Roof& roof) {
  return PutEntry(path, {{"key", key}, {"roof", RoofAsJson(roof)}}, kMostEntries,
                  [&](const ordered_json& entry) { return !EntrySays(entry, "key", key); });
}

Roof CachedRoof(const Runtime& runtime, bool fresh, const std::function<void(double share)>& progress) {
  const std::string path = RoofCachePath();
  Roof roof;
  roof.machine = ReadMachineFacts();
  const std::string key = RoofKey(runtime, roof.machine);
  if (!fresh && !path.empty() && LoadRoof(path, key, &roof)) {
    const CpuFacts& cpu = *runtime.cpu;
    roof.cpu = cpu.brand;
    roof.cores = cpu.physical_cores, roof.cpus = cpu.logical_cpus, roof.threads = runtime.threads->count();
    roof.isa = runtime.isa;
    roof.l1d_bytes = cpu.l1d_bytes, roof.l2_bytes = cpu.l2_bytes, roof.l3_bytes = cpu.l3_bytes;
    roof.kernels = ChosenKernels(cpu, runtime.isa);
    for (const ComputeUnit unit : kComputeUnits) {
      if (auto why = WhyNotUnit(cpu, runtime.isa, unit)) roof.excluded[unit] = *std::move(why);
    }
    return roof;
  }
  roof = MeasureRoof(runtime, progress);
  if (path.empty()) return roof;
  if (const Result<void> saved = SaveRoof(path, key, roof); !saved) runtime.log->Debug("{}", saved.error().message);
  return roof;
}

}  // namespace hone
