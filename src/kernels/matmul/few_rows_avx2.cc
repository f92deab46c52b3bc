// Codes x one to eight int8 rows with AVX2, codes in registers: half a panel (8 rows of W) of a group of 32 at a time. How many
// 16-bit results of VPMADDUBSW may be added before widening is told in multiply_codes_avx2.cc. More than four rows are two
// passes over a stretch, the second in L1.
#include <string.h>

#include "kernels/matmul/few_rows_formats_avx2.h"
#include "kernels/matmul/few_rows_words_avx2.h"
#include "kernels/matmul/read_ahead.h"

namespace hone {
namespace {

constexpr int kMostRows = 4;  // of a pass

inline __m256i BroadcastQuad(const int8_t* x) {
  int word;
  memcpy(&word, x, 4);
  return _mm256_set1_epi32(word);
}

// Adds products of 16 bits. Compilers would add in another order, for which they keep products in memory.
inline __m256i AddNarrow(__m256i sum, __m256i products) {
  sum = _mm256_add_epi16(sum, products);
  asm volatile("" : "+x"(sum));
  return sum;
}

// The integer sum of kQuads quads times `factor` (as words), on top of `init`.
template <int kBits, int kQuads>
inline __m256i Sum(const __m256i* c, const int8_t* x, int32_t init, __m256i factor) {
  constexpr int kReach = kBits <= 4 ? 8 : kBits == 5 ? 4 : 2;
  constexpr int kChain = kReach < kQuads ? kReach : kQuads;
  __m256i sum = _mm256_set1_epi32(init);
#pragma GCC unroll 8
  for (int first = 0; first < kQuads; first += kChain) {
    __m256i narrow = _mm256_maddubs_epi16(c[first], BroadcastQuad(x + 4 * first));
#pragma GCC unroll 8
    for (int quad = first + 1; quad < first + kChain; ++quad) {
      narrow = AddNarrow(narrow, _mm256_maddubs_epi16(c[quad], BroadcastQuad(x + 4 * quad)));
    }
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(narrow, factor));
  }
  return sum;
}

// x and the others point at the first row of the pass, at the stretch.
struct RowsAt {
  const int8_t* x;
  const float* scales;
  const uint8_t* wide;
  const int32_t* init;
  const float* sums;
};

template <typename F, int kRows>
HONE_FLATTEN void Panel(const FewRowsTile& t, const uint8_t* chunk, int k, RowsAt at, bool first, float* out) {
  constexpr int kPart = F::kGroup / 4;  // quads a scale
  constexpr int kParts = 8 / kPart;     // scales a group of 32
  typename F::Scales scales;
  const int64_t last_term = (t.terms - 1) * t.term_rows;
  __m256 acc[2][kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) acc[half][r] = _mm256_loadu_ps(out + r * kTileColumns + 8 * half);
  }
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    scales.Read(F::ScalesOf(chunk));
    for (int g = 0; g < F::kGroups; ++g) {
      const uint8_t* codes = chunk + g * F::kGroupBytes;
      AskAhead(t.ahead, first ? F::kChunkBytes / F::kGroups : 0);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256i c[8];
        F::Codes(codes + 32 * half, c);
        asm("" : "+r"(at.x));  // loaded again for each half, or compilers keep all of x in memory that they know better
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part) {
          const __m256 s = scales.Scale(g * kParts + part, half), min = scales.Min(g * kParts + part, half);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const auto term = [&](int64_t row, int factor) {
              return Sum<F::kBits, kPart>(c + part * kPart, at.x + row * t.x_stride + part * F::kGroup,
                                          factor * at.init[row * t.x_group_stride + part], _mm256_set1_epi16(factor));
            };
            __m256i sum = term(r + last_term, 1);
            if (last_term > 0 && at.wide[r * t.x_scale_stride]) sum = _mm256_add_epi32(sum, term(r, kDigits));
            const __m256 xs = _mm256_set1_ps(at.scales[r * t.x_scale_stride]);
            acc[half][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(s, xs), acc[half][r]);
            if (F::kMin) acc[half][r] = _mm256_fmadd_ps(min, _mm256_set1_ps(at.sums[r * t.x_group_stride + part]), acc[half][r]);
          }
        }
      }
      at.x += 32, at.scales += 1, at.wide += 1, at.init += kParts, at.sums += kParts;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) _mm256_storeu_ps(out + r * kTileColumns + 8 * half, acc[half][r]);
  }
}

// The integer sums of a scale's quads for one row and all columns of kPanels panels. A pair of quads is unpacked and multiplied at once: a
// broadcast of x serves all columns, and no codes are kept. `high` is x's first term, `low` the second or only one.
template <typename F, int kPanels, int kTerms>
inline void SumsOfRow(const uint8_t* codes, int64_t panel_bytes, int part, const int8_t* low, const int8_t* high, int32_t init, __m256i* sum) {
  constexpr int kBlocks = 2 * kPanels, kPairs = F::kGroup / 8;
  constexpr int kReach = F::kBits <= 4 ? 4 : F::kBits == 5 ? 2 : 1, kChain = kReach < kPairs ? kReach : kPairs;
  const __m256i factor[2] = {_mm256_set1_epi16(1), _mm256_set1_epi16(kDigits)};
  const uint8_t* panels[2] = {codes, codes + (kPanels - 1) * panel_bytes};
  asm volatile("" : "+r"(panels[0]), "+r"(panels[1]), "+r"(low));  // or compilers make what one and two terms share before they branch, and keep it in memory
  const int8_t* const x[2] = {low, high};
  for (int b = 0; b < kBlocks; ++b) sum[b] = _mm256_set1_epi32(init);
#pragma GCC unroll 4
  for (int first = 0; first < kPairs; first += kChain) {
    __m256i narrow[kTerms][kBlocks];
#pragma GCC unroll 4
    for (int pair = first; pair < first + kChain; ++pair) {
      __m256i quads[kTerms][2];
      for (int term = 0; term < kTerms; ++term) {
        for (int j = 0; j < 2; ++j) quads[term][j] = BroadcastQuad(x[term] + 8 * pair + 4 * j);
      }
#pragma GCC unroll 4
      for (int b = 0; b < kBlocks; ++b) {
        __m256i c[2];
        F::Pair(panels[b / 2] + 32 * (b % 2), part * kPairs + pair, c);
        for (int term = 0; term < kTerms; ++term) {
          __m256i& n = narrow[term][b];
          const __m256i products = _mm256_maddubs_epi16(c[0], quads[term][0]);
          n = pair == first ? products : AddNarrow(n, products);
          n = AddNarrow(n, _mm256_maddubs_epi16(c[1], quads[term][1]));
        }
      }
    }
    for (int term = 0; term < kTerms; ++term) {
      for (int b = 0; b < kBlocks; ++b) sum[b] = _mm256_add_epi32(sum[b], _mm256_madd_epi16(narrow[term][b], factor[term]));
    }
  }
}

// One row against the stretches of `k` of kPanels panels, panel_bytes apart.
template <typename F, int kPanels>
HONE_FLATTEN void Row(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int k, RowsAt at, float* out) {
  constexpr int kBlocks = 2 * kPanels, kParts = 32 / F::kGroup;
  typename F::Scales scales[kPanels];
  const bool two = t.terms == 2;
  const int64_t last_codes = two ? t.term_rows * t.x_stride : 0, last_init = two ? t.term_rows * t.x_group_stride : 0;
  __m256 acc[kBlocks];
  for (int b = 0; b < kBlocks; ++b) acc[b] = _mm256_loadu_ps(out + 8 * b);
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    for (int p = 0; p < kPanels; ++p) scales[p].Read(F::ScalesOf(chunk + p * panel_bytes));
    for (int g = 0; g < F::kGroups; ++g) {
      const uint8_t* codes = chunk + g * F::kGroupBytes;
      AskAhead(t.ahead, kPanels * F::kChunkBytes / F::kGroups);
      for (int part = 0; part < kParts; ++part) {
        const int8_t *high = at.x + part * F::kGroup, *low = high + last_codes;
        __m256i sum[kBlocks];
        if (two && *at.wide) {
          SumsOfRow<F, kPanels, 2>(codes, panel_bytes, part, low, high, kDigits * at.init[part] + at.init[last_init + part], sum);
        } else {
          SumsOfRow<F, kPanels, 1>(codes, panel_bytes, part, low, high, at.init[last_init + part], sum);
        }
        const __m256 xs = _mm256_set1_ps(*at.scales);
        for (int b = 0; b < kBlocks; ++b) {
          const __m256 s = scales[b / 2].Scale(g * kParts + part, b % 2);
          acc[b] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[b]), _mm256_mul_ps(s, xs), acc[b]);
          if (F::kMin) acc[b] = _mm256_fmadd_ps(scales[b / 2].Min(g * kParts + part, b % 2), _mm256_set1_ps(at.sums[part]), acc[b]);
        }
      }
      at.x += 32, at.scales += 1, at.wide += 1, at.init += kParts, at.sums += kParts;
    }
  }
  for (int b = 0; b < kBlocks; ++b) _mm256_storeu_ps(out + 8 * b, acc[b]);
}

template <typename F>
void Panels(const FewRowsTile& t, const uint8_t* chunk, int k, RowsAt at, int rows, bool first, float* out) {
  switch (rows) {
    case 1: return Panel<F, 1>(t, chunk, k, at, first, out);  // the fifth
    case 2: return Panel<F, 2>(t, chunk, k, at, first, out);
    case 3: return Panel<F, 3>(t, chunk, k, at, first, out);
    default: return Panel<F, 4>(t, chunk, k, at, first, out);
  }
}

// All rows against the stretch [k0, k0 + k) of the tile, whose bytes begin at `chunk`.
template <typename F>
inline void TileOfBytes(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int64_t k0, int k) {
  const auto rows_at = [&](int r) {
    return RowsAt{t.x + r * t.x_stride + k0, t.x_scales + r * t.x_scale_stride + k0 / 32, t.x_wide + r * t.x_scale_stride + k0 / 32,
                  t.x_init + r * t.x_group_stride + k0 / F::kGroup, t.x_sums + r * t.x_group_stride + k0 / F::kGroup};
  };
  constexpr int kTogether = F::kBits == 5 ? 1 : 2;  // panels whose sums of one row registers hold
  if (t.rows == 1 && kTogether == 2 && t.panels == 2) return Row<F, kTogether>(t, chunk, panel_bytes, k, rows_at(0), t.accumulator);
  for (int panel = 0; panel < t.panels; ++panel, chunk += panel_bytes) {
    float* out = t.accumulator + panel * kPanelRows;
    if (t.rows == 1) {
      Row<F, 1>(t, chunk, panel_bytes, k, rows_at(0), out);
      continue;
    }
    for (int first = 0; first < t.rows; first += kMostRows) {
      const int rows = t.rows - first < kMostRows ? t.rows - first : kMostRows;
      Panels<F>(t, chunk, k, rows_at(first), rows, first == 0, out + first * kTileColumns);
    }
  }
}

template <typename F>
void Tile(const FewRowsTile& t) {
  memset(t.accumulator, 0, sizeof(float) * kTileColumns * t.rows);
  const uint8_t* chunk = t.chunks;
  for (int64_t k0 = 0; k0 < t.k; k0 += kCodeStretch) {
    const int k = static_cast<int>(t.k - k0 < kCodeStretch ? t.k - k0 : kCodeStretch);
    const int64_t panel_bytes = k / (32 * F::kGroups) * F::kChunkBytes;
    if constexpr (F::kBits == 8) {
      TileOfWords<F>(t, chunk, panel_bytes, k0, k);
    } else {
      TileOfBytes<F>(t, chunk, panel_bytes, k0, k);
    }
    chunk += t.panels * panel_bytes;
  }
}

}  // namespace

void FewRowsQ4_0Avx2(const FewRowsTile& t) { Tile<Q4_0Few>(t); }
void FewRowsQ4_1Avx2(const FewRowsTile& t) { Tile<Q4_1Few>(t); }
void FewRowsQ5_0Avx2(const FewRowsTile& t) { Tile<Q5_0Few>(t); }
void FewRowsQ5_1Avx2(const FewRowsTile& t) { Tile<Q5_1Few>(t); }
void FewRowsQ8_0Avx2(const FewRowsTile& t) { Tile<Q8_0Few>(t); }
void FewRowsIQ4_NLAvx2(const FewRowsTile& t) { Tile<Iq4NlFew>(t); }
void FewRowsNF4Avx2(const FewRowsTile& t) { Tile<Nf4Few>(t); }
void FewRowsMXFP4Avx2(const FewRowsTile& t) { Tile<Mxfp4Few>(t); }
void FewRowsQ2_KAvx2(const FewRowsTile& t) { Tile<Q2_KFew>(t); }
void FewRowsQ3_KAvx2(const FewRowsTile& t) { Tile<Q3_KFew>(t); }
void FewRowsQ4_KAvx2(const FewRowsTile& t) { Tile<Q4_KFew>(t); }
void FewRowsQ5_KAvx2(const FewRowsTile& t) { Tile<Q5_KFew>(t); }
void FewRowsQ6_KAvx2(const FewRowsTile& t) { Tile<Q6_KFew>(t); }
void FewRowsIQ4_XSAvx2(const FewRowsTile& t) { Tile<Iq4XsFew>(t); }
void FewRowsTQ2_0Avx2(const FewRowsTile& t) { Tile<Tq2_0Few>(t); }

}  // namespace hone
