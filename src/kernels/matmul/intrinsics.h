// immintrin.h and the one prefetch that all unpacking shares. For *_avx2.cc, *_avx512.cc, *_vnni.cc files only.
#pragma once

// g++ 12 sees uninitialised operands in its own AVX-512 intrinsics (their "undefined" pass-through values). Not popped: the
// warning is judged where an intrinsic was inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "kernels/matmul/tile.h"

namespace hone {
namespace {

// Asks for the cache lines of [p, p + bytes). Any address will do.
inline void Prefetch(const uint8_t* p, int bytes) {
  for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
}

}  // namespace
}  // namespace hone
