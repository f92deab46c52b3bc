// Roofs of AVX-512 and VNNI. The empty asm keeps the compiler from dropping or merging chains.
#include "kernels/matmul/intrinsics.h"
#include "kernels/matmul/roof_kernels.h"

namespace hone {

double CodeChainsVnni(int rounds) {
  constexpr int kChains = 16;
  const __m512i w = _mm512_set1_epi8(3), x = _mm512_set1_epi8(5);
  __m512i sums[kChains] = {};
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_dpbusd_epi32(sums[i], w, x);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  return 128.0 * kChains * rounds;
}

}  // namespace hone
