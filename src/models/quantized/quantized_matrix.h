// QuantizedMatrix: a weight [out, in] of a quantised Hugging Face folder: several tensors of the file that together say
// one matrix. It is read as F32, exactly as the file means it, or transcoded, a few rows at a time and in parallel, to a
// type that kernels/matmul multiplies packed. docs/models.md says which format becomes which type and what that costs.
//
// One file a family of formats, one line in formats.inc; quantized_folder.h chooses. Immutable, thread-safe; borrows the
// checkpoint.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "formats/checkpoint.h"
#include "tensor/tensor.h"

namespace hone {

class QuantizedMatrix {
 public:
  virtual ~QuantizedMatrix() = default;

  // Where it lies and what it is called there: "folder: model.layers.0.mlp.down_proj". What errors begin with.
  const std::string& where() const { return where_; }
  const std::string& stored() const { return stored_; }  // "gptq 4-bit, groups of 128"
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const std::vector<const NamedTensor*>& tensors() const { return tensors_; }  // all that belong to it
  uint64_t file_bytes() const;

  // The type that it runs as. `exact`: one that holds every value of the file as it is; F32 where no packed type does.
  DType type(bool exact) const { return exact ? exact_type_ : type_; }
  // Element i of a row of that type is column order[i] of the matrix; empty: as they are. (Files whose groups are spread
  // over a row, GPTQ's act-order, are put in the order of their groups.)
  const std::vector<int32_t>& order(bool exact) const { return exact ? exact_order_ : order_; }

  // Rows [first, first + count) as F32, columns as they are: w[count][columns].
  virtual void Decode(int64_t first, int64_t count, float* w) const = 0;
  // Rows [first, first + count) in type(exact), columns in order(exact). An error names a scale or weight that is no
  // finite number.
  Result<Tensor> Transcode(int64_t first, int64_t count, bool exact, ThreadPool& threads) const;
  // The same for one row, here and now.
  Result<void> TranscodeRow(int64_t row, bool exact, std::byte* out) const;

  // The file's pages are not needed soon.
  void Release(const Checkpoint& checkpoint) const;

 protected:
  QuantizedMatrix(std::string where, int64_t rows, int64_t columns)
      : where_(std::move(where)), rows_(rows), columns_(columns) {}
  // The same for a few rows, on one thread. As it is here: Decode, then rounding to F32, BF16 or Q8_0.
  virtual Result<void> Encode(int64_t first, int64_t count, DType type, std::byte* out) const;
  // Rows that are read together at little cost: words of a file that packs along rows hold some.
  virtual int64_t rows_at_once() const { return 16; }

  std::string where_, stored_;
  int64_t rows_ = 0, columns_ = 0;
  std::vector<const NamedTensor*> tensors_;
  DType type_ = DType::kBF16, exact_type_ = DType::kF32;
  std::vector<int32_t> order_, exact_order_;
};

// The packed type for values that no type holds as they are: Q8_0 where blocks of 32 divide the row, else BF16.
DType RoundedType(int64_t columns);

// E4M3 without infinities (OCP): 0x7f and 0xff are NaN. E2M1: codes 0 .. 15.
float E4m3Value(uint8_t code);
float E2m1Value(uint8_t code);
// 2^(code - 127).
float E8m0Value(uint8_t code);

}  // namespace hone
