// Unpacking in plain code, for CPUs without AVX2: the picture of panel_format.h read back byte by byte.
#include <bit>
#include <cstring>

#include "kernels/matmul/tile.h"
#include "tensor/float16.h"

namespace hone {
namespace {

constexpr int kPlaneBytes = 64;
constexpr int kGroupCodes = 32 * kPanelRows;

// One bit field of all quads of a group: `bits` wide, 8 / bits quads a plane; goes to bit `at` of the code.
void Field(const uint8_t* planes, int bits, int at, uint8_t* codes) {
  const int quads = 8 / bits, mask = (1 << bits) - 1;
  for (int quad = 0; quad < 8; ++quad) {
    const uint8_t* plane = planes + quad / quads * kPlaneBytes;
    const int shift = quad % quads * bits;
    for (int i = 0; i < kPlaneBytes; ++i) codes[kPlaneBytes * quad + i] |= ((plane[i] >> shift) & mask) << at;
  }
}

// Codes of one group of a panel of `bits` (2, 3, 4, 5, 6 or 8).
void Group(const uint8_t* in, int bits, uint8_t* codes) {
  std::memset(codes, 0, kGroupCodes);
  if (bits == 8) {
    for (int i = 0; i < kGroupCodes; ++i) codes[i] = in[i] ^ 0x80;
    return;
  }
  if (bits == 6) {
    for (int quad = 0; quad < 8; ++quad) {
      const uint8_t* planes = in + quad / 4 * 3 * kPlaneBytes;
      for (int i = 0; i < kPlaneBytes; ++i) {
        const int a = planes[i], b = planes[kPlaneBytes + i], c = planes[2 * kPlaneBytes + i];
        codes[kPlaneBytes * quad + i] =
            static_cast<uint8_t>(quad % 4 < 3 ? planes[quad % 4 * kPlaneBytes + i] & 63 : (a >> 6) | (b >> 6 << 2) | (c >> 6 << 4));
      }
    }
    return;
  }
  const int low = bits >= 4 ? 4 : 2;
  Field(in, low, 0, codes);
  if (bits > low) Field(in + kPlaneBytes * low, bits - low, low, codes);
}

void Lookup(const uint8_t (&table)[16], uint8_t* codes) {
  for (int i = 0; i < kGroupCodes; ++i) codes[i] = table[codes[i]];
}

float Half(const uint8_t* p, int row) {
  uint16_t bits;
  std::memcpy(&bits, p + 2 * row, 2);
  return F16ToF32(bits);
}

// Blocks of 32 elements: codes, f16 scale, f16 minimum if has_min.
void Blocks(const uint8_t* chunk, int k, int bits, bool has_min, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 32, codes += kGroupCodes, scales += kPanelRows) {
    Group(chunk, bits, codes);
    chunk += kPlaneBytes * bits;
    for (int row = 0; row < kPanelRows; ++row) scales[row] = Half(chunk, row);
    chunk += 32;
    if (!has_min) continue;
    for (int row = 0; row < kPanelRows; ++row) mins[row] = Half(chunk, row);
    chunk += 32;
    mins += kPanelRows;
  }
}

// The 8 groups of a block of 256; returns where the scales begin.
const uint8_t* Groups(const uint8_t* chunk, int bits, uint8_t* codes) {
  for (int g = 0; g < 8; ++g) Group(chunk + g * kPlaneBytes * bits, bits, codes + g * kGroupCodes);
  return chunk + 8 * kPlaneBytes * bits;
}

// Q4_K, Q5_K.
void SuperblocksOfSix(const uint8_t* chunk, int k, int bits, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, codes += 8 * kGroupCodes, scales += 8 * kPanelRows, mins += 8 * kPanelRows) {
    const uint8_t* p = Groups(chunk, bits, codes);
    for (int i = 0; i < 8 * kPanelRows; ++i) {
      const int g = i / kPanelRows, row = i % kPanelRows;
      const int low = p[i], high = p[128 + g % 4 * kPanelRows + row] >> (g / 4 * 4);
      const int scale = (low & 15) | ((high & 3) << 4), min = (low >> 4) | (((high >> 2) & 3) << 4);
      scales[i] = Half(p + 192, row) * static_cast<float>(scale);
      mins[i] = -Half(p + 224, row) * static_cast<float>(min);
    }
    chunk = p + 256;
  }
}

}  // namespace

void UnpackQ8_0Scalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  Blocks(chunks, k, 8, false, codes, scales, mins);
}
void UnpackQ4_0Scalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  Blocks(chunks, k, 4, false, codes, scales, mins);
}
void UnpackQ4_1Scalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  Blocks(chunks, k, 4, true, codes, scales, mins);
}
void UnpackQ5_0Scalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  Blocks(chunks, k, 5, false, codes, scales, mins);
}
void UnpackQ5_1Scalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  Blocks(chunks, k, 5, true, codes, scales, mins);
}
void UnpackIQ4_NLScalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  Blocks(chunks, k, 4, false, codes, scales, mins);
  for (int g = 0; g < k / 32; ++g) Lookup(kIq4Codes, codes + g * kGroupCodes);
}

void UnpackNF4Scalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  Blocks(chunks, k, 4, false, codes, scales, mins);
  for (int g = 0; g < k / 32; ++g) Lookup(kNf4Codes, codes + g * kGroupCodes);
}

void UnpackMXFP4Scalar(const uint8_t* chunk, int k, const uint8_t*, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 32, codes += kGroupCodes, scales += kPanelRows) {
    Group(chunk, 4, codes);
    Lookup(kMxfp4Codes, codes);
    chunk += 4 * kPlaneBytes;
    for (int row = 0; row < kPanelRows; ++row) {  // 2^(e - 128)
      const uint32_t e = chunk[row];
      scales[row] = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
    chunk += kPanelRows;
  }
}

void UnpackQ4_KScalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  SuperblocksOfSix(chunks, k, 4, codes, scales, mins);
}
void UnpackQ5_KScalar(const uint8_t* chunks, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  SuperblocksOfSix(chunks, k, 5, codes, scales, mins);
}

void UnpackQ6_KScalar(const uint8_t* chunk, int k, const uint8_t*, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, codes += 8 * kGroupCodes, scales += 16 * kPanelRows) {
    const uint8_t* p = Groups(chunk, 6, codes);
    for (int i = 0; i < 256; ++i) scales[i] = Half(p + 256, i % kPanelRows) * static_cast<float>(static_cast<int8_t>(p[i]));
    chunk = p + 288;
  }
}

void UnpackQ2_KScalar(const uint8_t* chunk, int k, const uint8_t*, uint8_t* codes, float* scales, float* mins) {
  for (; k > 0; k -= 256, codes += 8 * kGroupCodes, scales += 256, mins += 256) {
    const uint8_t* p = Groups(chunk, 2, codes);
    for (int i = 0; i < 256; ++i) {
      scales[i] = Half(p + 256, i % kPanelRows) * static_cast<float>(p[i] & 15);
      mins[i] = -Half(p + 288, i % kPanelRows) * static_cast<float>(p[i] >> 4);
    }
    chunk = p + 320;
  }
}

void UnpackQ3_KScalar(const uint8_t* chunk, int k, const uint8_t*, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, codes += 8 * kGroupCodes, scales += 256) {
    const uint8_t* p = Groups(chunk, 3, codes);
    for (int i = 0; i < 256; ++i) {
      const int s = i / kPanelRows, row = i % kPanelRows;
      const int low = p[s % 8 * kPanelRows + row] >> (s / 8 * 4), high = p[128 + s % 4 * kPanelRows + row] >> (s / 4 * 2);
      scales[i] = Half(p + 192, row) * static_cast<float>(((low & 15) | ((high & 3) << 4)) - 32);
    }
    chunk = p + 224;
  }
}

void UnpackIQ4_XSScalar(const uint8_t* chunk, int k, const uint8_t*, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, codes += 8 * kGroupCodes, scales += 128) {
    const uint8_t* p = Groups(chunk, 4, codes);
    for (int g = 0; g < 8; ++g) Lookup(kIq4Codes, codes + g * kGroupCodes);
    for (int i = 0; i < 128; ++i) {
      const int g = i / kPanelRows, row = i % kPanelRows;
      const int low = p[g % 4 * kPanelRows + row] >> (g / 4 * 4), high = p[64 + g / 4 * kPanelRows + row] >> (g % 4 * 2);
      scales[i] = Half(p + 96, row) * static_cast<float>(((low & 15) | ((high & 3) << 4)) - 32);
    }
    chunk = p + 128;
  }
}

void UnpackTQ2_0Scalar(const uint8_t* chunk, int k, const uint8_t*, uint8_t* codes, float* scales, float*) {
  for (; k > 0; k -= 256, codes += 8 * kGroupCodes, scales += 128) {
    const uint8_t* p = Groups(chunk, 2, codes);
    for (int i = 0; i < 128; ++i) scales[i] = Half(p, i % kPanelRows);
    chunk = p + 32;
  }
}

void UnpackF32Scalar(const uint8_t* chunks, int k, const uint8_t*, float* weights) { std::memcpy(weights, chunks, 64 * size_t(k)); }

void UnpackF16Scalar(const uint8_t* chunks, int k, const uint8_t*, float* weights) {
  for (int i = 0; i < k * kPanelRows; ++i) weights[i] = Half(chunks, i);
}

void UnpackBF16Scalar(const uint8_t* chunks, int k, const uint8_t*, float* weights) {
  for (int i = 0; i < k; ++i) {
    const bool alone = i % 2 == 0 && i + 1 == k;  // not one of a pair
    for (int row = 0; row < kPanelRows; ++row) {
      uint16_t bits;
      std::memcpy(&bits, chunks + 4 * (i / 2 * kPanelRows) + (alone ? 2 * row : 4 * row + i % 2 * 2), 2);
      weights[i * kPanelRows + row] = Bf16ToF32(bits);
    }
  }
}

}  // namespace hone
