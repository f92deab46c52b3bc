// Bit planes of one group (32 elements x 16 rows, 64 * bits bytes; picture in panel_format.h) to codes, AVX2: the 64-byte
// vectors of the picture are two of 32 bytes here. For the unpack_*_avx2.cc files only.
#pragma once

#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/tile.h"

namespace hone {
namespace {

constexpr int kGroupCodes = 32 * kPanelRows;  // bytes of a group when unpacked

inline __m256i LoadPlane(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline void StoreCodes(uint8_t* p, __m256i codes) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), codes); }
inline __m256i Bytes(char value) { return _mm256_set1_epi8(value); }
inline __m256i And(__m256i a, __m256i b) { return _mm256_and_si256(a, b); }
inline __m256i Or(__m256i a, __m256i b) { return _mm256_or_si256(a, b); }

// 16 f16 to two vectors of F32.
struct Floats16 {
  __m256 low, high;
};
inline Floats16 HalfScales(const uint8_t* p) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline void StoreScales(float* p, Floats16 v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}

// 2^(e - 128) of eight bytes: as bits (e - 1) << 23, and subnormals 2^-128, 2^-127 for e = 0, 1.
inline __m256 PowersOfTwo(const uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small));
}

// Bits [shift, ...) of each byte moved to bit `at`, before masking. Both are constants after inlining.
inline __m256i Move(__m256i v, int shift, int at) {
  if (at == shift) return v;
  return at >= shift ? _mm256_slli_epi16(v, at - shift) : _mm256_srli_epi16(v, shift - at);
}

inline void Codes8(const uint8_t* in, uint8_t* out) {
  for (int j = 0; j < 16; ++j) StoreCodes(out + 32 * j, _mm256_xor_si256(LoadPlane(in + 32 * j), Bytes(-128)));
}

inline void Codes4(const uint8_t* in, uint8_t* out) {
  for (int l = 0; l < 4; ++l) {
    for (int half = 0; half < 64; half += 32) {
      const __m256i plane = LoadPlane(in + 64 * l + half);
      StoreCodes(out + 128 * l + half, And(plane, Bytes(15)));
      StoreCodes(out + 128 * l + 64 + half, And(Move(plane, 4, 0), Bytes(15)));
    }
  }
}

// A table of 16 codes, for VPSHUFB.
inline __m256i Table(const uint8_t* table16) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table16)));
}
// Nibbles through it.
inline void CodesTable(const uint8_t* in, const uint8_t* table16, uint8_t* out) {
  const __m256i table = Table(table16);
  for (int l = 0; l < 4; ++l) {
    for (int half = 0; half < 64; half += 32) {
      const __m256i plane = LoadPlane(in + 64 * l + half);
      StoreCodes(out + 128 * l + half, _mm256_shuffle_epi8(table, And(plane, Bytes(15))));
      StoreCodes(out + 128 * l + 64 + half, _mm256_shuffle_epi8(table, And(Move(plane, 4, 0), Bytes(15))));
    }
  }
}

// Codes whose high bits (width kHighBits, at bit kAt of the code) lie in planes of 8 / kHighBits quads; kLowBits 4 or 2.
template <int kLowBits, int kHighBits>
inline void CodesWithHigh(const uint8_t* in, uint8_t* out) {
  constexpr int kLowQuads = 8 / kLowBits, kHighQuads = 8 / kHighBits;
  const __m256i low_mask = Bytes((1 << kLowBits) - 1), high_mask = Bytes(((1 << kHighBits) - 1) << kLowBits);
  const uint8_t* high = in + 64 * kLowBits;
  for (int half = 0; half < 64; half += 32) {
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad) {
      const __m256i low_plane = LoadPlane(in + quad / kLowQuads * 64 + half);
      const __m256i high_plane = LoadPlane(high + quad / kHighQuads * 64 + half);
      StoreCodes(out + 64 * quad + half,
                 Or(And(Move(low_plane, quad % kLowQuads * kLowBits, 0), low_mask),
                    And(Move(high_plane, quad % kHighQuads * kHighBits, kLowBits), high_mask)));
    }
  }
}
inline void Codes5(const uint8_t* in, uint8_t* out) { CodesWithHigh<4, 1>(in, out); }
// The fourth of four quads of six bits, from the planes of the three others.
inline __m256i FourthQuad(__m256i a, __m256i b, __m256i c) {
  return Or(Or(And(Move(a, 6, 0), Bytes(3)), And(Move(b, 6, 2), Bytes(12))), And(Move(c, 6, 4), Bytes(48)));
}
inline void Codes6(const uint8_t* in, uint8_t* out) {
  for (int h = 0; h < 2; ++h, in += 192, out += 256) {
    for (int half = 0; half < 64; half += 32) {
      __m256i planes[3];
      for (int i = 0; i < 3; ++i) {
        planes[i] = LoadPlane(in + 64 * i + half);
        StoreCodes(out + 64 * i + half, And(planes[i], Bytes(63)));
      }
      StoreCodes(out + 192 + half, FourthQuad(planes[0], planes[1], planes[2]));
    }
  }
}
inline void Codes3(const uint8_t* in, uint8_t* out) { CodesWithHigh<2, 1>(in, out); }

inline void Codes2(const uint8_t* in, uint8_t* out) {
  for (int half = 0; half < 64; half += 32) {
#pragma GCC unroll 8
    for (int quad = 0; quad < 8; ++quad) {
      StoreCodes(out + 64 * quad + half, And(Move(LoadPlane(in + quad / 4 * 64 + half), quad % 4 * 2, 0), Bytes(3)));
    }
  }
}

inline void CodesIq4(const uint8_t* in, uint8_t* out) { CodesTable(in, kIq4Codes, out); }
inline void CodesNf4(const uint8_t* in, uint8_t* out) { CodesTable(in, kNf4Codes, out); }
inline void CodesMxfp4(const uint8_t* in, uint8_t* out) { CodesTable(in, kMxfp4Codes, out); }

}  // namespace
}  // namespace hone
