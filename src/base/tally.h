// Tally: how many values were at most each of some bounds, and their sum; what a histogram of /metrics is made of. Plain numbers
// of one thread, to be copied.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace hone {

template <size_t N>
struct Tally {
  std::array<uint64_t, N + 1> counts{};  // by the first bound that is not below the value; the last: beyond them all
  double sum = 0;

  void Add(double value, const std::array<double, N>& bounds) {
    ++counts[static_cast<size_t>(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())];
    sum += value;
  }
};

}  // namespace hone
