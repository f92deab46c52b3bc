// The quantisers of one instruction set as a table. Internal to compress/gguf/: others use block_quantizers.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace hone {

using QuantizeRowFunction = void (*)(const float* x, int64_t n, const float* importance, std::byte* out);

struct RowQuantizer {
  DType type;
  QuantizeRowFunction run;
};

// Same bits in all of them.
extern const RowQuantizer kRowQuantizersV2[], kRowQuantizersAvx2[], kRowQuantizersAvx512[];

}  // namespace hone
