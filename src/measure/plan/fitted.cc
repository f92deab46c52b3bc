// See fitted.h.
#include "measure/plan/fitted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

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

constexpr int kFitTerms = 3;
struct FitRow {
  std::array<double, kFitTerms> x;
  double y;
};

// The terms of `set` (a bit each) with the least weighted squares of relative errors; false if they cannot be told apart or
// one would be negative.
bool SolveTerms(std::span<const FitRow> rows, std::span<const double> weights, unsigned set, std::array<double, kFitTerms>* out) {
  double a[kFitTerms][kFitTerms + 1] = {};
  std::vector<int> of;
  for (int i = 0; i < kFitTerms; ++i) {
    if (set >> i & 1) of.push_back(i);
  }
  const int n = static_cast<int>(of.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    const double w = weights[r] / (rows[r].y * rows[r].y);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) a[i][j] += w * rows[r].x[of[i]] * rows[r].x[of[j]];
      a[i][n] += w * rows[r].x[of[i]] * rows[r].y;
    }
  }
  std::array<double, kFitTerms> scale{};
  for (int i = 0; i < n; ++i) scale[i] = a[i][i];
  for (int i = 0; i < n; ++i) {  // the matrix is symmetric and positive: no pivoting
    if (!(a[i][i] > 1e-9 * scale[i])) return false;
    for (int k = i + 1; k < n; ++k) {
      const double factor = a[k][i] / a[i][i];
      for (int j = i; j <= n; ++j) a[k][j] -= factor * a[i][j];
    }
  }
  *out = {};
  for (int i = n - 1; i >= 0; --i) {
    double value = a[i][n];
    for (int j = i + 1; j < n; ++j) value -= a[i][j] * (*out)[of[j]];
    (*out)[of[i]] = value / a[i][i];
    if (!((*out)[of[i]] >= 0)) return false;
  }
  return true;
}

double Predicted(const FitRow& row, const std::array<double, kFitTerms>& terms) {
  double predicted = 0;
  for (int i = 0; i < kFitTerms; ++i) predicted += row.x[i] * terms[i];
  return std::max(predicted, 1e-12);
}

// Whether a term's values differ enough from row to row that it can be told from one that is the same in all.
bool Varies(std::span<const FitRow> rows, int term) {
  double least = 1e300, most = 0;
  for (const FitRow& row : rows) least = std::min(least, row.x[term]), most = std::max(most, row.x[term]);
  return most > 1.2 * least;
}

// Least absolute logarithms of predicted over measured, over the sets of terms within `allowed`; a set with more terms must
// be better by kWorth. So half of the steps are above the prediction and half below, like the medians that it is compared
// with, and what holds up a few steps moves it little. By weighted squares: the weight that gives them the gradient of
// |ln(p / y)| is 1 / (p |p - y|). REQUIRES: every y is above 0.
std::array<double, kFitTerms> FitTerms(std::span<const FitRow> rows, unsigned allowed) {
  constexpr int kAgain = 40;
  constexpr double kWorth = 5e-4, kExact = 1e-6;
  std::array<double, kFitTerms> best{};
  double best_error = 1e300;
  for (const unsigned set : {1u, 2u, 4u, 3u, 5u, 6u, 7u}) {
    if ((set & ~allowed) != 0) continue;
    std::array<double, kFitTerms> terms{};
    std::vector<double> weights(rows.size(), 1);
    bool solved = true;
    for (int i = 0; i < kAgain && solved; ++i) {
      solved = SolveTerms(rows, weights, set, &terms);
      for (size_t r = 0; r < rows.size(); ++r) {
        const double p = Predicted(rows[r], terms), y = rows[r].y;
        weights[r] = y * y / (p * std::max(kExact * y, std::abs(p - y)));
      }
    }
    if (!solved) continue;
    double error = 0;
    for (const FitRow& row : rows) error += std::abs(std::log(Predicted(row, terms) / row.y)) / static_cast<double>(rows.size());
    if (error < best_error - kWorth) best = terms, best_error = error;
  }
  return best;
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
    double added = 0;
    read.overlapped = !Number(entry, "added_up", 1, 1, &added);
    if (!Number(entry, "many_rows_reads", 0, 1e3, &read.many_rows_reads)) read.many_rows_reads = -1;
    double few_rows = 0;
    read.few_rows = Number(entry, "few_rows", 0, 1e6, &few_rows) ? static_cast<int>(few_rows) : 0;
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
                   {"step_overhead_s", efficiency.step_overhead_s}, {"many_rows_reads", efficiency.many_rows_reads},
                   {"added_up", efficiency.overlapped ? 0 : 1}, {"few_rows", efficiency.few_rows}},
                  kMostEntries, [&](const ordered_json& entry) {
                    return !(EntrySays(entry, "machine", machine) && EntrySays(entry, "weights", weights));
                  });
}

Efficiency FitEfficiency(std::span<const MeasuredStep> steps, const Hardware& hardware, const WeightFormat& format,
                         const Efficiency& assumed) {
  Efficiency fit = assumed;
  const double rate = std::max(1.0, hardware.read_bytes_s), ops = std::max(1.0, hardware.Ops(format));
  std::vector<FitRow> decode, prompts;
  for (const MeasuredStep& step : steps) {
    if (step.prefill || !(step.seconds > 0)) continue;
    const double rows = std::max(1, step.sequences);
    decode.push_back({{step.bytes / rate, step.flops * (rows - 1) / rows / ops, 1}, step.seconds});
  }
  if (!decode.empty()) {
    const std::array<double, kFitTerms> terms = FitTerms(decode, Varies(decode, 0) ? 7 : 3);
    if (terms[0] > 0) fit.read_share = std::clamp(1 / terms[0], 1e-3, 4.0);
    if (terms[1] > 0) fit.decode_share = std::clamp(1 / terms[1], 1e-3, 4.0);
    fit.step_overhead_s = std::min(terms[2], 1.0);
    fit.few_rows = 0;
    for (const MeasuredStep& step : steps) {
      if (!step.prefill) fit.few_rows = std::max(fit.few_rows, step.sequences);
    }
  }
  for (const MeasuredStep& step : steps) {
    const double left_s = step.seconds - fit.step_overhead_s - step.kv_bytes / (rate * fit.read_share);
    if (!step.prefill || left_s <= 0) continue;
    prompts.push_back({{step.flops / ops, (step.bytes - step.kv_bytes) / rate, 0}, left_s});
  }
  if (!prompts.empty()) {
    const std::array<double, kFitTerms> terms = FitTerms(prompts, Varies(prompts, 0) ? 3 : 1);
    if (terms[0] > 0) fit.compute_share = std::clamp(1 / terms[0], 1e-3, 4.0);
    fit.many_rows_reads = std::min(terms[1], 1e3);
  }
  fit.overlapped = false;
  fit.source = "fitted by hone profile";
  return fit;
}

}  // namespace hone
