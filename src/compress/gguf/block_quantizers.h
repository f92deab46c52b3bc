// Rows of floats into GGUF block types, bit for bit as llama.cpp's quantizer writes them, with and without an
// importance of every column. Formulas: docs/quantize.md; layouts: tensor/blocks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/cpu.h"
#include "tensor/dtype.h"

namespace hone {

// Types that can be written, in the order of quantizers.inc.
const std::vector<DType>& QuantizableTypes();
bool CanQuantize(DType type);
// Whether `importance` changes what is written (Q8_0, MXFP4 and TQ2_0 have no search).
bool UsesImportance(DType type);

// Writes one row. The same bits on every CPU and for every level of `isa`. Thread-safe, allocates nothing.
// `importance`: how much each column counts [n], or nullptr.
// REQUIRES: CanQuantize(type), n is a multiple of the type's block, x is finite, `out` holds BytesFor(type, n) bytes
// and is aligned to 2 bytes; the CPU has `isa`.
void QuantizeRow(DType type, Isa isa, const float* x, int64_t n, const float* importance, std::byte* out);

}  // namespace hone
