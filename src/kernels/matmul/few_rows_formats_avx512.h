// Formats for the few-rows kernels of AVX-512 and above: codes of a group of 32, two quads at a time, and scales. Values are
// those of codes_avx512.h and unpack_*_avx512.cc. For few_rows_*.cc files only.
#pragma once

#include "kernels/matmul/codes_avx512.h"
#include "kernels/matmul/few_rows.h"

namespace hone {
namespace {

inline __m128i LoadBytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Quads 2 l and 2 l + 1 of a group, as Codes8, Codes4 ... of codes_avx512.h store them.
inline void Quads8(const uint8_t* in, int l, __m512i c[2]) {
  for (int j = 0; j < 2; ++j) c[j] = _mm512_xor_si512(_mm512_loadu_si512(in + 128 * l + 64 * j), Bytes(-128));
}
inline void Quads2(const uint8_t* in, int l, __m512i c[2]) {
  const __m512i plane = LoadPlane(in + 64 * (l / 2));
  for (int j = 0; j < 2; ++j) c[j] = _mm512_and_si512(_mm512_srli_epi16(plane, 4 * (l % 2) + 2 * j), Bytes(3));
}
inline void Quads4(const uint8_t* in, int l, __m512i c[2]) {
  const __m512i plane = LoadPlane(in + 64 * l);
  c[0] = _mm512_and_si512(plane, Bytes(15));
  c[1] = _mm512_and_si512(_mm512_srli_epi16(plane, 4), Bytes(15));
}
inline void QuadsTable(const uint8_t* in, int l, const uint8_t* table16, __m512i c[2]) {
  const __m512i table = _mm512_broadcast_i32x4(LoadBytes(table16));
  Quads4(in, l, c);
  for (int j = 0; j < 2; ++j) c[j] = _mm512_shuffle_epi8(table, c[j]);
}
inline void QuadsIq4(const uint8_t* in, int l, __m512i c[2]) { QuadsTable(in, l, kIq4Codes, c); }
inline void QuadsMxfp4(const uint8_t* in, int l, __m512i c[2]) { QuadsTable(in, l, kMxfp4Codes, c); }
inline void QuadsNf4(const uint8_t* in, int l, __m512i c[2]) { QuadsTable(in, l, kNf4Codes, c); }
inline void Quads5(const uint8_t* in, int l, __m512i c[2]) {
  const __m512i high = LoadPlane(in + 256);
  Quads4(in, l, c);
  c[0] = OrMasked(c[0], l < 2 ? _mm512_slli_epi16(high, 4 - 2 * l) : _mm512_srli_epi16(high, 2 * l - 4), Bytes(16));
  c[1] = OrMasked(c[1], l < 2 ? _mm512_slli_epi16(high, 3 - 2 * l) : _mm512_srli_epi16(high, 2 * l - 3), Bytes(16));
}
inline void Quads6(const uint8_t* in, int l, __m512i c[2]) {
  in += 192 * (l / 2);
  const __m512i a = LoadPlane(in), b = LoadPlane(in + 64);
  if (l % 2 == 0) {
    c[0] = _mm512_and_si512(a, Bytes(63)), c[1] = _mm512_and_si512(b, Bytes(63));
  } else {
    const __m512i third = LoadPlane(in + 128);
    c[0] = _mm512_and_si512(third, Bytes(63)), c[1] = FourthQuad(a, b, third);
  }
}

// The same codes as words: w[j][0] holds codes 0 and 2 of quad 2 l + j of each row, w[j][1] codes 1 and 3.
inline __m512i Shorts(short value) { return _mm512_set1_epi16(value); }
template <void (*kQuads)(const uint8_t*, int, __m512i*)>
inline void Words(const uint8_t* in, int l, __m512i w[2][2]) {
  __m512i c[2];
  kQuads(in, l, c);
  for (int j = 0; j < 2; ++j) w[j][0] = _mm512_and_si512(c[j], Shorts(255)), w[j][1] = _mm512_srli_epi16(c[j], 8);
}
template <>
inline void Words<Quads8>(const uint8_t* in, int l, __m512i w[2][2]) {
  for (int j = 0; j < 2; ++j) {
    const __m512i plane = LoadPlane(in + 128 * l + 64 * j);
    w[j][0] = _mm512_ternarylogic_epi32(plane, Shorts(128), Shorts(255), 0x28);  // (plane ^ 128) & 255
    w[j][1] = _mm512_xor_si512(_mm512_srli_epi16(plane, 8), Shorts(128));
  }
}
template <>
inline void Words<Quads4>(const uint8_t* in, int l, __m512i w[2][2]) {
  const __m512i plane = LoadPlane(in + 64 * l);
  w[0][0] = _mm512_and_si512(plane, Shorts(15));
  w[0][1] = _mm512_and_si512(_mm512_srli_epi16(plane, 8), Shorts(15));
  w[1][0] = _mm512_and_si512(_mm512_srli_epi16(plane, 4), Shorts(15));
  w[1][1] = _mm512_srli_epi16(plane, 12);
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
struct Exponents {
  __m512 scale;
  explicit Exponents(const uint8_t* p) : scale(PowersOfTwo(p)) {}
  __m512 Scale(int) const { return scale; }
  __m512 Min(int) const { return scale; }
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

struct EightOfSix {  // IQ4_XS: signed; high bits of four groups lie in the same 16 bytes
  alignas(64) uint8_t bytes[128];
  __m512 d;
  explicit EightOfSix(const uint8_t* p) : d(HalfScales(p + 96)) {
    const __m512i low = LoadPlane(p);
    const __m512i shifts = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(_mm_set1_epi16(2), _mm_set1_epi16(0))),
                                              _mm256_set_m128i(_mm_set1_epi16(6), _mm_set1_epi16(4)), 1);
    for (int four = 0; four < 2; ++four) {
      const __m512i high = _mm512_srlv_epi16(_mm512_broadcast_i32x4(LoadBytes(p + 64 + 16 * four)), shifts);
      const __m512i nibbles = _mm512_and_si512(four == 0 ? low : _mm512_srli_epi16(low, 4), Bytes(15));
      const __m512i six = OrMasked(nibbles, _mm512_slli_epi16(high, 4), Bytes(48));
      _mm512_store_si512(bytes + 64 * four, _mm512_sub_epi8(six, Bytes(32)));
    }
  }
  __m512 Scale(int i) const { return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(LoadBytes(bytes + 16 * i))), d); }
  __m512 Min(int) const { return d; }
};

// A format: groups of 32 a chunk, bits of a code in the panel, elements a scale, bytes of the scales of a chunk.
template <int kGroupsValue, int kBits, int kGroupValue, bool kMinValue, int kScaleBytes, void (*kQuads)(const uint8_t*, int, __m512i*),
          typename ChunkScales>
struct Format {
  static constexpr int kGroups = kGroupsValue, kGroup = kGroupValue, kGroupBytes = 64 * kBits;
  static constexpr int kChunkBytes = kGroups * kGroupBytes + kScaleBytes;
  static constexpr bool kMin = kMinValue;
  static constexpr int kPart = kGroup / 4;  // quads a scale
  static constexpr int kParts = 8 / kPart;  // scales a group of 32
  static void Codes(const uint8_t* in, int l, __m512i c[2]) { kQuads(in, l, c); }
  static void Words(const uint8_t* in, int l, __m512i w[2][2]) { hone::Words<kQuads>(in, l, w); }
  using Scales = ChunkScales;
  static Scales ScalesOf(const uint8_t* chunk) { return Scales(chunk + kGroups * kGroupBytes); }
};

using Q4_0Few = Format<1, 4, 32, false, 32, Quads4, OneHalf>;
using Q4_1Few = Format<1, 4, 32, true, 64, Quads4, TwoHalves>;
using Q5_0Few = Format<1, 5, 32, false, 32, Quads5, OneHalf>;
using Q5_1Few = Format<1, 5, 32, true, 64, Quads5, TwoHalves>;
using Q8_0Few = Format<1, 8, 32, false, 32, Quads8, OneHalf>;
using Iq4NlFew = Format<1, 4, 32, false, 32, QuadsIq4, OneHalf>;
using Nf4Few = Format<1, 4, 32, false, 32, QuadsNf4, OneHalf>;
using Mxfp4Few = Format<1, 4, 32, false, 16, QuadsMxfp4, Exponents>;
using Q4_KFew = Format<8, 4, 32, true, 256, Quads4, ScalesOfSix>;
using Q5_KFew = Format<8, 5, 32, true, 256, Quads5, ScalesOfSix>;
using Q6_KFew = Format<8, 6, 16, false, 288, Quads6, SixteenSigned>;
using Iq4XsFew = Format<8, 4, 32, false, 128, QuadsIq4, EightOfSix>;
using Tq2_0Few = Format<8, 2, 32, false, 32, Quads2, OneHalf>;

}  // namespace
}  // namespace hone
