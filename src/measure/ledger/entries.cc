// See entries.h.
#include "measure/ledger/entries.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr double kNormal95 = 1.959963984540054;

Interval Exactly(double value) { return {value, value, value, 1}; }
Interval WithError(double value, double error) {
  return {value, value - kNormal95 * error, value + kNormal95 * error, 0.95};
}

LedgerEntry Start(const std::string& kind, const std::string& model, const std::string& model_path, bool interrupted,
                  const std::string& json) {
  LedgerEntry entry;
  entry.kind = kind;
  entry.model = model;
  entry.model_digest = ModelDigest(model_path);
  entry.outcome = interrupted ? "interrupted" : "done";
  entry.result = json;
  return entry;
}

void EndedEarly(const std::string& why, LedgerEntry* entry) {
  if (why.empty()) return;
  entry->outcome = "failed";
  entry->failures.push_back({"ended early", "", why, 1});
}

std::string Stem(const std::string& file) { return std::filesystem::path(file).stem().string(); }

const ordered_json* Find(const ordered_json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

double NumberAt(const ordered_json& object, const char* key, double otherwise = NAN) {
  const ordered_json* value = Find(object, key);
  return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
}

std::string TextAt(const ordered_json& object, const char* key) {
  const ordered_json* value = Find(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

// {value, low, high, confidence}
bool ReadInterval(const ordered_json& json, Interval* out) {
  const double value = NumberAt(json, "value");
  if (!std::isfinite(value)) return false;
  *out = {value, NumberAt(json, "low", value), NumberAt(json, "high", value), NumberAt(json, "confidence", 0)};
  return true;
}

void AddLoadFigures(const ordered_json& json, const std::string& cell, std::vector<Figure>* figures) {
  const auto add = [&](const ordered_json* value, const std::string& name, Direction better) {
    Interval interval;
    if (value != nullptr && ReadInterval(*value, &interval)) figures->push_back({name + cell, interval, better});
  };
  for (const char* rate : {"request_s", "output_tok_s", "total_tok_s", "goodput_s"}) {
    add(Find(json, rate), rate, Direction::kHigher);
  }
  for (const char* latency : {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"}) {
    const ordered_json* spread = Find(json, latency);
    if (spread == nullptr) continue;
    for (const char* key : {"mean", "p50", "p90", "p95", "p99", "p999"}) {
      add(Find(*spread, key), std::string(latency) + "." + key, Direction::kLower);
    }
  }
  if (const double failed = NumberAt(json, "failed"); std::isfinite(failed)) {
    figures->push_back({"failed" + cell, Exactly(failed), Direction::kLower});
  }
}

void AddBenchFigures(const ordered_json& rows, std::vector<Figure>* figures) {
  for (const ordered_json& row : rows) {
    BenchWork work;
    work.kind = TextAt(row, "work") == "decode" ? BenchWork::Kind::kDecode : BenchWork::Kind::kPrefill;
    const auto whole = [&](const char* key) { return static_cast<int>(std::clamp(NumberAt(row, key, 0), 0.0, 1e9)); };
    work.tokens = whole("tokens");
    work.context = whole("context");
    work.batch = std::max(1, whole("batch"));
    const double value = NumberAt(row, "tok_s");
    if (!std::isfinite(value)) continue;
    const Interval interval{value, NumberAt(row, "low", value), NumberAt(row, "high", value),
                            NumberAt(row, "confidence", 0)};
    figures->push_back({BenchFigureName(work), interval, Direction::kHigher});
  }
}

void AddEvalFigures(const ordered_json& json, std::vector<Figure>* figures) {
  const double ppl = NumberAt(json, "ppl");
  if (std::isfinite(ppl))
    figures->push_back({"ppl", WithError(ppl, NumberAt(json, "ppl_stderr", 0)), Direction::kLower});
  if (const double bits = NumberAt(json, "bits_per_byte"); std::isfinite(bits)) {
    figures->push_back({"bits_per_byte", Exactly(bits), Direction::kLower});
  }
  if (const ordered_json* kld = Find(json, "kld")) {
    figures->push_back({"kld.mean", WithError(NumberAt(*kld, "mean"), NumberAt(*kld, "stderr", 0)), Direction::kLower});
    for (const char* key : {"max", "p999", "p99", "p95", "p90", "median"}) {
      if (const double value = NumberAt(*kld, key); std::isfinite(value))
        figures->push_back({std::string("kld.") + key, Exactly(value), Direction::kLower});
    }
  }
  if (const ordered_json* top = Find(json, "same_top")) {
    figures->push_back(
        {"same_top_percent", WithError(NumberAt(*top, "percent"), NumberAt(*top, "stderr", 0)), Direction::kHigher});
  }
  const auto accuracy = [&](const ordered_json& from, const std::string& name) {
    const double value = NumberAt(from, "accuracy");
    if (std::isfinite(value))
      figures->push_back(
          {name, {value, NumberAt(from, "low", value), NumberAt(from, "high", value), 0.95}, Direction::kHigher});
  };
  accuracy(json, "accuracy");
  if (const ordered_json* files = Find(json, "files"); files != nullptr && files->is_array()) {
    for (const ordered_json& file : *files) accuracy(file, "accuracy[" + Stem(TextAt(file, "file")) + "]");
  }
}

// The cells of hone profile. `variant`: what goes in front of the place within the brackets.
void AddProfileFigures(const ordered_json& json, const std::string& variant, std::vector<Figure>* figures) {
  const ordered_json* cells = Find(json, "cells");
  if (cells == nullptr || !cells->is_array()) return;
  for (const ordered_json& cell : *cells) {
    const ordered_json* of = Find(cell, "figures");
    if (of == nullptr || !of->is_object()) continue;
    for (const auto& [name, value] : of->items()) {
      Interval interval;
      if (!ReadInterval(value, &interval)) continue;
      const std::string better = TextAt(value, "better");
      figures->push_back({name + ProfilePlace(variant, NumberAt(cell, "input"), NumberAt(cell, "output"), NumberAt(cell, "concurrency")), interval,
                          better == "higher" ? Direction::kHigher : better == "lower" ? Direction::kLower : Direction::kNeither});
    }
  }
}

}  // namespace

std::string ProfilePlace(const std::string& variant, double input, double output, double concurrency) {
  return fmt::format("[{}input={:g},output={:g},concurrency={:g}]", variant, input, output, concurrency);
}

std::string BenchFigureName(const BenchWork& work) {
  if (work.kind == BenchWork::Kind::kPrefill) return fmt::format("prefill_tok_s[tokens={}]", work.tokens);
  return fmt::format("decode_tok_s[context={},batch={}]", work.context, work.batch);
}

LedgerEntry RoofEntry(const Roof& roof, const std::string& json) {
  LedgerEntry entry;
  entry.kind = "roof";
  entry.recipe = fmt::format("{} threads", roof.threads);
  entry.result = json;
  const auto add = [&](const std::string& name, const RoofFigure& figure) {
    entry.figures.push_back({name, {figure.best, figure.median, figure.best, 0}, Direction::kHigher});
  };
  if (!roof.read_gbs.empty()) add("read_gbs", roof.read_gbs.rbegin()->second);
  for (const auto& [unit, figure] : roof.gops) add(fmt::format("gops[unit={}]", ComputeUnitName(unit)), figure);
  return entry;
}

LedgerEntry BenchEntry(const BenchReport& report, const std::string& model_path, const std::string& json) {
  LedgerEntry entry = Start("bench", report.model, model_path, report.interrupted, json);
  entry.other = report.compared_with;
  entry.recipe = "kv " + report.kv + (report.exact ? ", exact" : "");
  for (const BenchRow& row : report.rows) {
    entry.figures.push_back({BenchFigureName(row.work), row.tok_s, Direction::kHigher});
    if (!row.steady)
      entry.failures.push_back({"unsteady", row.work.Name(), "the machine's roof did not hold still", 1});
  }
  const double rss = static_cast<double>(report.rss_bytes);
  entry.figures.push_back({"rss_bytes", {rss, rss, rss, 0}, Direction::kLower});  // measured once
  entry.figures.push_back({"load_s", {report.load_s, report.load_s, report.load_s, 0}, Direction::kLower});
  return entry;
}

LedgerEntry PerplexityEntry(const PerplexityResult& result, const std::string& model, const std::string& model_path,
                            const std::string& dataset, const std::string& json) {
  LedgerEntry entry = Start("eval perplexity", model, model_path, result.interrupted, json);
  EndedEarly(result.failed, &entry);
  entry.dataset = dataset;
  entry.dataset_digest = result.dataset_digest;
  entry.load = fmt::format("{}, windows of {}", ProtocolName(result.rules.protocol), result.rules.context);
  entry.figures = {{"ppl", WithError(result.ppl, result.ppl_stderr), Direction::kLower},
                   {"bits_per_byte", Exactly(result.bits_per_byte), Direction::kLower},
                   {"tokens_scored", Exactly(static_cast<double>(result.tokens_scored)), Direction::kNeither}};
  return entry;
}

LedgerEntry DivergenceEntry(const DivergenceResult& result, const std::string& model, const std::string& model_path,
                            const std::string& dataset, const std::string& json) {
  LedgerEntry entry = Start("eval kld", model, model_path, result.interrupted, json);
  EndedEarly(result.failed, &entry);
  entry.dataset = dataset;
  entry.dataset_digest = result.dataset_digest;
  entry.other = result.base;
  entry.load = fmt::format("llama.cpp, windows of {}", result.context);
  const ordered_json parsed = ParseJson(json);
  if (parsed.is_object()) AddEvalFigures(parsed, &entry.figures);
  return entry;
}

LedgerEntry TasksEntry(std::span<const TaskResult> results, const std::string& model, const std::string& model_path,
                       const std::string& other, const std::string& failed, const std::string& json) {
  bool interrupted = false;
  for (const TaskResult& result : results) interrupted |= result.interrupted;
  LedgerEntry entry = Start("eval tasks", model, model_path, interrupted, json);
  EndedEarly(failed, &entry);
  entry.other = other;
  int64_t right = 0, of = 0;
  for (const TaskResult& result : results) {
    if (result.outcomes.empty()) continue;
    entry.dataset += (entry.dataset.empty() ? "" : ", ") + Stem(result.file);
    entry.figures.push_back({"accuracy[" + Stem(result.file) + "]", result.accuracy(), Direction::kHigher});
    right += result.right;
    of += static_cast<int64_t>(result.outcomes.size());
    for (const TaskOutcome& outcome : result.outcomes) {
      if (outcome.right) continue;
      entry.failures.push_back({"wrong answer", fmt::format("{}, item {}", Stem(result.file), outcome.item + 1), outcome.got.substr(0, 200), 1});
    }
  }
  if (of > 0) entry.figures.push_back({"accuracy", WilsonInterval(right, of, 0.95), Direction::kHigher});
  return entry;
}

Result<std::vector<Figure>> FiguresOfJson(std::string_view text) {
  const ordered_json json = ParseJson(text);
  if (!json.is_object()) return InvalidInput("is no JSON object");
  std::vector<Figure> figures;
  if (const ordered_json* rows = Find(json, "rows"); rows != nullptr && rows->is_array())
    AddBenchFigures(*rows, &figures);
  AddEvalFigures(json, &figures);
  AddLoadFigures(json, "", &figures);
  if (const ordered_json* points = Find(json, "points"); points != nullptr && points->is_array()) {
    for (const ordered_json& point : *points) {
      const std::string name = TextAt(point, "name");
      AddLoadFigures(point, "[" + name + "]", &figures);
    }
  }
  AddProfileFigures(json, "", &figures);
  if (const ordered_json* variants = Find(json, "variants"); variants != nullptr && variants->is_array()) {
    for (const ordered_json& variant : *variants)
      AddProfileFigures(variant, fmt::format("model={},kv={},", TextAt(variant, "model"), TextAt(variant, "kv")), &figures);
  }
  if (figures.empty()) return InvalidInput("holds no figures of hone bench, eval, load or profile");
  return figures;
}

}  // namespace hone
