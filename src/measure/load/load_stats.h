// What records of load runs say: latencies and rates with intervals over seeds. Definitions are those of `vllm bench
// serve`; where hone differs, docs/measure.md says so. Pure functions.
//
//   ttft   from sending a request to its first chunk with content
//   tpot   (e2e - ttft) / (output tokens - 1); answers of one token have none (0 for goodput)
//   itl    every gap between chunks with content, of all requests together
//   e2e    from sending a request to its last chunk
//   goodput  requests a second that meet all limits of the SLO
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/load/load_run.h"
#include "measure/statistics.h"

namespace hone {

inline constexpr const char* kLoadDefinitions = "vllm bench serve";

struct Slo {
  std::optional<double> ttft_ms, tpot_ms, e2e_ms;
  bool any() const { return ttft_ms || tpot_ms || e2e_ms; }
};
// "ttft=200,tpot=50,e2e=3000", milliseconds; a number may end in "ms" or "s". Errors (usage) name the part.
Result<Slo> ParseSlo(std::string_view text);
std::string SloText(const Slo& slo);

// The percentiles that are reported, as fractions, and their keys.
struct NamedFraction {
  const char* key;
  double fraction;
};
inline constexpr NamedFraction kLoadPercentiles[] = {
    {"p50", 0.5}, {"p90", 0.9}, {"p95", 0.95}, {"p99", 0.99}, {"p999", 0.999}};

// One latency over all requests of all seeds, in milliseconds.
struct LatencyFigures {
  int64_t count = 0;
  Interval mean;
  double deviation = 0, max = 0;
  std::map<std::string, Interval> percentiles;  // by key
  std::vector<std::string> thin;                // percentiles beyond which not one value of a run is expected
};

struct ErrorCount {
  int count = 0;
  std::string first;  // the first text of this kind
};

struct LoadFigures {
  int seeds = 0;
  std::string interval_method;
  LatencyFigures ttft_ms, tpot_ms, itl_ms, e2e_ms;
  std::map<int, LatencyFigures> ttft_ms_by_turn;  // of conversations; empty where all have one turn
  Interval request_s, output_tok_s, total_tok_s;  // a second
  std::optional<Interval> goodput_s;
  double met_share = 0;  // of all requests that were sent, those that met the SLO
  int64_t completed = 0, failed = 0, cancelled = 0, unsent = 0;
  int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = -1;
  bool prompt_tokens_counted = true, output_tokens_counted = true;  // by the server's usage, in every answer
  bool one_chunk_a_token = true;  // false: chunks carry several tokens, so gaps are no token gaps
  std::map<std::string, ErrorCount> errors;
  double duration_s = 0;  // of all runs
  double mean_active = 0, most_active = 0;
  // The client itself: how late it sent what was due, and the share of one core that it used.
  double lag_ms_p50 = 0, lag_ms_p99 = 0, cpu_share = 0;
  std::string client_limit;  // why the client was the limit; "" if it was not
};

LoadFigures ComputeLoadFigures(std::span<const LoadRun> runs, const Slo& slo);

// Whether one request met the limits. REQUIRES: record.ok().
bool MeetsSlo(const LoadRecord& record, const Slo& slo);

}  // namespace hone
