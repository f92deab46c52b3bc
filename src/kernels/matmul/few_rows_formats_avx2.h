// Formats for the few-rows kernels of AVX2: codes of half the rows of a group of 32, two quads at a time, and scales. Values are those of
// codes_avx2.h and unpack_*_avx2.cc. For few_rows_avx2.cc and its headers only.
#pragma once

#include "kernels/matmul/codes_avx2.h"
#include "kernels/matmul/few_rows.h"

namespace hone {
namespace {

// Compilers would load a plane again for each use.
inline __m256i LoadOnce(const uint8_t* p) {
  __m256i plane = LoadPlane(p);
  asm("" : "+x"(plane));
  return plane;
}

// Quads 2 pair and 2 pair + 1 of half the rows; `in` points at the half.
inline void Pair2(const uint8_t* in, int pair, __m256i c[2]) {
  const __m256i plane = LoadOnce(in + 64 * (pair / 2));
  for (int j = 0; j < 2; ++j) c[j] = And(Move(plane, 4 * (pair % 2) + 2 * j, 0), Bytes(3));
}
inline void Pair3(const uint8_t* in, int pair, __m256i c[2]) {
  Pair2(in, pair, c);
  const __m256i high = LoadOnce(in + 128);
  for (int j = 0; j < 2; ++j) c[j] = Or(c[j], And(Move(high, 2 * pair + j, 2), Bytes(4)));
}
inline void Pair4(const uint8_t* in, int pair, __m256i c[2]) {
  const __m256i plane = LoadOnce(in + 64 * pair);
  c[0] = And(plane, Bytes(15));
  c[1] = And(Move(plane, 4, 0), Bytes(15));
}
inline void Pair5(const uint8_t* in, int pair, __m256i c[2]) {
  Pair4(in, pair, c);
  const __m256i high = LoadOnce(in + 256);
  for (int j = 0; j < 2; ++j) c[j] = Or(c[j], And(Move(high, 2 * pair + j, 4), Bytes(16)));
}
inline void Pair6(const uint8_t* in, int pair, __m256i c[2]) {
  in += 192 * (pair / 2);
  const __m256i a = LoadOnce(in), b = LoadOnce(in + 64);
  if (pair % 2 == 0) {
    c[0] = And(a, Bytes(63)), c[1] = And(b, Bytes(63));
  } else {
    const __m256i third = LoadOnce(in + 128);
    c[0] = And(third, Bytes(63)), c[1] = FourthQuad(a, b, third);
  }
}
inline void PairMxfp4(const uint8_t* in, int pair, __m256i c[2]) {
  Pair4(in, pair, c);
  for (int j = 0; j < 2; ++j) c[j] = _mm256_shuffle_epi8(Table(kMxfp4Codes), c[j]);
}
// Codes of 8 bits are signed here: without the 128 that unpacked ones have.
inline void Pair8(const uint8_t* in, int pair, __m256i c[2]) {
  for (int j = 0; j < 2; ++j) c[j] = LoadOnce(in + 64 * (2 * pair + j));
}
inline void PairSigned(const uint8_t* in, int pair, const uint8_t* table16, __m256i c[2]) {
  const __m256i table = _mm256_xor_si256(Table(table16), Bytes(-128));
  Pair4(in, pair, c);
  for (int j = 0; j < 2; ++j) c[j] = _mm256_shuffle_epi8(table, c[j]);
}
inline void PairIq4(const uint8_t* in, int pair, __m256i c[2]) { PairSigned(in, pair, kIq4Codes, c); }
inline void PairNf4(const uint8_t* in, int pair, __m256i c[2]) { PairSigned(in, pair, kNf4Codes, c); }

// Scales of a chunk, from its bytes `p`, turned into floats when half the rows of a panel need them: each serves a row of x once.
inline __m256 EightHalves(const uint8_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
inline __m256 EightSigned(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
inline void TwoEights(const uint8_t* p, __m256 to[2]) { to[0] = EightHalves(p), to[1] = EightHalves(p + 16); }
inline void TwoNegativeEights(const uint8_t* p, __m256 to[2]) {
  for (int half = 0; half < 2; ++half) to[half] = _mm256_sub_ps(_mm256_setzero_ps(), EightHalves(p + 16 * half));
}
// Six bits of two times 16 rows: low nibbles from bit `low_shift` of `low`, two high bits from bit `high_shift` of `high`.
inline __m256i SixBits(__m256i low, int low_shift, __m256i high, int high_shift) {
  return Or(And(Move(low, low_shift, 0), Bytes(15)), And(Move(high, high_shift, 4), Bytes(48)));
}

struct OneHalf {
  const uint8_t* p;
  void Read(const uint8_t* from) { p = from; }
  __m256 Scale(int, int half) const { return EightHalves(p + 16 * half); }
  __m256 Min(int, int) const { return _mm256_setzero_ps(); }
};
struct TwoHalves : OneHalf {
  __m256 Min(int, int half) const { return EightHalves(p + 32 + 16 * half); }
};
struct Exponents : OneHalf {
  __m256 Scale(int, int half) const { return PowersOfTwo(p + 8 * half); }
};
// Signed bytes, kCount times 16, made where they do not lie in the panel; times d.
template <int kCount>
struct ScaledBytes {
  alignas(32) uint8_t bytes[kCount * kPanelRows];
  __m256 d[2];
  __m256 Scale(int i, int half) const { return _mm256_mul_ps(EightSigned(bytes + 16 * i + 8 * half), d[half]); }
};
struct WithoutMin {
  __m256 Min(int, int) const { return _mm256_setzero_ps(); }
};
template <int kCount>
struct WithMin {
  ScaledBytes<kCount> mins;
  __m256 Min(int i, int half) const { return mins.Scale(i, half); }
};
struct SixteenSigned : WithoutMin {
  const uint8_t* p;
  __m256 d[2];
  void Read(const uint8_t* from) { p = from, TwoEights(p + 256, d); }
  __m256 Scale(int i, int half) const { return _mm256_mul_ps(EightSigned(p + 16 * i + 8 * half), d[half]); }
};
struct ScalesOfSix : ScaledBytes<8>, WithMin<8> {
  void Read(const uint8_t* p) {
    TwoEights(p + 192, d), TwoNegativeEights(p + 224, mins.d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // groups 2 i and 2 i + 1
      const __m256i low = LoadPlane(p + 32 * i), high = LoadPlane(p + 128 + 32 * (i % 2));
      StoreCodes(bytes + 32 * i, SixBits(low, 0, high, i / 2 * 4));
      StoreCodes(mins.bytes + 32 * i, SixBits(low, 4, high, i / 2 * 4 + 2));
    }
  }
};
struct ScalesAndMinsOfFour : ScaledBytes<16>, WithMin<16> {  // Q2_K
  void Read(const uint8_t* p) {
    TwoEights(p + 256, d), TwoNegativeEights(p + 288, mins.d);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256i both = LoadPlane(p + 32 * i);
      StoreCodes(bytes + 32 * i, And(both, Bytes(15)));
      StoreCodes(mins.bytes + 32 * i, And(Move(both, 4, 0), Bytes(15)));
    }
  }
};
struct SixteenOfSix : ScaledBytes<16>, WithoutMin {  // Q3_K
  void Read(const uint8_t* p) {
    TwoEights(p + 192, d);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      const __m256i low = LoadPlane(p + 32 * (i % 4)), high = LoadPlane(p + 128 + 32 * (i % 2));
      StoreCodes(bytes + 32 * i, _mm256_sub_epi8(SixBits(low, i / 4 * 4, high, i / 2 * 2), Bytes(32)));
    }
  }
};
struct EightOfSix : ScaledBytes<8>, WithoutMin {  // IQ4_XS
  void Read(const uint8_t* p) {
    TwoEights(p + 96, d);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // groups 2 i and 2 i + 1, whose high bits lie two apart in the same bytes
      const __m256i low = LoadPlane(p + 32 * (i % 2));
      const __m256i bytes_of_four = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 64 + i / 2 * 16)));
      const __m256i high = _mm256_blend_epi32(bytes_of_four, Move(bytes_of_four, 2, 0), 0xf0);
      StoreCodes(bytes + 32 * i, _mm256_sub_epi8(SixBits(low, i / 2 * 4, high, i % 2 * 4), Bytes(32)));
    }
  }
};

// A format: groups of 32 a chunk, bits of a code in the panel and unpacked, elements a scale, bytes of the scales of a chunk.
template <int kGroupsValue, int kPanelBits, int kBitsValue, int kGroupValue, bool kMinValue, int kScaleBytes,
          void (*kPair)(const uint8_t*, int, __m256i*), typename ScalesValue>
struct Format {
  static constexpr int kGroups = kGroupsValue, kBits = kBitsValue, kGroup = kGroupValue, kGroupBytes = 64 * kPanelBits;
  static constexpr int kChunkBytes = kGroups * kGroupBytes + kScaleBytes;
  static constexpr bool kMin = kMinValue, kWholeBytes = kPanelBits == 8;
  using Scales = ScalesValue;
  static void Pair(const uint8_t* in, int pair, __m256i c[2]) { kPair(in, pair, c); }
  static void Codes(const uint8_t* in, __m256i c[8]) {
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) kPair(in, pair, c + 2 * pair);
  }
  static const uint8_t* ScalesOf(const uint8_t* chunk) { return chunk + kGroups * kGroupBytes; }
};

using Q4_0Few = Format<1, 4, 4, 32, false, 32, Pair4, OneHalf>;
using Q4_1Few = Format<1, 4, 4, 32, true, 64, Pair4, TwoHalves>;
using Q5_0Few = Format<1, 5, 5, 32, false, 32, Pair5, OneHalf>;
using Q5_1Few = Format<1, 5, 5, 32, true, 64, Pair5, TwoHalves>;
using Q8_0Few = Format<1, 8, 8, 32, false, 32, Pair8, OneHalf>;
using Iq4NlFew = Format<1, 4, 8, 32, false, 32, PairIq4, OneHalf>;
using Nf4Few = Format<1, 4, 8, 32, false, 32, PairNf4, OneHalf>;
using Mxfp4Few = Format<1, 4, 5, 32, false, 16, PairMxfp4, Exponents>;
using Q2_KFew = Format<8, 2, 2, 16, true, 320, Pair2, ScalesAndMinsOfFour>;
using Q3_KFew = Format<8, 3, 3, 16, false, 224, Pair3, SixteenOfSix>;
using Q4_KFew = Format<8, 4, 4, 32, true, 256, Pair4, ScalesOfSix>;
using Q5_KFew = Format<8, 5, 5, 32, true, 256, Pair5, ScalesOfSix>;
using Q6_KFew = Format<8, 6, 6, 16, false, 288, Pair6, SixteenSigned>;
using Iq4XsFew = Format<8, 4, 8, 32, false, 128, PairIq4, EightOfSix>;
using Tq2_0Few = Format<8, 2, 2, 32, false, 32, Pair2, OneHalf>;

}  // namespace
}  // namespace hone
