// See views.h. A result is read leniently: what a key lacks is left out, so that entries of other versions have a report too.
#include "measure/report/views.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr double kGoodPrediction = 20;  // percent of error
constexpr size_t kMostSentences = 12;

const ordered_json& At(const ordered_json& object, const char* key) {
  static const ordered_json kNothing;
  if (!object.is_object()) return kNothing;
  const auto it = object.find(key);
  return it == object.end() ? kNothing : *it;
}
double Number(const ordered_json& object, const char* key) {
  const ordered_json& value = At(object, key);
  return value.is_number() ? value.get<double>() : NAN;
}
std::string Text(const ordered_json& object, const char* key) {
  const ordered_json& value = At(object, key);
  return value.is_string() ? value.get<std::string>() : "";
}
ordered_json Plain(double value) { return std::isfinite(value) ? ordered_json(Rounded(value)) : ordered_json(nullptr); }

ordered_json Table(const char* title, std::initializer_list<const char*> columns) {
  ordered_json table = {{"title", title}, {"columns", ordered_json::array()}, {"rows", ordered_json::array()}};
  for (const char* column : columns) table["columns"].push_back(column);
  return table;
}

ordered_json Dots(const std::string& title, const std::string& unit) {
  return {{"kind", "lines"}, {"title", title}, {"x", ""}, {"y", unit}, {"categories", ordered_json::array()}, {"series", ordered_json::array()}};
}

// Values that have no intervals, over names.
void AddSeries(ordered_json* chart, const std::string& name, const std::vector<double>& values) {
  ordered_json series = {{"name", name}, {"points", ordered_json::array()}};
  for (size_t i = 0; i < values.size(); ++i) series["points"].push_back(ordered_json::array({(*chart)["categories"][i], Plain(values[i]), nullptr, nullptr}));
  (*chart)["series"].push_back(std::move(series));
}

std::string CellName(const ordered_json& cell) {
  return fmt::format("{:g} + {:g}, {:g} at once", Number(cell, "input"), Number(cell, "output"), Number(cell, "concurrency"));
}

// Shares of the time of a phase: cells by ops.
void AddShares(const ordered_json& cells, const char* phase, const std::string& of, ordered_json* charts) {
  ordered_json chart = {{"kind", "heat"}, {"title", fmt::format("{}{}: where the time goes", of, phase)}, {"x", "cell"}, {"y", "op"}, {"unit", "%"}};
  std::vector<std::string> ops;
  chart["xs"] = ordered_json::array(), chart["cells"] = ordered_json::array();
  for (const ordered_json& cell : cells) {
    const size_t column = chart["xs"].size();
    chart["xs"].push_back(CellName(cell));
    const ordered_json& shares = At(At(cell, phase), "op_shares");
    if (!shares.is_object()) continue;
    for (const auto& [op, share] : shares.items()) {
      auto it = std::find(ops.begin(), ops.end(), op);
      if (it == ops.end()) it = ops.insert(ops.end(), op);
      if (share.is_number()) chart["cells"].push_back(ordered_json::array({column, it - ops.begin(), Rounded(100 * share.get<double>())}));
    }
  }
  chart["ys"] = ops;
  if (!chart["cells"].empty()) charts->push_back(std::move(chart));
}

void AddPredictions(const ordered_json& cells, const std::string& of, Conclusions* out, ordered_json* charts) {
  for (const auto& [title, key] : {std::pair("time to the first token", "ttft_s"), std::pair("time a token", "tpot_s")}) {
    ordered_json chart = Dots(of + title + ", measured and predicted", "ms");
    std::vector<double> measured, before, fitted;
    for (const ordered_json& cell : cells) {
      chart["categories"].push_back(CellName(cell));
      const ordered_json& predicted = At(cell, "predicted");
      measured.push_back(1e3 * Number(At(cell, key), "value"));
      before.push_back(1e3 * Number(predicted, key));
      fitted.push_back(1e3 * Number(predicted, (std::string("fitted_") + key).c_str()));
    }
    AddSeries(&chart, "measured", measured);
    AddSeries(&chart, "predicted", before);
    AddSeries(&chart, "fitted to this run", fitted);
    chart["dots"] = true;
    charts->push_back(std::move(chart));
    int off = 0;
    double worst = 0;
    for (size_t i = 0; i < measured.size(); ++i) {
      const double error = 100 * (fitted[i] / measured[i] - 1);
      if (!std::isfinite(error)) continue;
      off += std::abs(error) > kGoodPrediction;
      if (std::abs(error) > std::abs(worst)) worst = error;
    }
    if (off > 0)
      out->open.push_back(fmt::format("{}{}: also with the constants fitted to this run the prediction is off by more than {:.0f} % in {} of {} cells (at most {:+.0f} %)", of,
                                      title, kGoodPrediction, off, measured.size(), worst));
  }
}

void ProfileVariant(const ordered_json& result, const std::string& of, Conclusions* out, ordered_json* charts, ordered_json* table) {
  const ordered_json& cells = At(result, "cells");
  if (!cells.is_array()) return;
  size_t unsaid = 0;
  for (const ordered_json& cell : cells) {
    const ordered_json &bottleneck = At(cell, "bottleneck"), &next = At(cell, "next_step");
    const std::string where = of + CellName(cell);
    (*table)["rows"].push_back(ordered_json::array({where, Text(bottleneck, "name"), Text(bottleneck, "reason"), Plain(Number(At(cell, "prefill"), "peak_percent")),
                                                    Plain(Number(At(cell, "decode"), "read_roof_percent")), Text(next, "do"), Text(next, "test")}));
    if (out->inferred.size() < kMostSentences) {
      out->inferred.push_back(fmt::format("{} is bound by {}: {}", where, Text(bottleneck, "name"), Text(bottleneck, "reason")));
    } else {
      ++unsaid;
    }
    if (const double errors = Number(cell, "errors"); errors > 0)
      out->shown.push_back(fmt::format("{}: {:g} of {:g} requests ended with an error", where, errors, Number(cell, "requests")));
  }
  if (unsaid > 0) out->inferred.push_back(fmt::format("{}{} further cells; the table of bottlenecks has them", of, unsaid));
  for (const char* phase : {"prefill", "decode"}) AddShares(cells, phase, of, charts);
  AddPredictions(cells, of, out, charts);
  const std::string energy = Text(result, "energy");
  const std::string said = "Energy: " + energy;
  if (!energy.empty() && energy != "rapl" && std::find(out->open.begin(), out->open.end(), said) == out->open.end()) out->open.push_back(said);
}

void Profile(const ordered_json& result, Conclusions* out, ordered_json* charts, ordered_json* tables) {
  ordered_json table = Table("Bottlenecks", {"cell", "bound by", "because", "prefill, % of the peak", "decode, % of the read roof", "smallest next step", "its test"});
  if (const ordered_json& variants = At(result, "variants"); variants.is_array()) {
    for (const ordered_json& variant : variants)
      ProfileVariant(variant, fmt::format("{} ({}, kv {}), ", Text(variant, "model"), Text(variant, "format"), Text(variant, "kv")), out, charts, &table);
    out->open.push_back("Whether one variant is better: hone gate NEW BASE with rules on its cells judges the rounds, which ran side by side, in pairs");
  } else {
    ProfileVariant(result, "", out, charts, &table);
  }
  out->open.push_back("Prompts that have something in common: the prefix cache was off, so nothing was found again");
  if (!table["rows"].empty()) tables->push_back(std::move(table));
}

std::string RunName(const ordered_json& run) {
  return fmt::format("{}, {}, blocks of {:g}, {:g} tokens, {:.3g} a second", Text(run, "policy"), Text(run, "allocation"), Number(run, "block_tokens"),
                     Number(run, "kv_tokens"), Number(run, "arrivals_a_s"));
}

// The run with the best of a figure.
void Best(const ordered_json& runs, const char* what, const std::function<double(const ordered_json&)>& figure, double sign, Conclusions* out) {
  const ordered_json *best = nullptr, *worst = nullptr;
  for (const ordered_json& run : runs) {
    const double value = sign * figure(run);
    if (!std::isfinite(value)) continue;
    if (best == nullptr || value > sign * figure(*best)) best = &run;
    if (worst == nullptr || value < sign * figure(*worst)) worst = &run;
  }
  if (best == nullptr || best == worst) return;
  out->inferred.push_back(fmt::format("{}: best {:.4g} ({}), worst {:.4g} ({}), if steps cost what the model says", what, figure(*best), RunName(*best), figure(*worst), RunName(*worst)));
}

void Simulation(const ordered_json& result, Conclusions* out, ordered_json* charts, ordered_json* tables) {
  const ordered_json& runs = At(result, "runs");
  if (!runs.is_array()) return;
  constexpr const char* kPoints[] = {"p50", "p90", "p99", "max"};
  for (const auto& [title, key] : {std::pair("time to the first token", "ttft_s"), std::pair("time a token", "tpot_s"), std::pair("gaps between tokens", "gap_s"),
                                   std::pair("whole requests", "total_s")}) {
    ordered_json chart = Dots(std::string(title) + " by percentile, simulated", "ms");
    for (const char* point : kPoints) chart["categories"].push_back(point);
    for (const ordered_json& run : runs) {
      if (chart["series"].size() >= kMostSentences) break;
      std::vector<double> values;
      for (const char* point : kPoints) values.push_back(1e3 * Number(At(run, key), point));
      AddSeries(&chart, RunName(run), values);
    }
    charts->push_back(std::move(chart));
  }
  ordered_json table = Table("Runs", {"run", "answered", "refused", "output tok/s", "running", "busy, %", "waste, %", "preemptions", "cached tokens"});
  for (const ordered_json& run : runs) {
    table["rows"].push_back(ordered_json::array({RunName(run), Plain(Number(run, "requests")), Plain(Number(run, "refused")), Plain(Number(run, "tok_s")),
                                                 Plain(Number(run, "mean_running")), Plain(Number(run, "busy_percent")), Plain(Number(run, "waste_percent")),
                                                 Plain(Number(run, "preemptions")), Plain(Number(run, "cached_tokens"))}));
  }
  tables->push_back(std::move(table));
  out->inferred.push_back("Everything here: it was simulated, not measured; the scheduler is the engine's own, steps cost what the model says (" + Text(At(result, "cost"), "source") + ")");
  Best(runs, "99th percentile of the time to the first token, ms", [](const ordered_json& run) { return 1e3 * Number(At(run, "ttft_s"), "p99"); }, -1, out);
  Best(runs, "99th percentile of the gaps, ms", [](const ordered_json& run) { return 1e3 * Number(At(run, "gap_s"), "p99"); }, -1, out);
  Best(runs, "output tokens a second", [](const ordered_json& run) { return Number(run, "tok_s"); }, 1, out);
  Best(runs, "room that holds no token, %", [](const ordered_json& run) { return Number(run, "waste_percent"); }, -1, out);
  const double error = 100 * Number(At(result, "cost"), "error");
  out->open.push_back(error > 0 ? fmt::format("How well the cost model holds beyond the steps that it was fitted to, which it misses by {:.1f} % on average", error)
                                : "How far the cost model is from the machine: it was predicted from a roof, not fitted to measured steps");
  out->open.push_back("Tokenising, HTTP, noise and cancelled requests, which are not simulated; hone load on the real server tells");
}

void Plan(const ordered_json& result, Conclusions* out, ordered_json* charts, ordered_json* tables) {
  const auto bytes = [&](const char* key) { return Number(result, key) / 1e9; };
  const ordered_json &efficiency = At(result, "efficiency"), &bottleneck = At(result, "bottleneck"), &cards = At(result, "cards");
  out->shown.push_back(fmt::format("By arithmetic on the shape: weights take {:.4g} GB as {}, a token of the cache {:.4g} kB in {}; {:.4g} GB are needed of {:.4g} GB usable, so it {}",
                                   bytes("weight_bytes"), Text(result, "format"), Number(result, "kv_bytes_per_token") / 1e3, Text(result, "kv"), bytes("needed_bytes"),
                                   bytes("usable_bytes"), At(result, "fits") == true ? "fits" : "does not fit"));
  out->shown.push_back(fmt::format("At most {:g} sequences of {:g} tokens fit; {:g} cards hold the weights alone", Number(result, "most_sequences"), Number(result, "context"),
                                   Number(cards, "weights_only")));
  out->inferred.push_back(fmt::format("Bound by {}: {}", Text(bottleneck, "name"), Text(bottleneck, "reason")));
  ordered_json chart = Dots("time a token over sequences at once", "ms");
  std::vector<double> predicted, roof;
  for (const ordered_json& p : At(result, "predictions")) {
    chart["categories"].push_back(fmt::format("{:g} at once", Number(p, "concurrency")));
    predicted.push_back(1e3 * Number(p, "tpot_s")), roof.push_back(1e3 * Number(p, "tpot_limit_s"));
    out->inferred.push_back(fmt::format("{:g} at once: first token after {:.4g} ms, {:.4g} ms a token (no implementation is below {:.4g} ms), {:.4g} tokens/s", Number(p, "concurrency"),
                                        1e3 * Number(p, "ttft_s"), 1e3 * Number(p, "tpot_s"), 1e3 * Number(p, "tpot_limit_s"), Number(p, "tok_s")));
  }
  AddSeries(&chart, "predicted", predicted);
  AddSeries(&chart, "at the roof", roof);
  charts->push_back(std::move(chart));
  ordered_json table = Table("Proposals, the smallest reversible step first", {"do", "gain", "risk", "test", "undo"});
  for (const char* list : {"steps", "proposals"}) {
    if (!table["rows"].empty() || !At(result, list).is_array()) continue;
    for (const ordered_json& step : At(result, list))
      table["rows"].push_back(ordered_json::array({Text(step, "do"), Text(step, "gain"), Text(step, "risk"), Text(step, "test"), Text(step, "undo")}));
  }
  if (!table["rows"].empty()) tables->push_back(std::move(table));
  out->open.push_back(fmt::format("The shares of the roof that are really reached: {:.0f} % of bandwidth and {:.0f} % of the peak are {}; hone profile measures them and prints the error of this prediction",
                                  100 * Number(efficiency, "read_share"), 100 * Number(efficiency, "compute_share"), Text(efficiency, "source")));
  out->open.push_back("Other programs on the machine, heat, the network and speculation, which are not in the account");
}

}  // namespace

void AddView(const std::string& kind, const ordered_json& result, Conclusions* conclusions, ordered_json* charts, ordered_json* tables) {
  if (!result.is_object()) return;
  if (kind == "profile") Profile(result, conclusions, charts, tables);
  if (kind == "simulate") Simulation(result, conclusions, charts, tables);
  if (kind == "plan") Plan(result, conclusions, charts, tables);
}

}  // namespace hone
