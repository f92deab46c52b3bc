// BF16 tiles with AVX-512 BF16 (bf16_tiles.h): rounding rows, codes to BF16, sums to rows for every line of bf16_tiles.inc; and the
// products of this one.
//
// Products: up to 8 rows by 32 columns, 16 sums; a pair of K takes two loads of W, eight broadcasts of x and 16 VDPBF16PS, two a cycle. The
// weights of a stretch stay in L1 while the rows of x stream from L2.
#include <string.h>

#include "kernels/matmul/bf16_tiles.h"
#include "kernels/matmul/few_rows_formats_avx512.h"

namespace hone {
namespace {

// The upper halves of `even` and `odd` as pairs: one row of a tile of W.
inline __m512i UpperHalves(__m512 even, __m512 odd) {
  const __m512i from = _mm512_set4_epi32(0x0000'0f0e, 0x0000'0b0a, 0x0000'0706, 0x0000'0302);
  return _mm512_mask_shuffle_epi8(_mm512_castps_si512(odd), 0x3333'3333'3333'3333, _mm512_castps_si512(even), from);
}

// Byte i of each word as the float 256 + byte, by putting it into the mantissa of 256.
inline __m512 Magic(__m512i shifted) {
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(shifted, _mm512_set1_epi32(0x007f8000), _mm512_set1_epi32(0x43800000), 0xea));
}

template <int kGroup>
inline void OfCodes(const uint8_t* codes, const float* scales, const float* mins, int k, int offset, uint8_t* tiles) {
  const __m512 nudge = _mm512_set1_ps(kBf16Nudge), magic = _mm512_set1_ps(-256.0f - static_cast<float>(offset));
  for (int step = 0; step < k / kStepK; ++step) {
    uint8_t* out = tiles + WeightTile(step);
    for (int g = 0; g < kStepK / kGroup; ++g, scales += kPanelRows) {
      const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales), nudge);
      __m512 min = _mm512_mul_ps(scale, magic);
      if (mins != nullptr) min = _mm512_fmadd_ps(_mm512_loadu_ps(mins), nudge, min), mins += kPanelRows;
#pragma GCC unroll 8
      for (int quad = 0; quad < kGroup / 4; ++quad, codes += 64, out += 128) {
        const __m512i words = _mm512_loadu_si512(codes);
        const __m512 w0 = _mm512_fmadd_ps(Magic(_mm512_slli_epi32(words, 15)), scale, min);
        const __m512 w1 = _mm512_fmadd_ps(Magic(_mm512_slli_epi32(words, 7)), scale, min);
        const __m512 w2 = _mm512_fmadd_ps(Magic(_mm512_srli_epi32(words, 1)), scale, min);
        const __m512 w3 = _mm512_fmadd_ps(Magic(_mm512_srli_epi32(words, 9)), scale, min);
        _mm512_store_si512(out, UpperHalves(w0, w1));
        _mm512_store_si512(out + 64, UpperHalves(w2, w3));
      }
    }
  }
}

// Four bits of each word, where they lie, as the float 2^kExponent + code: its unit is bit 23 - kExponent.
template <int kExponent>
inline __m512 NibbleInPlace(__m512i words) {
  constexpr int kBits = (127 + kExponent) << 23, kMask = 15 << (23 - kExponent);
  return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(words, _mm512_set1_epi32(kMask), _mm512_set1_epi32(kBits), 0xea));
}

// A group of 32 with codes of four bits to one tile: scale * (code - kOffset) + min. Nibbles are used at bits 12 and 16 of a word,
// so that four shifts serve six and two lie there already.
template <int kOffset>
inline void OfNibbles(const uint8_t* planes, __m512 scale, __m512 min, uint8_t* out) {
  const __m512 min12 = _mm512_fnmadd_ps(scale, _mm512_set1_ps(2048.0f + kOffset), min);
  const __m512 min16 = _mm512_fnmadd_ps(scale, _mm512_set1_ps(128.0f + kOffset), min);
  const auto at12 = [&](__m512i words) { return _mm512_fmadd_ps(NibbleInPlace<11>(words), scale, min12); };
  const auto at16 = [&](__m512i words) { return _mm512_fmadd_ps(NibbleInPlace<7>(words), scale, min16); };
#pragma GCC unroll 4
  for (int l = 0; l < 4; ++l, out += 256) {
    const __m512i plane = LoadPlane(planes + 64 * l);
    const __m512i up = _mm512_slli_epi32(plane, 8), down = _mm512_srli_epi32(plane, 8);
    _mm512_store_si512(out, UpperHalves(at12(_mm512_slli_epi32(plane, 12)), at16(up)));
    _mm512_store_si512(out + 64, UpperHalves(at16(plane), at16(down)));
    _mm512_store_si512(out + 128, UpperHalves(at12(up), at12(plane)));
    _mm512_store_si512(out + 192, UpperHalves(at12(down), at16(_mm512_srli_epi32(plane, 12))));
  }
}

// With a scale of eleven bits, its product with 2^11 + 8 is exact and code 8 a weight of 0.
inline __m512 ElevenBits(__m512 x) {
  return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(static_cast<int>(0xffffe000))));
}

// Zeroes the rows of a tile from pair `pair` to its end.
inline void ZeroToStep(uint8_t* tiles, int pair) {
  for (; pair % 16 != 0; ++pair) _mm512_store_si512(tiles + 64 * pair, _mm512_setzero_si512());
}

constexpr int kMostRows = 8;  // of a product

// kRows rows of a row block by two panels, over all steps, onto `sums` ([panel][16 rows][16 columns], from its first row).
// Asks for a share of the bytes ahead a step, several lines where rows are few: addresses, since a step may ask past the end.
template <int kRows>
void Products(const Bf16Tile& t, const uint8_t* x, float* sums, uintptr_t& ahead, int ahead_step, uintptr_t& x_ahead, int x_ahead_step) {
  __m512 acc[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < 2; ++p) acc[r][p] = _mm512_loadu_ps(t.bias != nullptr ? t.bias + 16 * p : sums + 256 * p + 16 * r);
  }
  for (int step = 0; step < t.steps; ++step, x += kTileBytes) {
    const uint8_t* w = t.weights + WeightTile(step);
    for (int byte = 0; byte < ahead_step; byte += 64) _mm_prefetch(reinterpret_cast<const char*>(ahead + byte), _MM_HINT_T1);
    for (int byte = 0; byte < x_ahead_step; byte += 64) _mm_prefetch(reinterpret_cast<const char*>(x_ahead + byte), _MM_HINT_T1);
    ahead += ahead_step, x_ahead += x_ahead_step;
    for (int pair = 0; pair < kStepK / 2; ++pair) {
      const __m512bh w0 = (__m512bh)_mm512_load_si512(w + 64 * pair);
      const __m512bh w1 = (__m512bh)_mm512_load_si512(w + 64 * pair + kStepsOfPart * kTileBytes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        int two;
        memcpy(&two, x + 64 * r + 4 * pair, 4);
        const __m512bh a = (__m512bh)_mm512_set1_epi32(two);
        acc[r][0] = _mm512_dpbf16_ps(acc[r][0], a, w0);
        acc[r][1] = _mm512_dpbf16_ps(acc[r][1], a, w1);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    for (int p = 0; p < 2; ++p) _mm512_store_ps(sums + 256 * p + 16 * r, acc[r][p]);
  }
}

}  // namespace

void ConfigureTilesBf16() {}
void ReleaseTilesBf16() {}

void RoundBf16(const float* x, int64_t x_stride, int rows, int k, uint8_t* tiles) {
  const int steps = (k + kStepK - 1) / kStepK;
  for (int row = 0; row < kRowsOfBlock; ++row) {
    const float* from = x + row * x_stride;
    uint8_t* to = tiles + 64 * row;
    for (int step = 0; step < steps; ++step, from += kStepK, to += kTileBytes) {
      if (row >= rows) {
        _mm512_store_si512(to, _mm512_setzero_si512());
        continue;
      }
      const int left = k - step * kStepK;
      const __mmask32 valid = left >= kStepK ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
      const __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(valid), from);
      const __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(valid >> 16), from + 16);
      _mm512_store_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  }
}

void Bf16OfCodes(const uint8_t* codes, const float* scales, const float* mins, int k, int group, int offset, uint8_t* tiles) {
  group == 16 ? OfCodes<16>(codes, scales, mins, k, offset, tiles) : OfCodes<32>(codes, scales, mins, k, offset, tiles);
}

void Bf16OfQ4_0(const uint8_t* chunks, int k, uint8_t* tiles) {
  const __m512 nudge = _mm512_set1_ps(kBf16Nudge * (1 + 0x1.0p-12f));
  for (int step = 0; step < k / kStepK; ++step, chunks += Q4_0Few::kChunkBytes) {
    const __m512 scale = ElevenBits(_mm512_mul_ps(HalfScales(chunks + Q4_0Few::kGroupBytes), nudge));
    OfNibbles<8>(chunks, scale, _mm512_setzero_ps(), tiles + WeightTile(step));
  }
}

void Bf16OfQ4_K(const uint8_t* chunks, int k, uint8_t* tiles) {
  const __m512 nudge = _mm512_set1_ps(kBf16Nudge);
  for (int step = 0; step < k / kStepK; chunks += Q4_KFew::kChunkBytes) {
    const ScalesOfSix scales = Q4_KFew::ScalesOf(chunks);
    for (int group = 0; group < Q4_KFew::kGroups; ++group, ++step) {
      OfNibbles<0>(chunks + group * Q4_KFew::kGroupBytes, _mm512_mul_ps(scales.Scale(group), nudge),
                   _mm512_mul_ps(scales.Min(group), nudge), tiles + WeightTile(step));
    }
  }
}

void Bf16OfF16(const uint8_t* chunks, int k, uint8_t* tiles) {
  const __m512 nudge = _mm512_set1_ps(kBf16Nudge);
  const int pairs = (k + 1) / 2;
  for (int pair = 0; pair < pairs; ++pair, chunks += 64) {
    const __m256i even = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunks));
    const __m256i odd = 2 * pair + 1 < k ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunks + 32)) : _mm256_setzero_si256();
    _mm512_store_si512(tiles + 64 * pair,
                       UpperHalves(_mm512_mul_ps(_mm512_cvtph_ps(even), nudge), _mm512_mul_ps(_mm512_cvtph_ps(odd), nudge)));
  }
  ZeroToStep(tiles, pairs);
}

void Bf16OfBf16(const uint8_t* chunks, int k, uint8_t* tiles) {
  int pair = 0;
  for (; 2 * pair + 1 < k; ++pair, chunks += 64) {
    _mm512_store_si512(tiles + 64 * pair, _mm512_loadu_si512(chunks));
  }
  if (k % 2 != 0) {  // an odd last element stands alone
    const __m512i last = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunks)));
    _mm512_store_si512(tiles + 64 * pair, last);
    ++pair;
  }
  ZeroToStep(tiles, pair);
}

void RoundSums(const float* sums, uint8_t* tile) {
  for (int row = 0; row < kRowsOfBlock; ++row, sums += 16, tile += 64) {
    _mm512_store_si512(tile, (__m512i)_mm512_cvtne2ps_pbh(_mm512_load_ps(sums + 256), _mm512_load_ps(sums)));
  }
}

void StoreBf16(const Bf16Sums& t) {
  for (int row = 0; row < t.rows; ++row) {
    const float* from = t.sums + row / 16 * 512 + row % 16 * 16;
    float* to = t.y + row * t.y_stride;
    int left = t.columns;
    for (; left >= 32; left -= 32, from += t.tile_stride, to += 32) {
      _mm512_storeu_ps(to, _mm512_load_ps(from));
      _mm512_storeu_ps(to + 16, _mm512_load_ps(from + 256));
    }
    const uint32_t valid = (uint32_t{1} << left) - 1;
    if (left > 0) _mm512_mask_storeu_ps(to, static_cast<__mmask16>(valid), _mm512_load_ps(from));
    if (left > 16) _mm512_mask_storeu_ps(to + 16, static_cast<__mmask16>(valid >> 16), _mm512_load_ps(from + 256));
  }
}

void MultiplyTilesBf16(const Bf16Tile& t) {
  constexpr decltype(&Products<1>) kProducts[] = {Products<1>, Products<2>, Products<3>, Products<4>,
                                                  Products<5>, Products<6>, Products<7>, Products<8>};
  const int visits = (t.rows + kMostRows - 1) / kMostRows * t.steps;
  const auto share = [visits](int bytes) { return visits > 0 ? (bytes + visits - 1) / visits : 0; };
  uintptr_t ahead = reinterpret_cast<uintptr_t>(t.ahead), x_ahead = reinterpret_cast<uintptr_t>(t.x_ahead);
  for (int block = 0; block * kRowsOfBlock < t.rows; ++block) {
    const uint8_t* x = t.x + int64_t{block} * t.steps * kTileBytes;
    const int left = t.rows - block * kRowsOfBlock, rows = left < kRowsOfBlock ? left : kRowsOfBlock;
    const int parts = (rows + kMostRows - 1) / kMostRows;
    for (int part = 0; part < parts; ++part) {  // heights differ by one at most
      const int row = rows * part / parts, height = rows * (part + 1) / parts - row;
      kProducts[height - 1](t, x + 64 * row, t.sums + 512 * block + 16 * row, ahead, share(t.ahead_bytes), x_ahead, share(t.x_ahead_bytes));
    }
  }
}

}  // namespace hone
