// Which bottleneck a measured cell has, by name. A pure rule: numbers in, a name and the numbers that decided out. The
// order of the questions and their thresholds: docs/measure.md.
#pragma once

#include <string>

#include "measure/plan/guide.h"

namespace hone {

// One phase of a cell: what its steps did together.
struct PhaseFacts {
  double seconds = 0;
  double weight_bytes = 0, kv_bytes = 0, flops = 0;
  int steps = 0;
};

struct CellFacts {
  double ttft_s = 0;         // median, tokenising not counted
  double tokenize_s = 0;     // of one prompt
  double queue_s = 0;        // median wait for a place
  int asked_at_once = 1;     // requests that were there together
  int places = 1;            // most sequences that the engine runs at once
  int most_running = 1;      // that did run at once
  int preemptions = 0;
  double most_blocks = 0;    // share of the cache's blocks that was in use at once
  double median_gap_s = 0, p99_gap_s = 0;  // between tokens of a stream
  PhaseFacts prefill, decode;
  double read_bytes_s = 0, ops = 0;  // the roof
};

struct BottleneckVerdict {
  Bottleneck bottleneck = Bottleneck::kCompute;
  std::string reason;
};
BottleneckVerdict NameBottleneck(const CellFacts& facts);

// The verdict as the guide takes it: what a step against it should improve.
Finding FindingOf(const BottleneckVerdict& verdict, const CellFacts& facts);

// The thresholds.
inline constexpr double kTokenizeShare = 0.2;  // of the time to the first token, tokenising counted
inline constexpr double kQueueShare = 0.5;     // of the time to the first token
inline constexpr double kFullShare = 0.8;      // of the blocks; above it a waiting sequence may lack some
inline constexpr double kTailRatio = 3;        // p99 gap over the median gap
inline constexpr double kRoofShare = 0.1;      // of the roof; a phase below it is bound by neither bytes nor arithmetic

}  // namespace hone
