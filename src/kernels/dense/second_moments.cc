// See second_moments.h.
#include "kernels/dense/second_moments.h"

namespace hone {

bool CanAddSecondMoments(const CpuFacts& cpu, Isa isa) { return isa >= Isa::kVnni && cpu.avx512bf16; }

}  // namespace hone
