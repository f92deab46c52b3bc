// Slices of weights (groups, blocks, rows) to codes and back, with the vectors of one instruction set. Every weight takes the float
// operations of the scalar definitions (uniform.h, small_floats.h, codebooks.h) in their order, so the bits are theirs in
// every table. Slices may have any length and alignment. Weights are finite and scales positive.
//
// A function here is one in slices_body.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hone {

enum class Isa;

// Of a block of codes, with e = x / s - v for each weight x, its code's value v and the block's scale s: sums of e v and of v^2.
struct CodeSums {
  float product = 0, power = 0;
};

struct Slices {
  // All of x is finite.
  bool (*finite)(const float* x, int64_t n);
  // BF16 as floats; whether all are finite.
  bool (*from_bf16)(const std::byte* stored, int64_t n, float* x);
  // Least and largest of x.
  void (*range)(const float* x, int64_t n, float* least, float* most);
  // round(x / scale) + zero, limited to 0 .. top. REQUIRES: zero in 0 .. top, top < 256.
  void (*round)(const float* x, int64_t n, float scale, float zero, int top, uint8_t* codes);
  // round(R(R(x / scale) + zero)), limited to -half .. half - 1; the code is that + half. R rounds to `dtype`: F32, F16, BF16.
  void (*round_in)(DType dtype, const float* x, int64_t n, float scale, float zero, int half, uint8_t* codes);
  // round(x * factor), limited to +-127.
  void (*round_to_bytes)(const float* x, int64_t n, float factor, int8_t* codes);
  // E4M3 of R(x / scale), E5M2 of x / scale; beyond the largest number: that.
  void (*to_e4m3)(DType dtype, const float* x, int64_t n, float scale, uint8_t* codes);
  void (*to_e5m2)(const float* x, int64_t n, float scale, uint8_t* codes);
  // The largest |x| of each block. REQUIRES: blocks of a multiple of 16.
  void (*largest)(const float* x, int64_t blocks, int block, float* largest);
  // E2M1 of x / its block's scale, zeros without a sign, two a byte, the first in the low half. REQUIRES: blocks of a multiple of 16.
  void (*to_e2m1)(const float* x, int64_t blocks, int block, const float* scales, std::byte* packed);
  // How many of 15 rising bounds lie below x * factor.
  void (*count_below)(const float* x, int64_t n, float factor, const float* bounds, uint8_t* counts);
  // The same of blocks with a factor each, as codes[count] two a byte, the first in the high half. REQUIRES: even blocks, or one.
  void (*to_codebook)(const float* x, int64_t blocks, int64_t block, const float* factors, const float* bounds, const uint8_t* codes,
                      uint8_t* packed);
  // Which of 256 rising values is nearest to (x - offset) * factor; of two as near the upper one.
  void (*to_nearest)(const float* x, int64_t n, float offset, float factor, const float* values, uint8_t* codes);
  // (code - zero) * scale; zero is whole.
  void (*dequantize)(const uint8_t* codes, int64_t n, float scale, float zero, float* x);
  // code * scale.
  void (*from_bytes)(const std::byte* codes, int64_t n, float scale, float* x);
  // The number that a code means * scale.
  void (*from_e4m3)(const std::byte* codes, int64_t n, float scale, float* x);
  void (*from_e5m2)(const std::byte* codes, int64_t n, float scale, float* x);
  // values[code] * its block's scale for codes two a byte, the first in the high half or the low one. REQUIRES: even blocks.
  void (*look_up)(const std::byte* packed, int64_t blocks, int64_t block, const float* values, bool high_first, const float* scales,
                  float* x);
  // Codes of `bits` bits (1 to 8) one after the other, low bits first: ceil(n * bits / 8) bytes. Codes are below 2^bits.
  void (*pack)(const uint8_t* codes, int64_t n, int bits, std::byte* out);
  void (*unpack)(const std::byte* packed, int64_t n, int bits, uint8_t* codes);
  // Sums of (a - b)^2 and of b^2 in double, and the largest |a - b|, added to what is there.
  void (*compare)(const float* a, const float* b, int64_t n, double* errors, double* power, double* largest);
  // Codes as look_up takes them, the first in the high half, with x: the sums of each block; the sum of (x - s v)^2 is added to
  // *errors, *largest becomes the largest |x - s v| if that is more. REQUIRES: blocks of a multiple of 16; scales 0, or 2^-40 to 2^40.
  void (*compare_codes)(const float* x, const std::byte* packed, int64_t blocks, int64_t block, const float* values, const float* scales,
                        CodeSums* sums, double* errors, double* largest);
};

extern const Slices kSlicesV2, kSlicesAvx2, kSlicesAvx512;
const Slices& SlicesFor(Isa isa);

// Slices::pack and unpack for who has no table at hand.
void PackBits(const uint8_t* codes, int64_t n, int bits, std::byte* out);
void UnpackBits(const std::byte* packed, int64_t n, int bits, uint8_t* codes);

}  // namespace hone
