// Slices with 16 lanes, for AVX-512.
#define HONE_LANES 16
#include "compress/numbers/slices_body.h"

namespace hone {

const Slices kSlicesAvx512 = {Finite, Range,  Round,      RoundIn,    RoundToBytes,
                        ToE4m3, ToE2m1, CountBelow, Dequantize, PackCodes, UnpackCodes, Compare};

}  // namespace hone
