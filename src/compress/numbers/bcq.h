// Binary-coded quantisation (LUT-GEMM, Park et al. 2022, arXiv 2206.09557): w ~ sum over i < q of alpha_i b_i, b_i =
// +-1. Greedy first; then rounds of least squares for alpha and the nearest of the 2^q sums for b. And the paper's
// product: a table of all signed sums of eight inputs serves every row, so a byte of signs costs one addition.
#pragma once

#include <cstdint>
#include <vector>

#include "base/threads.h"

namespace hone {

struct BcqGroup {
  std::vector<float> alpha;    // [q], rising by magnitude after rounds, falling after greedy alone
  std::vector<uint8_t> signs;  // [n]: bit i set where b_i is +1
};

// One group of n weights. REQUIRES: finite x, 1 <= q <= 8.
BcqGroup QuantizeBcq(int q, int rounds, const float* x, int64_t n);
float DequantizeBcq(const BcqGroup& group, int64_t i);

struct BcqMatrix {
  int q = 0;
  int64_t rows = 0, columns = 0, group = 0;
  std::vector<float> alpha;    // [rows, groups, q]
  std::vector<uint8_t> signs;  // [q, rows, columns / 8]: bit j of byte k is column 8 k + j, 1 for +1
  int64_t groups() const { return columns / group; }
  float Dequantize(int64_t row, int64_t column) const;
};

// REQUIRES: whole groups of a multiple of 8 columns; finite w.
BcqMatrix QuantizeBcqMatrix(int q, int rounds, const float* w, int64_t rows, int64_t columns, int64_t group,
                            ThreadPool& threads);
// y[rows] = W x, in F32: per row q additions a byte of signs and group, one multiplication an alpha.
void MultiplyBcq(const BcqMatrix& w, const float* x, float* y, ThreadPool& threads);

}  // namespace hone
