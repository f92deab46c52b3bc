// Codes x int8 rows with AVX2. VPMADDUBSW adds two u8 x s8 products into 16 bits with saturation, so exactness is a matter of
// how large codes are:
//
//   codes below 2^4   8 results of VPMADDUBSW fit 16 bits (8 * 2 * 15 * 127 = 30480)      one widening for 8 quads
//   codes below 2^5   4 (4 * 2 * 31 * 127 = 31496)
//   codes below 2^6   2 (2 * 2 * 63 * 127 = 32004)
//   codes of 8 bits   none: weights become signed (code - 128) and |weight| * sign(x) is used, 2 * 128 * 127 = 32512
//
// Four rows by 8 columns: four integer sums, four 16-bit sums, four float accumulators of 16 registers.
#include <string.h>

#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/tile.h"

namespace hone {
namespace {

inline __m256i Load(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i BroadcastQuad(const int8_t* x) {
  int word;
  memcpy(&word, x, 4);
  return _mm256_set1_epi32(word);
}

// Eight columns of panel `panel`, from column 8 * `half`. kChain: results of VPMADDUBSW that fit 16 bits, 0 for 8-bit codes.
template <int kRows, int kGroup, bool kMin, int kChain>
inline void Columns(const CodeTile& t, int row, int panel, int half) {
  float* out = t.accumulator + row * kTileColumns + panel * kPanelRows + half * 8;
  const int8_t* x = t.x + row * t.x_stride;
  const float* x_scales = t.x_scales + row * t.x_scale_stride;
  const int32_t* x_init = t.x_init + row * t.x_group_stride;
  const float* x_sums = t.x_sums + row * t.x_group_stride;
  const uint8_t* codes = t.codes[panel] + 32 * half;
  const float* scales = t.scales[panel] + 8 * half;
  const float* mins = t.mins[panel] + 8 * half;
  const __m256i ones = _mm256_set1_epi16(1);
  const int64_t term_codes = t.term_rows * t.x_stride, term_groups = t.term_rows * t.x_group_stride;

  __m256 acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = _mm256_loadu_ps(out + r * kTileColumns);
  const int groups = t.k / kGroup;
  const int ahead_bytes = row == 0 ? t.ahead_bytes / (4 * groups) : 0;  // a group of these columns
  const uint8_t* ahead = t.ahead + (2 * panel + half) * groups * ahead_bytes;
  for (int g = 0; g < groups; ++g, codes += kGroup * kPanelRows, x += kGroup, ahead += ahead_bytes) {
    Prefetch(ahead, ahead_bytes);
    __m256i sum[kRows];
    const int8_t* x_codes = x;
    const int32_t* init = x_init + g;
    for (int term = 0; term < t.terms; ++term, x_codes += term_codes, init += term_groups) {
      for (int r = 0; r < kRows; ++r) {  // signed weights have no offset
        const __m256i start = kChain == 0 ? _mm256_setzero_si256() : _mm256_set1_epi32(init[r * t.x_group_stride]);
        sum[r] = term == 0 ? start : AddTerm(sum[r], start);
      }
      if constexpr (kChain == 0) {
#pragma GCC unroll 8
        for (int quad = 0; quad < kGroup / 4; ++quad) {
          const __m256i w = _mm256_xor_si256(Load(codes + 64 * quad), _mm256_set1_epi8(-128));
          const __m256i magnitude = _mm256_abs_epi8(w);
          for (int r = 0; r < kRows; ++r) {
            const __m256i xq = _mm256_sign_epi8(BroadcastQuad(x_codes + r * t.x_stride + 4 * quad), w);
            sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, xq), ones));
          }
        }
      } else {
        constexpr int kQuads = kChain < kGroup / 4 ? kChain : kGroup / 4;
#pragma GCC unroll 8
        for (int first = 0; first < kGroup / 4; first += kQuads) {
          __m256i narrow[kRows];
#pragma GCC unroll 8
          for (int quad = first; quad < first + kQuads; ++quad) {
            const __m256i w = Load(codes + 64 * quad);
            for (int r = 0; r < kRows; ++r) {
              const __m256i products = _mm256_maddubs_epi16(w, BroadcastQuad(x_codes + r * t.x_stride + 4 * quad));
              narrow[r] = quad == first ? products : _mm256_add_epi16(narrow[r], products);
            }
          }
          for (int r = 0; r < kRows; ++r) sum[r] = _mm256_add_epi32(sum[r], _mm256_madd_epi16(narrow[r], ones));
        }
      }
    }
    const __m256 s = _mm256_loadu_ps(scales + g * kPanelRows);
    for (int r = 0; r < kRows; ++r) {
      const __m256 xs = _mm256_set1_ps(x_scales[r * t.x_scale_stride + g * kGroup / 32]);
      acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), _mm256_mul_ps(s, xs), acc[r]);
    }
    if (kMin) {
      const __m256 m = _mm256_loadu_ps(mins + g * kPanelRows);
      for (int r = 0; r < kRows; ++r) {
        acc[r] = _mm256_fmadd_ps(m, _mm256_set1_ps(x_sums[r * t.x_group_stride + g]), acc[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) _mm256_storeu_ps(out + r * kTileColumns, acc[r]);
}

template <int kGroup, bool kMin, int kChain>
void AllRows(const CodeTile& t) {
  for (int panel = 0; panel < 2; ++panel) {
    for (int half = 0; half < 2; ++half) {
      int row = 0;
      for (; row + 4 <= t.rows; row += 4) Columns<4, kGroup, kMin, kChain>(t, row, panel, half);
      if (row + 2 <= t.rows) Columns<2, kGroup, kMin, kChain>(t, row, panel, half), row += 2;
      if (row < t.rows) Columns<1, kGroup, kMin, kChain>(t, row, panel, half);
    }
  }
}

}  // namespace

void MultiplyCodesAvx2(const CodeTile& t) {
  if (t.group == 32 && !t.has_min) {
    t.bits <= 4 ? AllRows<32, false, 8>(t) : t.bits == 5 ? AllRows<32, false, 4>(t) : AllRows<32, false, 0>(t);
  } else if (t.group == 32) {
    t.bits <= 4 ? AllRows<32, true, 8>(t) : AllRows<32, true, 4>(t);
  } else if (t.has_min) {
    AllRows<16, true, 4>(t);  // two bits
  } else {
    t.bits <= 5 ? AllRows<16, false, 4>(t) : AllRows<16, false, 2>(t);
  }
}

}  // namespace hone
