// Traces that hone simulate runs: when requests come and how long they are. The keys are those that hone load replays,
// so one file serves both. Lengths and times only; texts are not looked at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

struct SimRequest {
  double at_s = 0;
  int input = 0, output = 0;  // tokens
  int priority = 0;
  std::vector<uint64_t> prefix;  // ids of blocks of kTraceBlockTokens that the prompt begins with; empty: like no other
};
inline constexpr int kTraceBlockTokens = 512;
inline constexpr int kMostSimRequests = 1 << 20, kMostSimTokens = 1 << 22;

// JSON lines: {"timestamp": ms | "time_s": s, "input_length", "output_length", "hash_ids": [...]?, "priority"?}; also
// input_tokens / prompt_tokens, output_tokens / completion_tokens / max_tokens. Sorted by time. Errors name file, line
// and key.
Result<std::vector<SimRequest>> ParseSimTrace(const std::string& file, std::string_view text);

// `count` requests that come as a Poisson process, with lengths uniform in [n (1 - range), n (1 + range)].
std::vector<SimRequest> PoissonTrace(double rate, int count, int input, int output, double range, uint64_t seed);

}  // namespace hone
