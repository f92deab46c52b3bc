// Roofs of AVX2 and FMA. The empty asm keeps the compiler from dropping or merging chains.
#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/read_ahead.h"
#include "kernels/matmul/roof_kernels.h"

namespace hone {

void ReadBytesAvx2(const uint8_t* p, size_t bytes) {
  __m256i sums[4] = {};
  ReadRanges ahead = {.again = true};  // by measurement: a sweep is 6 % slower with lines asked for as read once
  BeginRange(&ahead, p, p + bytes);
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    AskAhead(&ahead, 128);
    for (int j = 0; j < 4; ++j) {
      sums[j] = _mm256_or_si256(sums[j], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i) + j));
    }
  }
  asm volatile("" ::"x"(sums[0]), "x"(sums[1]), "x"(sums[2]), "x"(sums[3]));
}

double CodeChainsAvx2(int rounds) {
  constexpr int kChains = 8;
  __m256i w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(5), sums[kChains] = {};
  const __m256i ones = _mm256_set1_epi16(1);
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) {
      asm volatile("" : "+x"(w), "+x"(x));  // the product is made again each time
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
      asm volatile("" : "+x"(sums[i]));
    }
  }
  return 64.0 * kChains * rounds;
}

double FloatChainsAvx2(int rounds) {
  constexpr int kChains = 12;
  const __m256 w = _mm256_set1_ps(1.0f), x = _mm256_set1_ps(0.5f);
  __m256 sums[kChains] = {};
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm256_fmadd_ps(w, x, sums[i]);
      asm volatile("" : "+x"(sums[i]));
    }
  }
  return 16.0 * kChains * rounds;
}

}  // namespace hone
