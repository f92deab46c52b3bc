// See slices.h: which table serves.
#include "compress/numbers/slices.h"

#include "base/cpu.h"

namespace hone {
const Slices& SlicesFor(Isa isa) {
  return isa >= Isa::kAvx512 ? kSlicesAvx512 : isa >= Isa::kAvx2 ? kSlicesAvx2 : kSlicesV2;
}

void PackBits(const uint8_t* codes, int64_t n, int bits, std::byte* out) { kSlicesV2.pack(codes, n, bits, out); }
void UnpackBits(const std::byte* packed, int64_t n, int bits, uint8_t* codes) { kSlicesV2.unpack(packed, n, bits, codes); }

}  // namespace hone
