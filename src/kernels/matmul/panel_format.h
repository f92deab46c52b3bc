// How a stored weight type lies in a panel. A panel is 16 rows of W; a chunk of it is one block (or one float) of each of the
// 16 rows, in exactly as many bytes as in the file. Two panels are a tile; a thread reads its tiles as one stream of bytes:
//
//   [tile 0: [panel 0, K 0..511][panel 1, K 0..511][panel 0, K 512..1023][panel 1, K 512..1023] ...][tile 1 ...]
//
// with stretches of 128 instead of 512 for float types; the last tile has one panel if N / 16 rounds up to an odd number.
//
//   chunk of a low-bit type:   [codes, group of 32 by group of 32][scales of the 16 rows]
//
// A group of 32 elements x 16 rows is 8 quads (q0 .. q7) of 64 bytes: quad j holds elements 4j .. 4j+3 of row 0, of row 1 ...
// Each byte of the planes below belongs to the same byte position of several quads, so unpacking is a mask and a shift:
//
//   bits   planes of a group (64-byte vectors)
//   8      8 x [code - 128 of qj]                                              (the file's signed byte)
//   4      4 x [q2l | q2l+1 << 4]
//   5      the four above, then 1 x [bit 4 of q0 | of q1 << 1 | ... of q7 << 7]
//   6      2 x three planes: [q4h+i | bits 2i, 2i+1 of q4h+3 << 6], i = 0 .. 2
//   2      2 x [q4h | q4h+1 << 2 | q4h+2 << 4 | q4h+3 << 6]
//   3      the two above, then 1 x [bit 2 of q0 | of q1 << 1 | ... of q7 << 7]
//
// Scales, each vector over the 16 rows (f16 vectors take 32 bytes, byte vectors 16):
//
//   Q4_0 Q5_0 Q8_0 IQ4_NL NF4 TQ2_0   f16 d             Q4_1 Q5_1   f16 d, f16 m            MXFP4   u8 e
//   Q4_K Q5_K   8 x [sc_i & 15 | (m_i & 15) << 4], 4 x [sc_i >> 4 | (m_i >> 4) << 2 | (sc_i+4 >> 4) << 4 | (m_i+4 >> 4) << 6], f16 d, dmin
//   Q6_K        16 x i8 scale, f16 d
//   Q2_K        16 x [scale | min << 4], f16 d, dmin
//   Q3_K        8 x [s_i & 15 | (s_i+8 & 15) << 4], 4 x [s_i >> 4 | s_i+4 >> 4 << 2 | s_i+8 >> 4 << 4 | s_i+12 >> 4 << 6], f16 d
//   IQ4_XS      4 x [s_i & 15 | (s_i+4 & 15) << 4], 2 x [s_4i >> 4 | s_4i+1 >> 4 << 2 | ...], f16 d
//
// Float types: a chunk is one K element of 16 rows, [k][16]. BF16 interleaves pairs in K, [k / 2][16][2] (an odd last element
// stands alone): a 32-bit word is two F32 by a shift and a mask, and is what VDPBF16PS and TDPBF16PS read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/matmul/tile.h"
#include "tensor/dtype.h"

namespace hone {

struct PanelFormat {
  DType type;
  int chunk;     // K elements of a chunk: the block of the type, 1 for floats
  int group;     // K elements that share a scale in the loop; 0 for floats
  int bits;      // unpacked codes are below 2^bits
  int offset;    // weight = scale * (code - offset) + min
  bool has_min;
  // `count` successive blocks of each of 16 rows (row_stride bytes apart; rows past `rows` count as zero) to `count` chunks.
  void (*pack)(const std::byte* blocks, size_t row_stride, int rows, int64_t count, std::byte* chunks);

  bool is_float() const { return group == 0; }
  int stretch() const { return is_float() ? kFloatStretch : kCodeStretch; }
  size_t chunk_bytes() const { return 16 * Info(type).block_bytes; }
};

// nullptr if matmul does not take the type.
const PanelFormat* FindPanelFormat(DType type);

}  // namespace hone
