// Results of other commands as paired figures; the report of a gate as JSON and as a table. See gate.h.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/gate/gate.h"
#include "measure/json_text.h"
#include "measure/ledger/entries.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

double GateNumber(const ordered_json& object, const char* key, double otherwise = NAN) {
  if (!object.is_object()) return otherwise;
  const auto it = object.find(key);
  return it != object.end() && it->is_number() ? it->get<double>() : otherwise;
}

const ordered_json* ObjectAt(const ordered_json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_object() ? &*it : nullptr;
}

Interval FromError(double value, double error, double confidence) {
  const double half = NormalQuantile(0.5 + confidence / 2) * error;
  return {value, value - half, value + half, confidence};
}

PairedFigure* Named(std::vector<PairedFigure>* figures, const std::string& name) {
  for (PairedFigure& figure : *figures) {
    if (figure.name == name) return &figure;
  }
  return nullptr;
}

void AddBenchRatios(const ordered_json& compare, std::vector<PairedFigure>* figures) {
  const auto rows = compare.find("rows");
  if (rows == compare.end() || !rows->is_array()) return;
  for (const ordered_json& row : *rows) {
    // The figure's name is made by the same code as the rows': one row read as a result.
    ordered_json one;
    one["rows"] = ordered_json::array({row});
    one["rows"][0]["tok_s"] = GateNumber(row, "tok_s_other");
    one["rows"][0].erase("low");
    one["rows"][0].erase("high");
    one["rows"][0].erase("confidence");
    const Result<std::vector<Figure>> named = FiguresOfJson(one.dump());
    if (!named || named->empty()) continue;
    PairedFigure* figure = Named(figures, (*named)[0].name);
    const double ratio = GateNumber(row, "ratio");
    if (figure == nullptr || !std::isfinite(ratio)) continue;
    figure->base = (*named)[0].interval;
    figure->ratio =
        Interval{ratio, GateNumber(row, "low", ratio), GateNumber(row, "high", ratio), GateNumber(row, "confidence", 0)};
    figure->how = "round by round";
  }
}

std::vector<double> NumbersAt(const ordered_json& object, const char* key) {
  std::vector<double> numbers;
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return numbers;
  for (const ordered_json& number : *it) numbers.push_back(number.is_number() ? number.get<double>() : NAN);
  return numbers;
}

// Each cell of both, its rounds in pairs. The first variant is the new one.
Result<std::vector<PairedFigure>> PairedOfProfile(const ordered_json& json, double confidence) {
  const ordered_json& variants = json["variants"];
  if (!variants.is_array() || variants.size() != 2) return InvalidInput("\"variants\": wanted two, NEW and BASE");
  const auto cells = [&](int which) {
    const auto it = variants[which].find("cells");
    return variants[which].is_object() && it != variants[which].end() && it->is_array() ? *it : ordered_json::array();
  };
  const ordered_json next = cells(0), base = cells(1);
  std::vector<PairedFigure> figures;
  for (size_t c = 0; c < std::min(next.size(), base.size()); ++c) {
    const ordered_json *mine = ObjectAt(next[c], "figures"), *other = ObjectAt(base[c], "figures");
    if (mine == nullptr || other == nullptr) continue;
    const std::string place = ProfilePlace("", GateNumber(next[c], "input"), GateNumber(next[c], "output"), GateNumber(next[c], "concurrency"));
    for (const auto& [name, value] : mine->items()) {
      const ordered_json* before = ObjectAt(*other, name.c_str());
      if (before == nullptr || !value.is_object()) continue;
      const std::vector<double> b = NumbersAt(value, "by_round"), a = NumbersAt(*before, "by_round");
      if (a.empty() || a.size() != b.size()) continue;
      const Direction better = value.value("better", "") == "higher" ? Direction::kHigher : Direction::kLower;
      figures.push_back(PairValues(name + place, better, a, b, confidence));
      figures.back().how = fmt::format("{} rounds side by side", a.size());
    }
  }
  return figures;
}

ordered_json IntervalJson(const std::optional<Interval>& interval) {
  if (!interval || !std::isfinite(interval->value)) return nullptr;
  ordered_json json;
  json["value"] = Rounded(interval->value);
  if (interval->confidence > 0) {
    json["low"] = Rounded(interval->low);
    json["high"] = Rounded(interval->high);
    json["confidence"] = Rounded(interval->confidence);
  }
  return json;
}

}  // namespace

Result<std::vector<PairedFigure>> PairedOfResult(std::string_view text, double confidence) {
  if (const ordered_json profile = ParseJson(text); profile.is_object() && profile.contains("variants")) return PairedOfProfile(profile, confidence);
  HONE_TRY(const std::vector<Figure> own, FiguresOfJson(text));
  std::vector<PairedFigure> figures;
  for (const Figure& figure : own) {
    figures.push_back({figure.name, figure.better, {}, figure.interval, {}, {}, ""});
  }
  const ordered_json json = ParseJson(text);
  if (const ordered_json* ratio = ObjectAt(json, "ln_ppl_ratio")) {  // hone eval kld
    if (PairedFigure* ppl = Named(&figures, "ppl"); ppl != nullptr) {
      const double base = GateNumber(json, "ppl_base");
      ppl->base = FromError(base, GateNumber(json, "ppl_base_stderr", 0), confidence);
      const Interval logs = FromError(GateNumber(*ratio, "mean"), GateNumber(*ratio, "stderr", 0), confidence);
      ppl->ratio = Interval{std::exp(logs.value), std::exp(logs.low), std::exp(logs.high), confidence};
      // To first order in the logarithm's interval, about the base as it was measured.
      ppl->change = Interval{base * (ppl->ratio->value - 1), base * (ppl->ratio->low - 1),
                             base * (ppl->ratio->high - 1), confidence};
      ppl->how = "token by token";
    }
  }
  if (const ordered_json* compare = ObjectAt(json, "compare")) {
    AddBenchRatios(*compare, &figures);
    const double difference = GateNumber(*compare, "difference");
    PairedFigure* accuracy = Named(&figures, "accuracy");
    if (accuracy != nullptr && std::isfinite(difference)) {  // hone eval tasks
      accuracy->change =
          Interval{difference, GateNumber(*compare, "low", difference), GateNumber(*compare, "high", difference), 0.95};
      if (const ordered_json* other = ObjectAt(*compare, "other")) {
        const double value = GateNumber(*other, "accuracy");
        accuracy->base = Interval{value, GateNumber(*other, "low", value), GateNumber(*other, "high", value), 0.95};
      }
      accuracy->how = "item by item";
    }
  }
  return figures;
}

std::string GateJson(const GateReport& report) {
  ordered_json json;
  json["base"] = report.base;
  json["new"] = report.next;
  json["verdict"] = VerdictName(report.verdict());
  json["findings"] = ordered_json::array();
  for (const GateFinding& finding : report.findings) {
    ordered_json row;
    row["rule"] = finding.rule;
    row["figure"] = finding.figure;
    row["verdict"] = VerdictName(finding.verdict);
    row["measured"] = IntervalJson(finding.interval.confidence > 0 || finding.interval.value != 0
                                       ? std::optional<Interval>(finding.interval)
                                       : std::nullopt);
    row["reason"] = finding.reason.empty() ? ordered_json(nullptr) : ordered_json(finding.reason);
    json["findings"].push_back(std::move(row));
  }
  json["figures"] = ordered_json::array();
  for (const PairedFigure& figure : report.figures) {
    json["figures"].push_back({{"name", figure.name},
                               {"base", IntervalJson(figure.base)},
                               {"new", IntervalJson(figure.next)},
                               {"ratio", IntervalJson(figure.ratio)},
                               {"change", IntervalJson(figure.change)},
                               {"how", figure.how}});
  }
  json["notes"] = report.notes;
  json["interrupted"] = report.interrupted;
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string GateTable(const GateReport& report) {
  std::string out = fmt::format("{} against {}: {}\n\n", report.next, report.base, VerdictName(report.verdict()));
  std::vector<const GateFinding*> sorted;
  for (const GateFinding& finding : report.findings) sorted.push_back(&finding);
  const auto rank = [](Verdict v) { return v == Verdict::kFails ? 0 : v == Verdict::kOpen ? 1 : 2; };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto* a, const auto* b) { return rank(a->verdict) < rank(b->verdict); });
  for (const GateFinding* finding : sorted) {
    out += fmt::format("{:<20} {:<34} {}", VerdictName(finding->verdict), finding->figure, finding->rule);
    if (!finding->reason.empty()) {
      out += ": " + finding->reason;
    } else {
      const Interval& i = finding->interval;
      out += i.confidence < 1 ? fmt::format(": {:.4g} ({:.4g} - {:.4g})", i.value, i.low, i.high)
                              : fmt::format(": {:.4g}", i.value);
    }
    out += "\n";
  }
  for (const std::string& note : report.notes) out += "note: " + note + "\n";
  if (report.interrupted) out += "interrupted: not everything was measured\n";
  return out;
}

}  // namespace hone
