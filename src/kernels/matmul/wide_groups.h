// Which groups of 32 of a row of x take two terms (RoundedRow::wide). For the files with a RoundRow only.
#pragma once

#include <stdint.h>

#include "kernels/matmul/tile.h"

namespace hone {
namespace {

// Fills row.wide, if it has a place. REQUIRES: row.scales hold the largest magnitude of each group. Squares of floats are exact as doubles
// and sums have an order of their own, so every ISA finds the same. A group that is not finite is wide, and all of a row with a NaN.
inline void FindWideGroups(const float* x, const RoundedRow& row, int64_t k) {
  if (row.wide == nullptr) return;
  double sums[8] = {};
  for (int64_t i = 0; i < k; i += 8) {
    for (int j = 0; j < 8; ++j) sums[j] += static_cast<double>(x[i + j]) * x[i + j];
  }
  const double sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
  const double least = kWideSquares * sum / static_cast<double>(k);
  for (int64_t g = 0; g < k / 32; ++g) row.wide[g] = !(static_cast<double>(row.scales[g]) * row.scales[g] < least);
}

inline float StepsOf(const RoundedRow& row, int64_t g) {
  return row.second != nullptr && (row.wide == nullptr || row.wide[g]) ? kTwoTermSteps : kOneTermSteps;
}

}  // namespace
}  // namespace hone
