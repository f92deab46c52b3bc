// Who made the CPU: for choices that were measured on one maker's cores and that no feature bit tells. Reads CPUID only.
#pragma once

namespace hone {

bool CpuIsAmd();

}  // namespace hone
