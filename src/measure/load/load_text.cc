// The JSON, the table and the figures of a load. See load_session.h.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "measure/load/load_session.h"
#include "measure/machine.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

ordered_json IntervalJson(const Interval& interval) {
  ordered_json json;
  json["value"] = Rounded(interval.value);
  if (interval.confidence > 0) {
    json["low"] = Rounded(interval.low);
    json["high"] = Rounded(interval.high);
    json["confidence"] = Rounded(interval.confidence);
  }
  return json;
}

ordered_json LatencyJson(const LatencyFigures& figures) {
  if (figures.count == 0) return nullptr;
  ordered_json json;
  json["count"] = figures.count;
  json["mean"] = IntervalJson(figures.mean);
  json["std"] = Rounded(figures.deviation);
  for (const auto& [key, interval] : figures.percentiles) json[key] = IntervalJson(interval);
  json["max"] = Rounded(figures.max);
  json["too_few_for"] = figures.thin;
  return json;
}

ordered_json ArrivalsJson(const ArrivalSpec& arrivals, int concurrency) {
  ordered_json json;
  json["kind"] = ArrivalName(arrivals.kind);
  if (arrivals.rate > 0) json["rate"] = Rounded(arrivals.rate);
  if (arrivals.kind == ArrivalKind::kRamp) json["rate_to"] = Rounded(arrivals.rate_to);
  if (arrivals.kind == ArrivalKind::kGamma) json["burstiness"] = arrivals.burstiness;
  json["concurrency"] = concurrency > 0 ? ordered_json(concurrency) : ordered_json(nullptr);
  return json;
}

void AddFigures(const LoadFigures& figures, ordered_json* json) {
  ordered_json& out = *json;
  out["completed"] = figures.completed;
  out["failed"] = figures.failed;
  out["cancelled"] = figures.cancelled;
  out["unsent"] = figures.unsent;
  out["duration_s"] = Rounded(figures.duration_s);
  out["request_s"] = IntervalJson(figures.request_s);
  out["output_tok_s"] = IntervalJson(figures.output_tok_s);
  out["total_tok_s"] = IntervalJson(figures.total_tok_s);
  if (figures.goodput_s) {
    out["goodput_s"] = IntervalJson(*figures.goodput_s);
    out["met_share"] = Rounded(figures.met_share);
  }
  out["ttft_ms"] = LatencyJson(figures.ttft_ms);
  out["tpot_ms"] = LatencyJson(figures.tpot_ms);
  out["itl_ms"] = LatencyJson(figures.itl_ms);
  out["e2e_ms"] = LatencyJson(figures.e2e_ms);
  if (!figures.ttft_ms_by_turn.empty()) {
    for (const auto& [turn, latency] : figures.ttft_ms_by_turn) {
      out["ttft_ms_by_turn"][std::to_string(turn + 1)] = LatencyJson(latency);
    }
  }
  out["prompt_tokens"] = figures.prompt_tokens;
  out["output_tokens"] = figures.output_tokens;
  out["cached_tokens"] = figures.cached_tokens >= 0 ? ordered_json(figures.cached_tokens) : ordered_json(nullptr);
  out["output_tokens_from"] = figures.output_tokens_counted ? "usage" : "chunks";
  out["one_chunk_a_token"] = figures.one_chunk_a_token;
  out["active_mean"] = Rounded(figures.mean_active);
  out["active_most"] = figures.most_active;
  out["errors"] = ordered_json::array();
  for (const auto& [kind, error] : figures.errors) {
    out["errors"].push_back({{"kind", kind}, {"count", error.count}, {"first", error.first}});
  }
  out["client"] = {
      {"lag_ms_p50", Rounded(figures.lag_ms_p50)},
      {"lag_ms_p99", Rounded(figures.lag_ms_p99)},
      {"cpu_share", Rounded(figures.cpu_share)},
      {"limit", figures.client_limit.empty() ? ordered_json(nullptr) : ordered_json(figures.client_limit)}};
}

ordered_json DatasetJson(const LoadClientOptions& options) {
  const DatasetSpec& dataset = options.dataset;
  ordered_json json;
  json["kind"] = DatasetName(dataset.kind);
  const bool file = dataset.kind == DatasetKind::kFile || dataset.kind == DatasetKind::kTrace;
  if (file) {
    json["file"] = options.dataset_name;
    json["digest"] = options.dataset_digest;
  } else {
    json["input_tokens"] = dataset.input_tokens;
    json["range"] = dataset.range;
  }
  if (dataset.output_tokens > 0) json["output_tokens"] = dataset.output_tokens;
  if (dataset.shared_words > 0) {
    json["shared_words"] = dataset.shared_words;
    json["prefixes"] = dataset.prefixes;
  }
  if (dataset.kind == DatasetKind::kMultiTurn) json["turns"] = dataset.turns;
  if (dataset.kind == DatasetKind::kTrace) json["speed"] = dataset.speed;
  json["tokens_a_word"] = Rounded(dataset.word_tokens.slope);
  json["tokens_a_word_from"] = dataset.word_tokens.counted ? "usage" : "a guess";
  json["requests"] = options.requests;
  return json;
}

ordered_json SloJson(const Slo& slo) {
  ordered_json json;
  if (slo.ttft_ms) json["ttft_ms"] = *slo.ttft_ms;
  if (slo.tpot_ms) json["tpot_ms"] = *slo.tpot_ms;
  if (slo.e2e_ms) json["e2e_ms"] = *slo.e2e_ms;
  return json;
}

std::string LatencyLine(const char* name, const LatencyFigures& figures) {
  if (figures.count == 0) return fmt::format("{:<14} {:>9}\n", name, "none");
  std::string line = fmt::format("{:<14} {:>9.4g}", name, figures.mean.value);
  for (const auto& [key, fraction] : kLoadPercentiles) {
    const bool thin = std::find(figures.thin.begin(), figures.thin.end(), key) != figures.thin.end();
    line += fmt::format(" {:>9}", fmt::format("{}{:.4g}", thin ? "~" : "", figures.percentiles.at(key).value));
  }
  const Interval& p99 = figures.percentiles.at("p99");
  line += fmt::format(" {:>9.4g}", figures.max);
  if (p99.confidence > 0)
    line += fmt::format("   p99 in {:.4g} - {:.4g} ({:.0f} %)", p99.low, p99.high, 100 * p99.confidence);
  return line + "\n";
}

std::string RateText(const Interval& rate, const char* unit) {
  std::string text = fmt::format("{:.4g} {}", rate.value, unit);
  if (rate.confidence > 0) text += fmt::format(" ({:.4g} - {:.4g})", rate.low, rate.high);
  return text;
}

std::string FiguresTable(const LoadFigures& figures, const Slo& slo) {
  std::string out = fmt::format(
      "{} answered, {} failed{}{} in {:.1f} s; {:.3g} under way in the mean, {:.0f} at most\n", figures.completed,
      figures.failed, figures.cancelled > 0 ? fmt::format(", {} given up", figures.cancelled) : "",
      figures.unsent > 0 ? fmt::format(", {} not sent", figures.unsent) : "", figures.duration_s, figures.mean_active,
      figures.most_active);
  out += fmt::format("{}; {}; {}\n", RateText(figures.request_s, "requests/s"),
                     RateText(figures.output_tok_s, "output tok/s"), RateText(figures.total_tok_s, "tok/s in all"));
  if (figures.goodput_s) {
    out += fmt::format("goodput {}, {:.1f} % of the requests ({})\n", RateText(*figures.goodput_s, "requests/s"),
                       100 * figures.met_share, SloText(slo));
  }
  out += fmt::format("\n{:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ms", "mean", "p50", "p90", "p95", "p99",
                     "p99.9", "max");
  out += LatencyLine("TTFT", figures.ttft_ms) + LatencyLine("TPOT", figures.tpot_ms) +
         LatencyLine("ITL", figures.itl_ms) + LatencyLine("E2E", figures.e2e_ms);
  for (const auto& [turn, latency] : figures.ttft_ms_by_turn) {
    out += LatencyLine(fmt::format("TTFT, turn {}", turn + 1).c_str(), latency);
  }
  out += fmt::format(
      "{} prompt tokens{}, {} output tokens{}", figures.prompt_tokens,
      figures.cached_tokens >= 0 ? fmt::format(" ({} from the prefix cache)", figures.cached_tokens) : "",
      figures.output_tokens, figures.output_tokens_counted ? "" : " (chunks counted: the server does not say)");
  if (!figures.one_chunk_a_token) out += "; chunks carry several tokens, so ITL is no time between tokens";
  out += "\n";
  for (const auto& [kind, error] : figures.errors) out += fmt::format("{} x {}: {}\n", error.count, kind, error.first);
  return out;
}

std::string ClientLine(const LoadFigures& figures, bool same_machine) {
  std::string out = figures.client_limit.empty() ? "the client was not the limit"
                                                 : "THE CLIENT WAS THE LIMIT: " + figures.client_limit;
  out += fmt::format(" (sent {:.2g} ms late at p50, {:.2g} ms at p99; {:.1f} % of a core)", figures.lag_ms_p50,
                     figures.lag_ms_p99, 100 * figures.cpu_share);
  if (same_machine) out += "; it shares the server's machine";
  return out + "\n";
}

std::string SweepTable(const LoadReport& report) {
  std::string out = fmt::format("{:<34} {:>10} {:>11} {:>10} {:>10} {:>10} {:>9}\n", "load", "requests/s",
                                "output tok/s", "TTFT p50", "TTFT p99", "TPOT p99", "SLO met");
  const auto at = [](const LatencyFigures& figures, const char* key) {
    const auto it = figures.percentiles.find(key);
    return it == figures.percentiles.end() ? std::string("-") : fmt::format("{:.4g}", it->second.value);
  };
  for (const LoadPoint& point : report.points) {
    const LoadFigures& figures = point.figures;
    out += fmt::format(
        "{:<34} {:>10.4g} {:>12.4g} {:>10} {:>10} {:>10} {:>9}{}{}\n", point.name, figures.request_s.value,
        figures.output_tok_s.value, at(figures.ttft_ms, "p50"), at(figures.ttft_ms, "p99"), at(figures.tpot_ms, "p99"),
        figures.goodput_s ? fmt::format("{:.1f} %", 100 * figures.met_share) : "-",
        point.saturated ? "  saturated" : "", figures.client_limit.empty() ? "" : "  client was the limit");
  }
  return out;
}

}  // namespace

std::string LoadJson(const LoadReport& report, const Runtime& runtime) {
  const LoadClientOptions& options = report.options;
  ordered_json json;
  json["server"] = options.http.url;
  json["api"] = options.shape.chat ? "chat" : "completions";
  json["model"] = report.model;
  json["definitions"] = kLoadDefinitions;
  json["dataset"] = DatasetJson(options);
  json["seeds"] = options.seeds;
  if (options.slo.any()) json["slo"] = SloJson(options.slo);
  json["interval"] = report.points.empty() ? "" : report.points[0].figures.interval_method;
  if (options.sweep > 0) {
    json["saturation_request_s"] = Rounded(report.saturation_request_s);
    json["points"] = ordered_json::array();
    for (const LoadPoint& point : report.points) {
      ordered_json entry;
      entry["name"] = point.name;
      entry["arrivals"] = ArrivalsJson(point.arrivals, point.concurrency);
      entry["saturated"] = point.saturated;
      AddFigures(point.figures, &entry);
      json["points"].push_back(std::move(entry));
    }
  } else if (!report.points.empty()) {
    const LoadPoint& point = report.points[0];
    json["arrivals"] = ArrivalsJson(point.arrivals, point.concurrency);
    json["saturated"] = point.saturated;
    AddFigures(point.figures, &json);
  }
  json["same_machine"] = IsLoopback(options.http.url);
  json["interrupted"] = report.interrupted;
  json["gave_up"] = report.gave_up.empty() ? ordered_json(nullptr) : ordered_json(report.gave_up);
  json["environment"] = {{"cpu", runtime.cpu->brand},
                         {"cores", runtime.cpu->physical_cores},
                         {"system", ReadMachineFacts().system},
                         {"compiler", __VERSION__},
                         {"hone", HONE_VERSION}};
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string LoadTable(const LoadReport& report) {
  const LoadClientOptions& options = report.options;
  std::string out =
      fmt::format("{} ({}, {}), dataset {}, definitions of {}\n", options.http.url, report.model,
                  options.shape.chat ? "chat" : "completions", DatasetName(options.dataset.kind), kLoadDefinitions);
  if (report.points.empty()) return out + "nothing was measured\n";
  const bool same_machine = IsLoopback(options.http.url);
  if (options.sweep > 0) {
    out += "\n" + SweepTable(report) + "\n";
    for (const LoadPoint& point : report.points) {
      for (const auto& [kind, error] : point.figures.errors)
        out += fmt::format("{}: {} x {}: {}\n", point.name, error.count, kind, error.first);
    }
    out += ClientLine(report.points.back().figures, same_machine);
  } else {
    const LoadPoint& point = report.points[0];
    out += fmt::format("{}{}; seeds", point.name,
                       point.saturated ? " (more than the server can do: waiting times grow)" : "");
    for (const uint64_t seed : options.seeds) out += fmt::format(" {}", seed);
    out += "\n" + FiguresTable(point.figures, options.slo) + ClientLine(point.figures, same_machine);
  }
  out += "intervals: " + report.points[0].figures.interval_method;
  bool thin = false;
  for (const LoadPoint& point : report.points) thin |= !point.figures.ttft_ms.thin.empty();
  if (thin && options.sweep == 0) out += "; ~: too few requests for this percentile";
  out += "\n";
  if (report.interrupted) out += "interrupted: the figures are of what was answered until then\n";
  if (!report.gave_up.empty()) out += "given up: " + report.gave_up + "\n";
  return out;
}

std::string LoadRecordsJsonl(const LoadReport& report) {
  std::string out;
  const auto ms = [](double seconds) { return std::round(seconds * 1e6) / 1e3; };
  for (const LoadRun& run : report.runs) {
    for (const LoadRecord& record : run.records) {
      ordered_json json;
      json["seed"] = run.seed;
      json["task"] = record.task;
      json["turn"] = record.turn;
      json["due_ms"] = ms(record.due_s);
      json["sent_ms"] = ms(record.sent_s);
      if (record.ok()) {
        json["ttft_ms"] = ms(record.ttft_s());
        json["e2e_ms"] = ms(record.e2e_s());
        if (record.output_tokens > 1) json["tpot_ms"] = ms(record.tpot_s());
      }
      json["prompt_tokens"] = record.prompt_tokens;
      json["output_tokens"] = record.output_tokens;
      json["cached_tokens"] = record.cached_tokens;
      json["finish_reason"] = record.finish_reason;
      if (!record.ok()) {
        json["error"] = record.error;
        json["error_text"] = record.error_text;
      }
      ordered_json gaps = ordered_json::array();
      for (const double gap : record.gaps_s) gaps.push_back(ms(gap));
      json["gaps_ms"] = std::move(gaps);
      out += json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    }
  }
  return out;
}

std::vector<Figure> LoadFigureList(const LoadReport& report) {
  std::vector<Figure> list;
  for (const LoadPoint& point : report.points) {
    const std::string cell = report.points.size() > 1 ? "[" + point.name + "]" : "";
    const LoadFigures& figures = point.figures;
    const auto latency = [&](const std::string& name, const LatencyFigures& of) {
      if (of.count == 0) return;
      list.push_back({name + ".mean" + cell, of.mean, Direction::kLower});
      for (const auto& [key, interval] : of.percentiles)
        list.push_back({name + "." + key + cell, interval, Direction::kLower});
    };
    list.push_back({"request_s" + cell, figures.request_s, Direction::kHigher});
    list.push_back({"output_tok_s" + cell, figures.output_tok_s, Direction::kHigher});
    list.push_back({"total_tok_s" + cell, figures.total_tok_s, Direction::kHigher});
    if (figures.goodput_s) list.push_back({"goodput_s" + cell, *figures.goodput_s, Direction::kHigher});
    latency("ttft_ms", figures.ttft_ms);
    latency("tpot_ms", figures.tpot_ms);
    latency("itl_ms", figures.itl_ms);
    latency("e2e_ms", figures.e2e_ms);
    const double failed = static_cast<double>(figures.failed);
    list.push_back({"failed" + cell, {failed, failed, failed, 1}, Direction::kLower});
  }
  return list;
}

LedgerEntry LoadEntry(const LoadReport& report, const std::string& json) {
  const LoadClientOptions& options = report.options;
  LedgerEntry entry;
  entry.kind = "load";
  entry.model = report.model;
  entry.dataset = DatasetName(options.dataset.kind);
  if (!options.dataset_name.empty()) entry.dataset += " " + options.dataset_name;
  entry.dataset_digest = options.dataset_digest;
  entry.other = options.http.url;
  if (!options.seeds.empty()) entry.seed = options.seeds[0];
  for (const LoadPoint& point : report.points) entry.load += (entry.load.empty() ? "" : "; ") + point.name;
  entry.outcome = report.interrupted ? "interrupted" : report.gave_up.empty() ? "done" : "failed";
  entry.figures = LoadFigureList(report);
  for (const LoadPoint& point : report.points) {
    for (const auto& [kind, error] : point.figures.errors) {
      entry.failures.push_back({kind, point.name, error.first, error.count});
    }
  }
  entry.result = json;
  return entry;
}

}  // namespace hone
