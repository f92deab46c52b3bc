// Rows of a (possibly quantised) embedding table to F32.
#pragma once

#include <cstdint>

#include "base/cpu.h"
#include "tensor/tensor.h"

namespace hone {

// out[i] = table[ids[i]] * scale, table [V, D], out rows of D floats at stride out_stride.
// REQUIRES: 0 <= ids[i] < V, CanDequantize(table.type).
void EmbedRows(const TensorView& table, const int32_t* ids, int64_t count, float scale, float* out, int64_t out_stride,
               Isa isa);

}  // namespace hone
