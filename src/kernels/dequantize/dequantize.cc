// One small function a format; the switch at the end is the list.
#include "kernels/dequantize/dequantize.h"

#include <bit>
#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/float16.h"

namespace hone {
namespace {

void Block(const BlockQ4_0& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b.qs[j] & 15) - 8) * d;
    y[j + 16] = static_cast<float>((b.qs[j] >> 4) - 8) * d;
  }
}

void Block(const BlockQ4_1& b, float* y) {
  const float d = F16ToF32(b.d), m = F16ToF32(b.m);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(b.qs[j] & 15) * d + m;
    y[j + 16] = static_cast<float>(b.qs[j] >> 4) * d + m;
  }
}

// The fifth bits of elements j and j + 16, already at bit 4.
struct HighBits {
  explicit HighBits(const uint8_t (&bytes)[4]) { std::memcpy(&bits, bytes, 4); }
  int Of(int element) const { return static_cast<int>((bits >> element) & 1) << 4; }
  uint32_t bits;
};

void Block(const BlockQ5_0& b, float* y) {
  const float d = F16ToF32(b.d);
  const HighBits high(b.qh);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(((b.qs[j] & 15) | high.Of(j)) - 16) * d;
    y[j + 16] = static_cast<float>(((b.qs[j] >> 4) | high.Of(j + 16)) - 16) * d;
  }
}

void Block(const BlockQ5_1& b, float* y) {
  const float d = F16ToF32(b.d), m = F16ToF32(b.m);
  const HighBits high(b.qh);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>((b.qs[j] & 15) | high.Of(j)) * d + m;
    y[j + 16] = static_cast<float>((b.qs[j] >> 4) | high.Of(j + 16)) * d + m;
  }
}

void Block(const BlockQ8_0& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(b.qs[j]) * d;
}

void Block(const BlockQ2_K& b, float* y) {
  const float d = F16ToF32(b.d), dmin = F16ToF32(b.dmin);
  for (int i = 0; i < 256; ++i) {  // element i: half i / 128, bit pair (i / 32) % 4 of byte i % 32, scale i / 16
    const uint8_t scale = b.scales[i / 16];
    const int q = (b.qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
    y[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) - dmin * static_cast<float>(scale >> 4);
  }
}

void Block(const BlockQ3_K& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int i = 0; i < 256; ++i) {
    const int s = i / 16;
    const int low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
    const int scale = (low | (((b.scales[8 + s % 4] >> (2 * (s / 4))) & 3) << 4)) - 32;
    const int q = (b.qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
    const int high = (b.hmask[i % 32] >> (i / 32)) & 1;
    y[i] = d * static_cast<float>(scale) * static_cast<float>(q - (high != 0 ? 0 : 4));
  }
}

// Scale and minimum number j (0..7) of the 12 bytes that Q4_K and Q5_K share.
struct ScaleMin {
  ScaleMin(const uint8_t (&q)[12], int j)
      : scale(j < 4 ? q[j] & 63 : (q[j + 4] & 15) | ((q[j - 4] >> 6) << 4)),
        min(j < 4 ? q[j + 4] & 63 : (q[j + 4] >> 4) | ((q[j] >> 6) << 4)) {}
  int scale, min;
};

void Block(const BlockQ4_K& b, float* y) {
  const float d = F16ToF32(b.d), dmin = F16ToF32(b.dmin);
  for (int g = 0; g < 8; ++g) {  // 32 elements: low (g even) or high (g odd) nibbles of 32 bytes
    const ScaleMin s(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (int l = 0; l < 32; ++l) {
      y[32 * g + l] = scale * static_cast<float>((b.qs[g / 2 * 32 + l] >> (g % 2 * 4)) & 15) - min;
    }
  }
}

void Block(const BlockQ5_K& b, float* y) {
  const float d = F16ToF32(b.d), dmin = F16ToF32(b.dmin);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin s(b.scales, g);
    const float scale = d * static_cast<float>(s.scale), min = dmin * static_cast<float>(s.min);
    for (int l = 0; l < 32; ++l) {
      const int q = ((b.qs[g / 2 * 32 + l] >> (g % 2 * 4)) & 15) | (((b.qh[l] >> g) & 1) << 4);
      y[32 * g + l] = scale * static_cast<float>(q) - min;
    }
  }
}

void Block(const BlockQ6_K& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int half = 0; half < 2; ++half) {
    for (int l = 0; l < 128; ++l) {  // nibble: byte l % 64, low for l < 64; bit pair l / 32 of byte l % 32
      const int low = (b.ql[64 * half + l % 64] >> (l / 64 * 4)) & 15;
      const int high = (b.qh[32 * half + l % 32] >> (l / 32 * 2)) & 3;
      const int scale = b.scales[8 * half + l / 16];
      y[128 * half + l] = d * static_cast<float>(scale) * static_cast<float>((low | (high << 4)) - 32);
    }
  }
}

void Block(const BlockIQ4_NL& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kIq4Values[b.qs[j] & 15]);
    y[j + 16] = d * static_cast<float>(kIq4Values[b.qs[j] >> 4]);
  }
}

void Block(const BlockNF4& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(kNf4Values[b.qs[j] & 15]);
    y[j + 16] = d * static_cast<float>(kNf4Values[b.qs[j] >> 4]);
  }
}

void Block(const BlockIQ4_XS& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int g = 0; g < 8; ++g) {
    const int low = (b.scales_l[g / 2] >> (4 * (g % 2))) & 15, high = (b.scales_h >> (2 * g)) & 3;
    const float scale = d * static_cast<float>((low | (high << 4)) - 32);
    for (int j = 0; j < 16; ++j) {
      y[32 * g + j] = scale * static_cast<float>(kIq4Values[b.qs[16 * g + j] & 15]);
      y[32 * g + j + 16] = scale * static_cast<float>(kIq4Values[b.qs[16 * g + j] >> 4]);
    }
  }
}

void Block(const BlockMXFP4& b, float* y) {
  // 2^(e - 127) / 2, the halving because the table holds twice the value. e of 0 and 1 give subnormals.
  const float d = std::bit_cast<float>(b.e < 2 ? 0x00200000u << b.e : (uint32_t{b.e} - 1u) << 23);
  for (int j = 0; j < 16; ++j) {
    y[j] = static_cast<float>(kMxfp4Values[b.qs[j] & 15]) * d;
    y[j + 16] = static_cast<float>(kMxfp4Values[b.qs[j] >> 4]) * d;
  }
}

void Block(const BlockTQ2_0& b, float* y) {
  const float d = F16ToF32(b.d);
  for (int i = 0; i < 256; ++i) {
    y[i] = static_cast<float>(((b.qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3) - 1) * d;
  }
}

template <typename B>
void Blocks(const std::byte* row, int64_t elements, int block_elements, float* out) {
  for (int64_t i = 0; i < elements; i += block_elements, row += sizeof(B)) {
    B block;
    std::memcpy(&block, row, sizeof(B));
    Block(block, out + i);
  }
}

template <float (*kConvert)(uint16_t)>
void Halves(const std::byte* row, int64_t elements, float* out) {
  for (int64_t i = 0; i < elements; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + 2 * i, 2);
    out[i] = kConvert(bits);
  }
}

}  // namespace

bool CanDequantize(DType type) {
  switch (type) {
    case DType::kF32: case DType::kF16: case DType::kBF16: case DType::kQ8_0: case DType::kQ4_0: case DType::kQ4_1:
    case DType::kQ5_0: case DType::kQ5_1: case DType::kQ2_K: case DType::kQ3_K: case DType::kQ4_K: case DType::kQ5_K:
    case DType::kQ6_K: case DType::kIQ4_NL: case DType::kIQ4_XS: case DType::kMXFP4: case DType::kTQ2_0:
    case DType::kNF4: return true;
    default: return false;
  }
}

void DequantizeRow(DType type, const std::byte* row, int64_t elements, float* out) {
  HONE_CHECK(elements % Info(type).block_elements == 0);
  switch (type) {
    case DType::kF32: std::memcpy(out, row, 4 * elements); return;
    case DType::kF16: return Halves<F16ToF32>(row, elements, out);
    case DType::kBF16: return Halves<Bf16ToF32>(row, elements, out);
    case DType::kQ4_0: return Blocks<BlockQ4_0>(row, elements, 32, out);
    case DType::kQ4_1: return Blocks<BlockQ4_1>(row, elements, 32, out);
    case DType::kQ5_0: return Blocks<BlockQ5_0>(row, elements, 32, out);
    case DType::kQ5_1: return Blocks<BlockQ5_1>(row, elements, 32, out);
    case DType::kQ8_0: return Blocks<BlockQ8_0>(row, elements, 32, out);
    case DType::kQ2_K: return Blocks<BlockQ2_K>(row, elements, 256, out);
    case DType::kQ3_K: return Blocks<BlockQ3_K>(row, elements, 256, out);
    case DType::kQ4_K: return Blocks<BlockQ4_K>(row, elements, 256, out);
    case DType::kQ5_K: return Blocks<BlockQ5_K>(row, elements, 256, out);
    case DType::kQ6_K: return Blocks<BlockQ6_K>(row, elements, 256, out);
    case DType::kIQ4_NL: return Blocks<BlockIQ4_NL>(row, elements, 32, out);
    case DType::kIQ4_XS: return Blocks<BlockIQ4_XS>(row, elements, 256, out);
    case DType::kMXFP4: return Blocks<BlockMXFP4>(row, elements, 32, out);
    case DType::kNF4: return Blocks<BlockNF4>(row, elements, 32, out);
    case DType::kTQ2_0: return Blocks<BlockTQ2_0>(row, elements, 256, out);
    default: HONE_CHECK(false, "no dequantisation for this type; ask CanDequantize first");
  }
}

}  // namespace hone
