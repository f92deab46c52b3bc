// See block_comparison.h.
#include "compress/folder/block_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace hone {
namespace {

// Scales whose floats' squares are sums of floats without loss; others take doubles.
bool FitsFloats(float scale) { return scale == 0 || (scale >= 0x1.0p-40f && scale <= 0x1.0p40f); }

}  // namespace

void BlockComparison::Begin(int64_t weights, int64_t block, int64_t stretch) {
  HONE_CHECK(block % 2 == 0 && stretch % block == 0);
  block_ = block, stretch_blocks_ = stretch / block;
  blocks_ = static_cast<size_t>((weights + block - 1) / block);
  if (sums_.size() < blocks_) sums_.resize(blocks_);
  errors_.assign(static_cast<size_t>((weights + stretch - 1) / stretch), 0);
  largest_.assign(errors_.size(), 0);
}

void BlockComparison::AddOne(std::span<const float> x, const std::byte* packed, const float* values, double scale, CodeSums* sums,
                             int64_t index) {
  double product = 0, power = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const int pair = static_cast<int>(packed[i / 2]);
    const double v = values[i % 2 == 0 ? pair >> 4 : pair & 15], e = x[i] - scale * v;
    errors_[index] += e * e;
    largest_[index] = std::max(largest_[index], std::fabs(e));
    product += e * v;
    power += v * v;
  }
  *sums = {static_cast<float>(scale > 0 ? product / scale : 0), static_cast<float>(power)};
}

void BlockComparison::Add(int64_t index, std::span<const float> x, const std::byte* packed, const float* values,
                          std::span<const float> scales, const Slices& slices) {
  const size_t whole = block_ % 16 == 0 ? x.size() / block_ : 0;  // vectors take these
  CodeSums* sums = &sums_[index * stretch_blocks_];
  for (size_t b = 0; b < scales.size();) {
    const size_t first = b, at = first * block_;
    while (b < whole && FitsFloats(scales[b])) ++b;
    if (b > first) {
      slices.compare_codes(&x[at], packed + at / 2, static_cast<int64_t>(b - first), block_, values, &scales[first], sums + first,
                           &errors_[index], &largest_[index]);
    } else {
      AddOne(x.subspan(at, std::min<size_t>(block_, x.size() - at)), packed + at / 2, values, scales[b], sums + b, index);
      ++b;
    }
  }
}

Deviation BlockComparison::Finish(std::span<const float> scales, const DoubleQuantized& stored,
                                   FunctionRef<double(int64_t index)> largest) const {
  HONE_CHECK(scales.size() == blocks_ && stored.codes.size() == blocks_);
  const std::array<float, 256>& map = DynamicMap();
  Deviation all;
  std::vector<double> limits(errors_.size());  // of |w' - w| in each stretch
  for (size_t i = 0; i < errors_.size(); ++i) {
    double error = errors_[i], power = errors_[i], away = 0, size = 0;
    const size_t end = std::min(blocks_, (i + 1) * stretch_blocks_);
    for (size_t b = i * stretch_blocks_; b < end; ++b) {
      const double s = scales[b], now = AbsmaxOf(map, stored, b), d = s - now, product = 2 * s * sums_[b].product;
      error += d * (product + d * sums_[b].power);
      power += s * (product + s * sums_[b].power);
      if (s == 0) continue;
      away = std::max(away, std::fabs(d));
      size = std::max({size, s, std::fabs(now)});
    }
    all.error += error, all.power += power;
    limits[i] = largest_[i] + away + 0x1.0p-22 * size + 0x1.0p-148;  // and what floats round away
  }
  if (!std::isfinite(all.error)) return all;
  std::vector<int64_t> order(limits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return limits[a] > limits[b]; });
  for (const int64_t i : order) {
    if (limits[i] <= all.largest) break;
    all.largest = std::max(all.largest, largest(i));
  }
  return all;
}

}  // namespace hone
