// Vec for AVX-512: sixteen floats and the operations that kernel bodies (simd/functions.h, */..._body.h) are written in.
//
// Included only by *_avx512.cc files, before a body. Everything has internal linkage (anonymous namespace): a function shared
// with baseline code could be picked by the linker for CPUs that lack the instructions. simd/avx2.h is the same for AVX2.
#pragma once

// g++ 12 sees uninitialised operands in its own intrinsics (their "undefined" pass-through values). Not popped: the warning is
// judged where an intrinsic was inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace hone {
namespace {

struct Vec {
  static constexpr int kLanes = 16;
  static constexpr int kRegisters = 32;
  using Mask = __mmask16;

  __m512 v;

  static inline Vec Zero() { return {_mm512_setzero_ps()}; }
  static inline Vec Set(float x) { return {_mm512_set1_ps(x)}; }
  static inline Vec Load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static inline Vec LoadF16(const void* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)))};
  }
  static inline Vec LoadBf16(const void* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  static inline Vec LoadI8(const void* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))))};
  }
  // Sixteen pairs of BF16, {first, second} of each.
  static inline void LoadBf16Pairs(const void* p, Vec* first, Vec* second) {
    const __m512i pairs = _mm512_loadu_si512(p);
    first->v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    second->v = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  // The first n pairs, the others 0.
  static inline void LoadFirstBf16Pairs(const void* p, int n, Vec* first, Vec* second) {
    const __m512i pairs = _mm512_maskz_loadu_epi32(FirstLanes(n), p);
    first->v = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16));
    second->v = _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  // The first n lanes, the others 0. 0 <= n <= kLanes; reads nothing beyond p + n.
  static inline Vec LoadFirst(const float* p, int n) { return {_mm512_maskz_loadu_ps(FirstLanes(n), p)}; }
  static inline Vec LoadFirstF16(const void* p, int n) { return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(FirstLanes(n), p))}; }
  static inline Vec LoadFirstI8(const void* p, int n) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(FirstLanes(n), p)))};
  }
  static inline Vec LoadFirstBf16(const void* p, int n) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(FirstLanes(n), p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  // cos/sin of 8 pairs to both lanes of each pair: {p0, p0, p1, p1, ...}.
  static inline Vec LoadDoubled(const float* p) {
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return {_mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)))};
  }

  inline void Store(float* p) const { _mm512_storeu_ps(p, v); }
  inline void StoreF32(void* p) const { _mm512_storeu_ps(static_cast<float*>(p), v); }
  inline void StoreFirst(float* p, int n) const { _mm512_mask_storeu_ps(p, FirstLanes(n), v); }
  // Sixteen F16 / BF16, rounded to nearest even.
  inline void StoreF16(void* p) const {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Sixteen int8, rounded to nearest even. REQUIRES: |lanes| < 127.5.
  inline void StoreI8(void* p) const {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }
  inline void StoreBf16(void* p) const {
    const __m512i bits = _mm512_castps_si512(v), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, quiet)));
  }

  static inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }        // a b + c
  static inline Vec NegFma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }    // c - a b
  static inline Vec FmaSub(Vec a, Vec b, Vec c) { return {_mm512_fmsub_ps(a.v, b.v, c.v)}; }     // a b - c
  static inline Vec FmaAlternate(Vec a, Vec b, Vec c) { return {_mm512_fmaddsub_ps(a.v, b.v, c.v)}; }  // even lanes -, odd +
  // The second operand where either is NaN.
  static inline Vec Max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static inline Vec Min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  inline Vec Abs() const { return {_mm512_abs_ps(v)}; }
  inline Vec Round() const { return {_mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  inline Vec SwapPairs() const { return {_mm512_permute_ps(v, 0xb1)}; }  // {1, 0, 3, 2, ...}
  // This times 2^n for whole n, |n| <= 300; rounds once where the result is subnormal.
  inline Vec TimesPowerOfTwo(Vec n) const { return {_mm512_scalef_ps(v, n.v)}; }
  // This with the sign of `sign`. REQUIRES: this >= 0.
  inline Vec WithSignOf(Vec sign) const {
    return {_mm512_or_ps(v, _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0f)))};
  }

  static inline Mask Less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
  static inline Vec Select(Mask mask, Vec yes, Vec no) { return {_mm512_mask_blend_ps(mask, no.v, yes.v)}; }

  inline float First() const { return _mm512_cvtss_f32(v); }
  // Lanes [begin, end) of `v`, the others of `other`. Any begin <= end.
  static inline Vec Within(Vec v, int begin, int end, Vec other) {
    return {_mm512_mask_blend_ps(FirstLanes(Clamp(end)) & ~FirstLanes(Clamp(begin)), other.v, v.v)};
  }

  // Across lanes, always in the same order.
  inline float Sum() const {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  inline float Largest() const {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
  }

 private:
  static inline int Clamp(int n) { return n < 0 ? 0 : n > kLanes ? kLanes : n; }
  static inline __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
};

inline Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }

// Sums in double of many Vecs: lane i of the Vecs goes to one of 16 partial sums.
struct DoubleSum {
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
  inline void Add(Vec x) {
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(x.v)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1)));
  }
  inline double Total() const { return _mm512_reduce_add_pd(_mm512_add_pd(low, high)); }
};

}  // namespace
}  // namespace hone
