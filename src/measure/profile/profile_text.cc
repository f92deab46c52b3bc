// A profile as a table for people and as JSON for scripts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/ledger/entries.h"
#include "measure/profile/profile.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

ordered_json IntervalJson(const Interval& interval) {
  return {{"value", Rounded(interval.value)}, {"low", Rounded(interval.low)}, {"high", Rounded(interval.high)},
          {"confidence", Rounded(interval.confidence)}};
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

double ErrorPercent(double predicted, double measured) { return measured > 0 ? 100 * (predicted / measured - 1) : 0; }

ordered_json PhaseJson(const PhaseTimes& phase, const CellFacts& facts) {
  ordered_json ops;
  for (int op = 0; op < kOps; ++op) {
    if (phase.op_s[op] > 0) ops[std::string(OpName(static_cast<Op>(op)))] = Rounded(Share(phase.op_s[op], phase.facts.seconds));
  }
  const double bytes = phase.facts.weight_bytes + phase.facts.kv_bytes;
  return {{"seconds", Rounded(phase.facts.seconds)}, {"steps", phase.facts.steps},
          {"weight_bytes", std::round(phase.facts.weight_bytes)}, {"kv_bytes", std::round(phase.facts.kv_bytes)},
          {"flops", std::round(phase.facts.flops)},
          {"read_roof_percent", Rounded(100 * Share(Share(bytes, facts.read_bytes_s), phase.facts.seconds))},
          {"peak_percent", Rounded(100 * Share(Share(phase.facts.flops, facts.ops), phase.facts.seconds))},
          {"op_shares", std::move(ops)}};
}

ordered_json EfficiencyJson(const Efficiency& efficiency) {
  return {{"read_share", Rounded(efficiency.read_share)}, {"compute_share", Rounded(efficiency.compute_share)}, {"decode_share", Rounded(efficiency.decode_share)},
          {"step_overhead_s", Rounded(efficiency.step_overhead_s)}, {"many_rows_reads", Rounded(efficiency.many_rows_reads)}, {"few_rows", efficiency.few_rows},
          {"overlapped", efficiency.overlapped}, {"source", efficiency.source}};
}

std::string OpLine(const PhaseTimes& phase) {
  std::vector<std::pair<double, int>> order;
  for (int op = 0; op < kOps; ++op) {
    const double share = Share(phase.op_s[op], phase.facts.seconds);
    if (share >= 0.005) order.push_back({share, op});
  }
  std::sort(order.rbegin(), order.rend());
  std::string out;
  for (const auto& [share, op] : order) out += fmt::format("{}{} {:.0f} %", out.empty() ? "" : ", ", OpName(static_cast<Op>(op)), 100 * share);
  return out;
}

std::string PhaseLine(const char* name, const PhaseTimes& phase, const CellFacts& facts) {
  if (phase.facts.steps == 0) return "";
  const double bytes = phase.facts.weight_bytes + phase.facts.kv_bytes;
  return fmt::format("    {:<8} {} in {} steps, {:.0f} % of the read roof, {:.0f} % of the peak: {}\n", name, SaySeconds(phase.facts.seconds),
                     phase.facts.steps, 100 * Share(Share(bytes, facts.read_bytes_s), phase.facts.seconds),
                     100 * Share(Share(phase.facts.flops, facts.ops), phase.facts.seconds), OpLine(phase));
}

template <typename T>
std::vector<int> Distinct(const std::vector<CellResult>& cells, T ProfileCell::*axis) {
  std::vector<int> values;
  for (const CellResult& cell : cells) values.push_back(cell.cell.*axis);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// A figure over two axes that have more than one value each, for every value of the third; darker is larger.
std::string HeatMap(const std::vector<CellResult>& cells, const char* name, double (*figure)(const CellResult&)) {
  struct Axis {
    const char* name;
    int ProfileCell::*member;
  };
  const Axis axes[] = {{"input", &ProfileCell::input}, {"output", &ProfileCell::output}, {"at once", &ProfileCell::concurrency}};
  std::vector<Axis> wide, rest;
  for (const Axis& axis : axes) (Distinct(cells, axis.member).size() > 1 && wide.size() < 2 ? wide : rest).push_back(axis);
  if (wide.size() < 2) return "";
  double least = 1e300, most = 0;
  for (const CellResult& cell : cells) least = std::min(least, figure(cell)), most = std::max(most, figure(cell));
  std::string out;
  for (const int third : Distinct(cells, rest[0].member)) {
    out += fmt::format("\n{}, {} {}\n{:>10}", name, rest[0].name, third, wide[0].name);
    for (const int column : Distinct(cells, wide[1].member)) out += fmt::format(" {:>14}", fmt::format("{} {}", wide[1].name, column));
    out += "\n";
    for (const int row : Distinct(cells, wide[0].member)) {
      out += fmt::format("{:>10}", row);
      for (const int column : Distinct(cells, wide[1].member)) {
        const auto it = std::find_if(cells.begin(), cells.end(), [&](const CellResult& cell) {
          return cell.cell.*wide[0].member == row && cell.cell.*wide[1].member == column && cell.cell.*rest[0].member == third;
        });
        if (it == cells.end()) {
          out += fmt::format(" {:>14}", "-");
          continue;
        }
        const double share = most > least ? std::log(figure(*it) / least) / std::log(most / least) : 0;
        const std::string shade(2, " .:-=+*#%@"[std::clamp(static_cast<int>(share * 9 + 0.5), 0, 9)]);
        out += fmt::format(" {:>11} {}", SaySeconds(figure(*it)), shade);
      }
      out += "\n";
    }
  }
  return out;
}

}  // namespace

namespace {

std::string VariantTable(const ProfileReport& report) {
  std::string out = fmt::format("{}, kv {}: loaded in {:.2f} s, weights {}, {} resident; prefix cache {}; energy {}\n\n", report.model, report.kv, report.load_s,
                                SayBytes(static_cast<double>(report.weight_bytes)), SayBytes(static_cast<double>(report.rss_bytes)), report.prefix_cache,
                                report.energy.empty() ? "by RAPL" : "not known: " + report.energy);
  out += fmt::format("{:>6} {:>6} {:>5} {:>7}  {:>22} {:>22} {:>9} {:>9} {:>10} {:>9}  bottleneck\n", "input", "output", "at", "rounds",
                     "TTFT (low - high)", "TPOT (low - high)", "total", "tok/s", "prompt/s", "KV");
  for (const CellResult& cell : report.cells) {
    const auto range = [](const Interval& i) { return fmt::format("{} ({} - {})", SaySeconds(i.value), SaySeconds(i.low), SaySeconds(i.high)); };
    out += fmt::format("{:>6} {:>6} {:>5} {:>7}  {:>22} {:>22} {:>9} {:>9.1f} {:>10.1f} {:>9}  {}\n", cell.cell.input, cell.cell.output,
                       cell.cell.concurrency, cell.rounds, range(cell.ttft_s), range(cell.tpot_s), SaySeconds(cell.total_s.value), cell.tok_s.value,
                       cell.prompt_tok_s.value, SayBytes(cell.kv_bytes), BottleneckName(cell.verdict.bottleneck));
  }
  out += HeatMap(report.cells, "TTFT", [](const CellResult& cell) { return std::max(1e-9, cell.ttft_s.value); });
  out += HeatMap(report.cells, "TPOT", [](const CellResult& cell) { return std::max(1e-9, cell.tpot_s.value); });
  out += "\nwhere the time goes\n";
  for (const CellResult& cell : report.cells) {
    out += fmt::format("  {}: {}: {}\n", cell.cell.Name(), BottleneckName(cell.verdict.bottleneck), cell.verdict.reason);
    out += PhaseLine("prefill", cell.prefill, cell.facts) + PhaseLine("decode", cell.decode, cell.facts);
    out += fmt::format("    queue {}, tokenise {} a prompt, gaps {} median and {} at the 99th percentile{}\n", SaySeconds(cell.queue_s),
                       SaySeconds(cell.tokenize_s), SaySeconds(cell.median_gap_s), SaySeconds(cell.p99_gap_s),
                       cell.joules_a_token ? fmt::format(", {:.2f} J a token", *cell.joules_a_token) : "");
    if (cell.next) out += fmt::format("    next step: {} ({})\n    test: {}\n", cell.next->what, cell.next->gain, cell.next->test);
    if (cell.errors > 0) out += fmt::format("    ERRORS: {} of {} requests; the first: {}\n", cell.errors, cell.requests, cell.first_error);
  }
  out += fmt::format("\npredicted from the steps of hone plan, scheduled as the engine does (constants {}; then fitted to this run)\n", report.before.source);
  for (const CellResult& cell : report.cells) {
    out += fmt::format("  {:<30} TTFT {} ({:+.0f} %), fitted {} ({:+.0f} %)   TPOT {} ({:+.0f} %), fitted {} ({:+.0f} %)\n", cell.cell.Name(),
                       SaySeconds(cell.predicted_ttft_s), ErrorPercent(cell.predicted_ttft_s, cell.ttft_s.value), SaySeconds(cell.fitted_ttft_s),
                       ErrorPercent(cell.fitted_ttft_s, cell.ttft_s.value), SaySeconds(cell.predicted_tpot_s),
                       ErrorPercent(cell.predicted_tpot_s, cell.tpot_s.value), SaySeconds(cell.fitted_tpot_s),
                       ErrorPercent(cell.fitted_tpot_s, cell.tpot_s.value));
  }
  out += fmt::format("fitted: {:.0f} % of the read roof, {:.0f} % of the peak in prefill and {:.0f} % in decode, {} a step ({})\n", 100 * report.fitted.read_share,
                     100 * report.fitted.compute_share, 100 * report.fitted.decode_share, SaySeconds(report.fitted.step_overhead_s), report.kernel);
  if (report.fitted.many_rows_reads > 0)
    out += fmt::format("a step with many rows takes as long beside its arithmetic as reading the weights {:.1f} times\n", report.fitted.many_rows_reads);
  if (!report.failed.empty()) out += "ENDED EARLY: " + report.failed + "\n";
  return out;
}

// Every cell of the grid with all variants side by side; ratios are to the first.
std::string SideBySide(std::span<const ProfileReport> reports) {
  std::string out = "\nside by side, round by round (ratio to the first)\n";
  for (size_t i = 0; i < reports.size(); ++i) out += fmt::format("  {}: {}, {}, kv {}\n", i + 1, reports[i].model, reports[i].kernel, reports[i].kv);
  for (const auto& [name, figure] : {std::pair("TTFT", &CellResult::ttft_s), std::pair("TPOT", &CellResult::tpot_s), std::pair("tok/s", &CellResult::tok_s)}) {
    const bool rate = figure == &CellResult::tok_s;
    out += fmt::format("\n{:<30}", name);
    for (size_t i = 0; i < reports.size(); ++i) out += fmt::format(" {:>20}", i + 1);
    out += "\n";
    for (size_t c = 0; c < reports[0].cells.size(); ++c) {
      out += fmt::format("{:<30}", reports[0].cells[c].cell.Name());
      for (const ProfileReport& report : reports) {
        if (c >= report.cells.size()) continue;
        const double value = (report.cells[c].*figure).value, first = (reports[0].cells[c].*figure).value;
        out += fmt::format(" {:>20}", fmt::format("{} ({:.2f})", rate ? fmt::format("{:.1f}", value) : SaySeconds(value), Share(value, first)));
      }
      out += "\n";
    }
  }
  return out;
}

const char* DirectionWord(Direction better) { return better == Direction::kHigher ? "higher" : better == Direction::kLower ? "lower" : ""; }

ordered_json VariantJson(const ProfileReport& report, const Runtime& runtime) {
  ordered_json json = {{"model", report.model}, {"format", report.kernel}, {"kv", report.kv}, {"cells", ordered_json::array()}};
  for (const CellResult& cell : report.cells) {
    ordered_json row = {{"input", cell.cell.input}, {"output", cell.cell.output}, {"concurrency", cell.cell.concurrency},
                        {"rounds", cell.rounds}, {"requests", cell.requests}, {"errors", cell.errors},
                        {"ttft_s", IntervalJson(cell.ttft_s)}, {"tpot_s", IntervalJson(cell.tpot_s)}, {"total_s", IntervalJson(cell.total_s)},
                        {"tok_s", IntervalJson(cell.tok_s)}, {"prompt_tok_s", IntervalJson(cell.prompt_tok_s)},
                        {"queue_s", Rounded(cell.queue_s)}, {"tokenize_s", Rounded(cell.tokenize_s)},
                        {"median_gap_s", Rounded(cell.median_gap_s)}, {"p99_gap_s", Rounded(cell.p99_gap_s)},
                        {"kv_bytes", std::round(cell.kv_bytes)}, {"peak_rss_bytes", cell.peak_rss_bytes}};
    row["joules_per_token"] = cell.joules_a_token ? ordered_json(Rounded(*cell.joules_a_token)) : ordered_json();
    row["preemptions"] = cell.facts.preemptions;
    row["prefill"] = PhaseJson(cell.prefill, cell.facts);
    row["decode"] = PhaseJson(cell.decode, cell.facts);
    row["bottleneck"] = {{"name", BottleneckName(cell.verdict.bottleneck)}, {"reason", cell.verdict.reason}};
    row["predicted"] = {{"ttft_s", Rounded(cell.predicted_ttft_s)}, {"tpot_s", Rounded(cell.predicted_tpot_s)},
                        {"ttft_error_percent", Rounded(ErrorPercent(cell.predicted_ttft_s, cell.ttft_s.value))},
                        {"tpot_error_percent", Rounded(ErrorPercent(cell.predicted_tpot_s, cell.tpot_s.value))},
                        {"fitted_ttft_s", Rounded(cell.fitted_ttft_s)}, {"fitted_tpot_s", Rounded(cell.fitted_tpot_s)}};
    if (cell.next) {
      row["next_step"] = {{"move", cell.next->move}, {"do", cell.next->what}, {"gain", cell.next->gain},
                          {"risk", cell.next->risk}, {"test", cell.next->test}, {"undo", cell.next->undo}};
    }
    if (!cell.first_error.empty()) row["first_error"] = cell.first_error;
    row["figures"] = ordered_json::object();
    for (const RoundFigure& figure : cell.by_round) {
      ordered_json one = IntervalJson(BootstrapMedian(figure.values, 0.95, 2000, 1));
      one["better"] = DirectionWord(figure.better);
      for (const double value : figure.values) one["by_round"].push_back(Rounded(value));
      row["figures"][figure.name] = std::move(one);
    }
    json["cells"].push_back(std::move(row));
  }
  json["roof"] = RoofAsJson(report.roof);
  json["load_s"] = Rounded(report.load_s);
  json["weight_bytes"] = report.weight_bytes;
  json["rss_bytes"] = report.rss_bytes;
  json["prefix_cache"] = report.prefix_cache;
  json["energy"] = report.energy.empty() ? "rapl" : report.energy;
  json["constants"] = {{"before", EfficiencyJson(report.before)}, {"fitted", EfficiencyJson(report.fitted)}, {"weights", report.kernel}};
  json["steps"] = {{"columns", {"decode_tokens", "prompt_tokens", "positions", "cached_tokens", "seconds"}}, {"rows", ordered_json::array()}};
  for (const auto& step : report.steps) {
    json["steps"]["rows"].push_back({step[0], step[1], step[2], step[3], Rounded(step[4])});
  }
  json["interrupted"] = report.interrupted;
  json["failed"] = report.failed;
  json["environment"] = {{"cpu", report.roof.cpu}, {"cores", report.roof.cores}, {"threads", report.roof.threads},
                         {"isa", IsaName(runtime.isa)}, {"system", report.roof.machine.system}, {"compiler", __VERSION__},
                         {"hone", HONE_VERSION}, {"kv", report.kv}};
  return json;
}

}  // namespace

std::string ProfileTable(std::span<const ProfileReport> reports) {
  std::string out;
  for (const ProfileReport& report : reports) out += (out.empty() ? "" : "\n") + VariantTable(report);
  return reports.size() > 1 ? out + SideBySide(reports) : out;
}

std::string ProfileJson(std::span<const ProfileReport> reports, const Runtime& runtime) {
  ordered_json json;
  if (reports.size() == 1) {
    json = VariantJson(reports[0], runtime);
  } else {
    json = {{"variants", ordered_json::array()}};
    for (const ProfileReport& report : reports) json["variants"].push_back(VariantJson(report, runtime));
    json["interrupted"] = reports[0].interrupted;
    json["failed"] = reports[0].failed;
  }
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

LedgerEntry ProfileEntry(std::span<const ProfileReport> reports, const std::string& model_path, const std::string& json) {
  LedgerEntry entry{.kind = "profile", .model = reports[0].model, .model_digest = ModelDigest(model_path)};
  for (size_t i = 0; i < reports.size(); ++i) {
    const std::string variant = fmt::format("{} in {}, kv {}", reports[i].model, reports[i].kernel, reports[i].kv);
    entry.recipe += (i > 0 ? "; " : "") + variant;
    if (i > 0) entry.other += (i > 1 ? ", " : "") + reports[i].model;
    for (const CellResult& cell : reports[i].cells) {
      if (cell.errors > 0) entry.failures.push_back({"request", variant + ", " + cell.cell.Name(), cell.first_error, cell.errors});
    }
  }
  entry.load = "closed, all requests of a cell at once";
  entry.outcome = reports[0].interrupted ? "interrupted" : reports[0].failed.empty() ? "done" : "failed";
  if (!reports[0].failed.empty()) entry.failures.push_back({"ended early", "", reports[0].failed, 1});
  if (Result<std::vector<Figure>> figures = FiguresOfJson(json); figures) entry.figures = std::move(*figures);
  for (const ProfileReport& report : reports) {  // measured once
    const std::string of = reports.size() > 1 ? fmt::format("[model={},kv={}]", report.model, report.kv) : "";
    const double rss = static_cast<double>(report.rss_bytes), weights = static_cast<double>(report.weight_bytes);
    entry.figures.push_back({"weight_bytes" + of, {weights, weights, weights, 1}, Direction::kLower});
    entry.figures.push_back({"rss_bytes" + of, {rss, rss, rss, 0}, Direction::kLower});
    entry.figures.push_back({"load_s" + of, {report.load_s, report.load_s, report.load_s, 0}, Direction::kLower});
  }
  entry.result = json;
  return entry;
}

}  // namespace hone
