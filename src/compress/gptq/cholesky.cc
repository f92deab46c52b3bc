// H reversed in both directions has the lower factor L = J R J, so R comes from an ordinary Cholesky, and U = J L^-1 J.
// Both steps go by blocks of columns: a small triangle on one thread, then a product of blocks over all rows below.
#include "compress/gptq/cholesky.h"

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

constexpr int64_t kBlock = 64;

double Dot(const double* a, const double* b, int64_t n) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    for (int k = 0; k < 8; ++k) sums[k] += a[i + k] * b[i + k];
  }
  double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  for (; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// In place: the lower triangle of a becomes L.
bool Factor(std::vector<double>& a, int64_t n, ThreadPool& threads) {
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t last = std::min(n, first + kBlock);
    for (int64_t j = first; j < last; ++j) {
      double* row = &a[j * n];
      for (int64_t k = first; k < j; ++k)
        row[k] = (row[k] - Dot(row + first, &a[k * n] + first, k - first)) / a[k * n + k];
      const double pivot = row[j] - Dot(row + first, row + first, j - first);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      row[j] = std::sqrt(pivot);
    }
    threads.ParallelFor(static_cast<size_t>(n - last), 8, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        double* row = &a[(last + static_cast<int64_t>(r)) * n];
        for (int64_t k = first; k < last; ++k)
          row[k] = (row[k] - Dot(row + first, &a[k * n] + first, k - first)) / a[k * n + k];
      }
    });
    // What is right of the block loses the block's part. Rows further down have more columns: dealt out in turn.
    threads.Run([&](int worker) {
      for (int64_t r = last + worker; r < n; r += threads.count()) {
        double* row = &a[r * n];
        for (int64_t c = last; c <= r; ++c) row[c] -= Dot(row + first, &a[c * n] + first, last - first);
      }
    });
  }
  return true;
}

}  // namespace

bool InverseFactor(const std::vector<double>& h, int64_t n, std::vector<double>* u, ThreadPool& threads) {
  std::vector<double> l(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) l[i * n + j] = h[(n - 1 - j) * n + (n - 1 - i)];
  }
  if (!Factor(l, n, threads)) return false;
  // Columns of L^-1 by forward substitution, as rows (so that dot products run along memory): x_i = (e_i - sum L_ik
  // x_k) / L_ii.
  u->assign(static_cast<size_t>(n * n), 0);
  threads.Run([&](int worker) {
    std::vector<double> x(n);
    for (int64_t column = worker; column < n; column += threads.count()) {
      x[column] = 1 / l[column * n + column];
      for (int64_t i = column + 1; i < n; ++i)
        x[i] = -Dot(&l[i * n] + column, x.data() + column, i - column) / l[i * n + i];
      // L^-1[i][column] is U[n-1-i][n-1-column].
      for (int64_t i = column; i < n; ++i) (*u)[(n - 1 - i) * n + (n - 1 - column)] = x[i];
    }
  });
  return true;
}

}  // namespace hone
