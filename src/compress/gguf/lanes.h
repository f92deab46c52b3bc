// A few floats or integers side by side, one a lane: the searches of this folder run one group of weights a lane, so
// every lane does the operations of the scalar definition in their order and gives its bits. HONE_LANES is set by the
// file that includes the bodies (rows_v2.cc, rows_avx2.cc ...). Multiplications and additions must not be fused: the
// folder is compiled with -ffp-contract=off.
#pragma once

#include <cstdint>
#include <cstring>

namespace hone {
namespace {

constexpr int kLanes = HONE_LANES;
typedef float Floats __attribute__((vector_size(HONE_LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(HONE_LANES * 4)));

inline Floats Splat(float x) { return Floats{} + x; }
inline Ints SplatInt(int32_t x) { return Ints{} + x; }
inline Floats ToFloats(Ints x) { return __builtin_convertvector(x, Floats); }
inline Ints Bits(Floats x) {
  Ints bits;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}
inline Floats FromBits(Ints x) {
  Floats floats;
  std::memcpy(&floats, &x, sizeof(x));
  return floats;
}
// mask: all ones or zero a lane, as comparisons give.
inline Floats Select(Ints mask, Floats a, Floats b) { return mask ? a : b; }
inline Ints Select(Ints mask, Ints a, Ints b) { return mask ? a : b; }
inline Floats Abs(Floats x) { return FromBits(Bits(x) & 0x7fffffff); }
inline Ints Clamp(Ints x, int low, int high) {
  x = Select(x < low, SplatInt(low), x);
  return Select(x > high, SplatInt(high), x);
}
inline bool Any(Ints mask) {
  int32_t any = 0;
  for (int i = 0; i < kLanes; ++i) any |= mask[i];
  return any != 0;
}

// To the nearest integer, ties to even, for |x| < 2^22; defined (but meaningless) for anything else.
constexpr float kNearestMagic = 12582912.0f;  // 1.5 * 2^23
inline Ints Nearest(Floats x) { return (Bits(x + kNearestMagic) & 0x7fffff) - 0x400000; }
inline int Nearest(float x) {
  const float shifted = x + kNearestMagic;
  int32_t bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  return (bits & 0x7fffff) - 0x400000;
}

// `groups` <= kLanes groups of n contiguous floats, one a lane; lanes without a group hold zeros.
template <int n>
struct Groups {
  Floats at[n];
  Groups(const float* source, int groups) {
    alignas(64) float turned[n][kLanes] = {};
    for (int lane = 0; lane < groups; ++lane) {
      for (int i = 0; i < n; ++i) turned[i][lane] = source[lane * n + i];
    }
    std::memcpy(at, turned, sizeof(turned));
  }
};

typedef int8_t Codes __attribute__((vector_size(HONE_LANES)));
inline void StoreBytes(Ints x, void* out) {  // the low byte of each lane
  const Codes codes = __builtin_convertvector(x, Codes);
  std::memcpy(out, &codes, sizeof(codes));
}

template <int n>
inline void StoreCodes(const Ints (&codes)[n], int groups, uint8_t* out) {
  for (int i = 0; i < n; ++i) {
    for (int lane = 0; lane < groups; ++lane) out[lane * n + i] = static_cast<uint8_t>(codes[i][lane]);
  }
}
inline void StoreFloats(Floats x, int groups, float* out) {
  for (int lane = 0; lane < groups; ++lane) out[lane] = x[lane];
}

}  // namespace
}  // namespace hone
