// See bcq.h.
#include "compress/numbers/bcq.h"

#include <algorithm>
#include <cmath>

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

}  // namespace hone
