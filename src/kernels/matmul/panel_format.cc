// Packing: from 16 file blocks to one chunk. Codes first lie as bytes [16 rows][chunk], then go into bit planes, four at a time
// as 32-bit words.
#include "kernels/matmul/panel_format.h"

#include <cstring>

#include "tensor/blocks.h"

namespace hone {
namespace {

constexpr int kRows = 16;

// Codes of 16 rows as 32-bit words of four: words[row][quad].
template <int kChunk>
struct Codes {
  alignas(64) uint8_t bytes[kRows][kChunk];
  uint32_t Quad(int row, int quad) const {
    uint32_t word;
    std::memcpy(&word, &bytes[row][4 * quad], 4);
    return word;
  }
};

void Store(std::byte*& out, uint32_t word) {
  std::memcpy(out, &word, 4);
  out += 4;
}

// One plane: `count` quads from `first`, `step_bits` bits each, taken from bit `shift` of every code.
template <int kChunk>
void Plane(const Codes<kChunk>& codes, int first, int count, int shift, int step_bits, std::byte*& out) {
  const uint32_t mask = 0x01010101u * ((1u << step_bits) - 1);
  for (int row = 0; row < kRows; ++row) {
    uint32_t word = 0;
    for (int j = 0; j < count; ++j) word |= ((codes.Quad(row, first + j) >> shift) & mask) << (step_bits * j);
    Store(out, word);
  }
}

// Three quads from `first`, each with two bits of the fourth above its six.
template <int kChunk>
void SixBitPlanes(const Codes<kChunk>& codes, int first, std::byte*& out) {
  for (int i = 0; i < 3; ++i) {
    for (int row = 0; row < kRows; ++row) {
      Store(out, codes.Quad(row, first + i) | ((codes.Quad(row, first + 3) >> (2 * i)) & 0x03030303u) << 6);
    }
  }
}

template <int kBits, int kChunk>
void Planes(const Codes<kChunk>& codes, std::byte*& out) {
  for (int quad = 0; quad < kChunk / 4; quad += 8) {
    if constexpr (kBits == 8) {
      for (int j = 0; j < 8; ++j) Plane(codes, quad + j, 1, 0, 8, out);
    }
    if constexpr (kBits == 4 || kBits == 5) {
      for (int j = 0; j < 8; j += 2) Plane(codes, quad + j, 2, 0, 4, out);
    }
    if constexpr (kBits == 2 || kBits == 3) {
      for (int j = 0; j < 8; j += 4) Plane(codes, quad + j, 4, 0, 2, out);
    }
    if constexpr (kBits == 6) {
      for (int j = 0; j < 8; j += 4) SixBitPlanes(codes, quad + j, out);
    }
    if constexpr (kBits == 5) Plane(codes, quad, 8, 4, 1, out);
    if constexpr (kBits == 3) Plane(codes, quad, 8, 2, 1, out);
  }
}

// A value of every row, one after another.
template <typename B, typename F>
void PerRow(const B (&blocks)[kRows], std::byte*& out, F value) {
  for (const B& block : blocks) {
    const auto v = value(block);
    std::memcpy(out, &v, sizeof(v));
    out += sizeof(v);
  }
}

template <typename B>
void D(const B (&blocks)[kRows], std::byte*& out) {
  PerRow(blocks, out, [](const B& b) { return b.d; });
}

// Elements of a block in order, as codes. -------------------------------------------------------------------------------

void Nibbles32(const uint8_t* qs, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) codes[j] = qs[j] & 15;
  for (int j = 0; j < 16; ++j) codes[j + 16] = qs[j] >> 4;
}
void Nibbles64(const uint8_t* qs, uint8_t* codes) {  // K-quants: 32 low nibbles, then 32 high
  for (int j = 0; j < 32; ++j) codes[j] = qs[j] & 15;
  for (int j = 0; j < 32; ++j) codes[j + 32] = qs[j] >> 4;
}
void Pairs256(const uint8_t* qs, uint8_t* codes) {  // 2 halves x 4 bit pairs x 32 bytes
  for (int i = 0; i < 8; ++i) {
    for (int l = 0; l < 32; ++l) codes[32 * i + l] = (qs[i / 4 * 32 + l] >> (i % 4 * 2)) & 3;
  }
}
void FifthBits(const uint8_t (&qh)[4], uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, qh, 4);
  for (int j = 0; j < 32; ++j) codes[j] |= ((bits >> j) & 1) << 4;
}

void Extract(const BlockQ4_0& b, uint8_t* codes) { Nibbles32(b.qs, codes); }
void Extract(const BlockQ4_1& b, uint8_t* codes) { Nibbles32(b.qs, codes); }
void Extract(const BlockIQ4_NL& b, uint8_t* codes) { Nibbles32(b.qs, codes); }
void Extract(const BlockNF4& b, uint8_t* codes) { Nibbles32(b.qs, codes); }
void Extract(const BlockMXFP4& b, uint8_t* codes) { Nibbles32(b.qs, codes); }
void Extract(const BlockQ5_0& b, uint8_t* codes) { Nibbles32(b.qs, codes), FifthBits(b.qh, codes); }
void Extract(const BlockQ5_1& b, uint8_t* codes) { Nibbles32(b.qs, codes), FifthBits(b.qh, codes); }
void Extract(const BlockQ8_0& b, uint8_t* codes) { std::memcpy(codes, b.qs, 32); }
void Extract(const BlockQ2_K& b, uint8_t* codes) { Pairs256(b.qs, codes); }
void Extract(const BlockTQ2_0& b, uint8_t* codes) { Pairs256(b.qs, codes); }
void Extract(const BlockQ3_K& b, uint8_t* codes) {
  Pairs256(b.qs, codes);
  for (int i = 0; i < 8; ++i) {
    for (int l = 0; l < 32; ++l) codes[32 * i + l] |= ((b.hmask[l] >> i) & 1) << 2;
  }
}
void Extract(const BlockQ4_K& b, uint8_t* codes) {
  for (int i = 0; i < 4; ++i) Nibbles64(b.qs + 32 * i, codes + 64 * i);
}
void Extract(const BlockQ5_K& b, uint8_t* codes) {
  for (int i = 0; i < 4; ++i) Nibbles64(b.qs + 32 * i, codes + 64 * i);
  for (int i = 0; i < 8; ++i) {
    for (int l = 0; l < 32; ++l) codes[32 * i + l] |= ((b.qh[l] >> i) & 1) << 4;
  }
}
void Extract(const BlockQ6_K& b, uint8_t* codes) {
  for (int half = 0; half < 2; ++half) {
    const uint8_t* low = b.ql + 64 * half;
    const uint8_t* high = b.qh + 32 * half;
    uint8_t* c = codes + 128 * half;
    for (int l = 0; l < 64; ++l) c[l] = low[l] & 15;
    for (int l = 0; l < 64; ++l) c[l + 64] = low[l] >> 4;
    for (int i = 0; i < 4; ++i) {
      for (int l = 0; l < 32; ++l) c[32 * i + l] |= ((high[l] >> (2 * i)) & 3) << 4;
    }
  }
}
void Extract(const BlockIQ4_XS& b, uint8_t* codes) {
  for (int i = 0; i < 8; ++i) Nibbles32(b.qs + 16 * i, codes + 32 * i);
}

// Scales. -------------------------------------------------------------------------------------------------------------

template <typename B>
void Scales(const B (&blocks)[kRows], std::byte*& out) {  // one f16 a block
  D(blocks, out);
}
template <typename B>
void ScalesAndMin(const B (&blocks)[kRows], std::byte*& out) {
  D(blocks, out);
  PerRow(blocks, out, [](const B& b) { return b.m; });
}
void Scales(const BlockQ4_1 (&blocks)[kRows], std::byte*& out) { ScalesAndMin(blocks, out); }
void Scales(const BlockQ5_1 (&blocks)[kRows], std::byte*& out) { ScalesAndMin(blocks, out); }
void Scales(const BlockMXFP4 (&blocks)[kRows], std::byte*& out) {
  PerRow(blocks, out, [](const BlockMXFP4& b) { return b.e; });
}

// Sub-scales i of Q4_K and Q5_K: 6 bits of scale, 6 of minimum.
uint8_t ScaleOf(const uint8_t (&q)[12], int i) { return i < 4 ? q[i] & 63 : (q[i + 4] & 15) | ((q[i - 4] >> 6) << 4); }
uint8_t MinOf(const uint8_t (&q)[12], int i) { return i < 4 ? q[i + 4] & 63 : (q[i + 4] >> 4) | ((q[i] >> 6) << 4); }

template <typename B>
void ScalesOfSix(const B (&blocks)[kRows], std::byte*& out) {
  for (int i = 0; i < 8; ++i) {
    PerRow(blocks, out, [i](const B& b) { return uint8_t((ScaleOf(b.scales, i) & 15) | (MinOf(b.scales, i) << 4)); });
  }
  for (int i = 0; i < 4; ++i) {
    PerRow(blocks, out, [i](const B& b) {
      return uint8_t((ScaleOf(b.scales, i) >> 4) | (MinOf(b.scales, i) >> 4 << 2) | (ScaleOf(b.scales, i + 4) >> 4 << 4) |
                     (MinOf(b.scales, i + 4) >> 4 << 6));
    });
  }
  D(blocks, out);
  PerRow(blocks, out, [](const B& b) { return b.dmin; });
}
void Scales(const BlockQ4_K (&blocks)[kRows], std::byte*& out) { ScalesOfSix(blocks, out); }
void Scales(const BlockQ5_K (&blocks)[kRows], std::byte*& out) { ScalesOfSix(blocks, out); }

template <typename B>
void SixteenBytes(const B (&blocks)[kRows], std::byte*& out) {
  for (int i = 0; i < 16; ++i) {
    PerRow(blocks, out, [i](const B& b) { return uint8_t(b.scales[i]); });
  }
  D(blocks, out);
}
void Scales(const BlockQ6_K (&blocks)[kRows], std::byte*& out) { SixteenBytes(blocks, out); }
void Scales(const BlockQ2_K (&blocks)[kRows], std::byte*& out) {
  SixteenBytes(blocks, out);
  PerRow(blocks, out, [](const BlockQ2_K& b) { return b.dmin; });
}
// The file's 12 bytes are already what the panel wants: 8 bytes of low nibbles (i, i + 8), 4 of high pairs (i, i + 4 ...).
void Scales(const BlockQ3_K (&blocks)[kRows], std::byte*& out) {
  for (int i = 0; i < 12; ++i) {
    PerRow(blocks, out, [i](const BlockQ3_K& b) { return b.scales[i]; });
  }
  D(blocks, out);
}
void Scales(const BlockIQ4_XS (&blocks)[kRows], std::byte*& out) {
  const auto low = [](const BlockIQ4_XS& b, int i) { return (b.scales_l[i / 2] >> (4 * (i % 2))) & 15; };
  for (int i = 0; i < 4; ++i) {
    PerRow(blocks, out, [&](const BlockIQ4_XS& b) { return uint8_t(low(b, i) | (low(b, i + 4) << 4)); });
  }
  for (int i = 0; i < 2; ++i) {
    PerRow(blocks, out, [i](const BlockIQ4_XS& b) { return uint8_t(b.scales_h >> (8 * i)); });
  }
  D(blocks, out);
}

template <typename B, int kChunk, int kBits>
void PackChunks(const std::byte* first, size_t row_stride, int rows, int64_t count, std::byte* out) {
  B blocks[kRows] = {};
  Codes<kChunk> codes;
  for (int64_t i = 0; i < count; ++i, first += sizeof(B)) {
    for (int row = 0; row < kRows; ++row) {
      if (row < rows) std::memcpy(&blocks[row], first + row * row_stride, sizeof(B));
      Extract(blocks[row], codes.bytes[row]);
    }
    Planes<kBits>(codes, out);
    Scales(blocks, out);
  }
}

template <typename T>
void PackFloats(const std::byte* first, size_t row_stride, int rows, int64_t count, std::byte* out) {
  constexpr int64_t kRun = 64 / sizeof(T);  // elements of one row that are read together: a cache line
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t run = begin + kRun < count ? kRun : count - begin;
    for (int row = 0; row < kRows; ++row) {
      T values[kRun] = {};
      if (row < rows) std::memcpy(values, first + row * row_stride + begin * sizeof(T), run * sizeof(T));
      for (int64_t i = 0; i < run; ++i) std::memcpy(out + ((begin + i) * kRows + row) * sizeof(T), &values[i], sizeof(T));
    }
  }
}

// Pairs of K neighbours as 32-bit words; an odd last element stands alone.
void PackBf16(const std::byte* first, size_t row_stride, int rows, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; i += 2) {
    const size_t bytes = i + 1 < count ? 4 : 2;
    for (int row = 0; row < kRows; ++row, out += bytes) {
      const uint32_t zero = 0;
      std::memcpy(out, row < rows ? first + row * row_stride + 2 * i : reinterpret_cast<const std::byte*>(&zero), bytes);
    }
  }
}

// The list of formats: type, chunk, group, bits of an unpacked code, offset, minimum, pack<block, chunk, bits in the panel>.
constexpr PanelFormat kFormats[] = {
    {DType::kF32, 1, 0, 0, 0, false, PackFloats<uint32_t>},
    {DType::kF16, 1, 0, 0, 0, false, PackFloats<uint16_t>},
    {DType::kBF16, 1, 0, 0, 0, false, PackBf16},
    {DType::kQ8_0, 32, 32, 8, 128, false, PackChunks<BlockQ8_0, 32, 8>},
    {DType::kQ4_0, 32, 32, 4, 8, false, PackChunks<BlockQ4_0, 32, 4>},
    {DType::kQ4_1, 32, 32, 4, 0, true, PackChunks<BlockQ4_1, 32, 4>},
    {DType::kQ5_0, 32, 32, 5, 16, false, PackChunks<BlockQ5_0, 32, 5>},
    {DType::kQ5_1, 32, 32, 5, 0, true, PackChunks<BlockQ5_1, 32, 5>},
    {DType::kIQ4_NL, 32, 32, 8, 128, false, PackChunks<BlockIQ4_NL, 32, 4>},
    {DType::kNF4, 32, 32, 8, 128, false, PackChunks<BlockNF4, 32, 4>},
    {DType::kMXFP4, 32, 32, 5, 12, false, PackChunks<BlockMXFP4, 32, 4>},
    {DType::kQ2_K, 256, 16, 2, 0, true, PackChunks<BlockQ2_K, 256, 2>},
    {DType::kQ3_K, 256, 16, 3, 4, false, PackChunks<BlockQ3_K, 256, 3>},
    {DType::kQ4_K, 256, 32, 4, 0, true, PackChunks<BlockQ4_K, 256, 4>},
    {DType::kQ5_K, 256, 32, 5, 0, true, PackChunks<BlockQ5_K, 256, 5>},
    {DType::kQ6_K, 256, 16, 6, 32, false, PackChunks<BlockQ6_K, 256, 6>},
    {DType::kIQ4_XS, 256, 32, 8, 128, false, PackChunks<BlockIQ4_XS, 256, 4>},
    {DType::kTQ2_0, 256, 32, 2, 1, false, PackChunks<BlockTQ2_0, 256, 2>},
};

}  // namespace

const PanelFormat* FindPanelFormat(DType type) {
  for (const PanelFormat& format : kFormats) {
    if (format.type == type) return &format;
  }
  return nullptr;
}

}  // namespace hone
