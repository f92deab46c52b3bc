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

#include "base/function_ref.h"
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
  // Element i of a row of that type is column order[i] of the matrix, or stands for none (kNoColumn); empty: as they are. (Files
  // whose groups are spread over a row, GPTQ's act-order, are put in the order of their groups; what is no whole block of 32
  // is filled up to one.)
  const std::vector<int32_t>& order(bool exact) const { return exact ? exact_order_ : order_; }
  static constexpr int32_t kNoColumn = -1;
  // Elements of a row of that type.
  int64_t width(bool exact) const { return order(exact).empty() ? columns_ : static_cast<int64_t>(order(exact).size()); }

  // Rows [first, first + count) as F32, columns as they are: w[count][columns].
  virtual void Decode(int64_t first, int64_t count, float* w) const = 0;
  // Rows [first, first + count) in type(exact), columns in order(exact); what stands for no column is any number. An error names
  // a scale or weight that is no finite number.
  Result<Tensor> Transcode(int64_t first, int64_t count, bool exact, ThreadPool& threads) const;
  // The same for one row, here and now.
  Result<void> TranscodeRow(int64_t row, bool exact, std::byte* out) const;

  // The file's pages are not needed soon.
  void Release(const Checkpoint& checkpoint) const;

 protected:
  // Runs as Q8_0, rounded, and --exact as F32, unless what derives knows better.
  QuantizedMatrix(std::string where, int64_t rows, int64_t columns);
  // The same for a few rows, on one thread. As it is here: Decode, then F32 or rounding to Q8_0.
  virtual Result<void> Encode(int64_t first, int64_t count, DType type, std::byte* out) const;
  // Rows that are read together at little cost: words of a file that packs along rows hold some.
  virtual int64_t rows_at_once() const { return 16; }
  // Where blocks of `type`, each within one group, take no more bytes than Q8_0: such rows from now on, and true. `columns`: all,
  // group by group, in the order in which a row has them.
  bool TakeGroups(DType type, std::vector<int32_t> columns, FunctionRef<int64_t(int64_t column)> group_of);

  std::string where_, stored_;
  int64_t rows_ = 0, columns_ = 0;
  std::vector<const NamedTensor*> tensors_;
  DType type_ = DType::kQ8_0, exact_type_ = DType::kF32;
  std::vector<int32_t> order_, exact_order_;
};

// E4M3 without infinities (OCP): 0x7f and 0xff are NaN. E5M2: the upper half of an F16. E2M1: codes 0 .. 15.
float E4m3Value(uint8_t code);
float E5m2Value(uint8_t code);
float E2m1Value(uint8_t code);
// 2^(code - 127).
float E8m0Value(uint8_t code);

}  // namespace hone
