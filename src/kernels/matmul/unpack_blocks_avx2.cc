// Formats of 32 elements a block: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, NF4, MXFP4. AVX2.
#include "kernels/matmul/codes_avx2.h"

namespace hone {
namespace {

using CodesFn = void (*)(const uint8_t* in, uint8_t* out);

// kBits in the panel; f16 scale, f16 minimum if kMin.
template <int kBits, bool kMin, CodesFn kCodes>
inline void Blocks(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  constexpr int kCodeBytes = 64 * kBits, kChunkBytes = kCodeBytes + (kMin ? 64 : 32);
  for (; k > 0; k -= 32, chunk += kChunkBytes, ahead += kChunkBytes / 2, codes += kGroupCodes, scales += kPanelRows) {
    Prefetch(ahead, kChunkBytes / 2);
    kCodes(chunk, codes);
    StoreScales(scales, HalfScales(chunk + kCodeBytes));
    if (kMin) {
      StoreScales(mins, HalfScales(chunk + kCodeBytes + 32));
      mins += kPanelRows;
    }
  }
}

// 2^(e - 128) of eight bytes: as bits (e - 1) << 23, and subnormals 2^-128, 2^-127 for e = 0, 1.
inline __m256 PowersOfTwo(const uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small));
}

}  // namespace

void UnpackQ8_0Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<8, false, Codes8>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ4_0Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, false, Codes4>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ4_1Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, true, Codes4>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ5_0Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<5, false, Codes5>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ5_1Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<5, true, Codes5>(chunks, k, ahead, codes, scales, mins);
}
void UnpackIQ4_NLAvx2(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, false, CodesIq4>(chunks, k, ahead, codes, scales, mins);
}

void UnpackNF4Avx2(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, false, CodesNf4>(chunks, k, ahead, codes, scales, mins);
}

void UnpackMXFP4Avx2(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  constexpr int kChunkBytes = 256 + 16;
  for (; k > 0; k -= 32, chunk += kChunkBytes, ahead += kChunkBytes / 2, codes += kGroupCodes, scales += kPanelRows) {
    Prefetch(ahead, kChunkBytes / 2);
    CodesMxfp4(chunk, codes);
    StoreScales(scales, {PowersOfTwo(chunk + 256), PowersOfTwo(chunk + 264)});
  }
}

}  // namespace hone
