// Tensors at addresses that their element type does not allow: old writers did not pad, and a GGUF file may ask for an
// alignment of 1. Their views are moved to one owned, aligned copy; all others stay in the mapping.
#pragma once

#include <string>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "formats/named_tensor.h"

namespace hone {

// The address of a tensor of this type must be a multiple of this: the largest power of two up to 8 that divides its
// block.
size_t AddressAlignment(DType type);

// Moves misaligned views of `tensors` into the returned buffer, which must live as long as they do (empty if there are
// none). More than 1 GiB of them is an error that names `path`.
Result<Buffer> AlignTensors(const std::string& path, std::vector<NamedTensor>* tensors);

}  // namespace hone
