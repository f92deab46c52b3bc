// A named figure of a run: what the ledger keeps, gates judge and reports draw.
#pragma once

#include <string>
#include <vector>

#include "measure/statistics.h"

namespace hone {

// Intervals of less confidence than this show no difference.
inline constexpr double kShownConfidence = 0.9;

enum class Direction { kHigher, kLower, kNeither };

struct Figure {
  std::string name;  // "decode_tok_s[context=2048,batch=1]", "ttft_ms.p99", "ppl": a key, and in brackets the cell
  Interval interval;
  Direction better = Direction::kNeither;
};

}  // namespace hone
