// Rows of one float or quantised type as F32, F16 or BF16, counting what rounding changed. What hone convert is made of.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace hone {

struct RoundingCount {
  uint64_t values = 0;
  uint64_t rounded = 0;     // the new type cannot hold the old value exactly
  uint64_t overflowed = 0;  // a finite value became infinite
  uint64_t not_finite = 0;  // NaN or infinite before
};

// Writes rows [begin, begin + count) of `view` (seen as rows() x back()) to `out` as `type`, 1 added to each value first where
// `plus_one`. Types that are equal are copied bit for bit. Thread-safe but for `tally`.
// REQUIRES: CanDequantize(view.type); type is F32, F16 or BF16, or view.type; out holds BytesFor(type, count * back()).
void ConvertRows(const TensorView& view, int64_t begin, int64_t count, bool plus_one, DType type, std::byte* out,
                 RoundingCount* tally);

}  // namespace hone
