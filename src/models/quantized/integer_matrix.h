// IntegerMatrix: w = (code - zero) * scale with codes 0 .. 2^bits - 1, one scale and one zero a row and group of columns:
// what GPTQ, AWQ, compressed-tensors' whole numbers and LLM.int8() store, each packed its own way.
//
// Codes are kept, not rounded again, in blocks of 32 columns of one group (perhaps after the columns are put in the order of
// their groups; groups that are no whole blocks are filled up, unless the row would be larger than rounded to Q8_0):
//   code - zero in -8 .. 7     Q4_0, exact            in -16 .. 15         Q5_0, exact
//   4 bits with zeros          Q4_1 (exact: Q5_0)     5 bits with zeros    Q5_1 (exact: Q8_0)
//   others in a signed byte    Q8_0, exact
// Exact means: for scales of F16. Everything else is rounded to Q8_0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/quantized/quantized_matrix.h"

namespace hone {

// Scales as a file stores them: element r * row_stride + g * group_stride of a tensor, divided by `divisor`.
struct ScaleTable {
  TensorView view;  // F16, BF16 or F32
  int64_t row_stride = 0, group_stride = 0;
  float divisor = 1;
  float Value(int64_t row, int64_t group) const;
};

class IntegerMatrix : public QuantizedMatrix {
 public:
  void Decode(int64_t first, int64_t count, float* w) const override;

  // Codes of rows [first, first + count): codes[count][columns].
  virtual void ReadCodes(int64_t first, int64_t count, uint8_t* codes) const = 0;
  virtual int Zero(int64_t row, int64_t group) const = 0;
  float Scale(int64_t row, int64_t group) const { return scales_.Value(row, group); }
  int bits() const { return bits_; }
  int64_t group() const { return group_; }    // columns of one
  int64_t groups() const { return groups_; }
  int64_t GroupOf(int64_t column) const { return group_of_.empty() ? column / group_ : group_of_[column]; }
  bool groups_are_stretches() const { return group_of_.empty(); }
  // F32 where the file's scales are divided by something.
  DType scale_type() const { return scales_.divisor == 1 ? scales_.view.type : DType::kF32; }

 protected:
  using QuantizedMatrix::QuantizedMatrix;

  // To be called once by what derives, when the sizes are known. group: columns of one; groups: how many there are.
  // group_of: [columns], each in 0 .. groups - 1, where the groups are no plain stretches; else empty. constant_zero: the
  // zero of all rows and groups, or -1.
  void Plan(int bits, int64_t group, int64_t groups, std::vector<int32_t> group_of, int constant_zero, ScaleTable scales);

 private:
  Result<void> Encode(int64_t first, int64_t count, DType type, std::byte* out) const override;

  int bits_ = 0;
  int64_t group_ = 0, groups_ = 0;
  bool keeps_codes_ = false;
  std::vector<int32_t> group_of_;
  ScaleTable scales_;
};

// Reads `g_idx` [columns], I32. An error for a group outside 0 .. groups - 1. Empty where it says what plain groups do.
Result<std::vector<int32_t>> ReadGroupIndex(const NamedTensor& tensor, int64_t columns, int64_t group, int64_t groups);

// The index-th of codes of `bits` (at most 8) bits that follow each other from the low end of bytes.
inline uint32_t DenseCode(const std::byte* bytes, int64_t index, int bits) {
  const int64_t bit = index * bits;
  const int shift = static_cast<int>(bit % 8);
  uint32_t value = static_cast<uint32_t>(bytes[bit / 8]) >> shift;
  if (shift + bits > 8) value |= static_cast<uint32_t>(bytes[bit / 8 + 1]) << (8 - shift);
  return value & ((1u << bits) - 1);
}

}  // namespace hone
