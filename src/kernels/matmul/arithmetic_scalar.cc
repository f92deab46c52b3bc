// The arithmetic of tile.h in plain code, for CPUs without AVX2. Codes are as exact as on other ISAs; floats are multiplied
// and added without FMA, so results differ from them by rounding.
#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/matmul/tile.h"

namespace hone {

void MultiplyCodesScalar(const CodeTile& t) {
  for (int row = 0; row < t.rows; ++row) {
    for (int panel = 0; panel < 2; ++panel) {
      float* acc = t.accumulator + row * kTileColumns + panel * kPanelRows;
      for (int g = 0; g < t.k / t.group; ++g) {
        const int64_t at = row * t.x_group_stride + g;
        int32_t sum[kPanelRows];
        std::fill_n(sum, kPanelRows, t.x_init[at]);
        const uint8_t* codes = t.codes[panel] + g * t.group * kPanelRows;
        const int8_t* x = t.x + row * t.x_stride + g * t.group;
        for (int k = 0; k < t.group; k += 4, codes += 4 * kPanelRows) {
          for (int n = 0; n < kPanelRows; ++n) {
            for (int i = 0; i < 4; ++i) sum[n] += codes[4 * n + i] * x[k + i];
          }
        }
        const float x_scale = t.x_scales[row * t.x_scale_stride + g * t.group / 32];
        const float* scales = t.scales[panel] + g * kPanelRows;
        for (int n = 0; n < kPanelRows; ++n) acc[n] += static_cast<float>(sum[n]) * (scales[n] * x_scale);
        if (!t.has_min) continue;
        const float* mins = t.mins[panel] + g * kPanelRows;
        for (int n = 0; n < kPanelRows; ++n) acc[n] += mins[n] * t.x_sums[at];
      }
    }
  }
}

void MultiplyFloatsScalar(const FloatTile& t) {
  for (int row = 0; row < t.rows; ++row) {
    for (int panel = 0; panel < 2; ++panel) {
      const float* x = t.x + row * t.x_stride;
      const float* w = t.weights[panel];
      float* acc = t.accumulator + row * kTileColumns + panel * kPanelRows;
      for (int begin = 0; begin < t.k; begin += kFloatChain) {
        float sum[kPanelRows] = {};
        for (int k = begin; k < std::min(t.k, begin + kFloatChain); ++k, w += kPanelRows) {
          for (int n = 0; n < kPanelRows; ++n) sum[n] += w[n] * x[k];
        }
        for (int n = 0; n < kPanelRows; ++n) acc[n] += sum[n];
      }
    }
  }
}

void RoundRowScalar(const float* x, int64_t k, int8_t* codes, float* scales, int32_t* sums) {
  for (int64_t g = 0; g < k / 32; ++g, x += 32, codes += 32, sums += 2) {
    uint32_t bits = 0;  // by bits: a NaN is larger than infinity, so it is not lost
    for (int i = 0; i < 32; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(x[i]) & 0x7fffffff);
    const float amax = std::bit_cast<float>(bits);
    const bool zero = amax < kSmallestAmax;
    scales[g] = zero ? 0.0f : amax / 127.0f;
    const float inverse = zero ? 0.0f : 127.0f / amax;
    sums[0] = sums[1] = 0;
    for (int i = 0; i < 32; ++i) {
      const int q = _mm_cvtss_si32(_mm_set_ss(x[i] * inverse));  // rounds to even; NaN gives INT_MIN
      codes[i] = static_cast<int8_t>(std::clamp(q, -128, 127));
      sums[i / 16] += codes[i];
    }
  }
}

void DequantizeCodesScalar(const uint8_t* codes, const float* scales, const float* mins, int k, int group, int offset,
                           float* weights) {
  for (int i = 0; i < k; ++i) {
    for (int row = 0; row < kPanelRows; ++row) {
      const int at = i / group * kPanelRows + row;
      const int code = codes[i / 4 * 4 * kPanelRows + 4 * row + i % 4] - offset;
      weights[i * kPanelRows + row] = static_cast<float>(code) * scales[at] + (mins != nullptr ? mins[at] : 0.0f);
    }
  }
}

}  // namespace hone
