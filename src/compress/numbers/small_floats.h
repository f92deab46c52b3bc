// Floats of 4 to 8 bits and the block formats made of them: FP8 E4M3 and E5M2, E2M3, E3M2, E2M1 (FP4); OCP MX blocks
// under a power of two; NVFP4 blocks of 16 under an E4M3 scale and one F32 scale a tensor. Formats: OCP 8-bit Floating
// Point 1.0, OCP Microscaling 1.0; NVFP4 as compressed-tensors writes it.
#pragma once

#include <cstdint>
#include <vector>

namespace hone {

struct SmallFloat {
  int exponent_bits, mantissa_bits;
  int max_code;      // largest finite magnitude
  bool infinity;     // codes above max_code: the first is infinity, else NaN (E4M3 has only NaN; the small ones have
                     // neither)
  int emax() const;  // exponent of the largest magnitude
};
inline constexpr SmallFloat kE4M3{4, 3, 0x7e, false}, kE5M2{5, 2, 0x7b, true}, kE2M1{2, 1, 0x7, false},
    kE2M3{2, 3, 0x1f, false}, kE3M2{3, 2, 0x1f, false};

// Nearest, ties to even; beyond the largest: the largest where there is no infinity or with `saturate`, else infinity.
// The sign is the top bit of the format. NaN: the NaN of FP8 (all bits of the magnitude); 0 for formats without.
uint8_t EncodeSmallFloat(const SmallFloat& format, float x, bool saturate = true);
float DecodeSmallFloat(const SmallFloat& format, uint8_t code);

// One block of an MX format: scale 2^(byte - 127).
enum class MxRule : uint8_t {
  kOcp,                // scale floor(log2 amax) - emax
  kCompressedTensors,  // amax / 2^e >= 1.75 takes the next power, so that it does not saturate; -0 loses its sign
};
uint8_t MxScale(const SmallFloat& format, MxRule rule, const float* x, int n);
uint8_t MxScaleOfLargest(const SmallFloat& format, MxRule rule, float amax);  // the same from the largest magnitude
float MxScaleValue(uint8_t scale);  // exact; 2^-127 is subnormal
// Codes of the block's elements under `scale`.
void EncodeMx(const SmallFloat& format, MxRule rule, uint8_t scale, const float* x, int n, uint8_t* codes);

// NVFP4. The tensor's scale is what block scales were multiplied by: a weight is fp4 * (block scale / tensor scale).
float Nvfp4TensorScale(float amax);  // 448 * 6 / amax; 1 where that is not finite
// E4M3; never 0. `sixth`: largest |x| of the 16 weights, divided by 6.
uint8_t Nvfp4BlockScale(float tensor_scale, float sixth);
void EncodeNvfp4(float tensor_scale, uint8_t block_scale, const float* x, uint8_t* codes);  // 16 weights

}  // namespace hone
