// Rows into the 256-element K types: 8 or 16 sub-blocks with scales (and mins) of a few bits under one F16 scale. Each
// sub-block is searched alone; then its scale is rounded, and the codes are made again with the scale as stored. A
// sub-block whose stored scale is zero keeps the codes of its search.
#pragma once

#include "compress/gguf/legacy_body.h"

namespace hone {
namespace {

constexpr int kSuper = 256;
constexpr int kChunkSupers = 4;  // super-blocks searched at a time, so that all lanes are used
constexpr int kChunk = kSuper * kChunkSupers;

// fn(first super-block, how many)
inline void ForChunks(int64_t n, auto&& fn, int64_t most = kChunkSupers) {
  for (int64_t b = 0; b < n / kSuper; b += most) fn(b, static_cast<int>(n / kSuper - b < most ? n / kSuper - b : most));
}

// weights = importance * sqrt(spread + x^2), spread being `factor` times the mean square of a super-block. Each sum is
// formed in order, so four of them run side by side.
inline void WeighSupers(const float* x, const float* importance, float factor, int supers, float* weights) {
  for (int b = 0; b < supers; b += 4) {
    const int count = supers - b < 4 ? supers - b : 4;
    const float* from[4];
    for (int s = 0; s < 4; ++s) from[s] = x + (b + (s < count ? s : 0)) * kSuper;
    float sum[4] = {};
    for (int i = 0; i < kSuper; ++i) {
      for (int s = 0; s < 4; ++s) sum[s] += from[s][i] * from[s][i];
    }
    for (int s = 0; s < count; ++s) {
      const int at = (b + s) * kSuper;
      WeighByImportance(x + at, importance + at, factor * sum[s] / kSuper, kSuper, weights + at);
    }
  }
}

// Codes of `n` weights as round((x + m) / d), limited.
inline void Recode(const float* x, int n, float d, float m, int low, int high, uint8_t* codes) {
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats v;
    std::memcpy(&v, x + i, sizeof(v));
    const Ints q = Clamp(Nearest((v + m) / d), low, high) - low;
    StoreBytes(q, codes + i);
  }
}

// Sums of importance a sub-block, for rounding the scales.
inline void SumGroups(const float* weights, int groups, int n, float* sums) {
  for (int g = 0; g < groups; ++g) {
    sums[g] = 0;
    for (int i = 0; i < n; ++i) sums[g] += weights[g * n + i];
  }
}

// The four 64-element quarters of 2-bit codes in one byte.
inline void PackPairs(const uint8_t* codes, uint8_t* qs) {
  for (int j = 0; j < kSuper; j += 128) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t* c = codes + j + l;
      qs[j / 4 + l] = static_cast<uint8_t>(c[0] | (c[32] << 2) | (c[64] << 4) | (c[96] << 6));
    }
  }
}

void QuantizeRowQ2_K(const float* x, int64_t n, const float* importance, std::byte* out) {
  BlockQ2_K* blocks = reinterpret_cast<BlockQ2_K*>(out);
  float weights[kChunk], scales[16 * kChunkSupers], mins[16 * kChunkSupers], sums[16];
  uint8_t codes[kChunk];
  ForChunks(n, [&](int64_t first, int count) {
    const float* xs = x + first * kSuper;
    if (importance != nullptr) {
      WeighSupers(xs, importance + first * kSuper, 1, count, weights);
      SearchScaleAndMin<16>(3, kImportanceGrid, xs, weights, 16 * count, scales, mins, codes);
    } else {
      for (int i = 0; i < count * kSuper; ++i) weights[i] = std::fabs(xs[i]);
      SearchScaleAndMin<16>(3, {-0.5f, 0.1f, 15, true}, xs, weights, 16 * count, scales, mins, codes);
    }
    for (int b = 0; b < count; ++b) {
      BlockQ2_K& block = blocks[first + b];
      const float *scale = scales + 16 * b, *min = mins + 16 * b;
      uint8_t ls[16], lm[16];
      if (importance != nullptr) {
        SumGroups(weights + b * kSuper, 16, 16, sums);
        block.d = F32ToF16(SearchUnsigned(16, 15, scale, sums, ls));
        block.dmin = F32ToF16(SearchUnsigned(16, 15, min, sums, lm));
      } else {
        const auto round = [](const float* values, uint8_t* l) {
          float max = 0;
          for (int j = 0; j < 16; ++j) max = values[j] > max ? values[j] : max;
          const float inverse = max > 0 ? 15 / max : 0;
          for (int j = 0; j < 16; ++j) l[j] = max > 0 ? static_cast<uint8_t>(Nearest(inverse * values[j])) : 0;
          return F32ToF16(max > 0 ? max / 15 : 0.0f);
        };
        block.d = round(scale, ls);
        block.dmin = round(min, lm);
      }
      uint8_t* code = codes + b * kSuper;
      for (int j = 0; j < 16; ++j) {
        block.scales[j] = static_cast<uint8_t>(ls[j] | (lm[j] << 4));
        const float d = F16ToF32(block.d) * static_cast<float>(block.scales[j] & 15);
        if (d == 0) continue;
        const float m = F16ToF32(block.dmin) * static_cast<float>(block.scales[j] >> 4);
        Recode(xs + b * kSuper + 16 * j, 16, d, m, 0, 3, code + 16 * j);
      }
      PackPairs(code, block.qs);
    }
  });
}

// Scales of scales are searched a super-block a lane: chunks have as many as there are lanes.
void QuantizeRowQ3_K(const float* x, int64_t n, const float* importance, std::byte* out) {
  constexpr int kSupers = 16;
  BlockQ3_K* blocks = reinterpret_cast<BlockQ3_K*>(out);
  float weights[kSupers * kSuper], scales[16 * kSupers], sums[16 * kSupers], d_block[kSupers];
  uint8_t codes[kSupers * kSuper], ls[16 * kSupers];  // ls: 6 bits, offset by 32
  const auto chunk = [&](int64_t first, int count) {
    const float* xs = x + first * kSuper;
    if (importance != nullptr) {
      WeighSupers(xs, importance + first * kSuper, 2, count, weights);
      SearchScale<16>(4, xs, weights, 16 * count, scales, codes);
      SumGroups(weights, 16 * count, 16, sums);
      SearchScale<16>(32, scales, sums, count, d_block, ls);
    } else {
      RefineScale<16>(4, xs, 16 * count, scales, codes);
      for (int b = 0; b < count; ++b) {
        const float max = SignedMax(scales + 16 * b, 16), inverse = max != 0 ? -32.0f / max : 0;
        d_block[b] = max != 0 ? 1 / inverse : 0;
        for (int j = 16 * b; j < 16 * b + 16; ++j) {
          const int l = Nearest(inverse * scales[j]);
          ls[j] = max != 0 ? static_cast<uint8_t>((l < -32 ? -32 : l > 31 ? 31 : l) + 32) : uint8_t{0};
        }
      }
    }
    for (int b = 0; b < count; ++b) {
      BlockQ3_K& block = blocks[first + b];
      block.d = F32ToF16(d_block[b]);
      std::memset(block.scales, 0, sizeof(block.scales));
      uint8_t* code = codes + b * kSuper;
      for (int j = 0; j < 16; ++j) {
        const int l = ls[16 * b + j];
        block.scales[j % 8] |= static_cast<uint8_t>((l & 15) << (j < 8 ? 0 : 4));
        block.scales[8 + j % 4] |= static_cast<uint8_t>((l >> 4) << (2 * (j / 4)));
        const float d = F16ToF32(block.d) * static_cast<float>(l - 32);
        if (d != 0) Recode(xs + b * kSuper + 16 * j, 16, d, 0, -4, 3, code + 16 * j);
      }
      uint8_t high[32] = {}, low[kSuper];
      for (int j = 0; j < 8; ++j) {
        for (int l = 0; l < 32; ++l) high[l] = static_cast<uint8_t>(high[l] | (code[32 * j + l] >> 2) << j);
      }
      for (int j = 0; j < kSuper; ++j) low[j] = code[j] & 3;
      std::memcpy(block.hmask, high, sizeof(high));
      PackPairs(low, block.qs);
    }
  };
  ForChunks(n, chunk, kSupers);
}

// Eight 6-bit scales and mins in 12 bytes.
inline void PackSixBits(const uint8_t* ls, const uint8_t* lm, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = ls[j];
    out[j + 4] = lm[j];
  }
  for (int j = 4; j < 8; ++j) {
    out[j + 4] = static_cast<uint8_t>((ls[j] & 15) | ((lm[j] & 15) << 4));
    out[j - 4] |= static_cast<uint8_t>((ls[j] >> 4) << 6);
    out[j] |= static_cast<uint8_t>((lm[j] >> 4) << 6);
  }
}

inline uint8_t RoundToSixBits(float x) {
  const uint8_t l = static_cast<uint8_t>(Nearest(x));
  return l > 63 ? uint8_t{63} : l;
}

// Q4_K and Q5_K: everything but the packing of codes. `pack` gets the block and its 256 codes.
template <typename Block>
inline void QuantizeScaleMinBlocks(const float* x, int64_t n, const float* importance, int top, const RangeGrid& plain,
                                   std::byte* out, auto&& pack) {
  Block* blocks = reinterpret_cast<Block*>(out);
  float weights[kChunk], scales[8 * kChunkSupers], mins[8 * kChunkSupers], sums[8];
  uint8_t codes[kChunk];
  ForChunks(n, [&](int64_t first, int count) {
    const float* xs = x + first * kSuper;
    if (importance != nullptr) {
      WeighSupers(xs, importance + first * kSuper, 2, count, weights);
    } else {
      for (int i = 0; i < count * kSuper; i += 32) {
        const float rms = std::sqrt(SumOfSquares(xs + i, 32) / 32);
        for (int l = 0; l < 32; ++l) weights[i + l] = rms + std::fabs(xs[i + l]);
      }
    }
    SearchScaleAndMin<32>(top, importance != nullptr ? kImportanceGrid : plain, xs, weights, 8 * count, scales, mins,
                          codes);
    for (int b = 0; b < count; ++b) {
      Block& block = blocks[first + b];
      const float *scale = scales + 8 * b, *min = mins + 8 * b;
      uint8_t ls[8], lm[8];
      if (importance != nullptr) {
        SumGroups(weights + b * kSuper, 8, 32, sums);
        block.d = F32ToF16(SearchUnsigned(8, 63, scale, sums, ls));
        block.dmin = F32ToF16(SearchUnsigned(8, 63, min, sums, lm));
      } else {
        float max_scale = 0, max_min = 0;
        for (int j = 0; j < 8; ++j) {
          max_scale = scale[j] > max_scale ? scale[j] : max_scale;
          max_min = min[j] > max_min ? min[j] : max_min;
        }
        const float inverse_scale = max_scale > 0 ? 63 / max_scale : 0, inverse_min = max_min > 0 ? 63 / max_min : 0;
        for (int j = 0; j < 8; ++j) {
          ls[j] = RoundToSixBits(inverse_scale * scale[j]);
          lm[j] = RoundToSixBits(inverse_min * min[j]);
        }
        block.d = F32ToF16(max_scale / 63);
        block.dmin = F32ToF16(max_min / 63);
      }
      PackSixBits(ls, lm, block.scales);
      uint8_t* code = codes + b * kSuper;
      for (int j = 0; j < 8; ++j) {
        const float d = F16ToF32(block.d) * static_cast<float>(ls[j]);
        if (d == 0) continue;
        Recode(xs + b * kSuper + 32 * j, 32, d, F16ToF32(block.dmin) * static_cast<float>(lm[j]), 0, top,
               code + 32 * j);
      }
      pack(block, code);
    }
  });
}

void QuantizeRowQ4_K(const float* x, int64_t n, const float* importance, std::byte* out) {
  QuantizeScaleMinBlocks<BlockQ4_K>(
      x, n, importance, 15, {-1.0f, 0.1f, 20, false}, out, [](BlockQ4_K& block, const uint8_t* code) {
        for (int j = 0; j < 4; ++j) {
          for (int l = 0; l < 32; ++l) {
            block.qs[32 * j + l] = static_cast<uint8_t>(code[64 * j + l] | (code[64 * j + 32 + l] << 4));
          }
        }
      });
}

void QuantizeRowQ5_K(const float* x, int64_t n, const float* importance, std::byte* out) {
  QuantizeScaleMinBlocks<BlockQ5_K>(
      x, n, importance, 31, {-0.5f, 0.1f, 15, false}, out, [](BlockQ5_K& block, const uint8_t* code) {
        std::memset(block.qh, 0, sizeof(block.qh));
        for (int j = 0; j < 4; ++j) {
          for (int l = 0; l < 32; ++l) {
            const int low = code[64 * j + l], high = code[64 * j + 32 + l];
            block.qs[32 * j + l] = static_cast<uint8_t>((low & 15) | ((high & 15) << 4));
            block.qh[l] |= static_cast<uint8_t>(((low >> 4) << (2 * j)) | ((high >> 4) << (2 * j + 1)));
          }
        }
      });
}

void QuantizeRowQ6_K(const float* x, int64_t n, const float* importance, std::byte* out) {
  BlockQ6_K* blocks = reinterpret_cast<BlockQ6_K*>(out);
  float weights[kChunk], scales[16 * kChunkSupers];
  uint8_t codes[kChunk];
  ForChunks(n, [&](int64_t first, int count) {
    const float* xs = x + first * kSuper;
    if (importance == nullptr) {
      for (int i = 0; i < count * kSuper; ++i) weights[i] = xs[i] * xs[i];
    }
    SearchScale<16>(32, xs, importance != nullptr ? importance + first * kSuper : weights, 16 * count, scales, codes);
    for (int b = 0; b < count; ++b) {
      BlockQ6_K& block = blocks[first + b];
      const float* scale = scales + 16 * b;
      const float max = SignedMax(scale, 16);
      if (std::fabs(max) < kGroupEpsilon) {
        std::memset(&block, 0, sizeof(block));
        continue;
      }
      const float inverse = -128.0f / max;
      block.d = F32ToF16(1 / inverse);
      uint8_t* code = codes + b * kSuper;
      for (int j = 0; j < 16; ++j) {
        const int l = Nearest(inverse * scale[j]);
        block.scales[j] = static_cast<int8_t>(l < 127 ? l : 127);
        const float d = F16ToF32(block.d) * static_cast<float>(block.scales[j]);
        if (d != 0) Recode(xs + b * kSuper + 16 * j, 16, d, 0, -32, 31, code + 16 * j);
      }
      for (int half = 0; half < 2; ++half) {
        for (int l = 0; l < 32; ++l) {
          const uint8_t* c = code + 128 * half + l;
          block.ql[64 * half + l] = static_cast<uint8_t>((c[0] & 15) | ((c[64] & 15) << 4));
          block.ql[64 * half + 32 + l] = static_cast<uint8_t>((c[32] & 15) | ((c[96] & 15) << 4));
          block.qh[32 * half + l] =
              static_cast<uint8_t>((c[0] >> 4) | ((c[32] >> 4) << 2) | ((c[64] >> 4) << 4) | ((c[96] >> 4) << 6));
        }
      }
    }
  });
}

}  // namespace
}  // namespace hone
