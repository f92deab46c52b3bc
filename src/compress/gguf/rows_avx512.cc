// The quantisers with 16 lanes, for AVX-512.
#define HONE_LANES 16
#include "compress/gguf/rows.h"
#include "compress/gguf/table_body.h"

namespace hone {

const RowQuantizer kRowQuantizersAvx512[] = {
#define HONE_GGUF_QUANTIZER(type) {DType::k##type, QuantizeRow##type},
#include "compress/gguf/quantizers.inc"
#undef HONE_GGUF_QUANTIZER
};

}  // namespace hone
