// Bit planes of one group (32 elements x 16 rows, 64 * bits bytes; picture in panel_format.h) to 8 vectors of codes, AVX-512.
// For the unpack_*_avx512.cc files only.
#pragma once


#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/tile.h"

namespace hone {
namespace {

constexpr int kGroupCodes = 32 * kPanelRows;  // bytes of a group when unpacked

// Into a register: a compiler would load a plane again for each use, and half of those loads cross cache lines.
inline __m512i LoadPlane(const uint8_t* p) {
  __m512i plane = _mm512_loadu_si512(p);
  asm volatile("" : "+v"(plane));
  return plane;
}
inline void StoreCodes(uint8_t* p, __m512i codes) { _mm512_storeu_si512(p, codes); }
inline __m512i Bytes(char value) { return _mm512_set1_epi8(value); }

inline __m512 HalfScales(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// 2^(e - 128) of 16 bytes: as bits (e - 1) << 23, and subnormals 2^-128, 2^-127 for e = 0, 1.
inline __m512 PowersOfTwo(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
  const __mmask16 small = _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2));
  return _mm512_castsi512_ps(_mm512_mask_blend_epi32(small, normal, subnormal));
}

// a | (b & mask) in one instruction.
inline __m512i OrMasked(__m512i a, __m512i b, __m512i mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xf8); }

inline void Codes8(const uint8_t* in, uint8_t* out) {
  for (int j = 0; j < 8; ++j) StoreCodes(out + 64 * j, _mm512_xor_si512(LoadPlane(in + 64 * j), Bytes(-128)));
}

inline void Codes4(const uint8_t* in, uint8_t* out) {
  for (int l = 0; l < 4; ++l) {
    const __m512i plane = LoadPlane(in + 64 * l);
    StoreCodes(out + 128 * l, _mm512_and_si512(plane, Bytes(15)));
    StoreCodes(out + 128 * l + 64, _mm512_and_si512(_mm512_srli_epi16(plane, 4), Bytes(15)));
  }
}

// Nibbles through a table of 16 codes.
inline void CodesTable(const uint8_t* in, __m512i table, uint8_t* out) {
  for (int l = 0; l < 4; ++l) {
    const __m512i plane = LoadPlane(in + 64 * l);
    StoreCodes(out + 128 * l, _mm512_shuffle_epi8(table, _mm512_and_si512(plane, Bytes(15))));
    StoreCodes(out + 128 * l + 64,
               _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(plane, 4), Bytes(15))));
  }
}

inline void Codes5(const uint8_t* in, uint8_t* out) {
  const __m512i high = LoadPlane(in + 256);
  const __m512i at4[8] = {_mm512_slli_epi16(high, 4), _mm512_slli_epi16(high, 3), _mm512_slli_epi16(high, 2),
                          _mm512_slli_epi16(high, 1), high,                       _mm512_srli_epi16(high, 1),
                          _mm512_srli_epi16(high, 2), _mm512_srli_epi16(high, 3)};
  for (int l = 0; l < 4; ++l) {
    const __m512i plane = LoadPlane(in + 64 * l);
    const __m512i low = _mm512_and_si512(plane, Bytes(15)), next = _mm512_and_si512(_mm512_srli_epi16(plane, 4), Bytes(15));
    StoreCodes(out + 128 * l, OrMasked(low, at4[2 * l], Bytes(16)));
    StoreCodes(out + 128 * l + 64, OrMasked(next, at4[2 * l + 1], Bytes(16)));
  }
}

// The fourth of four quads of six bits, from the planes of the three others.
inline __m512i FourthQuad(__m512i a, __m512i b, __m512i c) {
  const __m512i low = _mm512_and_si512(_mm512_srli_epi16(a, 6), Bytes(3));
  return OrMasked(OrMasked(low, _mm512_srli_epi16(b, 4), Bytes(12)), _mm512_srli_epi16(c, 2), Bytes(48));
}
inline void Codes6(const uint8_t* in, uint8_t* out) {
  for (int h = 0; h < 2; ++h, in += 192, out += 256) {
    const __m512i planes[3] = {LoadPlane(in), LoadPlane(in + 64), LoadPlane(in + 128)};
    for (int i = 0; i < 3; ++i) StoreCodes(out + 64 * i, _mm512_and_si512(planes[i], Bytes(63)));
    StoreCodes(out + 192, FourthQuad(planes[0], planes[1], planes[2]));
  }
}

inline void Codes2(const uint8_t* in, uint8_t* out) {
  for (int h = 0; h < 2; ++h) {
    const __m512i plane = LoadPlane(in + 64 * h);
    StoreCodes(out + 256 * h, _mm512_and_si512(plane, Bytes(3)));
    StoreCodes(out + 256 * h + 64, _mm512_and_si512(_mm512_srli_epi16(plane, 2), Bytes(3)));
    StoreCodes(out + 256 * h + 128, _mm512_and_si512(_mm512_srli_epi16(plane, 4), Bytes(3)));
    StoreCodes(out + 256 * h + 192, _mm512_and_si512(_mm512_srli_epi16(plane, 6), Bytes(3)));
  }
}

inline void Codes3(const uint8_t* in, uint8_t* out) {
  const __m512i high = LoadPlane(in + 128);
  const __m512i at2[8] = {_mm512_slli_epi16(high, 2), _mm512_slli_epi16(high, 1), high,
                          _mm512_srli_epi16(high, 1), _mm512_srli_epi16(high, 2), _mm512_srli_epi16(high, 3),
                          _mm512_srli_epi16(high, 4), _mm512_srli_epi16(high, 5)};
  for (int h = 0; h < 2; ++h) {
    const __m512i plane = LoadPlane(in + 64 * h);
    const __m512i pairs[4] = {plane, _mm512_srli_epi16(plane, 2), _mm512_srli_epi16(plane, 4), _mm512_srli_epi16(plane, 6)};
    for (int j = 0; j < 4; ++j) {
      StoreCodes(out + 256 * h + 64 * j, OrMasked(_mm512_and_si512(pairs[j], Bytes(3)), at2[4 * h + j], Bytes(4)));
    }
  }
}

}  // namespace
}  // namespace hone
