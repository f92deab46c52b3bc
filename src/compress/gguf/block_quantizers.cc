// The list of types, and which instruction set's table serves.
#include "compress/gguf/block_quantizers.h"

#include <algorithm>

#include "base/check.h"
#include "compress/gguf/rows.h"

namespace hone {

const std::vector<DType>& QuantizableTypes() {
  static const std::vector<DType> types = {
#define HONE_GGUF_QUANTIZER(type) DType::k##type,
#include "compress/gguf/quantizers.inc"
#undef HONE_GGUF_QUANTIZER
  };
  return types;
}

bool CanQuantize(DType type) {
  const auto& types = QuantizableTypes();
  return std::find(types.begin(), types.end(), type) != types.end();
}

bool UsesImportance(DType type) {
  return CanQuantize(type) && type != DType::kQ8_0 && type != DType::kMXFP4 && type != DType::kTQ2_0;
}

void QuantizeRow(DType type, Isa isa, const float* x, int64_t n, const float* importance, std::byte* out) {
  HONE_CHECK(CanQuantize(type) && n % Info(type).block_elements == 0);
  const RowQuantizer* entry = isa >= Isa::kAvx512 ? kRowQuantizersAvx512
                              : isa >= Isa::kAvx2 ? kRowQuantizersAvx2
                                                  : kRowQuantizersV2;
  while (entry->type != type) ++entry;
  entry->run(x, n, importance, out);
}

}  // namespace hone
