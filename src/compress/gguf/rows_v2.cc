// The quantisers with 4 lanes, for x86-64-v2.
#define HONE_LANES 4
#include "compress/gguf/rows.h"
#include "compress/gguf/table_body.h"

namespace hone {

const RowQuantizer kRowQuantizersV2[] = {
#define HONE_GGUF_QUANTIZER(type) {DType::k##type, QuantizeRow##type},
#include "compress/gguf/quantizers.inc"
#undef HONE_GGUF_QUANTIZER
};

}  // namespace hone
