// Codes x one to eight int8 rows with AVX-512 VNNI, codes in registers: 8 vectors of a group of 32, up to eight integer sums
// and eight float accumulators fill 24 of 32 registers. One panel at a time, so that a thread reads one stream of bytes; memory
// sets the pace up to about eight rows.
#include <string.h>

#include "kernels/matmul/codes_avx512.h"
#include "kernels/matmul/few_rows.h"

namespace hone {
namespace {

inline __m512i BroadcastQuad(const int8_t* x) {
  int word;
  memcpy(&word, x, 4);
  return _mm512_set1_epi32(word);
}
inline __m128i LoadBytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// The 8 vectors of codes of a group, as Codes8, Codes4 ... of codes_avx512.h store them.
inline void Registers8(const uint8_t* in, __m512i c[8]) {
  for (int j = 0; j < 8; ++j) c[j] = _mm512_xor_si512(LoadPlane(in + 64 * j), Bytes(-128));
}
inline void Registers4(const uint8_t* in, __m512i c[8]) {
  for (int l = 0; l < 4; ++l) {
    const __m512i plane = LoadPlane(in + 64 * l);
    c[2 * l] = _mm512_and_si512(plane, Bytes(15));
    c[2 * l + 1] = _mm512_and_si512(_mm512_srli_epi16(plane, 4), Bytes(15));
  }
}
inline void RegistersIq4(const uint8_t* in, __m512i c[8]) {
  const __m512i table = _mm512_broadcast_i32x4(LoadBytes(kIq4Codes));
  Registers4(in, c);
  for (int j = 0; j < 8; ++j) c[j] = _mm512_shuffle_epi8(table, c[j]);
}
inline void Registers5(const uint8_t* in, __m512i c[8]) {
  const __m512i high = LoadPlane(in + 256);
  const __m512i at4[8] = {_mm512_slli_epi16(high, 4), _mm512_slli_epi16(high, 3), _mm512_slli_epi16(high, 2),
                          _mm512_slli_epi16(high, 1), high,                       _mm512_srli_epi16(high, 1),
                          _mm512_srli_epi16(high, 2), _mm512_srli_epi16(high, 3)};
  Registers4(in, c);
  for (int j = 0; j < 8; ++j) c[j] = OrMasked(c[j], at4[j], Bytes(16));
}
inline void Registers6(const uint8_t* in, __m512i c[8]) {
  Registers4(in, c);
  for (int h = 0; h < 2; ++h) {
    const __m512i high = LoadPlane(in + 256 + 64 * h);
    c[4 * h] = OrMasked(c[4 * h], _mm512_slli_epi16(high, 4), Bytes(48));
    c[4 * h + 1] = OrMasked(c[4 * h + 1], _mm512_slli_epi16(high, 2), Bytes(48));
    c[4 * h + 2] = OrMasked(c[4 * h + 2], high, Bytes(48));
    c[4 * h + 3] = OrMasked(c[4 * h + 3], _mm512_srli_epi16(high, 2), Bytes(48));
  }
}

// d * integer sub-scales, exact, as unpack_superblocks_avx512.cc makes them.
template <bool kSigned>
inline void StoreScaled(float* out, __m512i bytes, __m512 d) {
  const __m128i parts[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                            _mm512_extracti32x4_epi32(bytes, 2), _mm512_extracti32x4_epi32(bytes, 3)};
  for (int i = 0; i < 4; ++i) {
    const __m512i wide = kSigned ? _mm512_cvtepi8_epi32(parts[i]) : _mm512_cvtepu8_epi32(parts[i]);
    _mm512_store_ps(out + 16 * i, _mm512_mul_ps(_mm512_cvtepi32_ps(wide), d));
  }
}
inline void ScalesOfSix(const uint8_t* p, float* scales, float* mins) {
  const __m512i low0 = LoadPlane(p), low1 = LoadPlane(p + 64), high = LoadPlane(p + 128);
  const __m512 d = HalfScales(p + 192), dmin = _mm512_sub_ps(_mm512_setzero_ps(), HalfScales(p + 224));
  const __m512i nibble = Bytes(15), top = Bytes(48);
  StoreScaled<false>(scales, OrMasked(_mm512_and_si512(low0, nibble), _mm512_slli_epi16(high, 4), top), d);
  StoreScaled<false>(scales + 64, OrMasked(_mm512_and_si512(low1, nibble), high, top), d);
  StoreScaled<false>(mins, OrMasked(_mm512_and_si512(_mm512_srli_epi16(low0, 4), nibble), _mm512_slli_epi16(high, 2), top), dmin);
  StoreScaled<false>(mins + 64, OrMasked(_mm512_and_si512(_mm512_srli_epi16(low1, 4), nibble), _mm512_srli_epi16(high, 2), top),
                     dmin);
}
inline void SixteenSigned(const uint8_t* p, float* scales, float*) {
  const __m512 d = HalfScales(p + 256);
  for (int i = 0; i < 4; ++i) StoreScaled<true>(scales + 64 * i, LoadPlane(p + 64 * i), d);
}
inline void OneHalf(const uint8_t* p, float* scales, float*) { _mm512_store_ps(scales, HalfScales(p)); }
inline void TwoHalves(const uint8_t* p, float* scales, float* mins) {
  _mm512_store_ps(scales, HalfScales(p));
  _mm512_store_ps(mins, HalfScales(p + 32));
}

// A format: groups of 32 a chunk, bits of a code in the panel, elements a scale, bytes of the scales of a chunk.
template <int kGroupsValue, int kBits, int kGroupValue, bool kMinValue, int kScaleBytes, void (*kRegisters)(const uint8_t*, __m512i*),
          void (*kScales)(const uint8_t*, float*, float*)>
struct Format {
  static constexpr int kGroups = kGroupsValue, kGroup = kGroupValue, kGroupBytes = 64 * kBits;
  static constexpr int kChunkBytes = kGroups * kGroupBytes + kScaleBytes;
  static constexpr bool kMin = kMinValue;
  static void Codes(const uint8_t* in, __m512i c[8]) { kRegisters(in, c); }
  static void Scales(const uint8_t* chunk, float* scales, float* mins) { kScales(chunk + kGroups * kGroupBytes, scales, mins); }
};

// kRows rows against one panel's stretch of `k`; x and the others point at row 0 of the term, at the stretch.
struct RowsAt {
  const int8_t* x;
  const float* scales;
  const int32_t* init;
  const float* sums;
};

template <typename F, int kRows>
inline void Panel(const FewRowsTile& t, const uint8_t* chunk, int k, RowsAt at, float* out) {
  constexpr int kPart = F::kGroup / 4;  // quads a scale
  constexpr int kParts = 8 / kPart;     // scales a group of 32
  alignas(64) float scales[F::kGroups * kParts * kPanelRows];
  alignas(64) float mins[F::kMin ? F::kGroups * kParts * kPanelRows : 16];
  __m512 acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_loadu_ps(out + r * kTileColumns);
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    F::Scales(chunk, scales, mins);
    for (int g = 0; g < F::kGroups; ++g) {
      const uint8_t* codes = chunk + g * F::kGroupBytes;
      Prefetch(codes + kPrefetchBytes, F::kChunkBytes / F::kGroups);
      __m512i c[8];
      F::Codes(codes, c);
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        __m512i sum[kRows];
        for (int r = 0; r < kRows; ++r) sum[r] = _mm512_set1_epi32(at.init[r * t.x_group_stride + part]);
#pragma GCC unroll 8
        for (int quad = part * kPart; quad < (part + 1) * kPart; ++quad) {
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            sum[r] = _mm512_dpbusd_epi32(sum[r], c[quad], BroadcastQuad(at.x + r * t.x_stride + 4 * quad));
          }
        }
        const __m512 s = _mm512_load_ps(scales + (g * kParts + part) * kPanelRows);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const __m512 xs = _mm512_set1_ps(at.scales[r * t.x_scale_stride]);
          acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]), _mm512_mul_ps(s, xs), acc[r]);
        }
        if (F::kMin) {
          const __m512 m = _mm512_load_ps(mins + (g * kParts + part) * kPanelRows);
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
        const int64_t row = term * t.term_rows;
        Panel<F, kRows>(t, chunk, k,
                        {t.x + row * t.x_stride + k0, t.x_scales + row * t.x_scale_stride + k0 / 32,
                         t.x_init + row * t.x_group_stride + k0 / F::kGroup, t.x_sums + row * t.x_group_stride + k0 / F::kGroup},
                        t.accumulator + panel * kPanelRows);
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

void FewRowsQ4_0Vnni(const FewRowsTile& t) { Rows<Format<1, 4, 32, false, 32, Registers4, OneHalf>>(t); }
void FewRowsQ4_1Vnni(const FewRowsTile& t) { Rows<Format<1, 4, 32, true, 64, Registers4, TwoHalves>>(t); }
void FewRowsQ5_0Vnni(const FewRowsTile& t) { Rows<Format<1, 5, 32, false, 32, Registers5, OneHalf>>(t); }
void FewRowsQ8_0Vnni(const FewRowsTile& t) { Rows<Format<1, 8, 32, false, 32, Registers8, OneHalf>>(t); }
void FewRowsIQ4_NLVnni(const FewRowsTile& t) { Rows<Format<1, 4, 32, false, 32, RegistersIq4, OneHalf>>(t); }
void FewRowsQ4_KVnni(const FewRowsTile& t) { Rows<Format<8, 4, 32, true, 256, Registers4, ScalesOfSix>>(t); }
void FewRowsQ5_KVnni(const FewRowsTile& t) { Rows<Format<8, 5, 32, true, 256, Registers5, ScalesOfSix>>(t); }
void FewRowsQ6_KVnni(const FewRowsTile& t) { Rows<Format<8, 6, 16, false, 288, Registers6, SixteenSigned>>(t); }

}  // namespace hone
