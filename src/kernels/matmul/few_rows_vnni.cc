// Codes x one to eight int8 rows with AVX-512 VNNI, codes in registers: 8 vectors of a group of 32, up to eight integer sums
// and eight float accumulators fill 24 of 32 registers. One panel at a time, so that a thread reads one stream of bytes; memory
// sets the pace up to about eight rows.
#include <string.h>

#include "kernels/matmul/few_rows_formats_avx512.h"

namespace hone {
namespace {

inline __m512i BroadcastQuad(const int8_t* x) {
  int word;
  memcpy(&word, x, 4);
  return _mm512_set1_epi32(word);
}
// kRows rows against one panel's stretch of `k`.
template <typename F, int kRows>
inline void Panel(const FewRowsTile& t, const uint8_t* chunk, int k, RowsAt at, float* out) {
  constexpr int kPart = F::kPart, kParts = F::kParts;
  constexpr bool kTwo = kRows <= 3;  // few sums: two chains each, or their latency is what a group waits for
  __m512 acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_loadu_ps(out + r * kTileColumns);
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    const typename F::Scales scales = F::ScalesOf(chunk);
    for (int g = 0; g < F::kGroups; ++g) {
      const uint8_t* codes = chunk + g * F::kGroupBytes;
      Prefetch(AheadOf(t, codes), F::kChunkBytes / F::kGroups);
      __m512i c[8];
      F::Codes(codes, c);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        __m512i sum[kRows];
        for (int r = 0; r < kRows; ++r) sum[r] = _mm512_set1_epi32(at.init[r * t.x_group_stride + part]);
        __m512i odd[kRows];
        for (int r = 0; kTwo && r < kRows; ++r) odd[r] = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int quad = part * kPart; quad < (part + 1) * kPart; ++quad) {
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            __m512i& to = kTwo && quad % 2 != 0 ? odd[r] : sum[r];
            to = _mm512_dpbusd_epi32(to, c[quad], BroadcastQuad(at.x + r * t.x_stride + 4 * quad));
          }
        }
        for (int r = 0; kTwo && r < kRows; ++r) sum[r] = _mm512_add_epi32(sum[r], odd[r]);
        const __m512 s = scales.Scale(g * kParts + part);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m512 xs = _mm512_set1_ps(at.scales[r * t.x_scale_stride]);
          acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(s, xs), acc[r]);
        }
        if (F::kMin) {
          const __m512 m = scales.Min(g * kParts + part);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(at.sums[r * t.x_group_stride + part]), acc[r]);
          }
        }
      }
      at.x += 32, at.scales += 1, at.init += kParts, at.sums += kParts;
    }
  }
  for (int r = 0; r < kRows; ++r) _mm512_storeu_ps(out + r * kTileColumns, acc[r]);
}

template <typename F, int kRows>
void Tile(const FewRowsTile& t) {
  for (int i = 0; i < kRows * kTileColumns; i += 16) _mm512_storeu_ps(t.accumulator + i, _mm512_setzero_ps());
  const uint8_t* chunk = t.chunks;
  for (int64_t k0 = 0; k0 < t.k; k0 += kCodeStretch) {
    const int k = static_cast<int>(t.k - k0 < kCodeStretch ? t.k - k0 : kCodeStretch);
    for (int panel = 0; panel < t.panels; ++panel, chunk += k / (32 * F::kGroups) * F::kChunkBytes) {
      for (int term = 0; term < t.terms; ++term) {  // the second finds the stretch in L1
        Panel<F, kRows>(t, chunk, k, TermAt(t, term, k0, F::kGroup), t.accumulator + panel * kPanelRows);
      }
    }
  }
}

template <typename F>
inline void Rows(const FewRowsTile& t) {
  switch (t.rows) {
    case 1: return Tile<F, 1>(t);
    case 2: return Tile<F, 2>(t);
    case 3: return Tile<F, 3>(t);
    case 4: return Tile<F, 4>(t);
    case 5: return Tile<F, 5>(t);
    case 6: return Tile<F, 6>(t);
    case 7: return Tile<F, 7>(t);
    default: return Tile<F, 8>(t);
  }
}

}  // namespace

void FewRowsQ4_0Vnni(const FewRowsTile& t) { Rows<Q4_0Few>(t); }
void FewRowsQ4_1Vnni(const FewRowsTile& t) { Rows<Q4_1Few>(t); }
void FewRowsQ5_0Vnni(const FewRowsTile& t) { Rows<Q5_0Few>(t); }
void FewRowsQ8_0Vnni(const FewRowsTile& t) { Rows<Q8_0Few>(t); }
void FewRowsIQ4_NLVnni(const FewRowsTile& t) { Rows<Iq4NlFew>(t); }
void FewRowsQ4_KVnni(const FewRowsTile& t) { Rows<Q4_KFew>(t); }
void FewRowsQ5_KVnni(const FewRowsTile& t) { Rows<Q5_KFew>(t); }
void FewRowsQ6_KVnni(const FewRowsTile& t) { Rows<Q6_KFew>(t); }

}  // namespace hone
