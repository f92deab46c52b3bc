// See report.h.
#include "measure/report/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "measure/json_text.h"
#include "measure/report/charts.h"
#include "measure/report/views.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostNamed = 12;                    // of one kind of statement; the rest is counted
constexpr double kNearRoof = 60, kFarFromRoof = 30;  // percent

const ordered_json* Member(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

double NumberOf(const ordered_json& object, const char* key) {
  const ordered_json* value = Member(object, key);
  return value != nullptr && value->is_number() ? value->get<double>() : NAN;
}

std::string ShownAt(const ordered_json& object, const char* key) {
  const ordered_json* value = Member(object, key);
  return value == nullptr ? "" : value->is_string() ? value->get<std::string>() : value->dump();
}

bool Bounded(const Figure& figure) {
  return figure.interval.confidence > 0 && figure.interval.confidence < 1 && std::isfinite(figure.interval.value);
}

// Whether its interval can show anything.
bool Carries(const Figure& figure) { return Bounded(figure) && figure.interval.confidence >= kShownConfidence; }

// The same, or exact.
bool Firm(const Figure& figure) { return Carries(figure) || (figure.interval.confidence >= 1 && std::isfinite(figure.interval.value)); }

// What was computed on assumptions, so that no difference in it is shown.
bool IsComputed(const LedgerEntry& entry) { return entry.kind == "plan" || entry.kind == "simulate"; }

std::string Said(const Figure& figure) {
  const std::string unit = UnitOf(figure.name);
  std::string text = fmt::format("{:.4g}{}", figure.interval.value, unit.empty() ? "" : " " + unit);
  if (Bounded(figure)) {
    text += fmt::format(" ({:.4g} to {:.4g}, {:.0f} %)", figure.interval.low, figure.interval.high,
                        100 * figure.interval.confidence);
  }
  return text;
}

void AddCounted(std::vector<std::string>* list, std::vector<std::string> statements, const std::string& rest) {
  const size_t named = std::min(statements.size(), kMostNamed);
  list->insert(list->end(), statements.begin(), statements.begin() + static_cast<std::ptrdiff_t>(named));
  if (named < statements.size()) list->push_back(fmt::format("{} {}", statements.size() - named, rest));
}

void CompareWithBase(const LedgerEntry& entry, const LedgerEntry& base, Conclusions* out) {
  std::map<std::string, const Figure*> others;
  for (const Figure& figure : base.figures) others[figure.name] = &figure;
  std::vector<std::string> different;
  int same = 0, bare = 0, common = 0;
  for (const Figure& figure : entry.figures) {
    const auto it = others.find(figure.name);
    if (it == others.end()) continue;
    ++common;
    const auto carries = [&](const Figure& one) { return IsComputed(entry) ? Firm(one) : Carries(one); };
    if (!carries(figure) || !carries(*it->second)) {
      ++bare;
      continue;
    }
    const Interval &a = it->second->interval, &b = figure.interval;
    if (a.low <= b.high && b.low <= a.high) {
      ++same;
      continue;
    }
    const bool higher = b.value > a.value;
    const char* word = figure.better == Direction::kNeither              ? (higher ? "higher" : "lower")
                       : higher == (figure.better == Direction::kHigher) ? "better"
                                                                         : "worse";
    different.push_back(fmt::format("{} is {}: {} against {} of experiment {}", figure.name, word, Said(figure),
                                    Said(*it->second), base.id));
  }
  AddCounted(IsComputed(entry) ? &out->inferred : &out->shown, different, "further figures differ; the table has them");
  if (!different.empty() && !IsComputed(entry)) {
    out->inferred.push_back(
        fmt::format("That the differences come from the change: experiments {} and {} did not run side by side, so "
                    "what else changed on the machine in between is part of them",
                    base.id, entry.id));
  }
  if (same > 0)
    out->open.push_back(
        fmt::format("{} of {} common figures: their intervals touch, so no difference is shown", same, common));
  if (bare > 0)
    out->open.push_back(fmt::format("{} of {} common figures have no interval of {:.0f} % on one side or both", bare,
                                    common, 100 * kShownConfidence));
  if (common == 0) out->open.push_back(fmt::format("No figure is in both experiment {} and {}", base.id, entry.id));
  for (const auto& [what, a, b] :
       {std::tuple("model", base.model, entry.model), std::tuple("recipe", base.recipe, entry.recipe),
        std::tuple("dataset", base.dataset_digest, entry.dataset_digest), std::tuple("load", base.load, entry.load)}) {
    if (a != b) out->shown.push_back(fmt::format("Changed from experiment {}: {} '{}' to '{}'", base.id, what, a, b));
  }
  const ordered_json env_a = ParseJson(base.environment), env_b = ParseJson(entry.environment);
  if (!env_a.is_object() || !env_b.is_object()) return;
  for (const auto& [key, value] : env_b.items()) {
    if (const ordered_json* before = Member(env_a, key.c_str()); before == nullptr || *before != value) {
      out->open.push_back(fmt::format("The environment changed too: {} was {}, is {}", key, ShownAt(env_a, key.c_str()),
                                      ShownAt(env_b, key.c_str())));
    }
  }
}

void JudgeBench(const ordered_json& result, Conclusions* out) {
  const ordered_json* rows = Member(result, "rows");
  if (rows == nullptr || !rows->is_array()) return;
  for (const ordered_json& row : *rows) {
    const double percent = NumberOf(row, "roof_percent");
    if (!std::isfinite(percent)) continue;
    const bool decode = ShownAt(row, "work") == "decode";
    const std::string what =
        decode ? fmt::format("decode at context {}, batch {}", ShownAt(row, "context"), ShownAt(row, "batch"))
               : fmt::format("prefill of {}", ShownAt(row, "tokens"));
    const char* roof = decode ? "read bandwidth" : "arithmetic";
    if (percent >= kNearRoof) {
      out->inferred.push_back(
          fmt::format("{} is bound by {}: it takes {:.0f} % of the roof; {}", what, roof, percent,
                      decode ? "fewer bytes a weight would make it faster, another kernel little"
                             : "fewer or cheaper operations would make it faster, another kernel little"));
    } else if (percent < kFarFromRoof) {
      out->inferred.push_back(fmt::format("{} is not bound by {}: it takes {:.0f} % of the roof", what, roof, percent));
    }
    if (const ordered_json* steady = Member(row, "steady");
        steady != nullptr && steady->is_boolean() && !steady->get<bool>()) {
      out->open.push_back(what + ": the machine did not hold still while it was measured");
    }
  }
}

void JudgeLoadPoint(const ordered_json& point, const std::string& where, Conclusions* out) {
  const double completed = NumberOf(point, "completed"), failed = NumberOf(point, "failed");
  if (!std::isfinite(completed) || !std::isfinite(failed)) return;
  out->shown.push_back(fmt::format("{}{} of {} requests were answered{}", where, completed, completed + failed,
                                   failed > 0 ? "" : "; none failed"));
  if (const ordered_json* saturated = Member(point, "saturated"); saturated != nullptr && *saturated == true) {
    out->inferred.push_back(where +
                            "the server is asked for more than it can do: waiting times grow from request to request");
  }
  if (const ordered_json* client = Member(point, "client")) {
    const std::string limit = ShownAt(*client, "limit");
    if (!limit.empty()) out->inferred.push_back(where + "latencies contain the client's own delay: " + limit);
  }
  // All latencies of a point are of the same requests, or of nearly as many.
  const ordered_json* spread = Member(point, "ttft_ms");
  const ordered_json* thin = spread == nullptr ? nullptr : Member(*spread, "too_few_for");
  if (thin == nullptr || !thin->is_array() || thin->empty()) return;
  std::string keys;
  for (const ordered_json& key : *thin)
    keys += (keys.empty() ? "" : ", ") + (key.is_string() ? key.get<std::string>() : "");
  out->open.push_back(fmt::format(
      "{}{} of latencies: not one request of a run is expected beyond; more requests would tell", where, keys));
}

void JudgeLoad(const ordered_json& result, Conclusions* out) {
  if (const ordered_json* points = Member(result, "points"); points != nullptr && points->is_array()) {
    for (const ordered_json& point : *points) JudgeLoadPoint(point, ShownAt(point, "name") + ": ", out);
    const double most = NumberOf(result, "saturation_request_s");
    if (std::isfinite(most) && most > 0)
      out->inferred.push_back(fmt::format(
          "The server can answer about {:.4g} requests of this load a second: what a closed loop reached", most));
  } else {
    JudgeLoadPoint(result, "", out);
  }
  if (const ordered_json* same = Member(result, "same_machine"); same != nullptr && *same == true)
    out->open.push_back("Client and server shared a machine: how the server does alone is not known");
}

Conclusions Conclude(const LedgerEntry& entry, const std::optional<LedgerEntry>& base, const ordered_json& result) {
  Conclusions out;
  const ordered_json environment = ParseJson(entry.environment);
  if (base) {
    CompareWithBase(entry, *base, &out);
  } else {
    std::vector<std::string> statements, bare;
    for (const Figure& figure : entry.figures) {
      if (Carries(figure)) statements.push_back(fmt::format("{} is {}", figure.name, Said(figure)));
      if (figure.interval.confidence < kShownConfidence) bare.push_back(figure.name);
    }
    AddCounted(&out.shown, statements, "further figures have intervals; the table has them");
    if (!bare.empty()) {
      std::string names;
      for (size_t i = 0; i < std::min<size_t>(4, bare.size()); ++i) names += (i > 0 ? ", " : "") + bare[i];
      out.open.push_back(
          fmt::format("{} figures have no interval of {:.0f} % ({}{}): more rounds or seeds would give one",
                      bare.size(), 100 * kShownConfidence, names, bare.size() > 4 ? " ..." : ""));
    }
    out.open.push_back("Whether a change is better: there is no experiment to compare with; " +
                       (entry.id > 0 ? fmt::format("enter the next one with --parent {}", entry.id)
                                     : std::string("this run is in no ledger, so none can follow it")));
  }
  if (entry.kind == "bench") JudgeBench(result, &out);
  if (entry.kind == "load") JudgeLoad(result, &out);
  std::vector<std::string> wrong;
  for (const LedgerFailure& failure : entry.failures) {
    const std::string text =
        fmt::format("{}{}: {}{}", failure.kind, failure.input.empty() ? "" : " (" + failure.input + ")", failure.text,
                    failure.count > 1 ? fmt::format(", {} times", failure.count) : "");
    if (failure.kind == "not enough evidence" || failure.kind == "unsteady") {
      if (failure.kind != "unsteady") out.open.push_back(text);
    } else {
      wrong.push_back(text);
    }
  }
  AddCounted(&out.shown, wrong, "further failures; the table has them");
  if (entry.outcome == "interrupted")
    out.open.push_back("The run was interrupted: its figures are of what was done until then");
  if (entry.outcome == "failed") out.open.push_back("The run ended early: its figures are of what was done until then");
  if (const ordered_json* machine = Member(environment, "virtual_machine"); machine != nullptr && *machine == true)
    out.open.push_back("The machine is virtual: what its neighbours did meanwhile is not known");
  return out;
}

ordered_json EnvironmentRows(const LedgerEntry& entry) {
  ordered_json rows = ordered_json::array();
  const ordered_json environment = ParseJson(entry.environment);
  if (!environment.is_object()) return rows;
  for (const auto& [key, value] : environment.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    rows.push_back(ordered_json::array({key, text.empty() ? "unknown" : text}));
  }
  return rows;
}

ordered_json Cell(const Interval& interval, bool bound, double value) {
  if ((bound && !(interval.confidence > 0)) || !std::isfinite(value)) return nullptr;
  return Rounded(value);
}

// name, value, low, high, confidence; with a base also its value and the ratio.
ordered_json FigureTable(const LedgerEntry& entry, const std::optional<LedgerEntry>& base) {
  ordered_json table;
  table["title"] = "Figures";
  table["columns"] = {"figure", "value", "low", "high", "confidence"};
  std::map<std::string, const Figure*> others;
  if (base) {
    for (const Figure& figure : base->figures) others[figure.name] = &figure;
    for (const char* column : {"before", "low before", "high before", "ratio"}) table["columns"].push_back(column);
  }
  table["rows"] = ordered_json::array();
  for (const Figure& figure : entry.figures) {
    const Interval& i = figure.interval;
    ordered_json row = ordered_json::array({figure.name, Cell(i, false, i.value), Cell(i, true, i.low),
                                            Cell(i, true, i.high), Cell(i, true, i.confidence)});
    if (base) {
      const auto it = others.find(figure.name);
      if (it == others.end()) {
        for (int k = 0; k < 4; ++k) row.push_back(nullptr);
      } else {
        const Interval& b = it->second->interval;
        row.push_back(Cell(b, false, b.value));
        row.push_back(Cell(b, true, b.low));
        row.push_back(Cell(b, true, b.high));
        row.push_back(Cell(b, false, i.value / b.value));
      }
    }
    table["rows"].push_back(std::move(row));
  }
  return table;
}

ordered_json FailureTable(const LedgerEntry& entry) {
  ordered_json table;
  table["title"] = "Failures";
  table["columns"] = {"kind", "at", "what", "count"};
  table["rows"] = ordered_json::array();
  for (const LedgerFailure& failure : entry.failures)
    table["rows"].push_back(ordered_json::array({failure.kind, failure.input, failure.text, failure.count}));
  return table;
}

ordered_json Head(const LedgerEntry& entry) {
  return {{"id", entry.id},
          {"time", entry.time},
          {"kind", entry.kind},
          {"outcome", entry.outcome},
          {"command", entry.command},
          {"label", entry.label},
          {"model", entry.model},
          {"model_digest", entry.model_digest},
          {"recipe", entry.recipe},
          {"dataset", entry.dataset},
          {"dataset_digest", entry.dataset_digest},
          {"load", entry.load},
          {"with", entry.other},
          {"seed", entry.seed ? ordered_json(std::to_string(*entry.seed)) : ordered_json("")}};
}

std::string MarkdownCell(const ordered_json& value) {
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  std::string text = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : value.dump();
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : c == '\n' ? std::string(" ") : std::string(1, c);
  return out;
}

}  // namespace

std::string ReportJson(const LedgerEntry& entry, const std::optional<LedgerEntry>& base) {
  ordered_json json;
  json["title"] = fmt::format("{}{}{}", entry.kind, entry.id > 0 ? fmt::format(" {}", entry.id) : "", entry.model.empty() ? "" : ": " + entry.model);
  json["hone"] = HONE_VERSION;
  json["entry"] = Head(entry);
  json["base"] = base ? Head(*base) : ordered_json(nullptr);
  const ordered_json result = ParseJson(entry.result);
  Conclusions conclusions = Conclude(entry, base, result);
  ordered_json charts = ReportCharts(entry, base), tables = ordered_json::array();
  AddView(entry.kind, result, &conclusions, &charts, &tables);
  json["conclusions"] = {{"shown", conclusions.shown}, {"inferred", conclusions.inferred}, {"open", conclusions.open}};
  json["charts"] = std::move(charts);
  json["tables"] = std::move(tables);
  json["tables"].push_back(FigureTable(entry, base));
  if (!entry.failures.empty()) json["tables"].push_back(FailureTable(entry));
  json["environment"] = EnvironmentRows(entry);
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string LedgerPageJson(const std::vector<LedgerEntry>& entries) {
  ordered_json table = {{"title", "Entries"}, {"columns", {"id", "time", "kind", "model", "label", "outcome", "follows", "command"}}, {"rows", ordered_json::array()}};
  for (const LedgerEntry& entry : entries) {
    table["rows"].push_back(ordered_json::array({entry.id, entry.time, entry.kind, entry.model, entry.label, entry.outcome,
                                                 entry.parent ? ordered_json(*entry.parent) : ordered_json(nullptr), entry.command}));
  }
  const ordered_json none = ordered_json::array();
  const ordered_json json = {{"title", "ledger"}, {"hone", HONE_VERSION}, {"entry", {{"time", NowUtc()}, {"outcome", fmt::format("{} entries", entries.size())}}},
                             {"base", nullptr}, {"conclusions", {{"shown", none}, {"inferred", none}, {"open", none}}}, {"charts", none},
                             {"tables", ordered_json::array({std::move(table)})}, {"environment", none}};
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string ReportMarkdown(const std::string& report_json) {
  const ordered_json json = ParseJson(report_json);
  if (!json.is_object()) return "";
  std::string out = "# " + ShownAt(json, "title") + "\n\n";
  for (const char* which : {"entry", "base"}) {
    const ordered_json* head = Member(json, which);
    if (head == nullptr) continue;
    out += std::string(which[0] == 'e' ? "This experiment" : "Compared with") + "\n\n";
    for (const auto& [key, value] : head->items()) {
      const std::string text = MarkdownCell(value);
      if (!text.empty()) out += "- " + key + ": " + (key == "command" ? "`" + text + "`" : text) + "\n";
    }
    out += "\n";
  }
  for (const auto& [key, title] :
       {std::pair("shown", "Shown"), std::pair("inferred", "Inferred"), std::pair("open", "Open")}) {
    out += std::string("## ") + title + "\n\n";
    const ordered_json& list = json["conclusions"][key];
    for (const ordered_json& statement : list) out += "- " + MarkdownCell(statement) + "\n";
    if (list.empty()) out += "Nothing.\n";
    out += "\n";
  }
  for (const ordered_json& table : json["tables"]) {
    out += "## " + ShownAt(table, "title") + "\n\n|";
    for (const ordered_json& column : table["columns"]) out += " " + MarkdownCell(column) + " |";
    out += "\n|";
    for (size_t i = 0; i < table["columns"].size(); ++i) out += "---|";
    out += "\n";
    for (const ordered_json& row : table["rows"]) {
      out += "|";
      for (const ordered_json& cell : row) out += " " + MarkdownCell(cell) + " |";
      out += "\n";
    }
    out += "\n";
  }
  out += "## Environment\n\n";
  for (const ordered_json& row : json["environment"])
    out += "- " + MarkdownCell(row[0]) + ": " + MarkdownCell(row[1]) + "\n";
  return out;
}

Result<std::string> ReportHtml(std::string_view page, const std::string& report_json) {
  constexpr std::string_view kPlace = "{\"place\":\"of the document\"}";
  const size_t at = page.find(kPlace);
  if (at == std::string_view::npos)
    return Error{ErrorCode::kInternal,
                 "the page of reports has no place for a document; build it anew with ./dev page"};
  std::string html(page.substr(0, at));
  for (const char c : report_json) {  // what would end the element or begin a comment in it is written as an escape
    if (c == '<') {
      html += "\\u003c";
    } else {
      html += c;
    }
  }
  html += page.substr(at + kPlace.size());
  return html;
}

}  // namespace hone
