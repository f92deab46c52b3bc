// H reversed in both directions has the lower factor L = J R J, so R comes from an ordinary Cholesky, and U = J L^-1 J.
// Both steps go by blocks of 128 columns: a small triangle and its inverse on one thread, then products (kernels/dense) over
// all the rest, dealt out in tiles.
#include "compress/gptq/cholesky.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/dense/subtract.h"

namespace hone {
namespace {

constexpr int64_t kBlock = 128;
constexpr int64_t kPiece = 256;  // rows or columns that a thread takes at once

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

// fn(first, last) over tiles of [begin, end), dealt out in turn: later tiles have more (or less) to do.
template <typename Fn>
void ForTiles(ThreadPool& threads, int64_t begin, int64_t end, Fn fn) {
  threads.Run([&](int worker) {
    for (int64_t first = begin + worker * kPiece; first < end; first += threads.count() * kPiece)
      fn(first, std::min(end, first + kPiece));
  });
}

// -L^-1 of the lower triangle of `size` rows at a, [kBlock][kBlock] with zeros above.
void InvertTriangle(const double* a, int64_t n, int64_t size, std::vector<double>* inverse) {
  std::vector<double>& to = *inverse;
  std::fill(to.begin(), to.end(), 0.0);
  for (int64_t j = 0; j < size; ++j) {
    to[j * kBlock + j] = -1 / a[j * n + j];
    for (int64_t i = j + 1; i < size; ++i) {
      double sum = 0;
      for (int64_t k = j; k < i; ++k) sum += a[i * n + k] * to[k * kBlock + j];
      to[i * kBlock + j] = -sum / a[i * n + i];
    }
  }
}

// In place: the lower triangle of a becomes L; what is above the diagonal is lost.
bool Factor(double* a, int64_t n, ThreadPool& threads, Isa isa) {
  std::vector<double> inverse(kBlock * kBlock);
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t last = std::min(n, first + kBlock), size = last - first;
    for (int64_t j = first; j < last; ++j) {
      double* row = &a[j * n];
      for (int64_t k = first; k < j; ++k)
        row[k] = (row[k] - Dot(row + first, &a[k * n] + first, k - first)) / a[k * n + k];
      const double pivot = row[j] - Dot(row + first, row + first, j - first);
      if (!(pivot > 0) || !std::isfinite(pivot)) return false;
      row[j] = std::sqrt(pivot);
    }
    if (last < n) InvertTriangle(&a[first * n + first], n, size, &inverse);
    ForTiles(threads, last, n, [&](int64_t begin, int64_t end) {  // A L^-T
      std::vector<double> before(static_cast<size_t>((end - begin) * size));
      for (int64_t r = begin; r < end; ++r) {
        std::copy_n(&a[r * n + first], size, &before[(r - begin) * size]);
        std::fill_n(&a[r * n + first], size, 0.0);
      }
      SubtractProduct(SubtractArgs<double>{.m = end - begin,
                                           .n = size,
                                           .k = size,
                                           .a = before.data(),
                                           .a_row = size,
                                           .b = inverse.data(),
                                           .b_row = 1,
                                           .b_column = kBlock,
                                           .c = &a[begin * n + first],
                                           .c_row = n},
                      isa);
    });
    // What is right of the block loses the block's part.
    ForTiles(threads, last, n, [&](int64_t begin, int64_t end) {
      SubtractProduct(SubtractArgs<double>{.m = end - begin,
                                           .n = end - last,
                                           .k = last - first,
                                           .a = &a[begin * n + first],
                                           .a_row = n,
                                           .b = &a[last * n + first],
                                           .b_row = 1,
                                           .b_column = n,
                                           .c = &a[begin * n + last],
                                           .c_row = n},
                      isa);
    });
  }
  return true;
}

// In place: the lower triangle L becomes L^-1, zeros above. Row by row of blocks: X_i = -L_ii^-1 (L_i,<i X_<i).
void Invert(double* a, int64_t n, ThreadPool& threads, Isa isa) {
  threads.ParallelFor(static_cast<size_t>(n), 64, [&](size_t begin, size_t end) {
    for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r)
      std::fill(&a[r * n] + r + 1, &a[r * n] + n, 0.0);
  });
  std::vector<double> before(static_cast<size_t>(kBlock * n)), inverse(kBlock * kBlock);
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t size = std::min(kBlock, n - first);
    for (int64_t r = 0; r < size; ++r) std::copy_n(&a[(first + r) * n], first, &before[r * n]);
    InvertTriangle(&a[first * n + first], n, size, &inverse);
    ForTiles(threads, 0, first, [&](int64_t begin, int64_t end) {
      std::vector<double> product(static_cast<size_t>(size * (end - begin)));  // minus L_i,<i X_<i
      SubtractProduct(SubtractArgs<double>{.m = size,
                                           .n = end - begin,
                                           .k = first - begin,
                                           .a = &before[begin],
                                           .a_row = n,
                                           .b = &a[begin * n + begin],
                                           .b_row = n,
                                           .c = product.data(),
                                           .c_row = end - begin},
                      isa);
      for (int64_t r = 0; r < size; ++r) std::fill_n(&a[(first + r) * n + begin], end - begin, 0.0);
      SubtractProduct(SubtractArgs<double>{.m = size,
                                           .n = end - begin,
                                           .k = size,
                                           .a = inverse.data(),
                                           .a_row = kBlock,
                                           .b = product.data(),
                                           .b_row = end - begin,
                                           .c = &a[first * n + begin],
                                           .c_row = n},
                      isa);
    });
    for (int64_t r = 0; r < size; ++r) {
      for (int64_t c = 0; c <= r; ++c) a[(first + r) * n + first + c] = -inverse[r * kBlock + c];
    }
  }
}

}  // namespace

bool InverseFactor(std::span<double> h, int64_t n, ThreadPool& threads, Isa isa) {
  HONE_CHECK(static_cast<int64_t>(h.size()) == n * n);
  double* a = h.data();
  // J H J, in its lower triangle: H reflected at the other diagonal.
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const int64_t r = n - 1 - j, c = n - 1 - i;
      if (r * n + c > i * n + j) std::swap(a[i * n + j], a[r * n + c]);
    }
  }
  if (!Factor(a, n, threads, isa)) return false;
  Invert(a, n, threads, isa);
  // J L^-1 J: turned by half, in place.
  std::reverse(h.begin(), h.end());
  return true;
}

}  // namespace hone
