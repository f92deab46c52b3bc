// Roofs of AVX-512: reads and F32 FMAs. The empty asm keeps the compiler from dropping or merging chains.
#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/read_ahead.h"
#include "kernels/matmul/roof_kernels.h"

namespace hone {

void ReadBytesAvx512(const uint8_t* p, size_t bytes) {
  __m512i sums[4] = {};
  ReadRanges ahead = {.again = true};  // by measurement: a sweep is 6 % slower with lines asked for as read once
  BeginRange(&ahead, p, p + bytes);
  for (size_t i = 0; i + 512 <= bytes; i += 512) {
    AskAhead(&ahead, 512);
    for (int j = 0; j < 8; ++j) sums[j % 4] = _mm512_or_si512(sums[j % 4], _mm512_loadu_si512(p + i + 64 * j));
  }
  asm volatile("" ::"v"(sums[0]), "v"(sums[1]), "v"(sums[2]), "v"(sums[3]));
}

double FloatChainsAvx512(int rounds) {
  constexpr int kChains = 16;
  const __m512 w = _mm512_set1_ps(1.0f), x = _mm512_set1_ps(0.5f);
  __m512 sums[kChains] = {};
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_fmadd_ps(w, x, sums[i]);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  return 32.0 * kChains * rounds;
}

}  // namespace hone
