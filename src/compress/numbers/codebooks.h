// Weights as entries of a table under a scale a block: NF4 and FP4 as bitsandbytes writes them, with the scales of
// blocks quantised once more ("double quantisation"); and LLM.int8()'s rows. Papers: Dettmers et al. 2023 (QLoRA),
// 2022.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/numbers/slices.h"

namespace hone {

enum class Codebook4 : uint8_t { kNf4, kFp4 };
const std::array<float, 16>& CodebookValues(Codebook4 codebook);  // by code
// The 256 values of the map that scales of blocks are rounded to, rising.
const std::array<float, 256>& DynamicMap();

struct Codebook4Tensor {
  std::vector<uint8_t> packed;  // two codes a byte, the first in the high nibble
  std::vector<float> absmax;    // a block; blocks run over the flattened tensor, the last may be short
};
// REQUIRES: finite x, an even block.
Codebook4Tensor QuantizeCodebook4(Codebook4 codebook, std::span<const float> x, int block);
// The same into `out`, which has the sizes of its vectors.
void QuantizeCodebook4(Codebook4 codebook, std::span<const float> x, int block, const Slices& slices,
                       std::span<uint8_t> packed, std::span<float> absmax);
void DequantizeCodebook4(Codebook4 codebook, const Codebook4Tensor& tensor, int block, std::span<float> out);

// absmax in blocks of kNestedBlock under the dynamic map, the mean taken off first.
constexpr int kNestedBlock = 256;
struct DoubleQuantized {
  std::vector<uint8_t> codes;
  std::vector<float> nested_absmax;
  float offset = 0;
};
DoubleQuantized QuantizeAbsmax(std::span<const float> absmax, const Slices& slices = kSlicesV2);
// The scale of a block as a reader has it; map: DynamicMap().
inline float AbsmaxOf(const std::array<float, 256>& map, const DoubleQuantized& absmax, size_t block) {
  return map[absmax.codes[block]] * absmax.nested_absmax[block / kNestedBlock] + absmax.offset;
}
std::vector<float> DequantizeAbsmax(const DoubleQuantized& absmax);

// LLM.int8(): a row as round(127 x / absmax). Entries of at least `threshold` (> 0) are left out of absmax and clip.
struct Int8Row {
  float absmax = 0;
};
Int8Row QuantizeInt8Row(std::span<const float> x, float threshold, int8_t* codes);
// Columns of x [rows, columns] that hold an entry of at least `threshold`, rising.
std::vector<int32_t> OutlierColumns(const float* x, int64_t rows, int64_t columns, float threshold);

}  // namespace hone
