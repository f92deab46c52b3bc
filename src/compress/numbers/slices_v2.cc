// Slices with 4 lanes, for x86-64-v2.
#define HONE_LANES 4
#include "compress/numbers/slices_body.h"

namespace hone {

const Slices kSlicesV2 = {Finite,     FromBf16,   Range,           Round,    RoundIn, RoundToBytes, ToE4m3, ToE5m2, Largest, ToE2m1,
                              CountBelow, ToCodebook, ToNearest,       Dequantize, DequantizeBytes, FromE4m3, FromE5m2, LookUp, PackCodes, UnpackCodes, Compare,
                              CompareCodes};

}  // namespace hone
