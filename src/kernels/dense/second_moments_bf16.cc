// Tiles of 8 rows by 48 columns of h: 24 accumulators, and a step of two tokens takes three loads of one factor and eight
// broadcasts of the other. 256 tokens of the three panels (24 KiB) stay in L1 for the tiles of 64 rows.
#include "kernels/dense/second_moments.h"
#include "kernels/matmul/intrinsics.h"

namespace hone {
namespace {

constexpr int kRows = 8, kPanels = 3, kRowsTogether = 64, kPairsTogether = 128;

// rows: of one panel, from lane `lane`. Adds to sums[kRows][kPanels][16].
inline void Tile(const uint32_t* rows, int lane, const uint32_t* const columns[kPanels], int64_t pairs, float* sums) {
  __m512 acc[kRows][kPanels];
#pragma GCC unroll 24
  for (int i = 0; i < kRows * kPanels; ++i) acc[i / kPanels][i % kPanels] = _mm512_loadu_ps(sums + 16 * i);
  for (int64_t t = 0; t < pairs; ++t) {
    __m512bh b[kPanels];
#pragma GCC unroll 3
    for (int p = 0; p < kPanels; ++p) b[p] = (__m512bh)_mm512_loadu_si512(columns[p] + 16 * t);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512bh a = (__m512bh)_mm512_set1_epi32(static_cast<int>(rows[16 * t + lane + r]));
#pragma GCC unroll 3
      for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_dpbf16_ps(acc[r][p], a, b[p]);
    }
  }
#pragma GCC unroll 24
  for (int i = 0; i < kRows * kPanels; ++i) _mm512_storeu_ps(sums + 16 * i, acc[i / kPanels][i % kPanels]);
}

}  // namespace

void PairRowsBf16(const float* first, const float* second, int64_t columns, uint32_t* words, int64_t panel_stride) noexcept {
  for (int64_t c = 0; c < columns; c += 16, words += panel_stride) {
    const __mmask16 in = static_cast<__mmask16>(columns - c >= 16 ? 0xffff : (1 << (columns - c)) - 1);
    const __m256i low = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(in, first + c));
    const __m256i high = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(in, second + c));
    _mm512_storeu_si512(words, _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16)));
  }
}

void AddSecondMomentsBf16(const SecondMomentsArgs& args, int64_t first, int64_t last) noexcept {
  alignas(64) float sums[kRowsTogether / kRows][kRows * kPanels * 16];
  for (int64_t row = first; row < last; row += kRowsTogether) {
    const int64_t row_end = row + kRowsTogether < last ? row + kRowsTogether : last;
    for (int64_t column = 0; column < row_end; column += 16 * kPanels) {
      for (auto& tile : sums) {
        for (float& sum : tile) sum = 0;
      }
      for (int64_t t = 0; t < args.pairs; t += kPairsTogether) {
        const int64_t pairs = args.pairs - t < kPairsTogether ? args.pairs - t : kPairsTogether;
        const uint32_t* columns[kPanels];
        for (int p = 0; p < kPanels; ++p) {  // a panel beyond the last repeats it, and is not stored
          const int64_t c = column + 16 * p < args.columns ? column + 16 * p : column;
          columns[p] = args.x + c / 16 * args.panel_stride + 16 * t;
        }
        for (int64_t r = row; r < row_end; r += kRows)
          Tile(args.x + r / 16 * args.panel_stride + 16 * t, static_cast<int>(r % 16), columns, pairs, sums[(r - row) / kRows]);
      }
      for (int64_t r = row; r < row_end; ++r) {
        const float* from = sums[(r - row) / kRows] + (r - row) % kRows * kPanels * 16;
        for (int p = 0; p < kPanels; ++p) {
          const int64_t c = column + 16 * p, left = args.columns - c;
          if (c > r || left <= 0) break;
          const __mmask16 in = static_cast<__mmask16>(left >= 16 ? 0xffff : (1 << left) - 1);
          float* to = args.h + r * args.columns + c;
          _mm512_mask_storeu_ps(to, in, _mm512_add_ps(_mm512_maskz_loadu_ps(in, to), _mm512_loadu_ps(from + 16 * p)));
        }
      }
    }
  }
}

}  // namespace hone
