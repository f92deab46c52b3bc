// Roofs of AVX-512 BF16 and of AMX. The empty asm keeps the compiler from dropping or merging chains.
#include <string.h>

#include "kernels/matmul/roof_kernels.h"
#include "kernels/matmul/tiles_amx.h"

namespace hone {
namespace {

constexpr int kSteps = 8;  // 64 bytes of K each

// Two panels of A and of B, 8 KiB each, as tiles of 1 KiB: 32 KiB stay in L1.
struct alignas(64) Panels {
  uint8_t a[kSteps][2][1024], b[kSteps][2][1024];
};

template <bool kCodes>
double Tiles(int rounds) {
  Panels panels;
  memset(&panels, kCodes ? 1 : 0x3c, sizeof(panels));  // BF16 0x3c3c: 0.0115
  const TilesInUse tiles;
  TilesSeeMemory();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int round = 0; round < rounds; ++round) {
    for (int step = 0; step < kSteps; ++step) {
      _tile_loadd(4, panels.a[step][0], 64);
      _tile_loadd(5, panels.a[step][1], 64);
      _tile_loadd(6, panels.b[step][0], 64);
      _tile_loadd(7, panels.b[step][1], 64);
      if (kCodes) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      } else {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
  }
  return (kCodes ? 2.0 * 64 : 2.0 * 32) * 16 * 16 * 4 * kSteps * rounds;
}

}  // namespace

double Bf16TilesAmx(int rounds) { return Tiles<false>(rounds); }
double CodeTilesAmx(int rounds) { return Tiles<true>(rounds); }

double Bf16ChainsAmx(int rounds) {
  constexpr int kChains = 16;
  const __m512bh w = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1.0f), _mm512_set1_ps(1.0f));
  const __m512bh x = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.5f));
  __m512 sums[kChains] = {};
  for (int round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) {
      sums[i] = _mm512_dpbf16_ps(sums[i], w, x);
      asm volatile("" : "+v"(sums[i]));
    }
  }
  return 64.0 * kChains * rounds;
}

}  // namespace hone
