// A matrix of a checkpoint as F32, refused by name where a weight is no finite number.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "formats/checkpoint.h"

namespace hone {

// `view` [rows, columns]: all of tensor `name` or rows of it, of a type that kernels/dequantize reads. The error names
// file, tensor, row and column. The file's pages are let go.
Result<std::vector<float>> ReadFiniteMatrix(const Checkpoint& checkpoint, const TensorView& view,
                                            const std::string& name, ThreadPool& threads);

}  // namespace hone
