// Vec for AVX2 with FMA and F16C: eight floats and the operations that kernel bodies (simd/functions.h, */..._body.h) are
// written in.
//
// Included only by *_avx2.cc files, before a body. Everything has internal linkage (anonymous namespace): a function shared
// with baseline code could be picked by the linker for CPUs that lack the instructions. simd/avx512.h is the same for AVX-512.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hone {
namespace {

struct Vec {
  static constexpr int kLanes = 8;
  static constexpr int kRegisters = 16;
  struct Mask { __m256 m; };

  __m256 v;

  static inline Vec Zero() { return {_mm256_setzero_ps()}; }
  static inline Vec Set(float x) { return {_mm256_set1_ps(x)}; }
  static inline Vec Load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static inline Vec LoadF16(const void* p) { return {_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)))}; }
  static inline Vec LoadBf16(const void* p) { return WidenBf16(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
  static inline Vec LoadI8(const void* p) { return WidenI8(_mm_loadl_epi64(static_cast<const __m128i*>(p))); }
  // Eight pairs of BF16, {first, second} of each.
  static inline void LoadBf16Pairs(const void* p, Vec* first, Vec* second) {
    SplitPairs(_mm256_loadu_si256(static_cast<const __m256i*>(p)), first, second);
  }
  // The first n pairs, the others 0.
  static inline void LoadFirstBf16Pairs(const void* p, int n, Vec* first, Vec* second) {
    SplitPairs(_mm256_maskload_epi32(static_cast<const int*>(p), FirstLanes(n)), first, second);
  }
  // The first n lanes, the others 0. 0 <= n <= kLanes; reads nothing beyond p + n.
  static inline Vec LoadFirst(const float* p, int n) { return {_mm256_maskload_ps(p, FirstLanes(n))}; }
  static inline Vec LoadFirstF16(const void* p, int n) { return {_mm256_cvtph_ps(LoadFirst16(p, n))}; }
  static inline Vec LoadFirstI8(const void* p, int n) {
    int8_t bytes[8] = {};
    std::memcpy(bytes, p, static_cast<size_t>(n));
    return WidenI8(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  }
  static inline Vec LoadFirstBf16(const void* p, int n) { return WidenBf16(LoadFirst16(p, n)); }
  // cos/sin of 4 pairs to both lanes of each pair: {p0, p0, p1, p1, ...}.
  static inline Vec LoadDoubled(const float* p) {
    const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return {_mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), index)};
  }

  inline void Store(float* p) const { _mm256_storeu_ps(p, v); }
  inline void StoreF32(void* p) const { _mm256_storeu_ps(static_cast<float*>(p), v); }
  inline void StoreFirst(float* p, int n) const { _mm256_maskstore_ps(p, FirstLanes(n), v); }
  // Eight F16 / BF16, rounded to nearest even.
  inline void StoreF16(void* p) const {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  // Eight int8, rounded to nearest even. REQUIRES: |lanes| < 127.5.
  inline void StoreI8(void* p) const {
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }
  inline void StoreBf16(void* p) const {
    const __m256i bits = _mm256_castps_si256(v), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet, nan);
    _mm_storeu_si128(static_cast<__m128i*>(p),
                     _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }

  static inline Vec Fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }        // a b + c
  static inline Vec NegFma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }    // c - a b
  static inline Vec FmaSub(Vec a, Vec b, Vec c) { return {_mm256_fmsub_ps(a.v, b.v, c.v)}; }     // a b - c
  static inline Vec FmaAlternate(Vec a, Vec b, Vec c) { return {_mm256_fmaddsub_ps(a.v, b.v, c.v)}; }  // even lanes -, odd +
  // The second operand where either is NaN.
  static inline Vec Max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  static inline Vec Min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  inline Vec Abs() const { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), v)}; }
  inline Vec Round() const { return {_mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  inline Vec SwapPairs() const { return {_mm256_permute_ps(v, 0xb1)}; }  // {1, 0, 3, 2, ...}
  // This times 2^n for whole n, |n| <= 250; rounds once where the result is subnormal.
  inline Vec TimesPowerOfTwo(Vec n) const {  // in two steps: 2^n itself may be out of range
    const __m256i whole = _mm256_cvtps_epi32(n.v), first = _mm256_srai_epi32(whole, 1);
    const __m256 a = PowerOfTwo(first), b = PowerOfTwo(_mm256_sub_epi32(whole, first));
    return {_mm256_mul_ps(_mm256_mul_ps(v, a), b)};
  }
  // This with the sign of `sign`. REQUIRES: this >= 0.
  inline Vec WithSignOf(Vec sign) const {
    return {_mm256_or_ps(v, _mm256_and_ps(sign.v, _mm256_set1_ps(-0.0f)))};
  }

  static inline Mask Less(Vec a, Vec b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
  static inline Vec Select(Mask mask, Vec yes, Vec no) { return {_mm256_blendv_ps(no.v, yes.v, mask.m)}; }

  inline float First() const { return _mm256_cvtss_f32(v); }
  // Lanes [begin, end) of `v`, the others of `other`. Any begin <= end.
  static inline Vec Within(Vec v, int begin, int end, Vec other) {
    return {_mm256_blendv_ps(other.v, v.v, _mm256_castsi256_ps(_mm256_andnot_si256(FirstLanes(begin), FirstLanes(end))))};
  }

  // Across lanes, always in the same order.
  inline float Sum() const {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  inline float Largest() const {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }

 private:
  static inline __m256i FirstLanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static inline __m128i LoadFirst16(const void* p, int n) {
    uint16_t words[8] = {};
    std::memcpy(words, p, static_cast<size_t>(n) * 2);
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(words));
  }
  static inline Vec WidenBf16(__m128i words) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16))};
  }
  static inline Vec WidenI8(__m128i bytes) { return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))}; }
  static inline void SplitPairs(__m256i pairs, Vec* first, Vec* second) {
    first->v = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    second->v = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static inline __m256 PowerOfTwo(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }
};

inline Vec operator+(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
inline Vec operator-(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline Vec operator*(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline Vec operator/(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }

// Sums in double of many Vecs: lane i of the Vecs goes to one of 8 partial sums.
struct DoubleSum {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
  inline void Add(Vec x) {
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(x.v)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1)));
  }
  inline double Total() const {
    const __m256d sum = _mm256_add_pd(low, high);
    const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
    return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
  }
};

}  // namespace
}  // namespace hone
