// The functions of slices.h for HONE_LANES floats a vector; what is left of a slice is padded with zeros.
#pragma once

// g++ 12 takes the registers that its own intrinsics leave undefined for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compress/gguf/lanes.h"
#include "compress/numbers/slices.h"

namespace hone {
namespace {

// The vectors' own instructions where g++ 12 does not find them: it turns a < b ? a : b into a comparison and a selection, and
// widens bytes one by one, and floats to doubles by halves.
#if HONE_LANES == 16
inline Floats Least(Floats a, Floats b) { return _mm512_min_ps(a, b); }  // a < b ? a : b
inline Floats Most(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Ints MostInts(Ints a, Ints b) { return (Ints)_mm512_max_epi32((__m512i)a, (__m512i)b); }
inline Ints FromBytes(const void* p) { return (Ints)_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
inline Ints FromSignedBytes(const void* p) { return (Ints)_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
inline Ints FromShorts(const void* p) { return (Ints)_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
inline __m512d FloatsAsDoubles(const float* p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
#elif HONE_LANES == 8
inline Floats Least(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats Most(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Ints MostInts(Ints a, Ints b) { return (Ints)_mm256_max_epi32((__m256i)a, (__m256i)b); }
inline Ints FromBytes(const void* p) { return (Ints)_mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))); }
inline Ints FromSignedBytes(const void* p) { return (Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))); }
inline Ints FromShorts(const void* p) { return (Ints)_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
inline __m256d FloatsAsDoubles(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
#else
inline Floats Least(Floats a, Floats b) { return _mm_min_ps(a, b); }
inline Floats Most(Floats a, Floats b) { return _mm_max_ps(a, b); }
inline Ints MostInts(Ints a, Ints b) { return (Ints)_mm_max_epi32((__m128i)a, (__m128i)b); }
inline __m128i FourBytes(const void* p) {
  int32_t four;
  std::memcpy(&four, p, sizeof(four));
  return _mm_cvtsi32_si128(four);
}
inline Ints FromBytes(const void* p) { return (Ints)_mm_cvtepu8_epi32(FourBytes(p)); }
inline Ints FromSignedBytes(const void* p) { return (Ints)_mm_cvtepi8_epi32(FourBytes(p)); }
inline Ints FromShorts(const void* p) { return (Ints)_mm_cvtepu16_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p))); }
inline __m128d FloatsAsDoubles(const float* p) { return _mm_cvtps_pd(_mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))); }
#endif

// fn(vector from `stored`) to x for n elements of `width` bytes; load reads a vector of them.
inline void ForStored(const std::byte* stored, int64_t n, int width, float* x, auto&& load, auto&& fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats v = fn(load(stored + i * width));
    std::memcpy(x + i, &v, sizeof(v));
  }
  if (i == n) return;
  std::byte rest[4 * kLanes] = {};
  std::memcpy(rest, stored + i * width, static_cast<size_t>((n - i) * width));
  const Floats v = fn(load(rest));
  std::memcpy(x + i, &v, static_cast<size_t>(n - i) * sizeof(float));
}

inline Floats Limited(Floats x, float to) { return Least(Most(x, Splat(-to)), Splat(to)); }

// fn(vector, index, how many of it) for all of x.
inline void ForVectors(const float* x, int64_t n, auto&& fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Floats v;
    std::memcpy(&v, x + i, sizeof(v));
    fn(v, i, kLanes);
  }
  if (i == n) return;
  Floats v{};
  std::memcpy(&v, x + i, static_cast<size_t>(n - i) * sizeof(float));
  fn(v, i, static_cast<int>(n - i));
}

// The low bytes of `count` lanes.
inline void StoreSome(Ints x, int count, void* out) {
  if (count == kLanes) return StoreBytes(x, out);
  uint8_t bytes[kLanes];
  StoreBytes(x, bytes);
  std::memcpy(out, bytes, static_cast<size_t>(count));
}

// Halves to even, as tensor/float16.h rounds; finite or infinite.
template <DType dtype>
inline Floats Stored(Floats x) {
  if constexpr (dtype == DType::kBF16) {
    const Ints bits = Bits(x);
    return FromBits((bits + 0x7fff + ((bits >> 16) & 1)) & ~0xffff);
  } else if constexpr (dtype == DType::kF16) {
    const Ints bits = Bits(x), sign = bits & static_cast<int32_t>(0x80000000), magnitude = bits ^ sign;
    const Ints normal = (magnitude + 0xfff + ((magnitude >> 13) & 1)) & ~0x1fff;
    const Ints tiny = Bits((FromBits(magnitude) + 0.5f) - 0.5f);  // subnormal: a unit of 0.5's last place is 2^-24
    const Ints rounded = Select(magnitude < 0x38800000, tiny, normal);
    return FromBits(Select(magnitude >= 0x477ff000, SplatInt(0x7f800000), rounded) | sign);
  } else {
    return x;
  }
}
inline void ByDType(DType dtype, auto&& fn) {  // fn.operator()<dtype>()
  if (dtype == DType::kBF16) return fn.template operator()<DType::kBF16>();
  if (dtype == DType::kF16) return fn.template operator()<DType::kF16>();
  fn.template operator()<DType::kF32>();
}

bool Finite(const float* x, int64_t n) {
  Ints bad{};
  ForVectors(x, n, [&](Floats v, int64_t, int) { bad |= (Bits(v) & 0x7fffffff) >= 0x7f800000; });
  return !Any(bad);
}

bool FromBf16(const std::byte* stored, int64_t n, float* x) {
  Ints largest{};
  ForStored(stored, n, 2, x, FromShorts, [&](Ints v) {
    v <<= 16;
    largest = MostInts(largest, v & 0x7fffffff);
    return FromBits(v);
  });
  return !Any(largest >= 0x7f800000);
}

void Range(const float* x, int64_t n, float* least, float* most) {
  // Vectors that overlap instead of a padded one: zeros may be outside of the range.
  if (n < kLanes) {
    *least = *most = x[0];
    for (int64_t i = 1; i < n; ++i) *least = x[i] < *least ? x[i] : *least, *most = x[i] > *most ? x[i] : *most;
    return;
  }
  Floats low, high;
  std::memcpy(&low, x + n - kLanes, sizeof(low));
  high = low;
  for (int64_t i = 0; i + kLanes <= n; i += kLanes) {
    Floats v;
    std::memcpy(&v, x + i, sizeof(v));
    low = Least(low, v), high = Most(high, v);
  }
#if HONE_LANES == 16
  *least = _mm512_reduce_min_ps(low), *most = _mm512_reduce_max_ps(high);
#else
  *least = low[0], *most = high[0];
  for (int i = 1; i < kLanes; ++i) {
    *least = low[i] < *least ? low[i] : *least;
    *most = high[i] > *most ? high[i] : *most;
  }
#endif
}

// What is whole within two bounds of less than 2^22, plus `zero`, is the same limited before it is rounded: then the low byte of
// the sum that rounds is the code.
void Round(const float* x, int64_t n, float scale, float zero, int top, uint8_t* codes) {
  const int whole = static_cast<int>(zero);
  const Floats low = Splat(static_cast<float>(-whole)), high = Splat(static_cast<float>(top - whole));
  ForVectors(x, n, [&](Floats v, int64_t i, int count) {
    StoreSome(Bits(Least(Most(v / scale, low), high) + kNearestMagic) + whole, count, codes + i);
  });
}

void RoundIn(DType dtype, const float* x, int64_t n, float scale, float zero, int half, uint8_t* codes) {
  const Floats low = Splat(static_cast<float>(-half)), high = Splat(static_cast<float>(half - 1));
  ByDType(dtype, [&]<DType type>() {
    const auto round = [&](auto sum) {
      ForVectors(x, n, [&](Floats v, int64_t i, int count) {
        StoreSome(Bits(Least(Most(sum(Stored<type>(v / scale)), low), high) + kNearestMagic) + half, count, codes + i);
      });
    };
    if (zero == 0) return round([](Floats v) { return v; });
    round([&](Floats v) { return Stored<type>(v + zero); });
  });
}

void RoundToBytes(const float* x, int64_t n, float factor, int8_t* codes) {
  ForVectors(x, n, [&](Floats v, int64_t i, int count) { StoreSome(Nearest(Limited(v * factor, 127)), count, codes + i); });
}

// A float's magnitude as a small float: `mantissa` bits, `first` its code for 1, the smallest step 2^-steps below `normal`.
template <int mantissa, int first, int top>
inline Ints SmallMagnitude(Floats x, float normal, float shift) {
  const Floats a = Abs(x);
  constexpr int drop = 23 - mantissa;
  const Ints bits = Bits(a);
  const Ints above = ((bits + ((1 << (drop - 1)) - 1) + ((bits >> drop) & 1)) >> drop) - ((127 << mantissa) - first);
  const Ints below = Bits(a + shift) - Bits(Splat(shift));  // shift's last place is the smallest step
  return Clamp(Select(a < normal, below, above), 0, top);
}
inline Ints SignOf(Floats x, int bit) { return (Bits(x) >> (31 - bit)) & (1 << bit); }

void ToE4m3(DType dtype, const float* x, int64_t n, float scale, uint8_t* codes) {
  ByDType(dtype, [&]<DType type>() {
    ForVectors(x, n, [&](Floats v, int64_t i, int count) {
      v = Stored<type>(v / scale);
      StoreSome(SmallMagnitude<3, 7 << 3, 0x7e>(v, 0x1.0p-6f, 0x1.0p14f) | SignOf(v, 7), count, codes + i);
    });
  });
}

void ToE5m2(const float* x, int64_t n, float scale, uint8_t* codes) {
  ForVectors(x, n, [&](Floats v, int64_t i, int count) {
    v = v / scale;
    StoreSome(SmallMagnitude<2, 15 << 2, 0x7b>(v, 0x1.0p-14f, 0x1.0p7f) | SignOf(v, 7), count, codes + i);
  });
}

void Largest(const float* x, int64_t blocks, int block, float* largest) {
  for (int64_t b = 0; b < blocks; ++b, x += block) {
    Floats most{};
    for (int i = 0; i < block; i += kLanes) {
      Floats v;
      std::memcpy(&v, x + i, sizeof(v));
      most = Most(Abs(v), most);
    }
#if HONE_LANES == 16
    largest[b] = _mm512_reduce_max_ps(most);
#else
    float all = most[0];
    for (int i = 1; i < kLanes; ++i) all = most[i] > all ? most[i] : all;
    largest[b] = all;
#endif
  }
}

// Above 6 nothing; what is left is counted in steps of half the power of two at or below it (1 at least): added to 2^22 times that
// power, steps are units of the last place. A power has two codes.
inline Ints E2m1(Floats x) {
  const Floats a = Least(Abs(x), Splat(6));
  const Ints power = MostInts(Bits(a) & 0x7f800000, SplatInt(127 << 23)), unit = power + (22 << 23);
  const Ints code = (Bits(a + FromBits(unit)) - unit) + ((power >> 22) - (127 << 1));
  return code | Select(a == 0.0f, Ints{}, SignOf(x, 3));
}

void ToE2m1(const float* x, int64_t blocks, int block, const float* scales, std::byte* packed) {
  for (int64_t b = 0; b < blocks; ++b, x += block, packed += block / 2) {
    const auto code = [&](auto scaled) {
      for (int i = 0; i < block; i += 16) {
#if HONE_LANES == 16
        const __m512i codes = (__m512i)E2m1(scaled(_mm512_loadu_ps(x + i)));  // two of them in 64 bits
        const __m512i pairs = _mm512_or_si512(codes, _mm512_srli_epi64(codes, 28));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(packed + i / 2), _mm512_cvtepi64_epi8(pairs));
#else
        uint8_t codes[16];
        for (int j = 0; j < 16; j += kLanes) {
          Floats v;
          std::memcpy(&v, x + i + j, sizeof(v));
          StoreBytes(E2m1(scaled(v)), codes + j);
        }
        for (int j = 0; j < 8; ++j) packed[i / 2 + j] = static_cast<std::byte>(codes[2 * j] | codes[2 * j + 1] << 4);
#endif
      }
    };
    // By a power of two that has an inverse: the product is the same number and several times faster.
    uint32_t bits;
    std::memcpy(&bits, &scales[b], sizeof(bits));
    if ((bits & 0x7fffff) == 0 && bits >> 23 >= 1 && bits >> 23 <= 253) {
      code([inverse = Splat(1 / scales[b])](Floats v) { return v * inverse; });
    } else {
      code([scale = Splat(scales[b])](Floats v) { return v / scale; });
    }
  }
}

void CountBelow(const float* x, int64_t n, float factor, const float* bounds, uint8_t* counts) {
  ForVectors(x, n, [&](Floats v, int64_t i, int count) {
    v = v * factor;
    Ints below{};
    for (int j = 0; j < 15; ++j) below -= v > bounds[j];
    StoreSome(below, count, counts + i);
  });
}

#if HONE_LANES == 16
// Bounds by the cells of an even grid over -1 .. 1: where none has two, a value is compared with the bound of its cell alone.
struct CodeCells {
  float bound[32];    // infinity where there is none
  int32_t codes[32];  // of what is not above it, and of what is 8 bits higher
};
inline __m512i CellOf(__m512 x) {  // rising with x
  return _mm512_cvttps_epi32(_mm512_fmadd_ps((__m512)Limited((Floats)x, 0.99f), _mm512_set1_ps(16), _mm512_set1_ps(16)));
}
inline bool MakeCells(const float* bounds, const uint8_t* codes, CodeCells* cells) {
  float rising[16] = {};
  std::memcpy(rising, bounds, 15 * sizeof(float));
  int32_t cell_of[16];
  _mm512_storeu_si512(cell_of, CellOf(_mm512_loadu_ps(rising)));
  int next = 0;
  for (int c = 0; c < 32; ++c) {
    const bool has = next < 15 && cell_of[next] == c;
    cells->bound[c] = has ? bounds[next] : INFINITY;
    cells->codes[c] = codes[next] | codes[next + has] << 8;
    next += has;
    if (next < 15 && cell_of[next] == c) return false;
  }
  return true;
}

// As ToCodebook for the vectors of a block; how many weights that were.
inline int64_t ToCodesOfCells(const CodeCells& cells, const float* x, int64_t n, float factor, uint8_t* packed) {
  const __m512 bounds[2] = {_mm512_loadu_ps(cells.bound), _mm512_loadu_ps(cells.bound + 16)};
  const __m512i codes[2] = {_mm512_loadu_si512(cells.codes), _mm512_loadu_si512(cells.codes + 16)};
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 v = _mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(factor));
    const __m512i cell = CellOf(v);
    const __mmask16 above = _mm512_cmp_ps_mask(v, _mm512_permutex2var_ps(bounds[0], cell, bounds[1]), _CMP_GT_OQ);
    __m512i code = _mm512_permutex2var_epi32(codes[0], cell, codes[1]);
    code = _mm512_mask_srli_epi32(code, above, code, 8);
    const __m512i pairs = _mm512_or_si512(_mm512_slli_epi64(code, 4), _mm512_srli_epi64(code, 32));  // in the lowest bytes
    _mm_storel_epi64(reinterpret_cast<__m128i*>(packed + i / 2), _mm512_cvtepi64_epi8(pairs));
  }
  return i;
}
#endif

inline void ToCodesOfBlock(const float* x, int64_t i, int64_t n, float factor, const float* bounds, const uint8_t* codes, uint8_t* packed) {
#if HONE_LANES == 16
  float rising[16] = {};
  std::memcpy(rising, bounds, 15 * sizeof(float));
  const __m512 ladder = _mm512_loadu_ps(rising);
  const __m512i code_of = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const auto pack = [&]<int vectors>() {  // side by side: each step of a search waits for the one before
    __m512 v[vectors];
    __m512i at[vectors];  // of the bound to compare with next
    for (int k = 0; k < vectors; ++k) {
      v[k] = _mm512_mul_ps(_mm512_loadu_ps(x + i + 16 * k), _mm512_set1_ps(factor));
      at[k] = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v[k], _mm512_set1_ps(bounds[7]), _CMP_GT_OQ), _mm512_set1_epi32(3),
                                      _mm512_set1_epi32(11));
    }
    for (int step = 2; step >= 0; --step) {  // 2, 1 and the last
      for (int k = 0; k < vectors; ++k) {
        const __mmask16 above = _mm512_cmp_ps_mask(v[k], _mm512_permutexvar_ps(at[k], ladder), _CMP_GT_OQ);
        // The middle of the lower or the upper half; in the end the count itself.
        const int down = step == 0 ? 0 : step, up = step == 0 ? 1 : step;
        at[k] = _mm512_mask_blend_epi32(above, _mm512_sub_epi32(at[k], _mm512_set1_epi32(down)),
                                        _mm512_add_epi32(at[k], _mm512_set1_epi32(up)));
      }
    }
    for (int k = 0; k < vectors; ++k) {
      const __m512i code = _mm512_permutexvar_epi32(at[k], code_of);  // two of them in 64 bits
      const __m512i pairs = _mm512_or_si512(_mm512_slli_epi64(code, 4), _mm512_srli_epi64(code, 32));
      _mm_storel_epi64(reinterpret_cast<__m128i*>(packed + i / 2 + 8 * k), _mm512_cvtepi64_epi8(pairs));
    }
  };
  for (; i + 64 <= n; i += 64) pack.template operator()<4>();
  for (; i + 16 <= n; i += 16) pack.template operator()<1>();
#endif
  uint8_t counts[kLanes];
  for (; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    CountBelow(x + i, count, factor, bounds, counts);
    for (int64_t j = 0; j < count; j += 2)
      packed[(i + j) / 2] = static_cast<uint8_t>(codes[counts[j]] << 4 | (j + 1 < count ? codes[counts[j + 1]] : 0));
  }
}

void ToCodebook(const float* x, int64_t blocks, int64_t block, const float* factors, const float* bounds, const uint8_t* codes,
                uint8_t* packed) {
#if HONE_LANES == 16
  CodeCells cells;
  const bool by_cells = MakeCells(bounds, codes, &cells);
#endif
  for (int64_t b = 0; b < blocks; ++b, x += block, packed += block / 2) {
    int64_t i = 0;
#if HONE_LANES == 16
    if (by_cells) i = ToCodesOfCells(cells, x, block, factors[b], packed);
    if (i == block) continue;
#endif
    ToCodesOfBlock(x, i, block, factors[b], bounds, codes, packed);
  }
}

// How many of all values but the last lie below, without branches: they would be guessed wrong half of the time. Then the
// nearer of the two around.
void ToNearest(const float* x, int64_t n, float offset, float factor, const float* values, uint8_t* codes) {
  int64_t i = 0;
#if HONE_LANES == 16
  const auto value = [&](__m512i at) { return _mm512_i32gather_ps(at, values, 4); };
  const __m512i every = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512 sixteenths = value(_mm512_add_epi32(_mm512_slli_epi32(every, 4), _mm512_set1_epi32(15)));
  for (; i + 16 <= n; i += 16) {
    const __m512 v = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(offset)), _mm512_set1_ps(factor));
    __m512i at = _mm512_setzero_si512();  // in sixteenths at first
    for (int step = 8; step > 0; step /= 2) {
      const __m512 least = _mm512_permutexvar_ps(_mm512_add_epi32(at, _mm512_set1_epi32(step - 1)), sixteenths);
      at = _mm512_mask_add_epi32(at, _mm512_cmp_ps_mask(least, v, _CMP_LT_OQ), at, _mm512_set1_epi32(step));
    }
    at = _mm512_slli_epi32(at, 4);
    for (int step = 8; step > 0; step /= 2) {
      const __m512 least = value(_mm512_add_epi32(at, _mm512_set1_epi32(step - 1)));
      at = _mm512_mask_add_epi32(at, _mm512_cmp_ps_mask(least, v, _CMP_LT_OQ), at, _mm512_set1_epi32(step));
    }
    const __m512i before = _mm512_max_epi32(_mm512_sub_epi32(at, _mm512_set1_epi32(1)), _mm512_setzero_si512());
    const __mmask16 nearer = _mm512_cmp_ps_mask(_mm512_sub_ps(v, value(before)), _mm512_sub_ps(value(at), v), _CMP_LT_OQ);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), _mm512_cvtepi32_epi8(_mm512_mask_blend_epi32(nearer, at, before)));
  }
#endif
  for (; i < n; ++i) {
    const float v = (x[i] - offset) * factor;
    int at = 0;
    for (int step = 128; step > 0; step /= 2) at += values[at + step - 1] < v ? step : 0;
    const int before = at - (at > 0 ? 1 : 0);
    codes[i] = static_cast<uint8_t>(v - values[before] < values[at] - v ? before : at);
  }
}

void Dequantize(const uint8_t* codes, int64_t n, float scale, float zero, float* x) {
  ForStored(reinterpret_cast<const std::byte*>(codes), n, 1, x, FromBytes, [&](Ints v) { return (ToFloats(v) - zero) * scale; });
}

void DequantizeBytes(const std::byte* codes, int64_t n, float scale, float* x) {
  ForStored(codes, n, 1, x, FromSignedBytes, [&](Ints v) { return ToFloats(v) * scale; });
}

// Exponent and mantissa moved to their places are the number times 2^-120, subnormal ones too.
void FromE4m3(const std::byte* codes, int64_t n, float scale, float* x) {
  ForStored(codes, n, 1, x, FromBytes, [&](Ints v) {
    const Ints magnitude = v & 0x7f, sign = (v & 0x80) << 24;
    const Floats value = FromBits(Bits(FromBits(magnitude << 20) * 0x1.0p120f) | sign);
    return Select(magnitude == 0x7f, Splat(std::nanf("")), value) * scale;
  });
}

// The same, times 2^-112; what is no finite number has all bits of the exponent.
void FromE5m2(const std::byte* codes, int64_t n, float scale, float* x) {
  ForStored(codes, n, 1, x, FromBytes, [&](Ints v) {
    const Ints magnitude = v & 0x7f, sign = (v & 0x80) << 24;
    const Ints finite = Bits(FromBits(magnitude << 21) * 0x1.0p112f), beyond = 0x7f800000 | (magnitude & 3) << 21;
    return FromBits(Select(magnitude < 0x7c, finite, beyond) | sign) * scale;
  });
}

#if HONE_LANES == 16
// Codes of four bits in eight bytes, one a lane, below bits that a lookup leaves out: each byte in 64 bits, and again in their upper
// half, shifted.
inline __m512i FourBits(const std::byte* packed, __m512i shifts) {
  const __m512i pairs = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(packed)));
  return _mm512_srlv_epi32(_mm512_or_si512(pairs, _mm512_slli_epi64(pairs, 32)), shifts);
}
#endif

void LookUp(const std::byte* packed, int64_t blocks, int64_t block, const float* values, bool high_first, const float* scales,
            float* x) {
#if HONE_LANES == 16
  const __m512 unscaled = _mm512_loadu_ps(values);
  const __m512i shifts = high_first ? _mm512_set1_epi64(int64_t{4}) : _mm512_set1_epi64(int64_t{4} << 32);
#endif
  for (int64_t b = 0; b < blocks; ++b, packed += block / 2, x += block) {
    int64_t i = 0;
#if HONE_LANES == 16
    const __m512 all = _mm512_mul_ps(unscaled, _mm512_set1_ps(scales[b]));
    for (; i + 16 <= block; i += 16) _mm512_storeu_ps(x + i, _mm512_permutexvar_ps(FourBits(packed + i / 2, shifts), all));
#endif
    for (; i < block; i += 2) {
      const int pair = static_cast<int>(packed[i / 2]);
      x[i] = values[high_first ? pair >> 4 : pair & 15] * scales[b];
      x[i + 1] = values[high_first ? pair & 15 : pair >> 4] * scales[b];
    }
  }
}

// Codes of a few bits, eight in one 64-bit word: eight bytes of `bits` bits to 8 * bits bits, and back. Without BMI2 by pairs, then fours,
// then all eight.
#ifdef __BMI2__
template <int bits>
constexpr uint64_t kEight = ((1u << bits) - 1) * 0x0101010101010101u;
template <int bits>
inline uint64_t Join(uint64_t x) { return _pext_u64(x, kEight<bits>); }
template <int bits>
inline uint64_t Part(uint64_t x) { return _pdep_u64(x, kEight<bits>); }
#else
template <int bits>
inline uint64_t Join(uint64_t x) {
  x = (x & 0x00ff00ff00ff00ff) | (x & 0xff00ff00ff00ff00) >> (8 - bits);
  x = (x & 0x0000ffff0000ffff) | (x & 0xffff0000ffff0000) >> (16 - 2 * bits);
  return (x & 0xffffffff) | (x >> 32) << (4 * bits);
}
template <int bits>
inline uint64_t Part(uint64_t x) {
  constexpr uint64_t four = (uint64_t{1} << (4 * bits)) - 1, two = (uint64_t{1} << (2 * bits)) - 1, one = (1u << bits) - 1;
  x = (x & four) | (x >> (4 * bits) & four) << 32;
  x = (x & (two | two << 32)) | (x & (two | two << 32) << (2 * bits)) << (16 - 2 * bits);
  constexpr uint64_t ones = one | one << 16 | one << 32 | one << 48;
  return (x & ones) | (x & ones << bits) << (8 - bits);
}
#endif

template <int bits>
void Pack(const uint8_t* codes, int64_t n, std::byte* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8, out += bits) {
    uint64_t eight;
    std::memcpy(&eight, codes + i, 8);
    eight = Join<bits>(eight);
    std::memcpy(out, &eight, bits);
  }
  if (i == n) return;
  uint64_t rest = 0;
  std::memcpy(&rest, codes + i, static_cast<size_t>(n - i));
  rest = Join<bits>(rest);
  std::memcpy(out, &rest, static_cast<size_t>(((n - i) * bits + 7) / 8));
}

template <int bits>
void Unpack(const std::byte* packed, int64_t n, uint8_t* codes) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8, packed += bits) {
    uint64_t eight = 0;
    std::memcpy(&eight, packed, bits);
    eight = Part<bits>(eight);
    std::memcpy(codes + i, &eight, 8);
  }
  if (i == n) return;
  uint64_t rest = 0;
  std::memcpy(&rest, packed, static_cast<size_t>(((n - i) * bits + 7) / 8));
  rest = Part<bits>(rest);
  std::memcpy(codes + i, &rest, static_cast<size_t>(n - i));
}

void ByBits(int bits, auto&& fn) {  // fn.operator()<bits>()
  switch (bits) {
    case 1: return fn.template operator()<1>();
    case 2: return fn.template operator()<2>();
    case 3: return fn.template operator()<3>();
    case 4: return fn.template operator()<4>();
    case 5: return fn.template operator()<5>();
    case 6: return fn.template operator()<6>();
    case 7: return fn.template operator()<7>();
    case 8: return fn.template operator()<8>();
    default: HONE_CHECK(false, "codes have 1 to 8 bits");
  }
}

void PackCodes(const uint8_t* codes, int64_t n, int bits, std::byte* out) {
  ByBits(bits, [&]<int b>() { Pack<b>(codes, n, out); });
}
void UnpackCodes(const std::byte* packed, int64_t n, int bits, uint8_t* codes) {
  ByBits(bits, [&]<int b>() { Unpack<b>(packed, n, codes); });
}

// Sixteen sums, whatever the lanes: so that all tables give the same.
void Compare(const float* a, const float* b, int64_t n, double* errors, double* power, double* largest) {
  constexpr int kSums = 16, kDoubles = kLanes / 2, kParts = kSums / kDoubles;
  typedef double Doubles __attribute__((vector_size(kDoubles * 8)));  // a register: of twice its size g++ 12 goes through memory
  typedef int64_t Words __attribute__((vector_size(kDoubles * 8)));
  Doubles error[kParts] = {}, squares[kParts] = {}, most[kParts] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (int part = 0; part < kParts; ++part) {
      const Doubles wanted = (Doubles)FloatsAsDoubles(b + i + part * kDoubles);
      const Doubles e = (Doubles)FloatsAsDoubles(a + i + part * kDoubles) - wanted;
      error[part] += e * e;
      squares[part] += wanted * wanted;
      const Doubles magnitude = (Doubles)((Words)e & INT64_MAX);
#if HONE_LANES == 16
      most[part] = _mm512_max_pd(magnitude, most[part]);
#elif HONE_LANES == 8
      most[part] = _mm256_max_pd(magnitude, most[part]);
#else
      most[part] = _mm_max_pd(magnitude, most[part]);
#endif
    }
  }
  for (int j = 0; j < kSums; ++j) {
    *errors += error[j / kDoubles][j % kDoubles];
    *power += squares[j / kDoubles][j % kDoubles];
    const double m = most[j / kDoubles][j % kDoubles];
    *largest = m > *largest ? m : *largest;
  }
  for (; i < n; ++i) {
    const double wanted = b[i], e = a[i] - wanted, magnitude = e < 0 ? -e : e;
    *errors += e * e;
    *power += wanted * wanted;
    *largest = magnitude > *largest ? magnitude : *largest;
  }
}

// Four of sixteen floats.
template <int quarter>
inline __m128 Quarter(const Floats* sixteen) {
#if HONE_LANES == 16
  return _mm512_extractf32x4_ps((__m512)sixteen[0], quarter);
#elif HONE_LANES == 8
  return _mm256_extractf128_ps((__m256)sixteen[quarter / 2], quarter % 2);
#else
  return (__m128)sixteen[quarter];
#endif
}
inline __m128 SumsOfFour(const Floats* sixteen) {
  return _mm_add_ps(_mm_add_ps(Quarter<0>(sixteen), Quarter<2>(sixteen)), _mm_add_ps(Quarter<1>(sixteen), Quarter<3>(sixteen)));
}

// Sixteen sums here too; those of errors go on over some blocks.
void CompareCodes(const float* x, const std::byte* packed, int64_t blocks, int64_t block, const float* values, const float* scales,
                  CodeSums* sums, double* errors, double* largest) {
  constexpr int kSums = 16, kParts = kSums / kLanes;
  constexpr int64_t kBlocksASum = 32;
#if HONE_LANES == 16
  const __m512 all = _mm512_loadu_ps(values);
  const __m512i shifts = _mm512_set1_epi64(int64_t{4});
#endif
  Floats most[kParts] = {};
  for (int64_t b = 0; b < blocks;) {
    Floats error[kParts] = {};
    for (const int64_t stop = b + kBlocksASum < blocks ? b + kBlocksASum : blocks; b < stop; ++b) {
      Floats product[kParts] = {}, power[kParts] = {};
      for (int64_t i = 0; i < block; i += kSums, x += kSums, packed += kSums / 2) {
        Floats value[kParts];
#if HONE_LANES == 16
        value[0] = (Floats)_mm512_permutexvar_ps(FourBits(packed, shifts), all);
#else
        for (int j = 0; j < kSums; j += 2) {
          const int pair = static_cast<int>(packed[j / 2]);
          value[j / kLanes][j % kLanes] = values[pair >> 4];
          value[j / kLanes][j % kLanes + 1] = values[pair & 15];
        }
#endif
        for (int part = 0; part < kParts; ++part) {
          Floats w;
          std::memcpy(&w, x + part * kLanes, sizeof(w));
          const Floats v = value[part], e = w - v * scales[b];
          error[part] += e * e;
          product[part] += e * v;
          power[part] += v * v;
          most[part] = Most(Abs(e), most[part]);
        }
      }
      __m128 both = _mm_hadd_ps(SumsOfFour(product), SumsOfFour(power));
      both = _mm_hadd_ps(both, both);
      float two[4];
      _mm_storeu_ps(two, both);
      sums[b] = {scales[b] > 0 ? two[0] / scales[b] : 0, two[1]};
    }
    for (int j = 0; j < kSums; ++j) *errors += error[j / kLanes][j % kLanes];
  }
  for (int j = 0; j < kSums; ++j) *largest = most[j / kLanes][j % kLanes] > *largest ? most[j / kLanes][j % kLanes] : *largest;
}

}  // namespace
}  // namespace hone

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
