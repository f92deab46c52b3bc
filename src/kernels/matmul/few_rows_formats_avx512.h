// Formats for the few-rows kernels of AVX-512 and above: codes of a group of 32 in 8 registers, and scales. Values are
// those of codes_avx512.h and unpack_*_avx512.cc. For few_rows_*.cc files only.
#pragma once

#include "kernels/matmul/codes_avx512.h"
#include "kernels/matmul/few_rows.h"

namespace hone {
namespace {

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

// Scales of a chunk, turned into floats when a group needs them: d * integer sub-scales (exact products, as
// unpack_superblocks_avx512.cc makes them), or one f16.
struct OneHalf {
  __m512 d;
  explicit OneHalf(const uint8_t* p) : d(HalfScales(p)) {}
  __m512 Scale(int) const { return d; }
  __m512 Min(int) const { return d; }
};
struct TwoHalves {
  __m512 d, m;
  explicit TwoHalves(const uint8_t* p) : d(HalfScales(p)), m(HalfScales(p + 32)) {}
  __m512 Scale(int) const { return d; }
  __m512 Min(int) const { return m; }
};
struct ScalesOfSix {
  alignas(64) uint8_t scales[128];
  alignas(64) uint8_t mins[128];
  __m512 d, dmin;
  explicit ScalesOfSix(const uint8_t* p) : d(HalfScales(p + 192)), dmin(_mm512_sub_ps(_mm512_setzero_ps(), HalfScales(p + 224))) {
    const __m512i low0 = LoadPlane(p), low1 = LoadPlane(p + 64), high = LoadPlane(p + 128);
    const __m512i nibble = Bytes(15), top = Bytes(48);
    _mm512_store_si512(scales, OrMasked(_mm512_and_si512(low0, nibble), _mm512_slli_epi16(high, 4), top));
    _mm512_store_si512(scales + 64, OrMasked(_mm512_and_si512(low1, nibble), high, top));
    const __m512i min0 = _mm512_and_si512(_mm512_srli_epi16(low0, 4), nibble);
    const __m512i min1 = _mm512_and_si512(_mm512_srli_epi16(low1, 4), nibble);
    _mm512_store_si512(mins, OrMasked(min0, _mm512_slli_epi16(high, 2), top));
    _mm512_store_si512(mins + 64, OrMasked(min1, _mm512_srli_epi16(high, 2), top));
  }
  __m512 Scale(int i) const { return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(LoadBytes(scales + 16 * i))), d); }
  __m512 Min(int i) const { return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(LoadBytes(mins + 16 * i))), dmin); }
};
struct SixteenSigned {
  const uint8_t* bytes;
  __m512 d;
  explicit SixteenSigned(const uint8_t* p) : bytes(p), d(HalfScales(p + 256)) {}
  __m512 Scale(int i) const { return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(LoadBytes(bytes + 16 * i))), d); }
  __m512 Min(int) const { return d; }
};

// A format: groups of 32 a chunk, bits of a code in the panel, elements a scale, bytes of the scales of a chunk.
template <int kGroupsValue, int kBits, int kGroupValue, bool kMinValue, int kScaleBytes, void (*kRegisters)(const uint8_t*, __m512i*),
          typename ChunkScales>
struct Format {
  static constexpr int kGroups = kGroupsValue, kGroup = kGroupValue, kGroupBytes = 64 * kBits;
  static constexpr int kChunkBytes = kGroups * kGroupBytes + kScaleBytes;
  static constexpr bool kMin = kMinValue;
  static constexpr int kPart = kGroup / 4;  // quads a scale
  static constexpr int kParts = 8 / kPart;  // scales a group of 32
  static void Codes(const uint8_t* in, __m512i c[8]) { kRegisters(in, c); }
  using Scales = ChunkScales;
  static Scales ScalesOf(const uint8_t* chunk) { return Scales(chunk + kGroups * kGroupBytes); }
};

using Q4_0Few = Format<1, 4, 32, false, 32, Registers4, OneHalf>;
using Q4_1Few = Format<1, 4, 32, true, 64, Registers4, TwoHalves>;
using Q5_0Few = Format<1, 5, 32, false, 32, Registers5, OneHalf>;
using Q8_0Few = Format<1, 8, 32, false, 32, Registers8, OneHalf>;
using Iq4NlFew = Format<1, 4, 32, false, 32, RegistersIq4, OneHalf>;
using Q4_KFew = Format<8, 4, 32, true, 256, Registers4, ScalesOfSix>;
using Q5_KFew = Format<8, 5, 32, true, 256, Registers5, ScalesOfSix>;
using Q6_KFew = Format<8, 6, 16, false, 288, Registers6, SixteenSigned>;

// Where the values of rows and of a stretch begin, for row 0 of a term.
struct RowsAt {
  const int8_t* x;
  const float* scales;
  const int32_t* init;
  const float* sums;
};
inline RowsAt TermAt(const FewRowsTile& t, int term, int64_t k0, int group) {
  const int64_t row = term * t.term_rows, at = row * t.x_group_stride + k0 / group;
  return {t.x + row * t.x_stride + k0, t.x_scales + row * t.x_scale_stride + k0 / 32, t.x_init + at, t.x_sums + at};
}

}  // namespace
}  // namespace hone
