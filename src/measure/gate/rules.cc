// See rules.h.
#include "measure/gate/rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "measure/gate/toml.h"
#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

struct BoundKey {
  const char* key;
  GateBound::Of of;
  bool most;
};
constexpr BoundKey kBoundKeys[] = {
    {"most", GateBound::Of::kValue, true},         {"least", GateBound::Of::kValue, false},
    {"ratio_most", GateBound::Of::kRatio, true},   {"ratio_least", GateBound::Of::kRatio, false},
    {"change_most", GateBound::Of::kChange, true}, {"change_least", GateBound::Of::kChange, false},
};

Result<double> ReadNumber(const ordered_json& value, const std::string& key, double low, double high) {
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high))
    return InvalidInput(key + fmt::format(": wanted a number from {:g} to {:g}", low, high));
  return value.get<double>();
}

Result<double> ReadConfidence(const ordered_json& value) { return ReadNumber(value, "confidence", 0.5, 0.9999); }

template <typename T>
Result<std::vector<T>> ReadNumbers(const ordered_json& value, const std::string& key) {
  std::vector<T> numbers;
  if (!value.is_array()) return InvalidInput(key + ": wanted an array of numbers");
  for (const ordered_json& item : value) {
    HONE_TRY(const double number, ReadNumber(item, key, 0, 1e9));
    if (number != std::floor(number)) return InvalidInput(fmt::format("{}: {:g} is no whole number", key, number));
    if (std::count(numbers.begin(), numbers.end(), static_cast<T>(number)) > 0) return InvalidInput(fmt::format("{}: {:g} is there twice", key, number));
    numbers.push_back(static_cast<T>(number));
  }
  return numbers;
}

// The first key that an object has twice; "" if none has. A parser that takes the last one would hide a bound.
std::string TwiceThere(std::string_view text) {
  std::vector<std::set<std::string>> objects;
  std::string twice;
  const auto look = [&](int, ordered_json::parse_event_t event, ordered_json& parsed) {
    if (event == ordered_json::parse_event_t::object_start) objects.emplace_back();
    if (event == ordered_json::parse_event_t::object_end) objects.pop_back();
    if (event == ordered_json::parse_event_t::key && !objects.back().insert(parsed.get<std::string>()).second && twice.empty()) twice = parsed.get<std::string>();
    return true;
  };
  [[maybe_unused]] const ordered_json whole = ordered_json::parse(text, look, false);
  return twice;
}

Result<GateRule> ReadRule(const ordered_json& json, double confidence) {
  if (!json.is_object()) return InvalidInput("wanted an object");
  GateRule rule;
  rule.confidence = confidence;
  for (const auto& [key, value] : json.items()) {
    if (key == "figure") {
      if (!value.is_string() || value.get<std::string>().empty())
        return InvalidInput("figure: wanted the name of a figure");
      rule.figure = value.get<std::string>();
      continue;
    }
    if (key == "confidence") {
      HONE_TRY(rule.confidence, ReadConfidence(value));
      continue;
    }
    bool known = false;
    for (const BoundKey& bound : kBoundKeys) {
      if (key != bound.key) continue;
      HONE_TRY(const double number, ReadNumber(value, key, -1e300, 1e300));
      rule.bounds.push_back({bound.of, bound.most, number});
      known = true;
    }
    if (!known) {
      return InvalidInput("'" + key +
                          "' is not known; a rule has figure, confidence, and most, least, ratio_most, "
                          "ratio_least, change_most or change_least");
    }
  }
  if (rule.figure.empty()) return InvalidInput("figure: is missing");
  if (rule.bounds.empty()) return InvalidInput("no bound for " + rule.figure + "; give most, least, ratio_most ...");
  return rule;
}

Result<void> ReadMatrix(const ordered_json& json, GateMatrix* matrix) {
  if (!json.is_object()) return InvalidInput("wanted a table");
  for (const auto& [key, value] : json.items()) {
    std::vector<int>* list = key == "input"         ? &matrix->input
                             : key == "output"      ? &matrix->output
                             : key == "concurrency" ? &matrix->concurrency
                                                    : nullptr;
    if (list != nullptr) {
      HONE_TRY(*list, ReadNumbers<int>(value, key));
    } else if (key == "rounds") {
      HONE_TRY(const double number, ReadNumber(value, key, 1, 10000));
      matrix->rounds = static_cast<int>(number);
    } else {
      return InvalidInput("'" + key + "' is not known; a matrix has input, output, concurrency and rounds");
    }
  }
  return {};
}

Result<void> ReadMeasure(const ordered_json& json, GateMeasure* measure) {
  if (!json.is_object()) return InvalidInput("wanted a table");
  for (const auto& [key, value] : json.items()) {
    if (key == "text") {
      if (!value.is_string()) return InvalidInput("text: wanted the path of a file");
      measure->text = value.get<std::string>();
    } else if (key == "tasks") {
      if (!value.is_array()) return InvalidInput("tasks: wanted an array of files");
      for (const ordered_json& file : value) {
        if (!file.is_string()) return InvalidInput("tasks: wanted an array of files");
        measure->tasks.push_back(file.get<std::string>());
      }
    } else if (key == "prefill") {
      HONE_TRY(measure->prefill, ReadNumbers<int>(value, key));
    } else if (key == "context") {
      HONE_TRY(measure->context, ReadNumbers<int>(value, key));
    } else if (key == "batch") {
      HONE_TRY(measure->batch, ReadNumbers<int>(value, key));
    } else if (key == "seeds") {
      HONE_TRY(measure->seeds, ReadNumbers<uint64_t>(value, key));
      if (measure->seeds.empty()) return InvalidInput("seeds: wanted at least one");
    } else if (key == "rate") {
      HONE_TRY(measure->rate, ReadNumber(value, key, 1e-6, 1e6));
    } else {
      int* whole = key == "chunks"        ? &measure->chunks
                   : key == "rounds"      ? &measure->rounds
                   : key == "requests"    ? &measure->requests
                   : key == "concurrency" ? &measure->concurrency
                   : key == "input"       ? &measure->input
                   : key == "output"      ? &measure->output
                                          : nullptr;
      if (whole == nullptr) return InvalidInput("'" + key + "' is not known");
      HONE_TRY(const double number, ReadNumber(value, key, 1, 1e7));
      *whole = static_cast<int>(number);
    }
  }
  return {};
}

}  // namespace

std::string GateBound::Text() const {
  const char* what = of == Of::kValue ? "value" : of == Of::kRatio ? "ratio" : "change";
  return fmt::format("{} {} {:g}", what, most ? "<=" : ">=", bound);
}

namespace {

// Figures of hone load, and of each cell of hone profile.
constexpr const char* kLoadFigures[] = {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "request_s", "output_tok_s", "total_tok_s"};

bool CanBegin(const GateRule& rule, std::string_view prefix) {
  const std::string_view fixed = std::string_view(rule.figure).substr(0, rule.figure.find('*'));
  return fixed.substr(0, prefix.size()) == prefix || prefix.substr(0, fixed.size()) == fixed;
}

bool OnLoadFigure(const GateRule& rule) {
  for (const char* name : kLoadFigures) {
    if (CanBegin(rule, name)) return true;
  }
  return false;
}

bool OnCells(const GateRule& rule) { return rule.figure.find('[') != std::string::npos; }

}  // namespace

bool GateRules::WantsMatrix() const {
  return std::any_of(rules.begin(), rules.end(), [](const GateRule& rule) { return OnCells(rule) && OnLoadFigure(rule); });
}

bool GateRules::WantsLoad() const {
  return std::any_of(rules.begin(), rules.end(), [](const GateRule& rule) { return !OnCells(rule) && OnLoadFigure(rule); });
}

bool GateRules::Wants(std::string_view prefix) const {
  return std::any_of(rules.begin(), rules.end(), [&](const GateRule& rule) { return CanBegin(rule, prefix); });
}

Result<GateRules> ParseGateRules(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return InvalidInput("is empty; wanted rules in JSON or TOML");
  ordered_json json;
  if (text[first] == '{') {
    json = ParseJson(text);
    if (!json.is_object()) return InvalidInput("begins with '{' but is no JSON object");
    if (const std::string twice = TwiceThere(text); !twice.empty()) return InvalidInput("'" + twice + "' is there twice");
  } else {
    HONE_TRY(json, ParseSmallToml(text));
  }
  GateRules out;
  if (json.contains("confidence")) {
    HONE_TRY(out.confidence, ReadConfidence(json["confidence"]));
  }
  for (const auto& [key, value] : json.items()) {
    if (key == "confidence") continue;
    if (key == "tails") {
      if (!value.is_boolean()) return InvalidInput("tails: wanted true or false");
      out.tails = value.get<bool>();
    } else if (key == "rules" || key == "rule") {
      if (!value.is_array()) return InvalidInput(key + ": wanted an array");
      for (const ordered_json& item : value) {
        Result<GateRule> rule = ReadRule(item, out.confidence);
        if (!rule) return std::move(rule).error().Context(key + " " + std::to_string(out.rules.size() + 1));
        out.rules.push_back(std::move(*rule));
      }
    } else if (key == "measure") {
      HONE_RETURN_IF_ERROR(ReadMeasure(value, &out.measure).Context(key));
    } else if (key == "matrix") {
      HONE_RETURN_IF_ERROR(ReadMatrix(value, &out.matrix).Context(key));
    } else {
      return InvalidInput("'" + key + "' is not known; wanted confidence, tails, rules, measure and matrix");
    }
  }
  if (out.rules.empty()) return InvalidInput("has no rules");
  return out;
}

bool MatchesFigure(std::string_view pattern, std::string_view name) {
  // The usual two-pointer match: on a mismatch the last '*' takes one character more.
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace hone
