// Formats of 256 elements a block: Q2_K .. Q6_K, IQ4_XS, TQ2_0. AVX-512.
#include "kernels/matmul/codes_avx512.h"

namespace hone {
namespace {

inline __m128i LoadBytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// d * integer sub-scales; both fit 24 bits, so the product is exact.
inline __m512 Scaled(__m128i bytes, __m512 d) { return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), d); }
inline __m512 ScaledSigned(__m128i bytes, __m512 d) {
  return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), d);
}
// Four vectors of 16 bytes, one group each, times d.
inline void StoreScaled(float* out, __m512i bytes, __m512 d) {
  _mm512_storeu_ps(out, Scaled(_mm512_castsi512_si128(bytes), d));
  _mm512_storeu_ps(out + 16, Scaled(_mm512_extracti32x4_epi32(bytes, 1), d));
  _mm512_storeu_ps(out + 32, Scaled(_mm512_extracti32x4_epi32(bytes, 2), d));
  _mm512_storeu_ps(out + 48, Scaled(_mm512_extracti32x4_epi32(bytes, 3), d));
}
inline void StoreScaledSigned(float* out, __m512i bytes, __m512 d) {
  _mm512_storeu_ps(out, ScaledSigned(_mm512_castsi512_si128(bytes), d));
  _mm512_storeu_ps(out + 16, ScaledSigned(_mm512_extracti32x4_epi32(bytes, 1), d));
  _mm512_storeu_ps(out + 32, ScaledSigned(_mm512_extracti32x4_epi32(bytes, 2), d));
  _mm512_storeu_ps(out + 48, ScaledSigned(_mm512_extracti32x4_epi32(bytes, 3), d));
}

inline __m512 Negative(__m512 x) { return _mm512_sub_ps(_mm512_setzero_ps(), x); }

// The 8 groups of codes of a chunk.
template <int kGroupBytes, void (*kCodes)(const uint8_t*, uint8_t*)>
inline void Groups(const uint8_t* chunk, const uint8_t* ahead, uint8_t* codes) {
  for (int g = 0; g < 8; ++g, chunk += kGroupBytes, ahead += kGroupBytes / 2, codes += kGroupCodes) {
    Prefetch(ahead, kGroupBytes / 2);
    kCodes(chunk, codes);
  }
}

// Q4_K and Q5_K: 6-bit scales and minimums of 8 groups.
inline void ScalesOfSix(const uint8_t* p, float* scales, float* mins) {
  const __m512i low0 = LoadPlane(p), low1 = LoadPlane(p + 64), high = LoadPlane(p + 128);
  const __m512 d = HalfScales(p + 192), dmin = Negative(HalfScales(p + 224));
  const __m512i nibble = Bytes(15), top = Bytes(48);
  StoreScaled(scales, OrMasked(_mm512_and_si512(low0, nibble), _mm512_slli_epi16(high, 4), top), d);
  StoreScaled(scales + 64, OrMasked(_mm512_and_si512(low1, nibble), high, top), d);
  StoreScaled(mins, OrMasked(_mm512_and_si512(_mm512_srli_epi16(low0, 4), nibble), _mm512_slli_epi16(high, 2), top), dmin);
  StoreScaled(mins + 64, OrMasked(_mm512_and_si512(_mm512_srli_epi16(low1, 4), nibble), _mm512_srli_epi16(high, 2), top), dmin);
}

inline void CodesIq4(const uint8_t* in, uint8_t* out) {
  CodesTable(in, _mm512_broadcast_i32x4(LoadBytes(kIq4Codes)), out);
}

}  // namespace

void UnpackQ4_KAvx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, chunk += 16 * 144, ahead += 8 * 144, codes += 8 * kGroupCodes, scales += 128, mins += 128) {
    Groups<256, Codes4>(chunk, ahead, codes);
    ScalesOfSix(chunk + 2048, scales, mins);
  }
}

void UnpackQ5_KAvx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, chunk += 16 * 176, ahead += 8 * 176, codes += 8 * kGroupCodes, scales += 128, mins += 128) {
    Groups<320, Codes5>(chunk, ahead, codes);
    ScalesOfSix(chunk + 2560, scales, mins);
  }
}

void UnpackQ6_KAvx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 210, ahead += 8 * 210, codes += 8 * kGroupCodes, scales += 256) {
    Groups<384, Codes6>(chunk, ahead, codes);
    const uint8_t* p = chunk + 3072;
    const __m512 d = HalfScales(p + 256);
    for (int i = 0; i < 4; ++i) StoreScaledSigned(scales + 64 * i, LoadPlane(p + 64 * i), d);
  }
}

void UnpackQ2_KAvx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, chunk += 16 * 84, ahead += 8 * 84, codes += 8 * kGroupCodes, scales += 256, mins += 256) {
    Groups<128, Codes2>(chunk, ahead, codes);
    const uint8_t* p = chunk + 1024;
    const __m512 d = HalfScales(p + 256), dmin = Negative(HalfScales(p + 288));
    for (int i = 0; i < 4; ++i) {
      const __m512i both = LoadPlane(p + 64 * i);
      StoreScaled(scales + 64 * i, _mm512_and_si512(both, Bytes(15)), d);
      StoreScaled(mins + 64 * i, _mm512_and_si512(_mm512_srli_epi16(both, 4), Bytes(15)), dmin);
    }
  }
}

void UnpackQ3_KAvx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 110, ahead += 8 * 110, codes += 8 * kGroupCodes, scales += 256) {
    Groups<192, Codes3>(chunk, ahead, codes);
    const uint8_t* p = chunk + 1536;
    const __m512i low0 = LoadPlane(p), low1 = LoadPlane(p + 64), high = LoadPlane(p + 128);
    const __m512 d = HalfScales(p + 192);
    const __m512i nibble = Bytes(15), top = Bytes(48), bias = Bytes(32);
    const __m512i s[4] = {
        OrMasked(_mm512_and_si512(low0, nibble), _mm512_slli_epi16(high, 4), top),
        OrMasked(_mm512_and_si512(low1, nibble), _mm512_slli_epi16(high, 2), top),
        OrMasked(_mm512_and_si512(_mm512_srli_epi16(low0, 4), nibble), high, top),
        OrMasked(_mm512_and_si512(_mm512_srli_epi16(low1, 4), nibble), _mm512_srli_epi16(high, 2), top),
    };
    for (int i = 0; i < 4; ++i) StoreScaledSigned(scales + 64 * i, _mm512_sub_epi8(s[i], bias), d);
  }
}

void UnpackIQ4_XSAvx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 136, ahead += 8 * 136, codes += 8 * kGroupCodes, scales += 128) {
    Groups<256, CodesIq4>(chunk, ahead, codes);
    const uint8_t* p = chunk + 2048;
    const __m512i low = LoadPlane(p), nibble = Bytes(15), top = Bytes(48), bias = Bytes(32);
    const __m512 d = HalfScales(p + 96);
    // Bits 4 and 5 of groups 0..3 are pairs of the first vector, of 4..7 of the second: one lane of 16 rows a group.
    const __m128i h0 = LoadBytes(p + 64), h1 = LoadBytes(p + 80);
    const auto spread = [](__m128i h) {
      __m512i v = _mm512_castsi128_si512(_mm_slli_epi16(h, 4));
      v = _mm512_inserti32x4(v, _mm_slli_epi16(h, 2), 1);
      v = _mm512_inserti32x4(v, h, 2);
      return _mm512_inserti32x4(v, _mm_srli_epi16(h, 2), 3);
    };
    const __m512i s0 = OrMasked(_mm512_and_si512(low, nibble), spread(h0), top);
    const __m512i s1 = OrMasked(_mm512_and_si512(_mm512_srli_epi16(low, 4), nibble), spread(h1), top);
    StoreScaledSigned(scales, _mm512_sub_epi8(s0, bias), d);
    StoreScaledSigned(scales + 64, _mm512_sub_epi8(s1, bias), d);
  }
}

void UnpackTQ2_0Avx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 66, ahead += 8 * 66, codes += 8 * kGroupCodes, scales += 128) {
    Groups<128, Codes2>(chunk, ahead, codes);
    const __m512 d = HalfScales(chunk + 1024);
    for (int g = 0; g < 8; ++g) _mm512_storeu_ps(scales + 16 * g, d);
  }
}

}  // namespace hone
