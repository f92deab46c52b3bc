// Optimal string alignment distance by dynamic programming over three rows.
#include "base/nearest_name.h"

#include <algorithm>
#include <numeric>

namespace hone {
namespace {

size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestName(std::string_view name, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 64;
  std::string best;
  size_t best_distance = kLongest;
  if (name.size() > kLongest) return best;
  for (const std::string& candidate : known) {
    if (candidate.size() > kLongest) continue;
    const size_t allowed = std::max<size_t>(1, std::max(name.size(), candidate.size()) / 3);
    const size_t distance = Distance(name, candidate);
    if (distance <= allowed && distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace hone
