// A bench report as JSON and as a table, and its comparison with an earlier one's JSON.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/bench.h"
#include "measure/json_text.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

const char* KindName(BenchWork::Kind kind) { return kind == BenchWork::Kind::kPrefill ? "prefill" : "decode"; }

ordered_json WorkAsJson(const BenchWork& work) {
  return {{"work", KindName(work.kind)}, {"tokens", work.tokens}, {"context", work.context}, {"batch", work.batch}};
}

// A finite number of a row of somebody's JSON.
Result<double> Number(const ordered_json& row, const char* key) {
  const auto it = row.find(key);
  if (it == row.end() || !it->is_number() || !std::isfinite(it->get<double>()))
    return InvalidInput(fmt::format("a row's '{}' is missing or no number", key));
  return it->get<double>();
}

std::string VerdictOf(const BenchReport& report) {
  int faster = 0, slower = 0, same = 0, unknown = 0;
  for (const CompareRow& row : report.compared) {
    const std::string& verdict = row.comparison.verdict;
    (verdict == "faster" ? faster : verdict == "slower" ? slower : verdict == "no difference" ? same : unknown) += 1;
  }
  if (faster + slower == 0) return unknown > 0 && same == 0 ? "cannot tell" : "no difference";
  return fmt::format("{} faster, {} slower, {} no difference, {} cannot tell", faster, slower, same, unknown);
}

}  // namespace

std::string BenchJson(const BenchReport& report, const Runtime& runtime) {
  ordered_json json = {{"model", report.model}, {"roof", RoofAsJson(report.roof)}, {"rows", ordered_json::array()}};
  for (const BenchRow& row : report.rows) {
    ordered_json out = WorkAsJson(row.work);
    out["tok_s"] = Rounded(row.tok_s.value);
    out["low"] = Rounded(row.tok_s.low);
    out["high"] = Rounded(row.tok_s.high);
    out["confidence"] = Rounded(row.tok_s.confidence);
    out["roof_percent"] = Rounded(row.roof_percent);
    out["bytes"] = std::round(row.bytes);
    out["flops"] = std::round(row.flops);
    out["roof_key"] = row.roof_key;
    out["roof_now"] = Rounded(row.roof);
    out["rounds"] = row.rounds;
    out["retaken"] = row.retaken;
    out["steady"] = row.steady;
    json["rows"].push_back(std::move(out));
  }
  json["skipped"] = report.skipped;
  json["load_s"] = Rounded(report.load_s);
  json["rss_bytes"] = report.rss_bytes;
  json["peak_rss_bytes"] = report.peak_rss_bytes;
  json["weight_bytes"] = report.weight_bytes;
  json["check"] = report.check;
  json["interrupted"] = report.interrupted;
  if (!report.compared_with.empty()) {
    ordered_json rows = ordered_json::array();
    for (const CompareRow& row : report.compared) {
      ordered_json out = WorkAsJson(row.work);
      out["tok_s_other"] = Rounded(row.tok_s_other);
      out["ratio"] = Rounded(row.comparison.ratio.value);
      out["low"] = Rounded(row.comparison.ratio.low);
      out["high"] = Rounded(row.comparison.ratio.high);
      out["confidence"] = Rounded(row.comparison.ratio.confidence);
      out["verdict"] = row.comparison.verdict;
      rows.push_back(std::move(out));
    }
    json["compare"] = {{"with", report.compared_with}, {"rows", std::move(rows)}, {"verdict", VerdictOf(report)}};
  }
  json["environment"] = {{"cpu", report.roof.cpu},
                         {"cores", report.roof.cores},
                         {"threads", report.roof.threads},
                         {"isa", IsaName(runtime.isa)},
                         {"system", report.roof.machine.system},
                         {"microcode", report.roof.machine.microcode},
                         {"governor", report.roof.machine.governor},
                         {"virtual_machine", report.roof.machine.virtual_machine},
                         {"huge_pages", report.roof.machine.huge_pages},
                         {"memory_bytes", report.roof.machine.memory_bytes},
                         {"compiler", __VERSION__},
                         {"hone", HONE_VERSION},
                         {"kv", report.kv},
                         {"exact", report.exact}};
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string BenchTable(const BenchReport& report) {
  std::string out = fmt::format("{}: loaded in {:.2f} s, {:.2f} GB resident, {:.2f} GB at most\nchecked: {}\n\n",
                                report.model, report.load_s, static_cast<double>(report.rss_bytes) / 1e9,
                                static_cast<double>(report.peak_rss_bytes) / 1e9, report.check);
  out += fmt::format("{:<26} {:>10} {:>22} {:>9}  {}\n", "work", "tok/s", "low - high", "of roof", "roof then");
  for (const BenchRow& row : report.rows) {
    out += fmt::format(
        "{:<26} {:>10.1f} {:>22} {:>7.1f} %  {:.4g} {}{}\n", row.work.Name(), row.tok_s.value,
        fmt::format("{:.1f} - {:.1f} ({:.0f} %)", row.tok_s.low, row.tok_s.high, 100 * row.tok_s.confidence),
        row.roof_percent, row.roof, row.roof_key,
        row.steady ? row.retaken > 0 ? fmt::format(", {} rounds retaken", row.retaken) : ""
                   : ", UNSTEADY: the roof moved by more than 10 %");
  }
  for (const std::string& skipped : report.skipped) out += "left out: " + skipped + "\n";
  if (report.compared_with.empty()) return out;
  out += fmt::format("\nagainst {}\n{:<26} {:>12} {:>8} {:>18}  {}\n", report.compared_with, "work", "its tok/s",
                     "ratio", "low - high", "");
  for (const CompareRow& row : report.compared) {
    const Interval& ratio = row.comparison.ratio;
    out += fmt::format("{:<26} {:>12.1f} {:>8.3f} {:>18}  {}\n", row.work.Name(), row.tok_s_other, ratio.value,
                       fmt::format("{:.3f} - {:.3f}", ratio.low, ratio.high), row.comparison.verdict);
  }
  return out + "verdict: " + VerdictOf(report) + "\n";
}

Result<void> CompareWithReport(const std::string& text, const std::string& name, BenchReport* report) {
  const ordered_json json = ParseJson(text);
  const auto rows = json.is_object() ? json.find("rows") : json.end();
  if (!json.is_object() || rows == json.end() || !rows->is_array()) {
    return InvalidInput("not the JSON of hone bench --json: there are no 'rows'");
  }
  for (const ordered_json& row : *rows) {
    if (!row.is_object()) return InvalidInput("a row is no object");
    for (const BenchRow& mine : report->rows) {
      const ordered_json work = WorkAsJson(mine.work);
      bool same = true;
      for (const auto& [key, value] : work.items()) same &= row.contains(key) && row[key] == value;
      if (!same) continue;
      Interval other;
      HONE_TRY(other.value, Number(row, "tok_s"));
      HONE_TRY(other.low, Number(row, "low"));
      HONE_TRY(other.high, Number(row, "high"));
      HONE_TRY(const double roof, Number(row, "roof_now"));
      if (other.low <= 0 || other.low > other.value || other.value > other.high || roof < 0)
        return InvalidInput("a row's 'tok_s', 'low', 'high' and 'roof_now' must be positive and in order");
      other.confidence = Number(row, "confidence") ? *Number(row, "confidence") : 0.95;
      const bool same_unit = row.contains("roof_key") && row["roof_key"] == mine.roof_key;
      report->compared.push_back(
          {mine.work, other.value, CompareApart(mine.tok_s, mine.roof, other, same_unit ? roof : 0)});
    }
  }
  if (report->compared.empty()) return InvalidInput("no row of it is one of this run's");
  report->compared_with = name;
  return {};
}

Result<void> CheckReport(const std::string& text, const BenchPlan& plan) {
  BenchReport report;
  for (const BenchWork& work : plan.works) report.rows.push_back({.work = work});
  return CompareWithReport(text, "", &report);
}

}  // namespace hone
