// Binary-coded quantisation (LUT-GEMM, Park et al. 2022, arXiv 2206.09557): w ~ sum over i < q of alpha_i b_i, b_i =
// +-1. Greedy first; then rounds of least squares for alpha and the nearest of the 2^q sums for b.
#pragma once

#include <cstdint>
#include <vector>

namespace hone {

struct BcqGroup {
  std::vector<float> alpha;    // [q], rising by magnitude after rounds, falling after greedy alone
  std::vector<uint8_t> signs;  // [n]: bit i set where b_i is +1
};

// One group of n weights. REQUIRES: finite x, 1 <= q <= 8.
BcqGroup QuantizeBcq(int q, int rounds, const float* x, int64_t n);
float DequantizeBcq(const BcqGroup& group, int64_t i);

}  // namespace hone
