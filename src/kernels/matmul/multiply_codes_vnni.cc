// Codes x int8 rows with AVX-512 VNNI: VPDPBUSD adds four u8 x s8 products a lane exactly.
//
// Six rows by 32 columns: 12 integer sums and 12 float accumulators fill 24 of 32 registers, 12 independent chains cover the
// five cycles of VPDPBUSD on two ports, and each broadcast of x and each load of codes serves several products. A group of 32
// costs 8 VPDPBUSD a vector and three more port-0/5 instructions (convert, scale, FMA; four with minimums): at most 8/11 of
// the VNNI peak, 4/7 for groups of 16.
#include <string.h>

#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/tile.h"

namespace hone {
namespace {

// Rows of x lie far apart, in L2: their next lines are asked for by hand.
constexpr int kAhead = 128;

inline __m512i BroadcastQuad(const int8_t* x) {
  int word;
  memcpy(&word, x, 4);
  return _mm512_set1_epi32(word);
}

template <int kRows, int kGroup, bool kMin>
inline void Rows(const CodeTile& t, int row) {
  float* out = t.accumulator + row * kTileColumns;
  const int8_t* x = t.x + row * t.x_stride;
  const float* x_scales = t.x_scales + row * t.x_scale_stride;
  const int32_t* x_init = t.x_init + row * t.x_group_stride;
  const float* x_sums = t.x_sums + row * t.x_group_stride;
  const int64_t term_codes = t.term_rows * t.x_stride, term_groups = t.term_rows * t.x_group_stride;

  __m512 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    acc[r][0] = _mm512_loadu_ps(out + r * kTileColumns);
    acc[r][1] = _mm512_loadu_ps(out + r * kTileColumns + 16);
  }
  const uint8_t* codes0 = t.codes[0];
  const uint8_t* codes1 = t.codes[1];
  const int groups = t.k / kGroup;
  const int ahead_bytes = row == 0 ? t.ahead_bytes / groups : 0;  // a group
  for (int g = 0; g < groups; ++g) {
    Prefetch(t.ahead + g * ahead_bytes, ahead_bytes);
    __m512i sum[kRows][2];
    const int8_t* codes = x;
    const int32_t* init = x_init + g;
    for (int term = 0; term < t.terms; ++term, codes += term_codes, init += term_groups) {
      for (int r = 0; r < kRows; ++r) {
        const __m512i start = _mm512_set1_epi32(init[r * t.x_group_stride]);
        for (int p = 0; p < 2; ++p) sum[r][p] = term == 0 ? start : AddTerm(sum[r][p], start);
        _mm_prefetch(reinterpret_cast<const char*>(codes + r * t.x_stride + kAhead), _MM_HINT_T0);
      }
#pragma GCC unroll 8
      for (int quad = 0; quad < kGroup / 4; ++quad) {
        const __m512i w0 = _mm512_loadu_si512(codes0 + 64 * quad), w1 = _mm512_loadu_si512(codes1 + 64 * quad);
#pragma GCC unroll 6
        for (int r = 0; r < kRows; ++r) {
          const __m512i xq = BroadcastQuad(codes + r * t.x_stride + 4 * quad);
          sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], w0, xq);
          sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], w1, xq);
        }
      }
    }
    codes0 += kGroup * kPanelRows, codes1 += kGroup * kPanelRows, x += kGroup;
    const __m512 s0 = _mm512_loadu_ps(t.scales[0] + g * kPanelRows), s1 = _mm512_loadu_ps(t.scales[1] + g * kPanelRows);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512 xs = _mm512_set1_ps(x_scales[r * t.x_scale_stride + g * kGroup / 32]);
      acc[r][0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][0]), _mm512_mul_ps(s0, xs), acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r][1]), _mm512_mul_ps(s1, xs), acc[r][1]);
    }
    if (kMin) {
      const __m512 m0 = _mm512_loadu_ps(t.mins[0] + g * kPanelRows), m1 = _mm512_loadu_ps(t.mins[1] + g * kPanelRows);
#pragma GCC unroll 6
      for (int r = 0; r < kRows; ++r) {
        const __m512 xs = _mm512_set1_ps(x_sums[r * t.x_group_stride + g]);
        acc[r][0] = _mm512_fmadd_ps(m0, xs, acc[r][0]);
        acc[r][1] = _mm512_fmadd_ps(m1, xs, acc[r][1]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(out + r * kTileColumns, acc[r][0]);
    _mm512_storeu_ps(out + r * kTileColumns + 16, acc[r][1]);
  }
}

template <int kGroup, bool kMin>
void AllRows(const CodeTile& t) {
  const int tiles = (t.rows + 5) / 6;
  for (int tile = 0; tile < tiles; ++tile) {  // heights differ by one at most: 7 rows are 4 + 3, not 6 + 1
    const int row = t.rows * tile / tiles;
    switch (t.rows * (tile + 1) / tiles - row) {
      case 6: Rows<6, kGroup, kMin>(t, row); break;
      case 5: Rows<5, kGroup, kMin>(t, row); break;
      case 4: Rows<4, kGroup, kMin>(t, row); break;
      case 3: Rows<3, kGroup, kMin>(t, row); break;
      case 2: Rows<2, kGroup, kMin>(t, row); break;
      default: Rows<1, kGroup, kMin>(t, row); break;
    }
  }
}

}  // namespace

void MultiplyCodesVnni(const CodeTile& tile) {
  if (tile.group == 32) {
    tile.has_min ? AllRows<32, true>(tile) : AllRows<32, false>(tile);
  } else {
    tile.has_min ? AllRows<16, true>(tile) : AllRows<16, false>(tile);
  }
}

}  // namespace hone
