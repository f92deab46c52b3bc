// OBQ, see gptq.h.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "compress/gptq/cholesky.h"
#include "compress/gptq/gptq.h"

namespace hone {

std::vector<int> QuantizeObqRow(const GridSpec& spec, const Grid& grid, std::span<const float> row,
                                std::span<const double> h, std::vector<int>* order, double* loss) {
  const int n = static_cast<int>(row.size());
  // H^-1 = U^T U.
  ThreadPool alone(1);
  std::vector<double> u(h.begin(), h.end());
  HONE_CHECK(InverseFactor(u, n, alone), "H is not positive definite");
  std::vector<double> inverse(static_cast<size_t>(n) * n);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      for (int k = 0; k <= std::min(i, j); ++k) inverse[i * n + j] += u[k * n + i] * u[k * n + j];
    }
  }
  std::vector<double> w(row.begin(), row.end());
  std::vector<int> codes(n);
  std::vector<bool> done(n, false);
  const double low = LowestCode(spec), high = HighestCode(spec);
  const auto code_of = [&](double x) { return std::clamp(std::nearbyint(x / grid.scale) + grid.zero, low, high); };
  const auto take = [&](int j) {
    const double pivot = inverse[j * n + j];
    std::vector<double> line(inverse.begin() + j * n, inverse.begin() + (j + 1) * n);
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) inverse[a * n + b] -= line[a] * line[b] / pivot;
    }
    done[j] = true;
    order->push_back(j);
    return line;
  };
  *loss = 0;
  for (int j = 0; j < n; ++j) {
    codes[j] = static_cast<int>(code_of(w[j]));
    if (w[j] == 0) take(j);
  }
  while (static_cast<int>(order->size()) < n) {
    int best = -1, outlier = -1;
    double least = std::numeric_limits<double>::infinity(), largest = 0.25 * grid.scale * grid.scale;
    for (int j = 0; j < n; ++j) {
      if (done[j]) continue;
      const double e = w[j] - grid.scale * (code_of(w[j]) - grid.zero), cost = e * e / inverse[j * n + j];
      if (best < 0 || cost < least) least = cost, best = j;
      if (e * e > largest) largest = e * e, outlier = j;  // beyond half a step: clipped, and getting worse
    }
    if (outlier >= 0 && w[best] != 0) best = outlier;
    codes[best] = static_cast<int>(code_of(w[best]));
    const double e = w[best] - grid.scale * (codes[best] - static_cast<double>(grid.zero)),
                 pivot = inverse[best * n + best];
    *loss += e * e / pivot / 2;
    const std::vector<double> line = take(best);
    for (int j = 0; j < n; ++j) {
      if (!done[j]) w[j] -= line[j] * e / pivot;
    }
  }
  return codes;
}

}  // namespace hone
