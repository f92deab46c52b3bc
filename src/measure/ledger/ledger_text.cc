// Entries of the ledger as JSON, tables and CSV. See ledger.h.
#include <fmt/core.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "measure/json_text.h"
#include "measure/ledger/ledger.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& json, bool one_line) {
  return json.dump(one_line ? -1 : 1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json OrNull(const std::string& text) { return text.empty() ? ordered_json(nullptr) : ordered_json(text); }

// A JSON text that was kept, as JSON again; what is none stays a text.
ordered_json Kept(const std::string& text) {
  if (text.empty()) return nullptr;
  ordered_json json = ParseJson(text);
  return json.is_discarded() ? ordered_json(text) : json;
}

const char* DirectionWord(Direction better) {
  return better == Direction::kHigher ? "higher" : better == Direction::kLower ? "lower" : "";
}

ordered_json HeadJson(const LedgerEntry& entry) {
  ordered_json json;
  json["id"] = entry.id;
  json["time"] = entry.time;
  json["kind"] = entry.kind;
  json["outcome"] = entry.outcome;
  json["command"] = entry.command;
  json["label"] = OrNull(entry.label);
  json["model"] = OrNull(entry.model);
  json["model_digest"] = OrNull(entry.model_digest);
  json["recipe"] = OrNull(entry.recipe);
  json["dataset"] = OrNull(entry.dataset);
  json["dataset_digest"] = OrNull(entry.dataset_digest);
  json["other"] = OrNull(entry.other);
  json["seed"] = entry.seed ? ordered_json(*entry.seed) : ordered_json(nullptr);
  json["load"] = OrNull(entry.load);
  json["parent"] = entry.parent ? ordered_json(*entry.parent) : ordered_json(nullptr);
  json["environment"] = Kept(entry.environment);
  return json;
}

ordered_json FigureJson(const Figure& figure) {
  ordered_json json;
  json["name"] = figure.name;
  json["value"] = figure.interval.value;
  if (figure.interval.confidence > 0) {
    json["low"] = figure.interval.low;
    json["high"] = figure.interval.high;
    json["confidence"] = figure.interval.confidence;
  }
  if (figure.better != Direction::kNeither) json["better"] = DirectionWord(figure.better);
  return json;
}

std::string FigureText(const Interval& interval) {
  std::string text = fmt::format("{:.5g}", interval.value);
  if (interval.confidence > 0 && interval.confidence < 1) {
    text += fmt::format(" ({:.4g} - {:.4g}, {:.0f} %)", interval.low, interval.high, 100 * interval.confidence);
  }
  return text;
}

// What differs between two entries beside the figures.
ordered_json Differences(const LedgerEntry& a, const LedgerEntry& b) {
  ordered_json out = ordered_json::array();
  const ordered_json head_a = HeadJson(a), head_b = HeadJson(b);
  for (const auto& [key, value] : head_a.items()) {
    if (key == "id" || key == "time" || key == "environment" || value == head_b[key]) continue;
    out.push_back({{"what", key}, {"a", value}, {"b", head_b[key]}});
  }
  const ordered_json &env_a = head_a["environment"], &env_b = head_b["environment"];
  if (!env_a.is_object() || !env_b.is_object()) return out;
  for (const auto& [key, value] : env_a.items()) {
    const ordered_json other = env_b.contains(key) ? env_b[key] : ordered_json(nullptr);
    if (value != other) out.push_back({{"what", "environment." + key}, {"a", value}, {"b", other}});
  }
  return out;
}

struct Pair {
  const Figure *a = nullptr, *b = nullptr;
};

// Figures of the same name, in the order of the first entry.
std::vector<Pair> Pairs(const LedgerEntry& a, const LedgerEntry& b) {
  std::map<std::string, const Figure*> others;
  for (const Figure& figure : b.figures) others[figure.name] = &figure;
  std::vector<Pair> pairs;
  for (const Figure& figure : a.figures) {
    const auto it = others.find(figure.name);
    if (it != others.end()) pairs.push_back({&figure, it->second});
  }
  return pairs;
}

// Intervals that do not touch differ; those that do say nothing. Without intervals of some confidence nothing is said.
std::string PairVerdict(const Pair& pair) {
  const Interval &a = pair.a->interval, &b = pair.b->interval;
  if (!(a.confidence >= kShownConfidence) || !(b.confidence >= kShownConfidence)) return "";
  if (a.low <= b.high && b.low <= a.high) return "no difference shown";
  const bool higher = b.value > a.value;
  if (pair.a->better == Direction::kNeither) return higher ? "higher" : "lower";
  return higher == (pair.a->better == Direction::kHigher) ? "better" : "worse";
}

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string LedgerListJson(const std::vector<LedgerEntry>& entries) {
  ordered_json json;
  json["entries"] = ordered_json::array();
  for (const LedgerEntry& entry : entries) json["entries"].push_back(HeadJson(entry));
  return Dump(json, false);
}

std::string LedgerListTable(const std::vector<LedgerEntry>& entries) {
  if (entries.empty()) return "no entries\n";
  std::string out =
      fmt::format("{:>6}  {:<20}  {:<16}  {:<24}  {:<11}  {}\n", "id", "time", "kind", "model", "outcome", "");
  for (const LedgerEntry& entry : entries) {
    std::string more = entry.label;
    if (!entry.load.empty()) more += (more.empty() ? "" : "; ") + entry.load;
    if (entry.parent) more += (more.empty() ? "after " : "; after ") + std::to_string(*entry.parent);
    out += fmt::format("{:>6}  {:<20}  {:<16}  {:<24}  {:<11}  {}\n", entry.id, entry.time, entry.kind, entry.model,
                       entry.outcome, more);
  }
  return out;
}

std::string LedgerEntryJson(const LedgerEntry& entry, bool one_line) {
  ordered_json json = HeadJson(entry);
  json["figures"] = ordered_json::array();
  for (const Figure& figure : entry.figures) json["figures"].push_back(FigureJson(figure));
  json["failures"] = ordered_json::array();
  for (const LedgerFailure& failure : entry.failures) {
    json["failures"].push_back(
        {{"kind", failure.kind}, {"input", failure.input}, {"text", failure.text}, {"count", failure.count}});
  }
  json["result"] = Kept(entry.result);
  return Dump(json, one_line);
}

std::string LedgerEntryText(const LedgerEntry& entry) {
  std::string out =
      fmt::format("{} {} of {}, {}\n{}\n", entry.kind, entry.id, entry.time, entry.outcome, entry.command);
  const auto line = [&](const char* name, const std::string& text) {
    if (!text.empty()) out += fmt::format("{:<15} {}\n", name, text);
  };
  line("label", entry.label);
  line("model", entry.model);
  line("model digest", entry.model_digest);
  line("recipe", entry.recipe);
  line("dataset", entry.dataset);
  line("dataset digest", entry.dataset_digest);
  line("compared with", entry.other);
  if (entry.seed) line("seed", std::to_string(*entry.seed));
  line("load", entry.load);
  if (entry.parent) line("follows", std::to_string(*entry.parent));
  const ordered_json environment = Kept(entry.environment);
  if (environment.is_object()) {
    for (const auto& [key, value] : environment.items()) {
      line(key.c_str(), value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  out += "\n";
  for (const Figure& figure : entry.figures)
    out += fmt::format("{:<44} {}\n", figure.name, FigureText(figure.interval));
  for (const LedgerFailure& failure : entry.failures) {
    out += fmt::format("failed {} x {}{}: {}\n", failure.count, failure.kind,
                       failure.input.empty() ? "" : " at " + failure.input, failure.text);
  }
  return out;
}

std::string LedgerCompareJson(const LedgerEntry& a, const LedgerEntry& b) {
  ordered_json json;
  json["a"] = a.id;
  json["b"] = b.id;
  json["differences"] = Differences(a, b);
  json["figures"] = ordered_json::array();
  for (const Pair& pair : Pairs(a, b)) {
    ordered_json row;
    row["name"] = pair.a->name;
    row["a"] = FigureJson(*pair.a);
    row["b"] = FigureJson(*pair.b);
    row["a"].erase("name");
    row["b"].erase("name");
    const double ratio = pair.b->interval.value / pair.a->interval.value;
    row["ratio"] = std::isfinite(ratio) ? ordered_json(Rounded(ratio)) : ordered_json(nullptr);
    row["verdict"] = OrNull(PairVerdict(pair));
    json["figures"].push_back(std::move(row));
  }
  return Dump(json, false);
}

std::string LedgerCompareTable(const LedgerEntry& a, const LedgerEntry& b) {
  std::string out;
  for (const ordered_json& difference : Differences(a, b)) {
    const auto text = [](const ordered_json& value) {
      return value.is_null() ? std::string("none") : value.is_string() ? value.get<std::string>() : value.dump();
    };
    out += fmt::format("{}: {} | {}\n", difference["what"].get<std::string>(), text(difference["a"]),
                       text(difference["b"]));
  }
  const std::vector<Pair> pairs = Pairs(a, b);
  if (pairs.empty()) return out + "no figure is in both\n";
  out += fmt::format("\n{:<40} {:>30} {:>30} {:>8}\n", "", a.id, b.id, "ratio");
  for (const Pair& pair : pairs) {
    out +=
        fmt::format("{:<40} {:>30} {:>30} {:>8.4g}  {}\n", pair.a->name, FigureText(pair.a->interval),
                    FigureText(pair.b->interval), pair.b->interval.value / pair.a->interval.value, PairVerdict(pair));
  }
  return out;
}

std::string LedgerCsv(const std::vector<LedgerEntry>& entries) {
  std::string out = "id,time,kind,outcome,label,model,model_digest,load,seed,name,value,low,high,confidence\n";
  const auto number = [](double value) { return std::isfinite(value) ? fmt::format("{}", value) : std::string(); };
  for (const LedgerEntry& entry : entries) {
    std::string head = std::to_string(entry.id);
    for (const std::string& text : {entry.time, entry.kind, entry.outcome, entry.label, entry.model, entry.model_digest,
                                    entry.load, entry.seed ? std::to_string(*entry.seed) : std::string()}) {
      head += "," + CsvField(text);
    }
    for (const Figure& figure : entry.figures) {
      const Interval& i = figure.interval;
      const bool bounded = i.confidence > 0;
      out += head + "," + CsvField(figure.name) + "," + number(i.value) + "," + (bounded ? number(i.low) : "") + "," +
             (bounded ? number(i.high) : "") + "," + number(i.confidence) + "\n";
    }
  }
  return out;
}

}  // namespace hone
