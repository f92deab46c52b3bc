// See fitted.h.
#include "measure/plan/fitted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/user_path.h"
#include "measure/entries_file.h"

namespace hone {
namespace {

using nlohmann::ordered_json;
constexpr size_t kMostEntries = 64;

bool Number(const ordered_json& entry, const char* key, double low, double high, double* out) {
  const auto it = entry.find(key);
  if (it == entry.end() || !it->is_number()) return false;
  *out = it->get<double>();
  return *out >= low && *out <= high;
}

}  // namespace

std::string FittedPath() { return UserPath(UserFolder::kState, "fitted.json"); }

bool LoadFitted(const std::string& path, const std::string& machine, const std::string& weights, Efficiency* efficiency) {
  for (const ordered_json& entry : ReadEntries(path)) {
    if (!EntrySays(entry, "machine", machine) || !EntrySays(entry, "weights", weights)) continue;
    Efficiency read = *efficiency;
    if (!Number(entry, "read_share", 1e-4, 4, &read.read_share) || !Number(entry, "compute_share", 1e-4, 4, &read.compute_share) ||
        !Number(entry, "step_overhead_s", 0, 10, &read.step_overhead_s)) {
      return false;
    }
    if (!Number(entry, "decode_share", 1e-4, 4, &read.decode_share)) read.decode_share = read.compute_share;
    read.source = "fitted by hone profile";
    *efficiency = read;
    return true;
  }
  return false;
}

Result<void> SaveFitted(const std::string& path, const std::string& machine, const std::string& weights,
                        const Efficiency& efficiency) {
  if (path.empty()) return IoError("no place for fitted constants: neither XDG_STATE_HOME nor HOME is set");
  return PutEntry(path,
                  {{"machine", machine}, {"weights", weights}, {"read_share", efficiency.read_share},
                   {"compute_share", efficiency.compute_share}, {"decode_share", efficiency.decode_share},
                   {"step_overhead_s", efficiency.step_overhead_s}},
                  kMostEntries, [&](const ordered_json& entry) {
                    return !(EntrySays(entry, "machine", machine) && EntrySays(entry, "weights", weights));
                  });
}

Efficiency FitEfficiency(std::span<const MeasuredStep> steps, const Hardware& hardware, const WeightFormat& format,
                         const Efficiency& assumed) {
  Efficiency fit = assumed;
  // seconds = overhead + bytes / (rate * share): a line in bytes / rate, weighted by 1 / seconds^2.
  int fewest = 1 << 30;
  for (const MeasuredStep& step : steps) {
    if (!step.prefill && step.seconds > 0) fewest = std::min(fewest, step.sequences);
  }
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0, least = 1e300, most = 0;
  for (const MeasuredStep& step : steps) {
    if (step.prefill || step.seconds <= 0 || step.sequences != fewest) continue;
    const double x = step.bytes / std::max(1.0, hardware.read_bytes_s), y = step.seconds, weight = 1 / (y * y);
    w += weight, wx += weight * x, wy += weight * y, wxx += weight * x * x, wxy += weight * x * y;
    least = std::min(least, x), most = std::max(most, x);
  }
  if (w > 0 && wxx > 0) {
    const double determinant = w * wxx - wx * wx;
    double slope = 0, base = 0;
    if (most > 1.2 * least && determinant > 1e-9 * w * wxx) {
      slope = (w * wxy - wx * wy) / determinant;
      base = (wy - slope * wx) / w;
    }
    if (slope <= 0 || base < 0) slope = wxy / wxx, base = 0;  // the steps are too alike to tell the two apart
    fit.read_share = std::clamp(1 / slope, 1e-3, 4.0);
    fit.step_overhead_s = std::min(base, 1.0);
  }
  double busy = 0, busy_ops = 0;  // of decode steps that are bound by arithmetic
  for (const MeasuredStep& step : steps) {
    const double left_s = step.seconds - fit.step_overhead_s;
    const double read_s = step.bytes / std::max(1.0, hardware.read_bytes_s * fit.read_share);
    if (step.prefill || step.sequences == fewest || left_s <= 1.1 * read_s) continue;
    busy += left_s, busy_ops += step.flops / std::max(1.0, hardware.Ops(format));
  }
  if (busy > 0) fit.decode_share = std::clamp(busy_ops / busy, 1e-3, 4.0);
  double xx = 0, xy = 0;
  for (const MeasuredStep& step : steps) {
    const double left_s = step.seconds - fit.step_overhead_s;
    if (!step.prefill || left_s <= 0) continue;
    const double x = step.flops / std::max(1.0, hardware.Ops(format)), weight = 1 / (left_s * left_s);
    xx += weight * x * x, xy += weight * x * left_s;
  }
  if (xx > 0) fit.compute_share = std::clamp(xx / xy, 1e-3, 4.0);
  fit.source = "fitted by hone profile";
  return fit;
}

}  // namespace hone
