// See bcq.h.
#include "compress/numbers/bcq.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace hone {
namespace {

// alpha = (B^T B)^-1 B^T x by elimination; a direction that repeats another keeps nothing.
std::vector<float> LeastSquares(int q, const float* x, int64_t n, const std::vector<uint8_t>& signs) {
  std::vector<double> a(static_cast<size_t>(q * (q + 1)));
  const auto b = [&](int i, int64_t k) { return (signs[k] >> i) & 1 ? 1.0 : -1.0; };
  for (int i = 0; i < q; ++i) {
    for (int j = 0; j < q; ++j) {
      for (int64_t k = 0; k < n; ++k) a[i * (q + 1) + j] += b(i, k) * b(j, k);
    }
    for (int64_t k = 0; k < n; ++k) a[i * (q + 1) + q] += b(i, k) * x[k];
  }
  for (int i = 0; i < q; ++i) {
    const double pivot = a[i * (q + 1) + i];
    for (int r = 0; r < q; ++r) {
      if (r == i || std::fabs(pivot) < 1e-9 * static_cast<double>(n)) continue;
      const double factor = a[r * (q + 1) + i] / pivot;
      for (int c = i; c <= q; ++c) a[r * (q + 1) + c] -= factor * a[i * (q + 1) + c];
    }
  }
  std::vector<float> alpha(q);
  for (int i = 0; i < q; ++i) {
    const double pivot = a[i * (q + 1) + i];
    alpha[i] = std::fabs(pivot) < 1e-9 * static_cast<double>(n)
                   ? 0.0f
                   : static_cast<float>(std::fabs(a[i * (q + 1) + q] / pivot));
  }
  return alpha;
}

float Sum(const std::vector<float>& alpha, int signs) {
  float sum = 0;
  for (size_t i = 0; i < alpha.size(); ++i) sum += (signs >> i) & 1 ? alpha[i] : -alpha[i];
  return sum;
}

}  // namespace

BcqGroup QuantizeBcq(int q, int rounds, const float* x, int64_t n) {
  BcqGroup group;
  group.signs.assign(n, 0);
  std::vector<float> rest(x, x + n);
  for (int i = 0; i < q; ++i) {
    double sum = 0;
    for (const float r : rest) sum += std::fabs(r);
    const float alpha = static_cast<float>(sum / static_cast<double>(n));
    group.alpha.push_back(alpha);
    for (int64_t k = 0; k < n; ++k) {
      const bool positive = rest[k] >= 0;
      group.signs[k] |= static_cast<uint8_t>((positive ? 1 : 0) << i);
      rest[k] -= positive ? alpha : -alpha;
    }
  }
  for (int round = 0; round < rounds; ++round) {
    group.alpha = LeastSquares(q, x, n, group.signs);
    std::sort(group.alpha.begin(), group.alpha.end());
    for (int64_t k = 0; k < n; ++k) {
      int best = 0;
      for (int s = 1; s < 1 << q; ++s) {
        if (std::fabs(Sum(group.alpha, s) - x[k]) < std::fabs(Sum(group.alpha, best) - x[k])) best = s;
      }
      group.signs[k] = static_cast<uint8_t>(best);
    }
  }
  return group;
}

float DequantizeBcq(const BcqGroup& group, int64_t i) { return Sum(group.alpha, group.signs[i]); }

float BcqMatrix::Dequantize(int64_t row, int64_t column) const {
  float sum = 0;
  for (int i = 0; i < q; ++i) {
    const float a = alpha[(row * groups() + column / group) * q + i];
    sum += signs[(i * rows + row) * (columns / 8) + column / 8] >> (column % 8) & 1 ? a : -a;
  }
  return sum;
}

BcqMatrix QuantizeBcqMatrix(int q, int rounds, const float* w, int64_t rows, int64_t columns, int64_t group,
                            ThreadPool& threads) {
  HONE_CHECK(group % 8 == 0 && columns % group == 0);
  BcqMatrix out{.q = q, .rows = rows, .columns = columns, .group = group, .alpha = {}, .signs = {}};
  const int64_t groups = columns / group, row_bytes = columns / 8;
  out.alpha.resize(static_cast<size_t>(rows * groups * q));
  out.signs.resize(static_cast<size_t>(q * rows * row_bytes));
  threads.ParallelFor(static_cast<size_t>(rows), 1, [&](size_t begin, size_t end) {
    for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r) {
      for (int64_t g = 0; g < groups; ++g) {
        const BcqGroup found = QuantizeBcq(q, rounds, w + r * columns + g * group, group);
        std::copy(found.alpha.begin(), found.alpha.end(), &out.alpha[(r * groups + g) * q]);
        for (int64_t k = 0; k < group; ++k) {
          const int64_t column = g * group + k;
          for (int i = 0; i < q; ++i)
            out.signs[(i * rows + r) * row_bytes + column / 8] |=
                static_cast<uint8_t>((found.signs[k] >> i & 1) << (column % 8));
        }
      }
    }
  });
  return out;
}

void MultiplyBcq(const BcqMatrix& w, const float* x, float* y, ThreadPool& threads) {
  const int64_t row_bytes = w.columns / 8, groups = w.groups(), group_bytes = w.group / 8;
  // tables[k][b]: the sum of x[8k .. 8k+7], added where b's bit is set and subtracted elsewhere.
  std::vector<float> tables(static_cast<size_t>(row_bytes * 256));
  threads.ParallelFor(static_cast<size_t>(row_bytes), 16, [&](size_t begin, size_t end) {
    for (size_t k = begin; k < end; ++k) {
      float* table = &tables[k * 256];
      table[0] = 0;
      for (int j = 0; j < 8; ++j) table[0] -= x[8 * k + j];
      for (int b = 1; b < 256; ++b) {
        const int lowest = b & -b;
        table[b] = table[b ^ lowest] + 2 * x[8 * k + std::countr_zero(static_cast<unsigned>(lowest))];
      }
    }
  });
  threads.ParallelFor(static_cast<size_t>(w.rows), 8, [&](size_t begin, size_t end) {
    for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r) {
      float sum = 0;
      for (int64_t g = 0; g < groups; ++g) {
        for (int i = 0; i < w.q; ++i) {
          const uint8_t* signs = &w.signs[(i * w.rows + r) * row_bytes + g * group_bytes];
          const float* table = &tables[g * group_bytes * 256];
          float part = 0;
          for (int64_t k = 0; k < group_bytes; ++k) part += table[k * 256 + signs[k]];
          sum += w.alpha[(r * groups + g) * w.q + i] * part;
        }
      }
      y[r] = sum;
    }
  });
}

}  // namespace hone
