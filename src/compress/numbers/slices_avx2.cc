// Slices with 8 lanes, for AVX2.
#define HONE_LANES 8
#include "compress/numbers/slices_body.h"

namespace hone {

const Slices kSlicesAvx2 = {Finite,     FromBf16,   Range,           Round,    RoundIn, RoundToBytes, ToE4m3, ToE5m2, Largest, ToE2m1,
                              CountBelow, ToCodebook, ToNearest,       Dequantize, DequantizeBytes, FromE4m3, FromE5m2, LookUp, PackCodes, UnpackCodes, Compare,
                              CompareCodes};

}  // namespace hone
