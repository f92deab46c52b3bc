// GPTQ's sweep into GGUF's block types: when a block is entered, its scales are found from the weights as they then
// stand, weighted by what an error costs (block_quantizers.h); then each weight takes the nearest code under those
// scales, and the rest of the row makes up for the error. Blocks are as any reader expects them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/cpu.h"
#include "compress/gptq/sweep.h"
#include "tensor/dtype.h"

namespace hone {

// Whether codes of this type can be chosen one by one.
bool CanSweep(DType type);
// The sweep's options for it. REQUIRES: CanSweep(type).
SweepOptions BlockSweep(DType type, Isa isa);
// Where a code's bits lie in a block (tensor/blocks.h): writes code (0 .. 2^bits - 1, in the order of values for types
// without a table) of element `i`. REQUIRES: CanSweep(type).
void PutCode(DType type, std::byte* block, int i, int code);

// `rows`: the matrix as it will lie in the file, written row by row. The factor's order keeps blocks whole (kNatural, or
// kGroupAware by blocks). Factor and rows must outlive the rounder.
std::unique_ptr<ColumnRounder> MakeBlockRounder(DType type, Isa isa, const GptqFactor& factor,
                                                std::span<std::byte> rows);

}  // namespace hone
