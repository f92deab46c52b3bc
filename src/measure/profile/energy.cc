// See energy.h.
#include "measure/profile/energy.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace hone {
namespace {

std::optional<double> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  double value = 0;
  if (!(in >> value)) return std::nullopt;
  return value;
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& root) {
  const std::string folder = root + "/sys/class/powercap";
  std::error_code error;
  bool found = false;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    // "intel-rapl:0" is a package; "intel-rapl:0:1" is a part of one.
    if (!name.starts_with("intel-rapl:") || std::count(name.begin(), name.end(), ':') != 1) continue;
    found = true;
    const auto now = ReadNumber(entry.path().string() + "/energy_uj");
    if (!now) continue;
    const auto range = ReadNumber(entry.path().string() + "/max_energy_range_uj");
    zones_.push_back({entry.path().string() + "/energy_uj", range.value_or(0), *now});
  }
  if (zones_.empty())
    why_not_ = found ? "the RAPL counters may not be read (they need root)" : "this system shows no RAPL counters";
}

std::optional<double> EnergyMeter::Joules() {
  if (zones_.empty()) return std::nullopt;
  double sum_uj = 0;
  for (Zone& zone : zones_) {
    const auto now = ReadNumber(zone.path);
    if (!now) return std::nullopt;
    sum_uj += *now >= zone.last_uj ? *now - zone.last_uj : *now + zone.range_uj - zone.last_uj;
    zone.last_uj = *now;
  }
  return sum_uj / 1e6;
}

}  // namespace hone
