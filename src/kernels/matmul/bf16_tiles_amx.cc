// Products of BF16 tiles with AMX (bf16_tiles.h).
//
// 32 rows by 32 columns, four tiles of sums, two of x and two of W a step: 4 KiB loaded for 4 TDPBF16PS of 16 cycles.
// The weights of a stretch stay in L1 while the rows of x stream from L2.
#include <string.h>

#include "kernels/matmul/bf16_tiles.h"
#include "kernels/matmul/tiles_amx.h"

namespace hone {
namespace {

// What vector units do while tiles multiply, a share a step: ask for packed weights, and add to the sums in memory what the last
// pair of row blocks came to. Loading sums into tiles would make the next products wait for the stores of the last. The other half
// of a shared core leaves few instructions a step, so there are no conditions here: a step may ask past the end.
struct Aside {
  uintptr_t ahead, x_ahead;  // addresses: none, or past the end, is no pointer
  int64_t ahead_step, x_ahead_step;  // bytes a step, at most 128
  float* sums;         // [1024], of the last pair
  const float* products;
};

constexpr int kFullSteps = kBf16Stretch / kStepK;

// Products of kBlocks row blocks by two panels into tiles 0 .. 2 * kBlocks - 1, over all steps. x is loaded past L1, where the
// weights stay. With kAdd all 1024 sums of the aside are done after kFullSteps steps.
template <int kBlocks, bool kAdd>
inline void Steps(const Bf16Tile& t, const uint8_t* x, Aside& aside) {
  const int64_t block = int64_t{t.steps} * kTileBytes;
  uintptr_t ahead = aside.ahead, x_ahead = aside.x_ahead;
  const uint8_t *weights = t.weights, *end = x + block;
  float* sums = aside.sums;
  const float* products = aside.products;
  for (int part = 0; x < end; ++part, weights += kStepsOfPart * kTileBytes) {
    for (int step = 0; step < kStepsOfPart && x < end; ++step, x += kTileBytes, weights += kTileBytes) {
      _tile_loadd(6, weights, 64);
      _tile_stream_loadd(4, x, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, weights + kStepsOfPart * kTileBytes, 64);
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (kBlocks == 2) {
        _tile_stream_loadd(5, x + block, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
      _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(ahead + 64), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(x_ahead), _MM_HINT_T1);
      _mm_prefetch(reinterpret_cast<const char*>(x_ahead + 64), _MM_HINT_T1);
      ahead += aside.ahead_step, x_ahead += aside.x_ahead_step;
      if constexpr (kAdd) {
        for (int i = 0; i < 1024 / kFullSteps; i += 16) {
          _mm512_store_ps(sums + i, _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_load_ps(products + i)));
        }
        sums += 1024 / kFullSteps, products += 1024 / kFullSteps;
      }
    }
  }
  aside.ahead = ahead, aside.x_ahead = x_ahead;
}

void AddProducts(float* sums, const float* products, int floats) {
  for (int i = 0; i < floats; i += 16) {
    _mm512_store_ps(sums + i, _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_load_ps(products + i)));
  }
}

}  // namespace

void ConfigureTilesAmx() { _tile_loadconfig(&kFullTiles); }
void ReleaseTilesAmx() { _tile_release(); }

void MultiplyTilesAmx(const Bf16Tile& t) {
  TilesSeeMemory();
  alignas(64) float products[2][1024];  // of this pair and of the last
  const int visits = (t.row_blocks + 1) / 2 * t.steps;
  const auto share = [visits](int bytes) { return visits > 0 ? (bytes + visits - 1) / visits : 0; };
  Aside aside{reinterpret_cast<uintptr_t>(t.ahead), reinterpret_cast<uintptr_t>(t.x_ahead), share(t.ahead_bytes), share(t.x_ahead_bytes), nullptr, nullptr};
  int left = 0;  // floats of the last pair that wait to be added
  for (int block = 0; block < t.row_blocks; block += 2) {
    const bool two = block + 1 < t.row_blocks;
    float* sums = t.sums + block * 512;
    if (t.bias != nullptr) {  // every row of a tile from the same 64 bytes
      _tile_loadd(0, t.bias, 0);
      _tile_loadd(1, t.bias + 16, 0);
      _tile_loadd(2, t.bias, 0);
      _tile_loadd(3, t.bias + 16, 0);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const uint8_t* x = t.x + int64_t{block} * t.steps * kTileBytes;
    if (left > 0 && t.steps != kFullSteps) AddProducts(aside.sums, aside.products, left), left = 0;
    if (left > 0) {
      two ? Steps<2, true>(t, x, aside) : Steps<1, true>(t, x, aside);
    } else {
      two ? Steps<2, false>(t, x, aside) : Steps<1, false>(t, x, aside);
    }
    float* to = t.bias != nullptr ? sums : products[block / 2 % 2];
    _tile_stored(0, to, 64);
    _tile_stored(1, to + 256, 64);
    if (two) {
      _tile_stored(2, to + 512, 64);
      _tile_stored(3, to + 768, 64);
    }
    TilesSeeMemory();
    if (t.bias == nullptr) aside.sums = sums, aside.products = to, left = two ? 1024 : 512;
  }
  if (left > 0) AddProducts(aside.sums, aside.products, left);
}

}  // namespace hone
