// The arithmetic of tile.h in plain code, for CPUs without AVX2. Codes are as exact as on other ISAs; floats are multiplied
// and added without FMA, so results differ from them by rounding.
#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/matmul/tile.h"
#include "kernels/matmul/wide_groups.h"

namespace hone {

void MultiplyCodesScalar(const CodeTile& t) {
  for (int row = 0; row < t.rows; ++row) {
    for (int panel = 0; panel < 2; ++panel) {
      float* acc = t.accumulator + row * kTileColumns + panel * kPanelRows;
      for (int g = 0; g < t.k / t.group; ++g) {
        const int64_t at = row * t.x_group_stride + g;
        int32_t sum[kPanelRows] = {};
        for (int term = 0; term < t.terms; ++term) {
          const int64_t term_row = row + term * t.term_rows;
          for (int32_t& s : sum) s = kDigits * s + t.x_init[term_row * t.x_group_stride + g];
          const uint8_t* codes = t.codes[panel] + g * t.group * kPanelRows;
          const int8_t* x = t.x + term_row * t.x_stride + g * t.group;
          for (int k = 0; k < t.group; k += 4, codes += 4 * kPanelRows) {
            for (int n = 0; n < kPanelRows; ++n) {
              for (int i = 0; i < 4; ++i) sum[n] += codes[4 * n + i] * x[k + i];
            }
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

void RoundRowScalar(const float* x, int64_t k, const RoundedRow& to) {
  const auto round = [](float v) { return _mm_cvtss_si32(_mm_set_ss(v)); };  // to even; NaN gives INT_MIN
  for (int64_t g = 0; g < k / 32; ++g) {
    uint32_t bits = 0;  // by bits: a NaN is larger than infinity, so it is not lost
    for (int i = 0; i < 32; ++i) bits = std::max(bits, std::bit_cast<uint32_t>(x[32 * g + i]) & 0x7fffffff);
    to.scales[g] = std::bit_cast<float>(bits);
  }
  FindWideGroups(x, to, k);
  for (int64_t g = 0; g < k / 32; ++g, x += 32) {
    const float amax = to.scales[g], steps = StepsOf(to, g);
    const bool zero = amax < kSmallestAmax;
    to.scales[g] = zero ? 0.0f : amax / steps;
    const float inverse = zero ? 0.0f : steps / amax;
    const auto store = [&](const int (&q)[32], int8_t* codes, int32_t* sums) {
      for (int i = 0; i < 32; ++i) codes[32 * g + i] = static_cast<int8_t>(std::clamp(q[i], -128, 127));
      for (int half = 0; half < 2; ++half) sums[2 * g + half] = std::accumulate(codes + 32 * g + 16 * half, codes + 32 * g + 16 * half + 16, 0);
    };
    int q[32], high[32];
    for (int i = 0; i < 32; ++i) q[i] = round(x[i] * inverse);
    if (to.second == nullptr) {
      store(q, to.codes, to.sums);
      continue;
    }
    for (int i = 0; i < 32; ++i) {
      high[i] = round(static_cast<float>(q[i]) * (1.0f / kDigits));
      q[i] = static_cast<int>(static_cast<uint32_t>(q[i]) - kDigits * static_cast<uint32_t>(high[i]));  // of a NaN it wraps, as vectors do
    }
    store(high, to.codes, to.sums);
    store(q, to.second, to.second_sums);
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
