// A matrix of a checkpoint as F32, refused by name where a weight is no finite number; and who is to blame for what came of one.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/threads.h"
#include "compress/numbers/slices.h"
#include "formats/checkpoint.h"
#include "models/weight_map.h"

namespace hone {

// `view` [rows, columns]: all of tensor `name` or rows of it, of a type that kernels/dequantize reads. The error names
// file, tensor, row and column. The file's pages are let go.
Result<std::vector<float>> ReadFiniteMatrix(const Checkpoint& checkpoint, const TensorView& view,
                                            const std::string& name, ThreadPool& threads);
// The same of rows [first, first + count) of a quantised matrix: what they mean.
Result<std::vector<float>> ReadFiniteMatrix(const Checkpoint& checkpoint, const QuantizedMatrix& matrix, int64_t first, int64_t count,
                                            ThreadPool& threads);
// A row of `columns` weights to `w`; false where one is no finite number.
bool ReadFiniteRow(const Slices& slices, DType type, const std::byte* row, int64_t columns, float* w);
// Whether all numbers of the type are finite, by their bits; true for other types than F32, F16 and BF16. Whole numbers of them.
bool AllFinite(DType type, std::span<const std::byte> bytes);
// What is said of row `row` then. REQUIRES: one of its weights is not finite.
Error NotFinite(const Checkpoint& checkpoint, const TensorView& view, const std::string& name, int64_t row);
Error NotFinite(const QuantizedMatrix& matrix, int64_t row);
// The same of the first such number in these bytes, which lie `offset` bytes into the tensor.
Error NotFinite(const Checkpoint& checkpoint, const NamedTensor& tensor, uint64_t offset, std::span<const std::byte> bytes);

// What became of inputs or logits that are not finite: the first weight of the model that is no finite number, named as above, or
// `observed` where all are. For the way out of a job: it reads the whole model.
Error BlameWeight(const Checkpoint& checkpoint, const WeightMap& map, Error observed);

}  // namespace hone
