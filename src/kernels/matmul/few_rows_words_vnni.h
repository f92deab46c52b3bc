// Codes x four to eight rows of words (both terms of x in one 16-bit number) with VPDPWSSD, for few_rows_vnni.cc only.
//
// VPDPWSSD multiplies two pairs a lane where VPDPBUSD multiplies four, so a code takes as many products as by two terms of int8. But
// half of the products are saved: for two pairs of neighbours
//
//   w0 x0 + w1 x1 = (w0 + x1) (w1 + x0) - w0 w1 - x0 x1
//
// is one product for two additions (S. Winograd, "A new algorithm for inner product", 1968). The products of codes alone are summed
// once for all rows, those of x when it is rounded. Sums wrap at 2^32 and the result is below 2^29, so it is the exact integer. A sum
// of a code and a word is at most 255 + 32512, just a 16-bit number. Of the four vector units of Zen 5 two multiply, so every second
// quad is taken this way: with more, the other two have no room for the additions (three, five and eight of eight are slower).
#pragma once

#include <string.h>

#include "kernels/matmul/few_rows_accumulators.h"
#include "kernels/matmul/few_rows_formats_avx512.h"
#include "kernels/matmul/read_ahead.h"

namespace hone {
namespace {

static_assert(kTwoTermSteps + 255 <= 32767);

inline __m512i BroadcastPair(const int16_t* x) {
  int pair;
  memcpy(&pair, x, 4);
  return _mm512_set1_epi32(pair);
}

// kRows rows `x` against the stretches of `k` of kPanels panels, panel_bytes apart.
template <typename F, int kRows, int kPanels>
HONE_FLATTEN void StretchOfWords(const FewRowsTile& t, const uint8_t* chunk, int64_t panel_bytes, int k, const FewRowsWords* x, float* out) {
  constexpr int kParts = F::kParts, kPairs = F::kPart / 2;
  Accumulators<kRows, kPanels> acc(out);
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    const typename F::Scales scales[2] = {F::ScalesOf(chunk), F::ScalesOf(chunk + (kPanels - 1) * panel_bytes)};
    for (int g = 0; g < F::kGroups; ++g, x += kRows) {
      const uint8_t* codes = chunk + g * F::kGroupBytes;
      AskAhead(t.ahead, kPanels * F::kChunkBytes / F::kGroups);
#pragma GCC unroll 1
      for (int part = 0; part < kParts; ++part) {
        __m512i sum[kPanels][kRows], of_codes[kPanels];
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          for (int p = 0; p < kPanels; ++p) sum[p][r] = _mm512_set1_epi32(x[r].init[part]);
        }
        for (int p = 0; p < kPanels; ++p) of_codes[p] = _mm512_setzero_si512();
#pragma GCC unroll 4
        for (int i = 0; i < kPairs; ++i) {
          const int pair = part * kPairs + i;
          __m512i w[kPanels][2][2];
          for (int p = 0; p < kPanels; ++p) {
            F::Words(codes + p * panel_bytes, pair, w[p]);
            of_codes[p] = _mm512_dpwssd_epi32(of_codes[p], w[p][1][0], w[p][1][1]);
          }
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const int16_t* words = x[r].words + 8 * pair;
            const __m512i even = BroadcastPair(words), odd = BroadcastPair(words + 2);
            for (int p = 0; p < kPanels; ++p) {
              sum[p][r] = _mm512_dpwssd_epi32(_mm512_dpwssd_epi32(sum[p][r], w[p][0][0], even), w[p][0][1], odd);
            }
          }
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const int16_t* words = x[r].words + 8 * pair + 4;
            const __m512i even = BroadcastPair(words), odd = BroadcastPair(words + 2);
            for (int p = 0; p < kPanels; ++p) {
              sum[p][r] = _mm512_dpwssd_epi32(sum[p][r], _mm512_add_epi16(w[p][1][0], odd), _mm512_add_epi16(w[p][1][1], even));
            }
          }
        }
        acc.Next();
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
          const __m512 s = scales[p].Scale(g * kParts + part), m = F::kMin ? scales[p].Min(g * kParts + part) : s;
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            const __m512 scale = _mm512_mul_ps(s, _mm512_set1_ps(x[r].scale));
            __m512 a = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum[p][r], of_codes[p])), scale, acc.Get(p, r));
            if (F::kMin) a = _mm512_fmadd_ps(m, _mm512_set1_ps(x[r].sum), a);
            acc.Set(p, r, a);
          }
        }
      }
    }
  }
  acc.Store();
}

}  // namespace

void WriteWordsVnni(const RowToWords& row) {
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
  const int64_t parts = 32 / row.group;
  FewRowsWords* to = row.to;
  for (int64_t g = 0; g < row.k / 32; ++g, to += row.rows) {
    const auto words_of = [g](const int8_t* codes) {
      return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 32 * g)));
    };
    __m512i words = words_of(row.codes);
    if (row.second != nullptr) {
      words = _mm512_add_epi16(_mm512_mullo_epi16(words, Shorts(kDigits)), words_of(row.second));
    }
    words = _mm512_shuffle_epi8(words, order);
    _mm512_storeu_si512(to->words, words);
    // x0 x1 + x2 x3 of each quad, twice: of every second quad it is in the sums and must not be.
    const __m512i of_x = _mm512_madd_epi16(words, _mm512_shuffle_epi32(words, _MM_PERM_CDAB));
    for (int part = 0; part < 2; ++part) {
      const int64_t at = g * parts + part * (parts - 1);
      uint32_t init = static_cast<uint32_t>(row.init[at]);
      if (row.second != nullptr) init = kDigits * init + static_cast<uint32_t>(row.second_init[at]);
      const __mmask16 quads = parts == 1 ? 0x4444 : part == 0 ? 0x0044 : 0x4400;
      to->init[part] = static_cast<int32_t>(init - static_cast<uint32_t>(_mm512_mask_reduce_add_epi32(quads, of_x)));
    }
    to->scale = row.scales[g];
    to->sum = row.sums[g * parts];
  }
}

}  // namespace hone
