// Block formats as they lie in a file. Layouts: docs/formats/gguf-blocks.md. Sizes are asserted against dtype.inc.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace hone {

struct BlockQ4_0 { uint16_t d; uint8_t qs[16]; };                        // (q - 8) * d; low nibbles are elements 0..15
struct BlockQ4_1 { uint16_t d, m; uint8_t qs[16]; };                     // q * d + m
struct BlockQ5_0 { uint16_t d; uint8_t qh[4]; uint8_t qs[16]; };         // (q - 16) * d; bit j of qh is bit 4 of element j
struct BlockQ5_1 { uint16_t d, m; uint8_t qh[4]; uint8_t qs[16]; };      // q * d + m
struct BlockQ8_0 { uint16_t d; int8_t qs[32]; };                         // q * d
struct BlockQ2_K { uint8_t scales[16]; uint8_t qs[64]; uint16_t d, dmin; };
struct BlockQ3_K { uint8_t hmask[32]; uint8_t qs[64]; uint8_t scales[12]; uint16_t d; };
struct BlockQ4_K { uint16_t d, dmin; uint8_t scales[12]; uint8_t qs[128]; };
struct BlockQ5_K { uint16_t d, dmin; uint8_t scales[12]; uint8_t qh[32]; uint8_t qs[128]; };
struct BlockQ6_K { uint8_t ql[128]; uint8_t qh[64]; int8_t scales[16]; uint16_t d; };
struct BlockIQ4_NL { uint16_t d; uint8_t qs[16]; };                      // d * kIq4Values[nibble]
struct BlockIQ4_XS { uint16_t d; uint16_t scales_h; uint8_t scales_l[4]; uint8_t qs[128]; };
struct BlockMXFP4 { uint8_t e; uint8_t qs[16]; };                        // kMxfp4Values[nibble] * 2^(e-128)
struct BlockNF4 { uint16_t d; uint8_t qs[16]; };                         // d * kNf4Values[nibble]
struct BlockTQ2_0 { uint8_t qs[64]; uint16_t d; };                       // (2 bits - 1) * d

inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
// bitsandbytes' 16 levels of -1 to 1 times kNf4Steps, of all factors the one that whole numbers come nearest to.
inline constexpr int8_t kNf4Values[16] = {-124, -86, -65, -49, -35, -23, -11, 0, 10, 20, 31, 42, 55, 70, 90, 124};
inline constexpr float kNf4Steps = 124.12f;
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};  // twice the value

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144);
static_assert(sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_NL) == 18);
static_assert(sizeof(BlockIQ4_XS) == 136 && sizeof(BlockMXFP4) == 17 && sizeof(BlockTQ2_0) == 66 && sizeof(BlockNF4) == 18);

}  // namespace hone
