// Rows into the 32-element block types Q4_0, Q4_1, Q5_0, Q5_1, Q8_0. Without importance the codes follow from the
// largest weight (or the range) of a block; with it, from the searches. Layouts: tensor/blocks.h.
#pragma once

#include <cmath>

#include "compress/gguf/search.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// How much an error at weight i of a row counts: importance[i] * sqrt(spread + x^2).
inline void WeighByImportance(const float* x, const float* importance, float spread, int n, float* out) {
  for (int i = 0; i < n; ++i) out[i] = importance[i] * std::sqrt(spread + x[i] * x[i]);
}
inline float SumOfSquares(const float* x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return sum;
}

inline float SignedMax(const float* x, int n) {
  float amax = 0, max = 0;
  for (int i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    if (a > amax) amax = a, max = x[i];
  }
  return max;
}

inline float Inverse(float d) { return d != 0 ? 1.0f / d : 0.0f; }

// 0 .. cap after truncation of x >= 0. Converted as a signed byte first, as the format's definition does.
inline uint8_t Truncated(float x, int cap) {
  const int q = static_cast<int8_t>(static_cast<int>(x));
  return static_cast<uint8_t>(q < cap ? q : cap);
}

inline void PackNibbles(const uint8_t* codes, uint8_t* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = static_cast<uint8_t>((codes[j] & 15) | ((codes[j + 16] & 15) << 4));
}
inline void PackFifthBits(const uint8_t* codes, uint8_t* qh) {
  uint32_t bits = 0;
  for (int j = 0; j < 32; ++j) bits |= uint32_t{(codes[j] >> 4) & 1u} << j;
  std::memcpy(qh, &bits, sizeof(bits));
}
template <typename Block>
inline void PackCodes(const uint8_t* codes, Block* block) {
  PackNibbles(codes, block->qs);
  if constexpr (requires { block->qh; }) PackFifthBits(codes, block->qh);
}

// Blocks of a row that are searched at a time.
constexpr int kChunkBlocks = 16;

template <typename Block, int bits>
void QuantizeSymmetric(const float* x, int64_t n, const float* importance, std::byte* out) {
  constexpr int half = 1 << (bits - 1);
  Block* block = reinterpret_cast<Block*>(out);
  if (importance == nullptr) {
    for (int64_t b = 0; b < n / 32; ++b, x += 32) {
      const float d = SignedMax(x, 32) / -half, inverse = Inverse(d);
      uint8_t codes[32];
      for (int j = 0; j < 32; ++j) codes[j] = Truncated(x[j] * inverse + (half + 0.5f), 2 * half - 1);
      block[b].d = F32ToF16(d);
      PackCodes(codes, &block[b]);
    }
    return;
  }
  const float spread = SumOfSquares(x, n) / static_cast<float>(n);
  float weights[kChunkBlocks * 32], scales[kChunkBlocks];
  uint8_t codes[kChunkBlocks * 32];
  for (int64_t b = 0; b < n / 32; b += kChunkBlocks) {
    const int count = static_cast<int>(n / 32 - b < kChunkBlocks ? n / 32 - b : kChunkBlocks);
    WeighByImportance(x + b * 32, importance + b * 32, spread, count * 32, weights);
    SearchScale<32>(half, x + b * 32, weights, count, scales, codes);
    for (int i = 0; i < count; ++i) {
      block[b + i].d = F32ToF16(scales[i]);
      PackCodes(codes + 32 * i, &block[b + i]);
    }
  }
}

constexpr RangeGrid kImportanceGrid = {-0.9f, 0.05f, 36, false};

template <typename Block, int bits>
void QuantizeWithMin(const float* x, int64_t n, const float* importance, std::byte* out) {
  constexpr int top = (1 << bits) - 1;
  Block* block = reinterpret_cast<Block*>(out);
  if (importance == nullptr) {
    for (int64_t b = 0; b < n / 32; ++b, x += 32) {
      float min = x[0], max = x[0];
      for (int j = 1; j < 32; ++j) min = x[j] < min ? x[j] : min, max = x[j] > max ? x[j] : max;
      const float d = (max - min) / top, inverse = Inverse(d);
      uint8_t codes[32];
      for (int j = 0; j < 32; ++j) codes[j] = Truncated((x[j] - min) * inverse + 0.5f, top);
      block[b].d = F32ToF16(d);
      block[b].m = F32ToF16(min);
      PackCodes(codes, &block[b]);
    }
    return;
  }
  const float spread = SumOfSquares(x, n) / static_cast<float>(n);
  float weights[kChunkBlocks * 32], scales[kChunkBlocks], mins[kChunkBlocks];
  uint8_t codes[kChunkBlocks * 32];
  for (int64_t b = 0; b < n / 32; b += kChunkBlocks) {
    const int count = static_cast<int>(n / 32 - b < kChunkBlocks ? n / 32 - b : kChunkBlocks);
    WeighByImportance(x + b * 32, importance + b * 32, spread, count * 32, weights);
    SearchScaleAndMin<32>(top, kImportanceGrid, x + b * 32, weights, count, scales, mins, codes);
    for (int i = 0; i < count; ++i) {
      block[b + i].d = F32ToF16(scales[i]);
      block[b + i].m = F32ToF16(-mins[i]);
      PackCodes(codes + 32 * i, &block[b + i]);
    }
  }
}

void QuantizeRowQ4_0(const float* x, int64_t n, const float* w, std::byte* out) {
  QuantizeSymmetric<BlockQ4_0, 4>(x, n, w, out);
}
void QuantizeRowQ5_0(const float* x, int64_t n, const float* w, std::byte* out) {
  QuantizeSymmetric<BlockQ5_0, 5>(x, n, w, out);
}
void QuantizeRowQ4_1(const float* x, int64_t n, const float* w, std::byte* out) {
  QuantizeWithMin<BlockQ4_1, 4>(x, n, w, out);
}
void QuantizeRowQ5_1(const float* x, int64_t n, const float* w, std::byte* out) {
  QuantizeWithMin<BlockQ5_1, 5>(x, n, w, out);
}

// Rounds half away from zero.
void QuantizeRowQ8_0(const float* x, int64_t n, const float*, std::byte* out) {
  BlockQ8_0* block = reinterpret_cast<BlockQ8_0*>(out);
  for (int64_t b = 0; b < n / 32; ++b, x += 32) {
    float amax = 0;
    for (int j = 0; j < 32; ++j) {
      const float a = std::fabs(x[j]);
      amax = a > amax ? a : amax;
    }
    const float d = amax / 127, inverse = Inverse(d);
    block[b].d = F32ToF16(d);
    for (int j = 0; j < 32; j += kLanes) {
      Floats scaled;
      std::memcpy(&scaled, x + j, sizeof(scaled));
      scaled *= inverse;
      // The part that truncation takes off is exact; adding a half first would round 0.49999997 up.
      const Floats magnitude = Abs(scaled);
      const Ints whole = __builtin_convertvector(magnitude, Ints);
      const Ints rounded = whole - (magnitude - ToFloats(whole) >= 0.5f);
      StoreBytes(Select(scaled < 0.0f, -rounded, rounded), block[b].qs + j);
    }
  }
}

}  // namespace
}  // namespace hone
