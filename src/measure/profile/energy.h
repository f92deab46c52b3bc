// Energy of the CPU packages since start, where the kernel shows it (RAPL through powercap).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hone {

class EnergyMeter {
 public:
  explicit EnergyMeter(const std::string& root = "");  // put before /sys, for tests
  bool readable() const { return why_not_.empty(); }
  const std::string& why_not() const { return why_not_; }
  // Joules since the meter was made or last asked, all packages; nullopt if a counter cannot be read. Counters that
  // wrapped around once are corrected.
  std::optional<double> Joules();

 private:
  struct Zone {
    std::string path;
    double range_uj = 0, last_uj = 0;
  };
  std::string why_not_;
  std::vector<Zone> zones_;
};

}  // namespace hone
