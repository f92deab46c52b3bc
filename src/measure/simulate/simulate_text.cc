// Results of simulations as a table and as JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "measure/plan/guide.h"
#include "measure/roof_json.h"
#include "measure/simulate/simulate.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

ordered_json LatencyJson(const SimLatency& latency) {
  return {{"mean", Rounded(latency.mean)}, {"p50", Rounded(latency.p50)}, {"p90", Rounded(latency.p90)}, {"p99", Rounded(latency.p99)},
          {"max", Rounded(latency.max)}};
}

// "[policy=fcfs,allocation=paged,block=32,tokens=4096,rate=2]"
std::string PlaceOf(const SimResult& r) {
  return fmt::format("[policy={},allocation={},block={},tokens={},rate={:.4g}]", r.options.policy, r.options.contiguous ? "contiguous" : "paged",
                     r.options.block_tokens, r.options.kv_tokens, r.arrivals_a_s);
}

}  // namespace

LedgerEntry SimEntry(std::span<const SimResult> results, const CostModel& cost, const std::string& trace, const std::string& json) {
  LedgerEntry entry{.kind = "simulate", .recipe = "steps " + cost.source};
  entry.dataset = entry.load = trace;
  for (const SimResult& r : results) {
    const auto add = [&](const std::string& name, double value, Direction better) {
      entry.figures.push_back({name + PlaceOf(r), {value, value, value, 1}, better});
    };
    const std::pair<std::string, const SimLatency*> latencies[] = {{"ttft_ms", &r.ttft_s}, {"tpot_ms", &r.tpot_s}, {"itl_ms", &r.gap_s}, {"e2e_ms", &r.total_s}};
    for (const auto& [name, latency] : latencies) {
      add(name + ".p50", 1e3 * latency->p50, Direction::kLower);
      add(name + ".p99", 1e3 * latency->p99, Direction::kLower);
    }
    add("output_tok_s", r.tok_s, Direction::kHigher);
    add("request_s", r.request_s, Direction::kHigher);
    add("waste_percent", 100 * r.waste, Direction::kLower);
    add("mean_running", r.mean_running, Direction::kHigher);
    add("preemptions", static_cast<double>(r.preemptions), Direction::kLower);
    if (r.refused > 0) entry.failures.push_back({"refused", PlaceOf(r), "longer than the whole cache", r.refused});
  }
  entry.result = json;
  return entry;
}

std::string SimTable(std::span<const SimResult> results, const CostModel& cost, const std::string& trace) {
  std::string out = fmt::format("{}\nsteps {}{}\n\n", trace, cost.source, cost.error > 0 ? fmt::format(" (mean error {:.1f} %)", 100 * cost.error) : "");
  out += fmt::format("{:<10} {:<10} {:>5} {:>9} {:>8} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9} {:>8} {:>8} {:>7}\n", "policy", "cache", "block", "tokens", "asked/s", "done", "TTFT p50",
                     "TTFT p99", "TPOT p50", "TPOT p99", "gap p99", "tok/s", "running", "preempt", "waste");
  for (const SimResult& r : results) {
    out += fmt::format("{:<10} {:<10} {:>5} {:>9} {:>8.3g} {:>6} {:>10} {:>10} {:>10} {:>10} {:>10} {:>9.1f} {:>8.1f} {:>8} {:>5.1f} %\n", r.options.policy,
                       r.options.contiguous ? "contiguous" : "paged", r.options.block_tokens, r.options.kv_tokens, r.arrivals_a_s, r.requests, SaySeconds(r.ttft_s.p50), SaySeconds(r.ttft_s.p99),
                       SaySeconds(r.tpot_s.p50), SaySeconds(r.tpot_s.p99), SaySeconds(r.gap_s.p99), r.tok_s, r.mean_running, r.preemptions, 100 * r.waste);
    if (r.refused > 0) out += fmt::format("  {} requests refused: longer than the cache\n", r.refused);
  }
  return out;
}

std::string SimJson(std::span<const SimResult> results, const CostModel& cost, const std::string& trace) {
  ordered_json json = {{"trace", trace}, {"cost", {{"source", cost.source}, {"error", Rounded(cost.error)}}}, {"runs", ordered_json::array()}};
  for (const SimResult& r : results) {
    ordered_json run = {{"policy", r.options.policy}, {"allocation", r.options.contiguous ? "contiguous" : "paged"}, {"block_tokens", r.options.block_tokens}, {"kv_tokens", r.options.kv_tokens}, {"arrivals_a_s", Rounded(r.arrivals_a_s)},
                        {"max_sequences", r.options.max_sequences}, {"step_tokens", r.options.step_tokens}, {"step_ms", r.options.step_ms},
                        {"prefix_cache", r.options.prefix_cache && !r.options.contiguous}, {"requests", r.requests}, {"refused", r.refused},
                        {"seconds", Rounded(r.seconds)}, {"steps", r.steps}, {"preemptions", r.preemptions}, {"evicted", r.evicted},
                        {"prompt_tokens", r.prompt_tokens}, {"output_tokens", r.output_tokens}, {"cached_tokens", r.cached_tokens},
                        {"tok_s", Rounded(r.tok_s)}, {"request_s", Rounded(r.request_s)}, {"ttft_s", LatencyJson(r.ttft_s)},
                        {"tpot_s", LatencyJson(r.tpot_s)}, {"gap_s", LatencyJson(r.gap_s)}, {"total_s", LatencyJson(r.total_s)},
                        {"busy_percent", Rounded(100 * r.busy_share)}, {"mean_running", Rounded(r.mean_running)}, {"most_running", r.most_running},
                        {"waste_percent", Rounded(100 * r.waste)}};
    if (r.options.contiguous) run["reserve_tokens"] = r.options.reserve_tokens;
    json["runs"].push_back(std::move(run));
  }
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hone
