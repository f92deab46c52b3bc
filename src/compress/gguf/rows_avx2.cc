// The quantisers with 8 lanes, for AVX2.
#define HONE_LANES 8
#include "compress/gguf/rows.h"
#include "compress/gguf/table_body.h"

namespace hone {

const RowQuantizer kRowQuantizersAvx2[] = {
#define HONE_GGUF_QUANTIZER(type) {DType::k##type, QuantizeRow##type},
#include "compress/gguf/quantizers.inc"
#undef HONE_GGUF_QUANTIZER
};

}  // namespace hone
