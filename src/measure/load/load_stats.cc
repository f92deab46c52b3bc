// See load_stats.h.
#include "measure/load/load_stats.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace hone {
namespace {

constexpr double kLoadConfidence = 0.95;
// The client is the limit when it uses most of the core that it has, or sends so late that latencies feel it.
constexpr double kMostCpuShare = 0.8;
constexpr double kLagFloorMs = 5, kLagShareOfTtft = 0.1;

using Values = std::vector<std::vector<double>>;  // [run][request or gap]

LatencyFigures Latency(const Values& values, bool independent) {
  LatencyFigures figures;
  std::vector<double> all, means;
  size_t least = SIZE_MAX;
  std::vector<const std::vector<double>*> runs;
  for (const std::vector<double>& run : values) {
    if (run.empty()) continue;
    all.insert(all.end(), run.begin(), run.end());
    means.push_back(Mean(run));
    least = std::min(least, run.size());
    runs.push_back(&run);
  }
  figures.count = static_cast<int64_t>(all.size());
  if (all.empty()) return figures;
  figures.deviation = std::sqrt(Variance(all));
  figures.max = *std::max_element(all.begin(), all.end());
  if (runs.size() > 1) {
    figures.mean = StudentMean(means, kLoadConfidence);
  } else if (independent && all.size() > 1) {
    figures.mean = StudentMean(all, kLoadConfidence);
  } else {
    figures.mean = {means[0], means[0], means[0], 0};
  }
  for (const auto& [key, fraction] : kLoadPercentiles) {
    Interval interval;
    if (runs.size() > 1) {
      std::vector<double> of_runs;
      for (const auto* run : runs) of_runs.push_back(Quantile(*run, fraction));
      interval = StudentMean(of_runs, kLoadConfidence);
      interval.low = std::max(0.0, interval.low);
    } else if (independent) {
      interval = QuantileInterval(all, fraction, kLoadConfidence);
    } else {
      const double value = Quantile(all, fraction);
      interval = {value, value, value, 0};
    }
    figures.percentiles[key] = interval;
    if (static_cast<double>(least) * (1 - fraction) < 1) figures.thin.push_back(key);
  }
  return figures;
}

Interval Rate(const std::vector<double>& of_runs) {
  if (of_runs.empty()) return {};
  Interval rate = StudentMean(of_runs, kLoadConfidence);
  rate.low = std::max(0.0, rate.low);
  return rate;
}

void CountRecord(const LoadRecord& record, LoadFigures* figures) {
  if (record.error == "cancelled") {
    ++figures->cancelled;
    return;
  }
  if (!record.ok()) {
    ++figures->failed;
    ErrorCount& error = figures->errors[record.error];
    if (error.count++ == 0) error.first = record.error_text;
    return;
  }
  ++figures->completed;
  figures->output_tokens += record.output_tokens;
  figures->output_tokens_counted &= record.tokens_counted;
  if (record.prompt_tokens >= 0) {
    figures->prompt_tokens += record.prompt_tokens;
  } else {
    figures->prompt_tokens_counted = false;
  }
  if (record.cached_tokens >= 0)
    figures->cached_tokens = std::max<int64_t>(0, figures->cached_tokens) + record.cached_tokens;
  // A last token may add no text of its own.
  const int64_t chunks = static_cast<int64_t>(record.gaps_s.size()) + 1;
  if (record.tokens_counted && chunks + 2 < record.output_tokens) figures->one_chunk_a_token = false;
}

void JudgeClient(std::span<const LoadRun> runs, LoadFigures* figures) {
  std::vector<double> lags_ms;
  double cpu_s = 0, wall_s = 0;
  for (const LoadRun& run : runs) {
    cpu_s += run.cpu_s;
    wall_s += run.duration_s;
    for (const LoadRecord& record : run.records) {
      if (!record.held && record.sent_s > 0) lags_ms.push_back(1e3 * std::max(0.0, record.sent_s - record.due_s));
    }
  }
  figures->cpu_share = wall_s > 0 ? cpu_s / wall_s : 0;
  if (!lags_ms.empty()) {
    figures->lag_ms_p50 = Quantile(lags_ms, 0.5);
    figures->lag_ms_p99 = Quantile(lags_ms, 0.99);
  }
  const auto ttft = figures->ttft_ms.percentiles.find("p50");
  const double allowed_ms =
      std::max(kLagFloorMs, ttft == figures->ttft_ms.percentiles.end() ? 0 : kLagShareOfTtft * ttft->second.value);
  if (figures->cpu_share > kMostCpuShare) {
    figures->client_limit = fmt::format("the client used {:.0f} % of its core", 100 * figures->cpu_share);
  } else if (figures->lag_ms_p99 > allowed_ms) {
    figures->client_limit =
        fmt::format("one request in a hundred was sent {:.1f} ms or more after it was due", figures->lag_ms_p99);
  }
}

Result<double> Milliseconds(std::string_view part, std::string text) {
  double unit = 1;
  if (text.size() > 2 && text.substr(text.size() - 2) == "ms") {
    text.resize(text.size() - 2);
  } else if (text.size() > 1 && text.back() == 's') {
    text.pop_back();
    unit = 1e3;
  }
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != 0 || !(value > 0) || !std::isfinite(value)) {
    return UsageError("--slo '" + std::string(part) +
                      "': wanted a time above 0, such as ttft=200 (milliseconds) or ttft=2s");
  }
  return value * unit;
}

}  // namespace

Result<Slo> ParseSlo(std::string_view text) {
  Slo slo;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (part.empty()) continue;
    const size_t equals = std::min(part.find_first_of("=:"), part.size());
    const std::string_view name = part.substr(0, equals);
    const std::string value(part.substr(std::min(equals + 1, part.size())));
    std::optional<double>* limit = name == "ttft"                    ? &slo.ttft_ms
                                   : name == "tpot"                  ? &slo.tpot_ms
                                   : name == "e2e" || name == "e2el" ? &slo.e2e_ms
                                                                     : nullptr;
    if (limit == nullptr) return UsageError("--slo '" + std::string(part) + "': wanted ttft=, tpot= or e2e=");
    HONE_TRY(*limit, Milliseconds(part, value));
  }
  return slo;
}

std::string SloText(const Slo& slo) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<double>& limit) {
    if (limit) text += fmt::format("{}{} <= {:g} ms", text.empty() ? "" : ", ", name, *limit);
  };
  add("ttft", slo.ttft_ms);
  add("tpot", slo.tpot_ms);
  add("e2e", slo.e2e_ms);
  return text;
}

bool MeetsSlo(const LoadRecord& record, const Slo& slo) {
  const double tpot_ms = record.output_tokens > 1 ? 1e3 * record.tpot_s() : 0;
  return (!slo.ttft_ms || 1e3 * record.ttft_s() <= *slo.ttft_ms) && (!slo.tpot_ms || tpot_ms <= *slo.tpot_ms) &&
         (!slo.e2e_ms || 1e3 * record.e2e_s() <= *slo.e2e_ms);
}

LoadFigures ComputeLoadFigures(std::span<const LoadRun> runs, const Slo& slo) {
  LoadFigures figures;
  Values ttft, tpot, itl, e2e;
  std::map<int, Values> by_turn;
  std::vector<double> request_s, output_tok_s, total_tok_s, goodput_s;
  int64_t met = 0;
  double active_s = 0;
  for (const LoadRun& run : runs) {
    std::vector<double>&run_ttft = ttft.emplace_back(), &run_tpot = tpot.emplace_back(), &run_itl = itl.emplace_back(),
    &run_e2e = e2e.emplace_back();
    double completed = 0, output = 0, prompt = 0, good = 0;
    for (const LoadRecord& record : run.records) {
      CountRecord(record, &figures);
      if (!record.ok()) continue;
      run_ttft.push_back(1e3 * record.ttft_s());
      run_e2e.push_back(1e3 * record.e2e_s());
      if (record.output_tokens > 1) run_tpot.push_back(1e3 * record.tpot_s());
      for (const double gap : record.gaps_s) run_itl.push_back(1e3 * gap);
      Values& turn = by_turn[record.turn];
      turn.resize(ttft.size());
      turn.back().push_back(1e3 * record.ttft_s());
      completed += 1;
      output += static_cast<double>(record.output_tokens);
      prompt += static_cast<double>(std::max<int64_t>(0, record.prompt_tokens));
      good += MeetsSlo(record, slo);
    }
    figures.unsent += run.unsent;
    figures.duration_s += run.duration_s;
    figures.most_active = std::max(figures.most_active, run.most_active);
    active_s += run.mean_active * run.duration_s;
    met += static_cast<int64_t>(good);
    if (run.duration_s <= 0) continue;
    ++figures.seeds;
    request_s.push_back(completed / run.duration_s);
    output_tok_s.push_back(output / run.duration_s);
    total_tok_s.push_back((output + prompt) / run.duration_s);
    goodput_s.push_back(good / run.duration_s);
  }
  figures.interval_method =
      runs.size() > 1 ? fmt::format("Student's t over {} seeds, 95 %", runs.size())
                      : "one seed: order statistics of its requests, 95 % if they were independent; rates have none";
  figures.ttft_ms = Latency(ttft, true);
  figures.tpot_ms = Latency(tpot, true);
  figures.itl_ms = Latency(itl, false);  // gaps of one answer hang together
  figures.e2e_ms = Latency(e2e, true);
  if (by_turn.size() > 1) {
    for (const auto& [turn, values] : by_turn) figures.ttft_ms_by_turn[turn] = Latency(values, true);
  }
  figures.request_s = Rate(request_s);
  figures.output_tok_s = Rate(output_tok_s);
  figures.total_tok_s = Rate(total_tok_s);
  if (slo.any()) {
    figures.goodput_s = Rate(goodput_s);
    const int64_t sent = figures.completed + figures.failed;
    figures.met_share = sent > 0 ? static_cast<double>(met) / static_cast<double>(sent) : 0;
  }
  figures.mean_active = figures.duration_s > 0 ? active_s / figures.duration_s : 0;
  JudgeClient(runs, &figures);
  return figures;
}

}  // namespace hone
