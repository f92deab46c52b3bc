// Rows of any stored weight type to F32, in plain code: the definition of what each block format means.
//
// Used to read embedding rows, to check kernels and to convert files. Formulas: docs/formats/gguf-blocks.md, and the structs
// in tensor/blocks.h. The multiplications are done in float, in the order of the formula, so results are the same on every CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hone {

// F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K .. Q6_K, IQ4_NL, IQ4_XS, MXFP4, TQ2_0, NF4.
bool CanDequantize(DType type);

// Writes `elements` floats. `row` may have any alignment. Thread-safe, allocates nothing.
// REQUIRES: CanDequantize(type), elements is a multiple of the type's block, `row` holds BytesFor(type, elements) bytes.
void DequantizeRow(DType type, const std::byte* row, int64_t elements, float* out);

}  // namespace hone
