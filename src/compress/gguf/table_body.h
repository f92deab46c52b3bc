// Rows into types whose codes index a table of values, or have no search: IQ4_NL, IQ4_XS, MXFP4, TQ2_0.
#pragma once

#include "compress/gguf/k_body.h"

namespace hone {
namespace {

// The code of the nearest of kIq4Values; halfway goes up. Differences near a midpoint are exact in float, so comparing
// with the midpoints (all multiples of 1/2) is the same as comparing distances.
inline Ints NearestIq4(Floats x) {
  Ints code{};
  for (int i = 1; i < 16; ++i) {
    const float middle = 0.5f * static_cast<float>(kIq4Values[i - 1] + kIq4Values[i]);
    code -= x >= middle;
  }
  return code;
}
// kIq4Values[code] for the code of x, without a look-up: the steps between values that were climbed.
inline Floats NearestIq4Value(Floats x) {
  Floats value = Splat(kIq4Values[0]);
  for (int i = 1; i < 16; ++i) {
    const float middle = 0.5f * static_cast<float>(kIq4Values[i - 1] + kIq4Values[i]);
    const float step = static_cast<float>(kIq4Values[i] - kIq4Values[i - 1]);
    value += FromBits((x >= middle) & Bits(Splat(step)));
  }
  return value;
}

constexpr int kIq4Tries = 7;

// scales: [groups], 0 for groups of zeros.
inline void SearchIq4(const float* x, const float* weights, int groups, float* scales) {
  for (int g = 0; g < groups; g += kLanes) {
    const int count = groups - g < kLanes ? groups - g : kLanes;
    const Groups<32> xs(x + 32 * g, count), ws(weights + 32 * g, count);
    Floats amax, max, scale{}, best{};
    LargestSigned(xs, &amax, &max);
    const Floats plain = -max / static_cast<float>(kIq4Values[0]);
    for (int step = -kIq4Tries - 1; step <= kIq4Tries; ++step) {
      const bool first = step == -kIq4Tries - 1;
      const Floats inverse = first ? 1.0f / plain : static_cast<float>(step + kIq4Values[0]) / max;
      Floats sumqx{}, sumq2{};
      for (int i = 0; i < 32; ++i) {
        const Floats q = NearestIq4Value(inverse * xs.at[i]), wq = ws.at[i] * q;
        sumqx += wq * xs.at[i];
        sumq2 += wq * q;
      }
      const Floats ratio = sumqx / sumq2;
      if (first) {
        scale = Select(sumq2 > 0.0f, ratio, plain);  // no importance at all
        best = scale * sumqx;
      } else {
        const Ints better = (sumq2 > 0.0f) & (sumqx * sumqx > best * sumq2);
        scale = Select(better, ratio, scale);
        best = Select(better, ratio * sumqx, best);
      }
    }
    StoreFloats(Select(amax < kGroupEpsilon, Floats{}, scale), count, scales + g);
  }
}

inline void WeighIq4(const float* x, const float* importance, int n, float* weights) {
  if (importance == nullptr) {
    for (int i = 0; i < n; ++i) weights[i] = x[i] * x[i];
    return;
  }
  const float spread = SumOfSquares(x, n) * (2.0f / static_cast<float>(n));
  WeighByImportance(x, importance, spread, n, weights);
}

inline void EncodeIq4(const float* x, float inverse, uint8_t* codes) {  // 32 weights
  for (int i = 0; i < 32; i += kLanes) {
    Floats v;
    std::memcpy(&v, x + i, sizeof(v));
    const Ints q = NearestIq4(inverse * v);
    StoreBytes(q, codes + i);
  }
}

void QuantizeRowIQ4_NL(const float* x, int64_t n, const float* importance, std::byte* out) {
  BlockIQ4_NL* blocks = reinterpret_cast<BlockIQ4_NL*>(out);
  float weights[kChunkBlocks * 32], scales[kChunkBlocks];
  uint8_t codes[32];
  for (int64_t first = 0; first < n / 32; first += kChunkBlocks) {
    const int count = static_cast<int>(n / 32 - first < kChunkBlocks ? n / 32 - first : kChunkBlocks);
    for (int b = 0; b < count; ++b) {
      const int64_t at = (first + b) * 32;
      WeighIq4(x + at, importance != nullptr ? importance + at : nullptr, 32, weights + 32 * b);
    }
    SearchIq4(x + first * 32, weights, count, scales);
    for (int b = 0; b < count; ++b) {
      blocks[first + b].d = F32ToF16(scales[b]);
      EncodeIq4(x + (first + b) * 32, Inverse(scales[b]), codes);
      PackNibbles(codes, blocks[first + b].qs);
    }
  }
}

void QuantizeRowIQ4_XS(const float* x, int64_t n, const float* importance, std::byte* out) {
  BlockIQ4_XS* blocks = reinterpret_cast<BlockIQ4_XS*>(out);
  float weights[kChunk], scales[8 * kChunkSupers];
  uint8_t codes[32];
  ForChunks(n, [&](int64_t first, int count) {
    const float* xs = x + first * kSuper;
    for (int b = 0; b < count; ++b) {
      WeighIq4(xs + b * kSuper, importance != nullptr ? importance + (first + b) * kSuper : nullptr, kSuper,
               weights + b * kSuper);
    }
    SearchIq4(xs, weights, 8 * count, scales);
    for (int b = 0; b < count; ++b) {
      BlockIQ4_XS& block = blocks[first + b];
      const float d = -SignedMax(scales + 8 * b, 8) / 32, inverse = Inverse(d);
      block.d = F32ToF16(d);
      block.scales_h = 0;
      std::memset(block.scales_l, 0, sizeof(block.scales_l));
      for (int j = 0; j < 8; ++j) {
        const int nearest = Nearest(inverse * scales[8 * b + j]);
        const int l = nearest < -32 ? -32 : nearest > 31 ? 31 : nearest;
        EncodeIq4(xs + b * kSuper + 32 * j, Inverse(d * static_cast<float>(l)), codes);
        PackNibbles(codes, block.qs + 16 * j);
        const int stored = l + 32;
        block.scales_l[j / 2] |= static_cast<uint8_t>((stored & 15) << (4 * (j % 2)));
        block.scales_h |= static_cast<uint16_t>((stored >> 4) << (2 * j));
      }
    }
  });
}

// E2M1 under a power of two (OCP MX): 2^(floor(log2 amax) - 2); the nearest value, the earlier code where two are.
void QuantizeRowMXFP4(const float* x, int64_t n, const float*, std::byte* out) {
  BlockMXFP4* blocks = reinterpret_cast<BlockMXFP4*>(out);
  for (int64_t b = 0; b < n / 32; ++b, x += 32) {
    float amax = 0;
    for (int j = 0; j < 32; ++j) amax = std::fabs(x[j]) > amax ? std::fabs(x[j]) : amax;
    const int exponent = amax > 0 ? static_cast<int>(std::floor(std::log2(amax))) - 2 + 127 : 0;
    const uint8_t e = static_cast<uint8_t>(exponent);
    blocks[b].e = e;
    const float half = std::ldexp(1.0f, e - 128);
    uint8_t codes[32];
    for (int j = 0; j < 32; ++j) {
      int code = 0;
      float best = std::fabs(static_cast<float>(kMxfp4Values[0]) * half - x[j]);
      for (int k = 1; k < 16; ++k) {
        const float error = std::fabs(static_cast<float>(kMxfp4Values[k]) * half - x[j]);
        if (error < best) best = error, code = k;
      }
      codes[j] = static_cast<uint8_t>(code);
    }
    PackNibbles(codes, blocks[b].qs);
  }
}

// -1, 0, 1 under the largest magnitude.
void QuantizeRowTQ2_0(const float* x, int64_t n, const float*, std::byte* out) {
  BlockTQ2_0* blocks = reinterpret_cast<BlockTQ2_0*>(out);
  for (int64_t b = 0; b < n / kSuper; ++b, x += kSuper) {
    const float d = std::fabs(SignedMax(x, kSuper)), inverse = Inverse(d);
    blocks[b].d = F32ToF16(d);
    for (int half = 0; half < 2; ++half) {
      for (int l = 0; l < 32; ++l) {
        int packed = 0;
        for (int k = 0; k < 4; ++k)
          packed |= ((static_cast<int>(std::lround(x[128 * half + 32 * k + l] * inverse)) + 1) & 3) << (2 * k);
        blocks[b].qs[32 * half + l] = static_cast<uint8_t>(packed);
      }
    }
  }
}

}  // namespace
}  // namespace hone
