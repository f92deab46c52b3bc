// The choice of kernel: arithmetic of an ISA + unpacking of a type, from kernels.inc.
#pragma once

#include <span>
#include <string>

#include "base/cpu.h"
#include "kernels/matmul/few_rows.h"
#include "kernels/matmul/panel_format.h"
#include "kernels/matmul/tile.h"

namespace hone {

struct MatmulArithmetic {
  Isa isa;
  RoundRowFn round_row;
  MultiplyCodesFn multiply_codes;
  MultiplyFloatsFn multiply_floats;
  DequantizeCodesFn dequantize_codes;
};

struct MatmulUnpack {
  DType type;
  Isa isa;
  UnpackCodesFn codes;    // null for float types
  UnpackFloatsFn floats;  // null for low-bit types
};

struct MatmulFewRows {
  DType type;
  Isa isa;
  FewRowsFn run;
};

// The lines of kernels.inc and few_rows.inc, best first.
std::span<const MatmulArithmetic> MatmulArithmetics();
std::span<const MatmulUnpack> MatmulUnpacks();
std::span<const MatmulFewRows> MatmulFewRowsKernels();

// What a PackedMatrix runs.
struct MatmulKernel {
  const PanelFormat* format;
  const MatmulArithmetic* arithmetic;
  const MatmulUnpack* unpack;
  FewRowsFn few_rows;  // up to kFewRows rows take this way, with the same bits; null: as many rows do
  bool exact;        // F32 activations
  bool few_rows_groups;  // few_rows reads x_groups
  std::string name;  // "Q4_0 int8 avx512-vnni", "Q4_0 exact avx512-vnni", "BF16 f32 avx512-vnni"

  bool uses_codes() const { return !format->is_float() && !exact; }
  // few_rows takes any number of rows in parts, and skips the first term of groups that are not wide (RoundedRow).
  bool skips_terms() const { return uses_codes() && few_rows != nullptr && !few_rows_groups; }
};

// The best kernel of at most `isa`. REQUIRES: CanMatmul(type). The result lives forever.
const MatmulKernel& FindMatmulKernel(DType type, Isa isa, bool exact);

}  // namespace hone
