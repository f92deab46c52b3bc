// Codes x one to eight int8 rows with AVX-512 VNNI, codes in registers. Two panels side by side, so that a broadcast of x serves
// two products and the chains of sums are twice as many; sums take up to 16 registers, and then the float accumulators stay in
// L1, where they are added to a group at a time. Up to three rows, which wait for memory, multiply int8; more rows, which wait for
// multipliers, words (few_rows_words_vnni.h).
#include <string.h>

#include "kernels/matmul/few_rows_accumulators.h"
#include "kernels/matmul/few_rows_formats_avx512.h"
#include "kernels/matmul/few_rows_words_vnni.h"
#include "kernels/matmul/read_ahead.h"

namespace hone {
namespace {

inline __m512i BroadcastQuad(const int8_t* x) {
  int word;
  memcpy(&word, x, 4);
  return _mm512_set1_epi32(word);
}

// kRows rows of groups `x` against the stretches of `k` of kPanels panels, panel_bytes apart. Few sums: those of all terms are made
// side by side, and codes are unpacked once.
template <typename F, int kRows, int kPanels, int kTerms>
HONE_FLATTEN void Stretch(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int k, const FewRowsGroup* x, float* out) {
  constexpr int kParts = F::kParts, kPairs = F::kPart / 2;
  constexpr int kAtOnce = kRows <= (kParts == 1 && !F::kMin ? 4 : 2) ? kTerms : 1;  // what the registers hold
  Accumulators<kRows, kPanels> acc(out);
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    const typename F::Scales scales[2] = {F::ScalesOf(chunk), F::ScalesOf(chunk + (kPanels - 1) * panel_bytes)};
    for (int g = 0; g < F::kGroups; ++g, x += kTerms * kRows) {
      const uint8_t* codes = chunk + g * F::kGroupBytes;
      AskAhead(t.ahead, kPanels * F::kChunkBytes / F::kGroups);
#pragma GCC unroll 1
      for (int part = 0; part < kParts; ++part) {
        __m512i sum[kAtOnce][kPanels][kRows];
#pragma GCC unroll 1
        for (int term = 0; term < kTerms; term += kAtOnce) {
#pragma GCC unroll 8
          for (int r = 0; r < kAtOnce * kRows; ++r) {
            const __m512i init = _mm512_set1_epi32(x[term * kRows + r].init[part]);
            for (int p = 0; p < kPanels; ++p) {
              __m512i& s = sum[r / kRows][p][r % kRows];
              s = term == 0 ? init : AddTerm(s, init);
            }
          }
#pragma GCC unroll 4
          for (int i = 0; i < kPairs; ++i) {
            const int pair = part * kPairs + i;
            __m512i c[kPanels][2];
            for (int p = 0; p < kPanels; ++p) F::Codes(codes + p * panel_bytes, pair, c[p]);
#pragma GCC unroll 2
            for (int j = 0; j < 2; ++j) {
#pragma GCC unroll 8
              for (int r = 0; r < kAtOnce * kRows; ++r) {
                const __m512i quad = BroadcastQuad(x[term * kRows + r].codes + 8 * pair + 4 * j);
                for (int p = 0; p < kPanels; ++p) {
                  __m512i& s = sum[r / kRows][p][r % kRows];
                  s = _mm512_dpbusd_epi32(s, c[p][j], quad);
                }
              }
            }
          }
        }
        if (kAtOnce == 2) {
          for (int p = 0; p < kPanels; ++p) {
            for (int r = 0; r < kRows; ++r) sum[0][p][r] = AddTerm(sum[0][p][r], sum[kAtOnce - 1][p][r]);
          }
        }
        acc.Next();
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
          const __m512 s = scales[p].Scale(g * kParts + part), m = F::kMin ? scales[p].Min(g * kParts + part) : s;
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const __m512 scale = _mm512_mul_ps(s, _mm512_set1_ps(x[r].scale));
            __m512 a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[0][p][r]), scale, acc.Get(p, r));
            if (F::kMin) a = _mm512_fmadd_ps(m, _mm512_set1_ps(x[r].sum), a);
            acc.Set(p, r, a);
          }
        }
      }
    }
  }
  acc.Store();
}

template <typename F, int kRows, int kTerms>
inline void Stretches(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int64_t k0, int k) {
  if constexpr (kRows >= kRowsOfWords) {
    const FewRowsWords* x = t.x_words + k0 / 32 * kRows;
    if (t.panels == 2) return StretchOfWords<F, kRows, 2>(t, chunk, panel_bytes, k, x, t.accumulator);
    StretchOfWords<F, kRows, 1>(t, chunk, panel_bytes, k, x, t.accumulator);
  } else {
    const FewRowsGroup* x = t.x_groups + k0 / 32 * kTerms * kRows;
    if (t.panels == 2) return Stretch<F, kRows, 2, kTerms>(t, chunk, panel_bytes, k, x, t.accumulator);
    Stretch<F, kRows, 1, kTerms>(t, chunk, panel_bytes, k, x, t.accumulator);
  }
}

template <typename F, int kRows, int kTerms>
void Tile(const FewRowsTile& t) {
  for (int i = 0; i < kRows * kTileColumns; i += 16) _mm512_storeu_ps(t.accumulator + i, _mm512_setzero_ps());
  const uint8_t* chunk = t.chunks;
  for (int64_t k0 = 0; k0 < t.k; k0 += kCodeStretch) {
    const int k = static_cast<int>(t.k - k0 < kCodeStretch ? t.k - k0 : kCodeStretch);
    const int64_t panel_bytes = k / (32 * F::kGroups) * F::kChunkBytes;
    Stretches<F, kRows, kTerms>(t, chunk, panel_bytes, k0, k);
    chunk += t.panels * panel_bytes;
  }
}

template <typename F, int kRows>
inline void Terms(const FewRowsTile& t) {
  constexpr bool kAll = kRows >= kRowsOfWords;  // words hold all terms
  kAll || t.terms == 2 ? Tile<F, kRows, 2>(t) : Tile<F, kRows, kAll ? 2 : 1>(t);
}

template <typename F>
inline void Rows(const FewRowsTile& t) {
  switch (t.rows) {
    case 1: return Terms<F, 1>(t);
    case 2: return Terms<F, 2>(t);
    case 3: return Terms<F, 3>(t);
    case 4: return Terms<F, 4>(t);
    case 5: return Terms<F, 5>(t);
    case 6: return Terms<F, 6>(t);
    case 7: return Terms<F, 7>(t);
    default: return Terms<F, 8>(t);
  }
}

}  // namespace

void FewRowsQ4_0Vnni(const FewRowsTile& t) { Rows<Q4_0Few>(t); }
void FewRowsQ4_1Vnni(const FewRowsTile& t) { Rows<Q4_1Few>(t); }
void FewRowsQ5_0Vnni(const FewRowsTile& t) { Rows<Q5_0Few>(t); }
void FewRowsQ5_1Vnni(const FewRowsTile& t) { Rows<Q5_1Few>(t); }
void FewRowsQ8_0Vnni(const FewRowsTile& t) { Rows<Q8_0Few>(t); }
void FewRowsIQ4_NLVnni(const FewRowsTile& t) { Rows<Iq4NlFew>(t); }
void FewRowsNF4Vnni(const FewRowsTile& t) { Rows<Nf4Few>(t); }
void FewRowsMXFP4Vnni(const FewRowsTile& t) { Rows<Mxfp4Few>(t); }
void FewRowsQ4_KVnni(const FewRowsTile& t) { Rows<Q4_KFew>(t); }
void FewRowsQ5_KVnni(const FewRowsTile& t) { Rows<Q5_KFew>(t); }
void FewRowsQ6_KVnni(const FewRowsTile& t) { Rows<Q6_KFew>(t); }
void FewRowsIQ4_XSVnni(const FewRowsTile& t) { Rows<Iq4XsFew>(t); }
void FewRowsTQ2_0Vnni(const FewRowsTile& t) { Rows<Tq2_0Few>(t); }

}  // namespace hone
