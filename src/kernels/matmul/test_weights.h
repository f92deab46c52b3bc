// Random stored weights of any type, for tests and benchmarks.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "tensor/float16.h"
#include "tensor/tensor.h"

namespace hone {

inline float RandomNormal(Rng& rng) {  // Box and Muller
  const double u = 1.0 - rng.Uniform(), v = rng.Uniform();
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
}

// Offsets of the f16 fields of a block.
inline std::vector<int> HalfOffsets(DType type) {
  switch (type) {
    case DType::kQ8_0: case DType::kQ4_0: case DType::kQ5_0: case DType::kIQ4_NL: case DType::kIQ4_XS:
    case DType::kNF4: return {0};
    case DType::kQ4_1: case DType::kQ5_1: case DType::kQ4_K: case DType::kQ5_K: return {0, 2};
    case DType::kQ2_K: return {80, 82};
    case DType::kQ3_K: return {108};
    case DType::kQ6_K: return {208};
    case DType::kTQ2_0: return {64};
    default: return {};
  }
}

// [n, k] with every bit of every code, sub-scale and sign in use; scales about 0.01, some of them 0.
inline Tensor RandomWeights(DType type, int64_t n, int64_t k, uint64_t seed) {
  Rng rng(seed);
  Tensor tensor(type, Shape{n, k});
  std::byte* data = tensor.data();
  const size_t bytes = tensor.view().bytes();
  if (!IsBlock(type)) {
    for (int64_t i = 0; i < n * k; ++i) {
      const float x = 0.05f * RandomNormal(rng);
      const uint16_t half = type == DType::kF16 ? F32ToF16(x) : F32ToBf16(x);
      if (type == DType::kF32) std::memcpy(data + 4 * i, &x, 4);
      else std::memcpy(data + 2 * i, &half, 2);
    }
    return tensor;
  }
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    const uint64_t word = rng.Next();
    std::memcpy(data + i, &word, 8);
  }
  for (; i < bytes; ++i) data[i] = std::byte(rng.Next());
  const size_t block = Info(type).block_bytes;
  for (size_t at = 0; at < bytes; at += block) {
    for (const int offset : HalfOffsets(type)) {
      const uint16_t d = F32ToF16(rng.Below(50) == 0 ? 0.0f : 0.01f * RandomNormal(rng));
      std::memcpy(data + at + offset, &d, 2);
    }
    if (type == DType::kMXFP4) data[at] = std::byte(110 + rng.Below(20));
  }
  return tensor;
}

// Sets every byte but those of the f16 fields (and MXFP4's exponent) to `fill`: all codes alike, at an extreme for 0, 0x7f,
// 0x80 or 0xff.
inline void FillCodes(Tensor& weights, int fill) {
  const size_t block = Info(weights.type()).block_bytes;
  for (size_t at = 0; at < weights.view().bytes(); at += block) {
    std::vector<std::byte> filled(block, std::byte(fill));
    for (const int offset : HalfOffsets(weights.type())) std::memcpy(&filled[offset], weights.data() + at + offset, 2);
    if (weights.type() == DType::kMXFP4) filled[0] = weights.data()[at];
    std::memcpy(weights.data() + at, filled.data(), block);
  }
}

// Gaussian rows with an outlier every hundred elements or so.
inline std::vector<float> RandomRows(int64_t rows, int64_t stride, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(rows * stride);
  for (float& v : x) v = RandomNormal(rng) * (rng.Below(100) == 0 ? 30.0f : 1.0f);
  return x;
}

}  // namespace hone
