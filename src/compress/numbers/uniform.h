// Uniform grids: w ~ scale * (code - zero). The tools that wrote the formats out there each have a rule of their own
// for the grid of a slice of weights; all of them stand here, bit for bit (float arithmetic in the order given, halves
// to even). Formulas: docs/quantize.md.
#pragma once

#include <cstdint>
#include <vector>

namespace hone {

enum class GridRule : uint8_t {
  kGptq,               // codes 0 .. 2^b - 1; the range holds 0
  kCompressedTensors,  // codes -2^(b-1) .. 2^(b-1) - 1; the range holds 0
  kAwq,                // codes 0 .. 2^b - 1; asymmetric; the range need not hold 0 (holds_zero)
  kAbsmax,             // codes +-(2^(b-1) - 1), symmetric
};
enum class Clip : uint8_t {
  kMinMax,      // nothing is clipped
  kPercentile,  // the range is between percentiles
  kSearch,      // the range is shrunk by 0 .. 79 % to the smallest sum |error|^norm
};

struct GridSpec {
  GridRule rule = GridRule::kGptq;
  int bits = 4;
  bool symmetric = true;
  Clip clip = Clip::kMinMax;
  double percentile = 99.9;
  double norm = 2.4;
  bool holds_zero = false;  // kAwq: ranges are made to hold 0. Without, a slice of one sign loses what is beyond 2^b - 1 steps
};

struct Grid {
  float scale = 1, zero = 0;
  float Dequantize(int code) const { return scale * (static_cast<float>(code) - zero); }
};

int LowestCode(const GridSpec& spec);
int HighestCode(const GridSpec& spec);
// The grid of one slice. Its scale is finite and positive for finite weights, except that absmax of zeros gives 0.
// REQUIRES: n >= 1, bits in [2, 8]; clip other than kMinMax: rule is kGptq.
Grid FindGrid(const GridSpec& spec, const float* x, int64_t n);
// The same where nothing is clipped, from the slice's range (percentiles are one too).
Grid GridOfRange(const GridSpec& spec, float least, float most);
int EncodeUniform(const GridSpec& spec, const Grid& grid, float x);

// A matrix [rows, columns] in groups along its rows: `group` columns (0: the whole row; the last group may be short),
// or one grid for the matrix (`per_tensor`).
struct UniformMatrix {
  std::vector<int16_t> codes;  // [rows, columns]
  std::vector<Grid> grids;     // [rows, groups], or one
};
UniformMatrix QuantizeUniform(const GridSpec& spec, const float* x, int64_t rows, int64_t columns, int64_t group,
                              bool per_tensor);

}  // namespace hone
