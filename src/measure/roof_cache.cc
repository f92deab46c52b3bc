// See roof_cache.h.
#include "measure/roof_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "measure/json_text.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;
constexpr size_t kMostEntries = 16;
constexpr uintmax_t kMostBytes = 1 << 20;

// The entries of the file; an empty array if there is none that makes sense.
ordered_json ReadEntries(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) > kMostBytes)
    return ordered_json::array();
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ordered_json json = ParseJson(text);
  return json.is_array() ? json : ordered_json::array();
}

bool HasKey(const ordered_json& entry, const std::string& key) {
  const auto it = entry.is_object() ? entry.find("key") : entry.end();
  return entry.is_object() && it != entry.end() && it->is_string() && it->get<std::string>() == key;
}

}  // namespace

std::string RoofCachePath() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/')
    return std::string(cache) + "/hone/roof.json";  // relative ones are to be ignored
  const char* home = std::getenv("HOME");
  if (home != nullptr && home[0] != 0) return std::string(home) + "/.cache/hone/roof.json";
  return "";
}

std::string RoofKey(const Runtime& runtime, const MachineFacts& machine) {
  const CpuFacts& cpu = *runtime.cpu;
  return fmt::format(
      "{} | {} cores, {} CPUs, {} threads | {} of {} | {} | microcode {} | {} bytes, huge pages {} | hone {}",
      cpu.brand, cpu.physical_cores, cpu.logical_cpus, runtime.threads->count(), IsaName(runtime.isa),
      IsaName(cpu.best_isa()), machine.system, machine.microcode, machine.memory_bytes, machine.huge_pages,
      HONE_VERSION);
}

bool LoadRoof(const std::string& path, const std::string& key, Roof* roof) {
  for (const ordered_json& entry : ReadEntries(path)) {
    if (!HasKey(entry, key)) continue;
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
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  ordered_json entries = ordered_json::array();
  entries.push_back({{"key", key}, {"roof", RoofAsJson(roof)}});
  for (const ordered_json& entry : ReadEntries(path)) {
    if (entries.size() < kMostEntries && !HasKey(entry, key)) entries.push_back(entry);
  }
  // Beside it, then renamed: a reader never sees half a file.
  const std::string temporary = path + "." + std::to_string(getpid());
  std::ofstream out(temporary, std::ios::binary);
  out << entries.dump(1, ' ', false, ordered_json::error_handler_t::replace) << "\n";
  out.close();
  if (!out) {
    std::filesystem::remove(temporary, error);
    return IoError(path + ": cannot write the roof of this host");
  }
  std::filesystem::rename(temporary, path, error);
  if (error) return IoError(path + ": " + error.message());
  return {};
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
