// A roof as JSON and as a table.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr const char* kAllThreads = "N";

const char* UnitTitle(ComputeUnit unit) {
  switch (unit) {
    case ComputeUnit::kFmaAvx2: return "FP32, AVX2 FMA";
    case ComputeUnit::kInt8Avx2: return "INT8, AVX2";
    case ComputeUnit::kFmaAvx512: return "FP32, AVX-512 FMA";
    case ComputeUnit::kVnni: return "INT8, AVX-512 VNNI";
    case ComputeUnit::kBf16Avx512: return "BF16, AVX-512 BF16";
    case ComputeUnit::kAmxBf16: return "BF16, AMX";
    case ComputeUnit::kAmxInt8: return "INT8, AMX";
  }
  return "?";
}

ordered_json ReadAsJson(const Roof& roof, double RoofFigure::*figure) {
  ordered_json json = ordered_json::object();
  for (const auto& [threads, gbs] : roof.read_gbs) json[std::to_string(threads)] = Rounded(gbs.*figure);
  if (!roof.read_gbs.empty()) json[kAllThreads] = Rounded(roof.read_gbs.rbegin()->second.*figure);
  return json;
}

std::string GiB(uint64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string CacheSize(long bytes) {
  if (bytes <= 0) return "unknown";
  return bytes >= (1 << 20) ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

const char* UnitKey(ComputeUnit unit) {
  switch (unit) {
    case ComputeUnit::kFmaAvx2: return "avx2_fp32_gflops";
    case ComputeUnit::kInt8Avx2: return "avx2_int8_gops";
    case ComputeUnit::kFmaAvx512: return "avx512_fp32_gflops";
    case ComputeUnit::kVnni: return "vnni_gops";
    case ComputeUnit::kBf16Avx512: return "avx512_bf16_gflops";
    case ComputeUnit::kAmxBf16: return "amx_bf16_gflops";
    case ComputeUnit::kAmxInt8: return "amx_int8_gops";
  }
  return "?";
}

double Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::fabs(value))));
  return std::round(value * scale) / scale;
}

ordered_json RoofAsJson(const Roof& roof) {
  const auto optional = [](std::optional<double> v) { return v ? ordered_json(Rounded(*v)) : ordered_json(nullptr); };
  ordered_json json = {{"cpu", roof.cpu}, {"cores", roof.cores}, {"threads", roof.threads}, {"isa", IsaName(roof.isa)}};
  json["read_gbs"] = ReadAsJson(roof, &RoofFigure::best);
  json["fp32_gflops"] = optional(roof.fp32_gflops());
  for (const ComputeUnit unit :
       {ComputeUnit::kBf16Avx512, ComputeUnit::kVnni, ComputeUnit::kAmxBf16, ComputeUnit::kAmxInt8,
        ComputeUnit::kFmaAvx512, ComputeUnit::kFmaAvx2, ComputeUnit::kInt8Avx2}) {
    json[UnitKey(unit)] = optional(roof.Gops(unit));
  }
  json["barrier_ns"] = Rounded(roof.barrier_ns.best);
  json["fork_join_ns"] = Rounded(roof.fork_join_ns.best);
  ordered_json& medians = json["medians"] = {{"read_gbs", ReadAsJson(roof, &RoofFigure::median)}};
  for (const auto& [unit, figure] : roof.gops) medians[UnitKey(unit)] = Rounded(figure.median);
  medians["barrier_ns"] = Rounded(roof.barrier_ns.median);
  medians["fork_join_ns"] = Rounded(roof.fork_join_ns.median);
  ordered_json& excluded = json["excluded"] = ordered_json::object();
  for (const auto& [unit, why] : roof.excluded) excluded[UnitKey(unit)] = why;
  ordered_json& kernels = json["kernels"] = ordered_json::array();
  for (const KernelChoice& choice : roof.kernels) {
    kernels.push_back({{"work", choice.work}, {"kernel", choice.kernel}, {"reason", choice.reason}});
  }
  json["cpus"] = roof.cpus;
  json["cache_bytes"] = {{"l1d", roof.l1d_bytes}, {"l2", roof.l2_bytes}, {"l3", roof.l3_bytes}};
  json["memory_bytes"] = roof.machine.memory_bytes;
  ordered_json& numa = json["numa"] = ordered_json::array();
  for (const NumaNode& node : roof.machine.numa) {
    numa.push_back({{"node", node.id}, {"cpus", node.cpus}, {"memory_bytes", node.memory_bytes}});
  }
  json["huge_pages"] = {{"transparent", roof.machine.huge_pages},
                        {"note", HugePageAdvice(roof.machine)},
                        {"page_bytes", roof.machine.huge_page_bytes},
                        {"reserved", roof.machine.huge_pages_total},
                        {"reserved_free", roof.machine.huge_pages_free}};
  json["system"] = roof.machine.system;
  json["microcode"] = roof.machine.microcode;
  json["governor"] = roof.machine.governor;
  json["virtual_machine"] = roof.machine.virtual_machine;
  json["hone"] = HONE_VERSION;
  json["measured_s"] = Rounded(roof.measured_s);
  json["cached"] = roof.cached;
  return json;
}

Result<void> ReadRoofFigures(const ordered_json& json, Roof* roof) {
  if (!json.is_object()) return InvalidInput("a roof is a JSON object");
  const auto number = [](const ordered_json& object, const std::string& key) -> Result<double> {
    const auto it = object.is_object() ? object.find(key) : object.end();
    if (!object.is_object() || it == object.end() || !it->is_number() || !std::isfinite(it->get<double>()) ||
        it->get<double>() < 0) {
      return InvalidInput("'" + key + "' is missing or no number");
    }
    return it->get<double>();
  };
  const auto pair = [&](const ordered_json& best, const ordered_json& median,
                        const std::string& key) -> Result<RoofFigure> {
    HONE_TRY(const double b, number(best, key));
    HONE_TRY(const double m, number(median, key));
    return RoofFigure{b, m};
  };
  const ordered_json medians = json.value("medians", ordered_json::object());
  const ordered_json reads = json.value("read_gbs", ordered_json::object());
  const ordered_json median_reads =
      medians.is_object() ? medians.value("read_gbs", ordered_json::object()) : ordered_json();
  if (!reads.is_object()) return InvalidInput("'read_gbs' is no object");
  for (const auto& [key, value] : reads.items()) {
    if (key == kAllThreads) continue;
    const int threads = std::atoi(key.c_str());
    if (threads < 1) return InvalidInput("'" + key + "' is no number of threads");
    HONE_TRY(roof->read_gbs[threads], pair(reads, median_reads, key));
  }
  for (const ComputeUnit unit : kComputeUnits) {
    const auto it = json.find(UnitKey(unit));
    if (it == json.end() || it->is_null()) continue;
    HONE_TRY(roof->gops[unit], pair(json, medians, UnitKey(unit)));
  }
  HONE_TRY(roof->barrier_ns, pair(json, medians, "barrier_ns"));
  HONE_TRY(roof->fork_join_ns, pair(json, medians, "fork_join_ns"));
  HONE_TRY(roof->measured_s, number(json, "measured_s"));
  return {};
}

std::string RoofJson(const Roof& roof) {
  return RoofAsJson(roof).dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string RoofTable(const Roof& roof) {
  std::string out;
  const auto row = [&](std::string_view key, const std::string& value) {
    out += fmt::format("{:<24} {}\n", key, value);
  };
  const auto figure = [](const RoofFigure& f, const char* unit, int digits) {
    return fmt::format("{:>9.{}f} {:<7} median {:.{}f}", f.best, digits, unit, f.median, digits);
  };
  row("cpu", roof.cpu + (roof.machine.virtual_machine ? "  (virtual machine)" : ""));
  row("cores", fmt::format("{} ({} CPUs), {} threads used", roof.cores, roof.cpus, roof.threads));
  row("caches", fmt::format("L1d {}, L2 {} a core, L3 {}", CacheSize(roof.l1d_bytes), CacheSize(roof.l2_bytes),
                            CacheSize(roof.l3_bytes)));
  row("memory", GiB(roof.machine.memory_bytes));
  for (const NumaNode& node : roof.machine.numa) {
    row(fmt::format("NUMA node {}", node.id), fmt::format("CPUs {}, {}", node.cpus, GiB(node.memory_bytes)));
  }
  row("huge pages",
      fmt::format("{} ({}); {} reserved of {}", roof.machine.huge_pages.empty() ? "unknown" : roof.machine.huge_pages,
                  HugePageAdvice(roof.machine), roof.machine.huge_pages_total,
                  CacheSize(static_cast<long>(roof.machine.huge_page_bytes))));
  row("system", roof.machine.system + (roof.machine.microcode.empty() ? "" : ", microcode " + roof.machine.microcode) +
                    (roof.machine.governor.empty() ? "" : ", governor " + roof.machine.governor));
  out += "\n";
  for (const auto& [threads, gbs] : roof.read_gbs)
    row(fmt::format("read, {} thread{}", threads, threads == 1 ? "" : "s"), figure(gbs, "GB/s", 1));
  for (const ComputeUnit unit : kComputeUnits) {
    const auto it = roof.gops.find(unit);
    if (it != roof.gops.end()) {
      row(UnitTitle(unit), figure(it->second, "Gop/s", 0));
    } else if (const auto why = roof.excluded.find(unit); why != roof.excluded.end()) {
      row(UnitTitle(unit), fmt::format("{:>9} {}", "-", why->second));
    }
  }
  row("barrier", figure(roof.barrier_ns, "ns", 0));
  row("fork and join", figure(roof.fork_join_ns, "ns", 0));
  out += "\n";
  for (const KernelChoice& choice : roof.kernels)
    row(choice.work, fmt::format("{:<24} {}", choice.kernel, choice.reason));
  return out;
}

}  // namespace hone
