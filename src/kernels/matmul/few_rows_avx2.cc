// Codes x one to eight int8 rows with AVX2, codes in registers: half a panel (8 rows of W) of a group of 32 at a time. How many
// 16-bit results of VPMADDUBSW may be added before widening is told in multiply_codes_avx2.cc. More than four rows are two
// passes over a stretch, the second in L1.
#include <string.h>

#include "kernels/matmul/codes_avx2.h"
#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/read_ahead.h"

namespace hone {
namespace {

constexpr int kMostRows = 4;  // of a pass

inline __m256i BroadcastQuad(const int8_t* x) {
  int word;
  memcpy(&word, x, 4);
  return _mm256_set1_epi32(word);
}

// Half the rows of the 8 vectors of codes of a group; `in` points at the half. 8-bit codes stay signed.
inline void Half8(const uint8_t* in, __m256i c[8]) {
  for (int j = 0; j < 8; ++j) c[j] = LoadPlane(in + 64 * j);
}
inline void Half4(const uint8_t* in, __m256i c[8]) {
  for (int l = 0; l < 4; ++l) {
    const __m256i plane = LoadPlane(in + 64 * l);
    c[2 * l] = And(plane, Bytes(15));
    c[2 * l + 1] = And(Move(plane, 4, 0), Bytes(15));
  }
}
inline void Half5(const uint8_t* in, __m256i c[8]) {
  Half4(in, c);
  const __m256i high = LoadPlane(in + 256);
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) c[j] = Or(c[j], And(Move(high, j, 4), Bytes(16)));
}
inline void Half6(const uint8_t* in, __m256i c[8]) {
  Half4(in, c);
  for (int h = 0; h < 2; ++h) {
    const __m256i high = LoadPlane(in + 256 + 64 * h);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) c[4 * h + j] = Or(c[4 * h + j], And(Move(high, 2 * j, 4), Bytes(48)));
  }
}

// Scales of a chunk as unpack_*_avx2.cc makes them.
inline __m128i LoadBytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline __m128i Move16(__m128i v, int shift, int at) {
  return at >= shift ? _mm_slli_epi16(v, at - shift) : _mm_srli_epi16(v, shift - at);
}
inline __m128i SixBits(__m128i low, int low_shift, __m128i high, int high_shift) {
  return _mm_or_si128(_mm_and_si128(Move16(low, low_shift, 0), _mm_set1_epi8(15)),
                      _mm_and_si128(Move16(high, high_shift, 4), _mm_set1_epi8(48)));
}
inline Floats16 Scaled(__m128i bytes, Floats16 d) {
  return {_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), d.low),
          _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))), d.high)};
}
inline void ScalesOfSix(const uint8_t* p, float* scales, float* mins) {
  const Floats16 d = HalfScales(p + 192), m = HalfScales(p + 224);
  const __m256 zero = _mm256_setzero_ps();
  const Floats16 dmin = {_mm256_sub_ps(zero, m.low), _mm256_sub_ps(zero, m.high)};
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m128i low = LoadBytes(p + 16 * g), high = LoadBytes(p + 128 + g % 4 * 16);
    StoreScales(scales + 16 * g, Scaled(SixBits(low, 0, high, g / 4 * 4), d));
    StoreScales(mins + 16 * g, Scaled(SixBits(low, 4, high, g / 4 * 4 + 2), dmin));
  }
}
inline void SixteenSigned(const uint8_t* p, float* scales, float*) {
  const Floats16 d = HalfScales(p + 256);
  for (int g = 0; g < 16; ++g) StoreScales(scales + 16 * g, Scaled(LoadBytes(p + 16 * g), d));
}
inline void OneHalf(const uint8_t* p, float* scales, float*) { StoreScales(scales, HalfScales(p)); }

// A format: groups of 32 a chunk, bits of a code in the panel, elements a scale, bytes of the scales of a chunk.
template <int kGroupsValue, int kBitsValue, int kGroupValue, bool kMinValue, int kScaleBytes,
          void (*kRegisters)(const uint8_t*, __m256i*), void (*kScales)(const uint8_t*, float*, float*)>
struct Format {
  static constexpr int kGroups = kGroupsValue, kBits = kBitsValue, kGroup = kGroupValue, kGroupBytes = 64 * kBits;
  static constexpr int kChunkBytes = kGroups * kGroupBytes + kScaleBytes;
  static constexpr bool kMin = kMinValue;
  static void Codes(const uint8_t* in, __m256i c[8]) { kRegisters(in, c); }
  static void Scales(const uint8_t* chunk, float* scales, float* mins) { kScales(chunk + kGroups * kGroupBytes, scales, mins); }
};

// The integer sum of kQuads quads, on top of `init` (which 8-bit codes, being signed, do not need).
template <int kBits, int kQuads>
inline __m256i Sum(const __m256i* c, const int8_t* x, int32_t init) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kBits == 8) {
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int quad = 0; quad < kQuads; ++quad) {
      const __m256i xq = _mm256_sign_epi8(BroadcastQuad(x + 4 * quad), c[quad]);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(c[quad]), xq), ones));
    }
    return sum;
  } else {
    constexpr int kReach = kBits <= 4 ? 8 : kBits == 5 ? 4 : 2;
    constexpr int kChain = kReach < kQuads ? kReach : kQuads;
    __m256i sum = _mm256_set1_epi32(init);
#pragma GCC unroll 8
    for (int first = 0; first < kQuads; first += kChain) {
      __m256i narrow = _mm256_maddubs_epi16(c[first], BroadcastQuad(x + 4 * first));
#pragma GCC unroll 8
      for (int quad = first + 1; quad < first + kChain; ++quad) {
        narrow = _mm256_add_epi16(narrow, _mm256_maddubs_epi16(c[quad], BroadcastQuad(x + 4 * quad)));
      }
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(narrow, ones));
    }
    return sum;
  }
}

// x and the others point at the first row of the pass, at the stretch.
struct RowsAt {
  const int8_t* x;
  const float* scales;
  const int32_t* init;
  const float* sums;
};

template <typename F, int kRows>
inline void Panel(const FewRowsTile& t, const uint8_t* chunk, int k, RowsAt at, bool first, float* out) {
  constexpr int kPart = F::kGroup / 4;  // quads a scale
  constexpr int kParts = 8 / kPart;     // scales a group of 32
  alignas(64) float scales[F::kGroups * kParts * kPanelRows];
  alignas(64) float mins[F::kMin ? F::kGroups * kParts * kPanelRows : 16];
  __m256 acc[2][kRows];
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) acc[half][r] = _mm256_loadu_ps(out + r * kTileColumns + 8 * half);
  }
  for (; k > 0; k -= 32 * F::kGroups, chunk += F::kChunkBytes) {
    F::Scales(chunk, scales, mins);
    for (int g = 0; g < F::kGroups; ++g) {
      const uint8_t* codes = chunk + g * F::kGroupBytes;
      AskAhead(t.ahead, first ? F::kChunkBytes / F::kGroups : 0);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        __m256i c[8];
        F::Codes(codes + 32 * half, c);
#pragma GCC unroll 2
        for (int part = 0; part < kParts; ++part) {
          const int scale = (g * kParts + part) * kPanelRows + 8 * half;
          const __m256 s = _mm256_load_ps(scales + scale);
#pragma GCC unroll 4
          for (int r = 0; r < kRows; ++r) {
            const auto term = [&](int64_t row) {
              return Sum<F::kBits, kPart>(c + part * kPart, at.x + row * t.x_stride + part * F::kGroup,
                                          at.init[row * t.x_group_stride + part]);
            };
            __m256i sum = term(r);
            if (t.terms == 2) sum = AddTerm(sum, term(r + t.term_rows));
            const __m256 xs = _mm256_set1_ps(at.scales[r * t.x_scale_stride]);
            acc[half][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(s, xs), acc[half][r]);
            if (F::kMin) {
              acc[half][r] = _mm256_fmadd_ps(_mm256_load_ps(mins + scale),
                                             _mm256_set1_ps(at.sums[r * t.x_group_stride + part]), acc[half][r]);
            }
          }
        }
      }
      at.x += 32, at.scales += 1, at.init += kParts, at.sums += kParts;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int half = 0; half < 2; ++half) _mm256_storeu_ps(out + r * kTileColumns + 8 * half, acc[half][r]);
  }
}

template <typename F>
inline void Panels(const FewRowsTile& t, const uint8_t* chunk, int k, RowsAt at, int rows, bool first, float* out) {
  switch (rows) {
    case 1: return Panel<F, 1>(t, chunk, k, at, first, out);
    case 2: return Panel<F, 2>(t, chunk, k, at, first, out);
    case 3: return Panel<F, 3>(t, chunk, k, at, first, out);
    default: return Panel<F, 4>(t, chunk, k, at, first, out);
  }
}

template <typename F>
void Tile(const FewRowsTile& t) {
  memset(t.accumulator, 0, sizeof(float) * kTileColumns * t.rows);
  const uint8_t* chunk = t.chunks;
  for (int64_t k0 = 0; k0 < t.k; k0 += kCodeStretch) {
    const int k = static_cast<int>(t.k - k0 < kCodeStretch ? t.k - k0 : kCodeStretch);
    for (int panel = 0; panel < t.panels; ++panel, chunk += k / (32 * F::kGroups) * F::kChunkBytes) {
      for (int first = 0; first < t.rows; first += kMostRows) {
        Panels<F>(t, chunk, k,
                  {t.x + first * t.x_stride + k0, t.x_scales + first * t.x_scale_stride + k0 / 32,
                   t.x_init + first * t.x_group_stride + k0 / F::kGroup, t.x_sums + first * t.x_group_stride + k0 / F::kGroup},
                  t.rows - first < kMostRows ? t.rows - first : kMostRows, first == 0,
                  t.accumulator + first * kTileColumns + panel * kPanelRows);
      }
    }
  }
}

}  // namespace

void FewRowsQ4_0Avx2(const FewRowsTile& t) { Tile<Format<1, 4, 32, false, 32, Half4, OneHalf>>(t); }
void FewRowsQ8_0Avx2(const FewRowsTile& t) { Tile<Format<1, 8, 32, false, 32, Half8, OneHalf>>(t); }
void FewRowsQ4_KAvx2(const FewRowsTile& t) { Tile<Format<8, 4, 32, true, 256, Half4, ScalesOfSix>>(t); }
void FewRowsQ5_KAvx2(const FewRowsTile& t) { Tile<Format<8, 5, 32, true, 256, Half5, ScalesOfSix>>(t); }
void FewRowsQ6_KAvx2(const FewRowsTile& t) { Tile<Format<8, 6, 16, false, 288, Half6, SixteenSigned>>(t); }

}  // namespace hone
