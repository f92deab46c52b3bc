// Formats of 256 elements a block: Q2_K .. Q6_K, IQ4_XS, TQ2_0. AVX2.
#include "kernels/matmul/codes_avx2.h"

namespace hone {
namespace {

inline __m128i LoadBytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline __m128i Bytes16(char value) { return _mm_set1_epi8(value); }
// Bits moved from `shift` to bit `at`, before masking.
inline __m128i Move16(__m128i v, int shift, int at) {
  return at >= shift ? _mm_slli_epi16(v, at - shift) : _mm_srli_epi16(v, shift - at);
}
// Six bits of 16 rows: low nibble from bit `low_shift` of `low`, two high bits from bit `high_shift` of `high`.
inline __m128i SixBits(__m128i low, int low_shift, __m128i high, int high_shift) {
  return _mm_or_si128(_mm_and_si128(Move16(low, low_shift, 0), Bytes16(15)),
                      _mm_and_si128(Move16(high, high_shift, 4), Bytes16(48)));
}

// d * 16 integer sub-scales (signed bytes; both factors fit 24 bits, so the product is exact).
inline Floats16 Scaled(__m128i bytes, Floats16 d) {
  return {_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d.low),
          _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))), d.high)};
}
inline Floats16 Negative(Floats16 x) {
  return {_mm256_sub_ps(_mm256_setzero_ps(), x.low), _mm256_sub_ps(_mm256_setzero_ps(), x.high)};
}

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
  const Floats16 d = HalfScales(p + 192), dmin = Negative(HalfScales(p + 224));
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m128i low = LoadBytes(p + 16 * g), high = LoadBytes(p + 128 + g % 4 * 16);
    StoreScales(scales + 16 * g, Scaled(SixBits(low, 0, high, g / 4 * 4), d));
    StoreScales(mins + 16 * g, Scaled(SixBits(low, 4, high, g / 4 * 4 + 2), dmin));
  }
}

}  // namespace

void UnpackQ4_KAvx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, chunk += 16 * 144, ahead += 8 * 144, codes += 8 * kGroupCodes, scales += 128, mins += 128) {
    Groups<256, Codes4>(chunk, ahead, codes);
    ScalesOfSix(chunk + 2048, scales, mins);
  }
}

void UnpackQ5_KAvx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, chunk += 16 * 176, ahead += 8 * 176, codes += 8 * kGroupCodes, scales += 128, mins += 128) {
    Groups<320, Codes5>(chunk, ahead, codes);
    ScalesOfSix(chunk + 2560, scales, mins);
  }
}

void UnpackQ6_KAvx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 210, ahead += 8 * 210, codes += 8 * kGroupCodes, scales += 256) {
    Groups<384, Codes6>(chunk, ahead, codes);
    const uint8_t* p = chunk + 3072;
    const Floats16 d = HalfScales(p + 256);
    for (int i = 0; i < 16; ++i) StoreScales(scales + 16 * i, Scaled(LoadBytes(p + 16 * i), d));
  }
}

void UnpackQ2_KAvx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, chunk += 16 * 84, ahead += 8 * 84, codes += 8 * kGroupCodes, scales += 256, mins += 256) {
    Groups<128, Codes2>(chunk, ahead, codes);
    const uint8_t* p = chunk + 1024;
    const Floats16 d = HalfScales(p + 256), dmin = Negative(HalfScales(p + 288));
    for (int i = 0; i < 16; ++i) {
      const __m128i both = LoadBytes(p + 16 * i);
      StoreScales(scales + 16 * i, Scaled(_mm_and_si128(both, Bytes16(15)), d));
      StoreScales(mins + 16 * i, Scaled(_mm_and_si128(_mm_srli_epi16(both, 4), Bytes16(15)), dmin));
    }
  }
}

void UnpackQ3_KAvx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 110, ahead += 8 * 110, codes += 8 * kGroupCodes, scales += 256) {
    Groups<192, Codes3>(chunk, ahead, codes);
    const uint8_t* p = chunk + 1536;
    const Floats16 d = HalfScales(p + 192);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m128i low = LoadBytes(p + i % 8 * 16), high = LoadBytes(p + 128 + i % 4 * 16);
      StoreScales(scales + 16 * i, Scaled(_mm_sub_epi8(SixBits(low, i / 8 * 4, high, i / 4 * 2), Bytes16(32)), d));
    }
  }
}

void UnpackIQ4_XSAvx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 136, ahead += 8 * 136, codes += 8 * kGroupCodes, scales += 128) {
    Groups<256, CodesIq4>(chunk, ahead, codes);
    const uint8_t* p = chunk + 2048;
    const Floats16 d = HalfScales(p + 96);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m128i low = LoadBytes(p + g % 4 * 16), high = LoadBytes(p + 64 + g / 4 * 16);
      StoreScales(scales + 16 * g, Scaled(_mm_sub_epi8(SixBits(low, g / 4 * 4, high, g % 4 * 2), Bytes16(32)), d));
    }
  }
}

void UnpackTQ2_0Avx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, chunk += 16 * 66, ahead += 8 * 66, codes += 8 * kGroupCodes, scales += 128) {
    Groups<128, Codes2>(chunk, ahead, codes);
    const Floats16 d = HalfScales(chunk + 1024);
    for (int g = 0; g < 8; ++g) StoreScales(scales + 16 * g, d);
  }
}

}  // namespace hone
