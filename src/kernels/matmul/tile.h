// What passes between the plan (matmul.cc) and the kernel files: plain structs and functions, no STL, so that files built for
// one ISA export nothing that the linker could give to another.
//
// A product is made of tiles. A tile is 32 columns of y (two panels) by some rows, over one stretch of K:
//
//   unpack      panel bytes -> uint8 codes + F32 scales (+ minimums), or F32 weights, in a buffer of the thread (L1)
//   multiply    codes x int8 rows, or F32 weights x F32 rows, added into an accumulator [row][32] of F32
//
// Unpacking once a stretch serves any number of rows, so one row and many rows run the same instructions on the same numbers
// in the same order: that is what makes results independent of the batch. The price for one row is a store and a load in L1
// a vector, hidden behind memory reads.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace hone {

// Rows of W in a panel; a tile is two panels.
constexpr int kPanelRows = 16;
constexpr int kTileColumns = 2 * kPanelRows;

// Stretch of K between two visits of the accumulator. Codes: 2 panels x 512 x 16 B = 16 KiB, with scales 24 KiB of L1.
constexpr int kCodeStretch = 512;
constexpr int kFloatStretch = 128;  // F32 weights: 2 panels x 128 x 16 x 4 B = 16 KiB
// Products that one chain of FMAs sums before it is added to the accumulator. Part of the result: many rows run the two chains
// of a stretch one after the other, one row runs them side by side, and both add them in order. Short chains also keep the
// rounding error near sqrt(64) + sqrt(K / 64) ulps.
constexpr int kFloatChain = 64;

// Memory must be busy all the time for one row to run at its speed, so both halves of the work ask for the bytes that come
// after the stretch: unpacking asks for one byte at `ahead` for every two that it reads, multiplying for the rest.
//
// Unpacks `k` elements (a multiple of the chunk) of one panel, starting at a chunk.
//   codes   [k / 4][16 rows][4]      four neighbours in K of one row are one 32-bit word, as VPDPBUSD wants them
//   scales  [k / group][16 rows]     weight = scale * (code - offset) + min
//   mins    [k / group][16 rows]     only for formats that have minimums
using UnpackCodesFn = void (*)(const uint8_t* chunks, int k, const uint8_t* ahead, uint8_t* codes, float* scales, float* mins);

// The same for float formats: weights [k][16 rows].
using UnpackFloatsFn = void (*)(const uint8_t* chunks, int k, const uint8_t* ahead, float* weights);

// Unpacked codes to F32 weights, for PackOptions::exact. group: 16 or 32. mins may be null.
using DequantizeCodesFn = void (*)(const uint8_t* codes, const float* scales, const float* mins, int k, int group, int offset,
                                   float* weights);

struct CodeTile {
  // Two unpacked panels; the second repeats the first when only one is left.
  const uint8_t* codes[2];
  const float* scales[2];
  const float* mins[2];
  int k;           // elements of this stretch, a multiple of 32
  int group;       // elements a scale: 16 or 32
  int bits;        // codes are below 2^bits: how far 16-bit sums reach on AVX2
  bool has_min;
  // Rounded rows; row r is `r * stride` further, row r of term t another `t * term_rows * stride`. All point at the stretch.
  int terms;               // 1 or 2: RoundRowFn
  int64_t term_rows;
  const int8_t* x;         // codes in [-127, 127]
  int64_t x_stride;
  const float* x_scales;   // one per 32, of all terms
  int64_t x_scale_stride;
  const int32_t* x_init;   // per group: -offset * (sum of the codes), where the integer sum starts
  const float* x_sums;     // per group, of all terms: x_scale * (sum of the codes), what a minimum is multiplied with
  int64_t x_group_stride;
  int rows;
  float* accumulator;      // [rows][32]
  const uint8_t* ahead;    // ask for these bytes while multiplying
  int ahead_bytes;
};

// For every row and column: accumulator += for each group in order
//   fma(float(sum), scale * x_scale, .)  and then, with minimums,  fma(min, x_sum, .)
// where sum is x_init + sum code * x of one term, or kDigits times that of the first plus that of the second. It is exact (below 2^29);
// every ISA with FMA gives the same bits.
using MultiplyCodesFn = void (*)(const CodeTile& tile);

struct FloatTile {
  const float* weights[2];  // two panels [k][16]
  int k;                    // at most kFloatStretch
  const float* x;
  int64_t x_stride;
  int rows;
  float* accumulator;       // [rows][32]
  const uint8_t* ahead;     // ask for these bytes while multiplying
  int ahead_bytes;
};

// For every row and column and each 64 of k in order: accumulator += (chain of FMAs from 0 over those k in order).
using MultiplyFloatsFn = void (*)(const FloatTile& tile);

// One row of `k` F32 (multiple of 32) to codes, scales [k / 32] and sums of codes [k / 16]. Per 32: amax = max |x|,
// scale = amax / 127, code = round to even(x * (127 / amax)); all zero if amax < 1e-30. A NaN or infinity makes the scale NaN
// or infinite, which reaches every product of the row. All ISAs give the same bits.
//
// Two terms, if there is a place for the second: scale = amax / kTwoTermSteps, q = round to even(x * (kTwoTermSteps / amax)), and x is
// scale * (kDigits * code + second), two digits of q in base kDigits from -127 to 127. So both terms share a scale, and their integer
// sums are added before they become floats.
//
// With a place for `wide` only groups that stand out have q in so many steps: those whose largest squared magnitude is at least kWideSquares
// times the mean square of the row, since what is lost grows with it. Others have 127 steps, which is one digit, the second: their
// first digits are zero, and kernels that look at `wide` skip those for the same sum.
struct RoundedRow {
  int8_t* codes;
  float* scales;
  int32_t* sums;
  int8_t* second = nullptr;  // the second term's codes
  int32_t* second_sums = nullptr;
  uint8_t* wide = nullptr;   // [k / 32], of two terms: 1 where both have digits
};
using RoundRowFn = void (*)(const float* x, int64_t k, const RoundedRow& to);
constexpr float kSmallestAmax = 1e-30f;
constexpr double kWideSquares = 5;
constexpr int kDigits = 255, kOneTermSteps = 127, kTwoTermSteps = 127 * kDigits + 127;

// u8 codes of the non-linear 4-bit tables: value + 128 (IQ4_NL, NF4) and value + 12, so that code - offset is the value.
constexpr int kIq4Offset = 128, kMxfp4Offset = 12;
constexpr uint8_t kIq4Codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t kNf4Codes[16] = {4, 42, 63, 79, 93, 105, 117, 128, 138, 148, 159, 170, 183, 198, 218, 252};
constexpr uint8_t kMxfp4Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// How far ahead bytes are asked for: about half a microsecond of one core's share of memory bandwidth, several latencies. Measured:
// 4 KiB loses 10 % of the read roof, 6 to 12 KiB are alike.
constexpr int kPrefetchBytes = 8192;

// The functions of kernels.inc: UnpackQ4_0Avx2, MultiplyCodesAvx2 ...
#define HONE_MATMUL_ARITHMETIC(isa, round, codes, floats, dequantize)
#define HONE_UNPACK_CODES(type, isa) \
  void Unpack##type##isa(const uint8_t*, int, const uint8_t*, uint8_t*, float*, float*);
#define HONE_UNPACK_FLOATS(type, isa) void Unpack##type##isa(const uint8_t*, int, const uint8_t*, float*);
#include "kernels/matmul/kernels.inc"

#define HONE_DECLARE_ARITHMETIC(isa)                                                                                 \
  void RoundRow##isa(const float* x, int64_t k, const RoundedRow& to);                                               \
  void MultiplyFloats##isa(const FloatTile& tile);                                                                   \
  void DequantizeCodes##isa(const uint8_t* codes, const float* scales, const float* mins, int k, int group, int offset, \
                            float* weights);
HONE_DECLARE_ARITHMETIC(Scalar)
HONE_DECLARE_ARITHMETIC(Avx2)
HONE_DECLARE_ARITHMETIC(Avx512)
#undef HONE_DECLARE_ARITHMETIC
void MultiplyCodesScalar(const CodeTile& tile);
void MultiplyCodesAvx2(const CodeTile& tile);
void MultiplyCodesVnni(const CodeTile& tile);

}  // namespace hone
