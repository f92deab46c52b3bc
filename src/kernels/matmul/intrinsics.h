// immintrin.h and what all kernels of int8 codes share. For *_avx2.cc, *_avx512.cc, *_vnni.cc files only.
#pragma once

// g++ 12 sees uninitialised operands in its own AVX-512 intrinsics (their "undefined" pass-through values). Not popped: the
// warning is judged where an intrinsic was inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/matmul/tile.h"

// On a loop of a kernel: all that it calls becomes part of it. Files with many formats exceed what compilers inline by themselves, and a call in
// such a loop costs several times the work.
#define HONE_FLATTEN __attribute__((flatten, noinline))

namespace hone {
namespace {

// Asks for the cache lines of [p, p + bytes). Any address will do.
inline void Prefetch(const uint8_t* p, int bytes) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

// The integer sum of two terms (RoundRowFn) from those of the first and of the second.
static_assert(kDigits == 255);
#ifdef __AVX512F__
inline __m512i AddTerm(__m512i first, __m512i second) {
  return _mm512_add_epi32(_mm512_sub_epi32(_mm512_slli_epi32(first, 8), first), second);
}
#endif
inline __m256i AddTerm(__m256i first, __m256i second) {
  return _mm256_add_epi32(_mm256_sub_epi32(_mm256_slli_epi32(first, 8), first), second);
}

}  // namespace
}  // namespace hone
