// How long cached blocks of keys and values live and lie idle, as the pool sees it in the times that it is told.
#pragma once

#include <array>

#include "base/tally.h"

namespace hone {

// Seconds; those of vLLM, so that dashboards fit both.
inline constexpr std::array<double, 21> kBlockTimeBounds = {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5,  1,   2,
                                                            5,     10,    20,    30,   60,   120,  300, 600, 1200, 1800};

struct BlockTimes {
  Tally<kBlockTimeBounds.size()> lifetime;   // of an evicted block: since it was taken for what it held
  Tally<kBlockTimeBounds.size()> idle;       // of an evicted block: since its last owner left
  Tally<kBlockTimeBounds.size()> reuse_gap;  // between one sequence and the next that takes a block over
};

}  // namespace hone
