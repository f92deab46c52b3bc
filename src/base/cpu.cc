// CPUID, XCR0 and the files under /sys and /proc that describe cores, caches and limits.
#include "base/cpu.h"

#include <cpuid.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <set>

#include "base/cpu_vendor.h"

namespace hone {
namespace {

uint64_t ReadXcr0() {
  uint32_t eax, edx;
  asm volatile("xgetbv" : "=a"(eax), "=d"(edx) : "c"(0));
  return (uint64_t{edx} << 32) | eax;
}

// Linux gives a process the AMX tile registers only on request (arch_prctl ARCH_REQ_XCOMP_PERM for XTILEDATA = 18).
bool RequestAmx() {
  constexpr int kArchReqXcompPerm = 0x1023;
  constexpr int kXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXtileData) == 0;
}

std::string ReadLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

long ParseCacheSize(const std::string& text) {  // "48K", "2048K", "300M"
  if (text.empty()) return 0;
  char* end = nullptr;
  long n = std::strtol(text.c_str(), &end, 10);
  if (*end == 'K') n *= 1024;
  if (*end == 'M') n *= 1024 * 1024;
  return n;
}

void ReadCaches(int cpu, CpuFacts* facts) {
  for (int i = 0; i < 8; ++i) {
    const std::string dir = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index" + std::to_string(i) + "/";
    const std::string level = ReadLine(dir + "level");
    if (level.empty()) return;
    if (ReadLine(dir + "type") == "Instruction") continue;
    const long bytes = ParseCacheSize(ReadLine(dir + "size"));
    if (level == "1") facts->l1d_bytes = bytes;
    if (level == "2") facts->l2_bytes = bytes;
    if (level == "3") facts->l3_bytes = bytes;
  }
}

// CPUs allowed by the cgroup's CPU quota (v2 cpu.max, v1 cfs files), rounded up; INT_MAX if unlimited.
int CgroupCpuLimit() {
  const std::string v2 = ReadLine("/sys/fs/cgroup/cpu.max");
  double quota = -1, period = 0;
  if (!v2.empty() && v2.rfind("max", 0) != 0) {
    if (std::sscanf(v2.c_str(), "%lf %lf", &quota, &period) != 2) quota = -1;
  } else if (v2.empty()) {
    const std::string q = ReadLine("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
    const std::string p = ReadLine("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    if (!q.empty() && !p.empty()) quota = std::atof(q.c_str()), period = std::atof(p.c_str());
  }
  if (quota <= 0 || period <= 0) return 1 << 30;
  return std::max(1, static_cast<int>(quota / period + 0.999));
}

void ReadCores(CpuFacts* facts) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) CPU_SET(0, &set);
  std::set<std::string> cores;
  int cpus = 0, first = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    if (first < 0) first = cpu;
    ++cpus;
    const std::string dir = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    const std::string core = ReadLine(dir + "core_id");
    const std::string name = core.empty() ? "cpu" + std::to_string(cpu) : ReadLine(dir + "physical_package_id") + ":" + core;
    if (cores.insert(name).second) facts->core_cpus.push_back(cpu);
  }
  const int limit = CgroupCpuLimit();
  facts->logical_cpus = std::min(std::max(1, cpus), limit);
  facts->physical_cores = std::min(std::max<int>(1, cores.size()), limit);
  if (facts->core_cpus.empty()) facts->core_cpus.push_back(0);
  facts->core_cpus.resize(facts->physical_cores);
  ReadCaches(std::max(0, first), facts);
}

}  // namespace

bool CpuIsAmd() {
  unsigned most = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0, &most, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar: return "scalar";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kVnni: return "avx512-vnni";
    case Isa::kBf16: return "avx512-bf16";
    case Isa::kAmx: return "amx";
  }
  return "?";
}

const std::vector<Isa>& AllIsas() {
  static const std::vector<Isa> all = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kVnni, Isa::kBf16, Isa::kAmx};
  return all;
}

Isa CpuFacts::best_isa() const {
  if (!(avx2 && fma && f16c && bmi2)) return Isa::kScalar;
  if (!(avx512f && avx512bw && avx512dq && avx512vl)) return Isa::kAvx2;
  if (!avx512vnni) return Isa::kAvx512;
  if (avx512bf16 && avx512vbmi && amx_tile && amx_int8 && amx_bf16) return Isa::kAmx;
  return fast_bf16 ? Isa::kBf16 : Isa::kVnni;
}

CpuFacts ReadCpuFacts() {
  CpuFacts facts;
  unsigned a = 0, b = 0, c = 0, d = 0;
  bool os_avx = false, os_avx512 = false, os_amx = false;
  if (__get_cpuid(1, &a, &b, &c, &d)) {
    const bool osxsave = c & (1u << 27);
    if (osxsave) {
      const uint64_t xcr0 = ReadXcr0();
      os_avx = (xcr0 & 0x6) == 0x6;
      os_avx512 = (xcr0 & 0xe6) == 0xe6;
      os_amx = (xcr0 & 0x60000) == 0x60000;
    }
    facts.fma = os_avx && (c & (1u << 12));
    facts.f16c = os_avx && (c & (1u << 29));
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    facts.avx2 = os_avx && (b & (1u << 5));
    facts.bmi2 = b & (1u << 8);
    facts.avx512f = os_avx512 && (b & (1u << 16));
    facts.avx512dq = os_avx512 && (b & (1u << 17));
    facts.avx512bw = os_avx512 && (b & (1u << 30));
    facts.avx512vl = os_avx512 && (b & (1u << 31));
    facts.avx512vnni = os_avx512 && (c & (1u << 11));
    facts.avx512vbmi = os_avx512 && (c & (1u << 1));
    facts.cpuid_avx512 = b & (1u << 16);
    facts.cpuid_amx = d & (1u << 24);
    facts.os_saves_avx512 = os_avx512;
    facts.os_saves_amx = os_amx;
    const bool amx = os_amx && (d & (1u << 24)) && RequestAmx();
    facts.amx_bf16 = amx && (d & (1u << 22));
    facts.amx_tile = amx;
    facts.amx_int8 = amx && (d & (1u << 25));
  }
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) {
    facts.avx_vnni = os_avx && (a & (1u << 4));
    facts.avx512bf16 = os_avx512 && (a & (1u << 5));
    // Zen 4 and 5 start as many VDPBF16PS as FMAs; Intel's AVX-512 BF16 was measured below its FMAs on widened numbers.
    facts.fast_bf16 = facts.avx512bf16 && CpuIsAmd();
  }
  char brand[49] = {};
  for (unsigned i = 0; i < 3; ++i) {
    if (!__get_cpuid(0x80000002 + i, &a, &b, &c, &d)) break;
    const unsigned words[4] = {a, b, c, d};
    std::memcpy(brand + 16 * i, words, 16);
  }
  facts.brand = brand;
  facts.brand.erase(0, facts.brand.find_first_not_of(' ') == std::string::npos ? 0 : facts.brand.find_first_not_of(' '));
  ReadCores(&facts);
  return facts;
}

Result<Isa> ResolveIsa(const CpuFacts& facts, std::string_view flag) {
  const Isa best = facts.best_isa();
  if (flag.empty() || flag == "auto") return best;
  Isa wanted;
  if (flag == "scalar") {
    wanted = Isa::kScalar;
  } else if (flag == "avx2") {
    wanted = Isa::kAvx2;
  } else if (flag == "avx512") {
    wanted = best < Isa::kVnni ? Isa::kAvx512 : facts.fast_bf16 ? Isa::kBf16 : Isa::kVnni;
  } else if (flag == "amx") {
    wanted = Isa::kAmx;
  } else {
    return UsageError("--isa '" + std::string(flag) + "' is not known; use scalar, avx2, avx512, amx or auto");
  }
  if (wanted > best) {
    return UsageError("--isa " + std::string(flag) + " asks for more than this CPU has (" + std::string(IsaName(best)) +
                      "); use auto or a lower level");
  }
  return wanted;
}

}  // namespace hone
