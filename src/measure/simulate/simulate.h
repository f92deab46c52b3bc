// hone simulate: the engine's own scheduler, policies, prefix index, block pool and step controller over a trace, with a
// cost model in place of a model. Simulated time; the same input gives the same output, bit by bit.
//
// Allocation: paged as the engine does it, or contiguous: a sequence is admitted when room for the longest that it
// might become is free, and keeps that until it ends, as systems did before paging. What is simulated and what not:
// docs/measure.md.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/ledger/ledger.h"
#include "measure/simulate/cost_model.h"
#include "measure/simulate/sim_trace.h"

namespace hone {

struct SimOptions {
  std::string policy = "fcfs";
  bool contiguous = false;
  int reserve_tokens = 0;     // contiguous: what each sequence reserves; 0: the longest request of the trace
  int block_tokens = 32;      // tokens of a block of the pool
  int64_t kv_tokens = 0;      // room of the cache; 0: max_sequences times the longest request
  int max_sequences = 16, step_tokens = 512;
  double step_ms = 100;       // target of a step with running streams; 0: uncut
  bool prefix_cache = true;
  int warm_requests = 0;      // so many of the trace come first and are not counted
};

struct SimLatency {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};

struct SimResult {
  SimOptions options;         // as resolved
  int requests = 0, refused = 0;  // refused: longer than the whole cache
  double seconds = 0;         // from the first arrival to the last token
  uint64_t steps = 0, preemptions = 0, evicted = 0;
  int64_t prompt_tokens = 0, output_tokens = 0, cached_tokens = 0;
  double tok_s = 0, request_s = 0;  // output tokens and requests a second
  SimLatency ttft_s, tpot_s, gap_s, total_s;
  double busy_share = 0;      // of the time, some step ran
  double mean_running = 0;    // sequences, over busy time
  int most_running = 0;
  double waste = 0;           // of the reserved room, what holds no token: mean over busy time
  double arrivals_a_s = 0;    // requests that came a second, as the trace has them
};

// Errors (usage): an unknown policy, sizes that contradict each other.
Result<SimResult> Simulate(std::span<const SimRequest> trace, const CostModel& cost, const SimOptions& options);

// The runs as the ledger keeps them; `json`: SimJson(). Figures are exact: the same input gives the same.
LedgerEntry SimEntry(std::span<const SimResult> results, const CostModel& cost, const std::string& trace, const std::string& json);

std::string SimTable(std::span<const SimResult> results, const CostModel& cost, const std::string& trace);
std::string SimJson(std::span<const SimResult> results, const CostModel& cost, const std::string& trace);

}  // namespace hone
