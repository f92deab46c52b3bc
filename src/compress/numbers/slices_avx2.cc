// Slices with 8 lanes, for AVX2.
#define HONE_LANES 8
#include "compress/numbers/slices_body.h"

namespace hone {

const Slices kSlicesAvx2 = {Finite,     FromBf16,   Range,           Round,    RoundIn, RoundToBytes, ToE4m3, Largest, ToE2m1,
                              CountBelow, ToCodebook, ToNearest,       Dequantize, DequantizeBytes, FromE4m3, LookUp, PackCodes, UnpackCodes, Compare,
                              CompareCodes};

}  // namespace hone
