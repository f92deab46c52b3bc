// Facts about the CPU at hand, and the ISA levels that kernels are written for. The only place that asks CPUID.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// Levels of instruction sets, each containing those before it. The suffix of a kernel's file names its level.
enum class Isa {
  kScalar,  // x86-64-v2, no file suffix
  kAvx2,    // AVX2, FMA, F16C, BMI2            _avx2.cc
  kAvx512,  // AVX-512 F, BW, DQ, VL            _avx512.cc
  kVnni,    // the above and AVX-512 VNNI       _vnni.cc
  kBf16,    // the above and AVX-512 BF16       _bf16.cc
  kAmx,     // the above, AVX-512 VBMI, AMX-TILE, -INT8, -BF16   _amx.cc
};

std::string_view IsaName(Isa isa);           // "scalar", "avx2", "avx512", "avx512-vnni", "avx512-bf16", "amx"
const std::vector<Isa>& AllIsas();           // lowest first

struct CpuFacts {
  std::string brand;
  bool avx2 = false, fma = false, f16c = false, bmi2 = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512vnni = false, avx512bf16 = false, avx512vbmi = false;
  bool avx_vnni = false;
  // avx512bf16, and VDPBF16PS starts as often as an FMA, as on AMD; Intel's takes longer than FMAs on widened numbers.
  bool fast_bf16 = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;  // true only if the kernel also grants tile state
  // What CPUID lists whether or not the system lets programs use it, and whether the system saves that state: why a unit is off.
  bool cpuid_avx512 = false, cpuid_amx = false, os_saves_avx512 = false, os_saves_amx = false;
  int physical_cores = 1;   // cores this process may use (affinity and cgroup quota counted), hyper-threads once
  std::vector<int> core_cpus;  // one CPU of each of those cores: where a pinned thread goes
  int logical_cpus = 1;     // CPUs this process may use
  long l1d_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // of one core (L3: of its complex), 0 if unknown

  // The highest level that is worth using on this CPU and kernel: kBf16 only with fast_bf16.
  Isa best_isa() const;
  bool Supports(Isa isa) const { return isa <= best_isa(); }
};

// Reads CPUID, XCR0, sysfs and cgroup files. Never fails; unknown facts keep their defaults.
CpuFacts ReadCpuFacts();

// "scalar|avx2|avx512|amx|auto" (a --isa value) to the level to use on this CPU. "avx512" means the highest AVX-512 level
// that is worth using on the CPU. Asking for more than the CPU has is an error that says what it has.
Result<Isa> ResolveIsa(const CpuFacts& facts, std::string_view flag);

}  // namespace hone
