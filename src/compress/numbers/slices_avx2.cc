// Slices with 8 lanes, for AVX2.
#define HONE_LANES 8
#include "compress/numbers/slices_body.h"

namespace hone {

const Slices kSlicesAvx2 = {Finite, Range,  Round,      RoundIn,    RoundToBytes,
                        ToE4m3, ToE2m1, CountBelow, Dequantize, PackCodes, UnpackCodes, Compare};

}  // namespace hone
