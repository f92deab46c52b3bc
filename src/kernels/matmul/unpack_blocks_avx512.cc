// Formats of 32 elements a block: Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, NF4, MXFP4. AVX-512.
#include "kernels/matmul/codes_avx512.h"

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
    _mm512_storeu_ps(scales, HalfScales(chunk + kCodeBytes));
    if (kMin) {
      _mm512_storeu_ps(mins, HalfScales(chunk + kCodeBytes + 32));
      mins += kPanelRows;
    }
  }
}

inline void CodesIq4(const uint8_t* in, uint8_t* out) {
  CodesTable(in, _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Codes))), out);
}
inline void CodesNf4(const uint8_t* in, uint8_t* out) {
  CodesTable(in, _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kNf4Codes))), out);
}
inline void CodesMxfp4(const uint8_t* in, uint8_t* out) {
  CodesTable(in, _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kMxfp4Codes))), out);
}

}  // namespace

void UnpackQ8_0Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<8, false, Codes8>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ4_0Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, false, Codes4>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ4_1Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, true, Codes4>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ5_0Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<5, false, Codes5>(chunks, k, ahead, codes, scales, mins);
}
void UnpackQ5_1Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<5, true, Codes5>(chunks, k, ahead, codes, scales, mins);
}
void UnpackIQ4_NLAvx512(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, false, CodesIq4>(chunks, k, ahead, codes, scales, mins);
}

void UnpackNF4Avx512(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins) {
  Blocks<4, false, CodesNf4>(chunks, k, ahead, codes, scales, mins);
}

void UnpackMXFP4Avx512(const uint8_t* chunk, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float*) {
  constexpr int kChunkBytes = 256 + 16;
  for (; k > 0; k -= 32, chunk += kChunkBytes, ahead += kChunkBytes / 2, codes += kGroupCodes, scales += kPanelRows) {
    Prefetch(ahead, kChunkBytes / 2);
    CodesMxfp4(chunk, codes);
    _mm512_storeu_ps(scales, PowersOfTwo(chunk + 256));
  }
}

}  // namespace hone
