// See machine.h.
#include "measure/machine.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/matmul/kernel.h"
#include "kernels/matmul/many_rows.h"

namespace hone {
namespace {

std::string ReadLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The number behind "key:" in a file of "key: 123 kB" lines; -1 if there is none.
int64_t ReadField(const std::string& path, const std::string& key) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find(key + ":");
    if (at != std::string::npos) return std::strtoll(line.c_str() + at + key.size() + 1, nullptr, 10);
  }
  return -1;
}

std::string ReadText(const std::string& path, const std::string& key) {  // "key : text" of /proc/cpuinfo
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
    return line.find(':') == std::string::npos || at == std::string::npos ? "" : line.substr(at);
  }
  return "";
}

std::vector<NumaNode> ReadNuma(const std::string& root) {
  std::vector<NumaNode> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/sys/devices/system/node", error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("node", 0) != 0 || name.size() < 5 || name.find_first_not_of("0123456789", 4) != std::string::npos)
      continue;
    NumaNode node;
    node.id = std::atoi(name.c_str() + 4);
    node.cpus = ReadLine(entry.path().string() + "/cpulist");
    node.memory_bytes =
        static_cast<uint64_t>(std::max<int64_t>(0, ReadField(entry.path().string() + "/meminfo", "MemTotal"))) * 1024;
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(), [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  return nodes;
}

// A line of a kernels.inc.
struct Line {
  const char* work;
  Isa isa;
};
constexpr Line kLines[] = {
#define HONE_ATTENTION_KERNEL(name, level, ...) {"attention", Isa::level},
#include "kernels/attention/kernels.inc"
#undef HONE_ATTENTION_KERNEL
#define HONE_NORM_KERNEL(name, level, ...) {"norm", Isa::level},
#include "kernels/norm/kernels.inc"
#undef HONE_NORM_KERNEL
#define HONE_ROPE_KERNEL(name, level, ...) {"rope", Isa::level},
#include "kernels/rope/kernels.inc"
#undef HONE_ROPE_KERNEL
#define HONE_ACTIVATION_KERNEL(name, level, ...) {"activation", Isa::level},
#include "kernels/activation/kernels.inc"
#undef HONE_ACTIVATION_KERNEL
#define HONE_ELEMENTWISE_KERNEL(name, level, ...) {"elementwise, softmax", Isa::level},
#include "kernels/elementwise/kernels.inc"
#undef HONE_ELEMENTWISE_KERNEL
};

// Why work whose best line at most `cap` is `used` does not use more. `best`: the best line that hone has at all.
std::string Reason(const CpuFacts& cpu, Isa cap, Isa used, Isa best) {
  if (used == best) return "the most that hone has for this work";
  return std::string(IsaName(best)) + " is off: " + WhyNot(cpu, cap, best);
}

}  // namespace

MachineFacts ReadMachineFacts(const std::string& root) {
  MachineFacts facts;
  utsname name = {};
  if (uname(&name) == 0) facts.system = std::string(name.sysname) + " " + name.release;
  facts.microcode = ReadText(root + "/proc/cpuinfo", "microcode");
  facts.governor = ReadLine(root + "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  const std::string flags = " " + ReadText(root + "/proc/cpuinfo", "flags") + " ";
  facts.virtual_machine = flags.find(" hypervisor ") != std::string::npos;
  const std::string memory = root + "/proc/meminfo";
  facts.memory_bytes = static_cast<uint64_t>(std::max<int64_t>(0, ReadField(memory, "MemTotal"))) * 1024;
  facts.huge_page_bytes = static_cast<uint64_t>(std::max<int64_t>(0, ReadField(memory, "Hugepagesize"))) * 1024;
  facts.huge_pages_total = std::max<int64_t>(0, ReadField(memory, "HugePages_Total"));
  facts.huge_pages_free = std::max<int64_t>(0, ReadField(memory, "HugePages_Free"));
  const std::string huge = ReadLine(root + "/sys/kernel/mm/transparent_hugepage/enabled");  // "always [madvise] never"
  const size_t open = huge.find('['), close = huge.find(']');
  if (open != std::string::npos && close != std::string::npos && close > open)
    facts.huge_pages = huge.substr(open + 1, close - open - 1);
  facts.numa = ReadNuma(root);
  return facts;
}

std::string HugePageAdvice(const MachineFacts& machine) {
  if (machine.huge_pages == "always" || machine.huge_pages == "madvise") return "weights and KV cache get them";
  if (machine.huge_pages == "never") {
    return "off: as root, echo madvise > /sys/kernel/mm/transparent_hugepage/enabled makes large reads faster";
  }
  return "the system does not say";
}

std::string WhyNot(const CpuFacts& cpu, Isa cap, Isa isa) {
  if (isa <= cap) return "";
  if (cpu.Supports(isa)) return "--isa " + std::string(IsaName(cap)) + " caps it";
  const bool amx = isa == Isa::kAmx;
  if (isa >= Isa::kAvx512 && !cpu.cpuid_avx512) return "this CPU has no AVX-512";
  if (isa >= Isa::kAvx512 && !cpu.os_saves_avx512) return "the system does not enable AVX-512 state (XCR0)";
  if (isa >= Isa::kVnni && !cpu.avx512vnni) return "this CPU has no AVX-512 VNNI";
  if (isa == Isa::kBf16 && !cpu.avx512bf16) return "this CPU has no AVX-512 BF16";
  if (isa == Isa::kBf16) return "AVX-512 BF16 is slow on this CPU";
  if (amx && !cpu.cpuid_amx) return "this CPU has no AMX";
  if (amx && !cpu.os_saves_amx) return "the system does not enable AMX tile state (XCR0)";
  if (amx && !cpu.amx_tile) return "the kernel denies AMX tile state (arch_prctl)";
  if (amx && !(cpu.amx_bf16 && cpu.amx_int8)) return "this CPU has only part of AMX";
  if (isa == Isa::kAvx2) return "this CPU lacks AVX2, FMA, F16C or BMI2";
  return "this CPU lacks a part of it";
}

std::vector<KernelChoice> ChosenKernels(const CpuFacts& cpu, Isa cap) {
  std::vector<KernelChoice> choices;
  Isa best_matmul = Isa::kScalar;
  for (const MatmulArithmetic& line : MatmulArithmetics()) best_matmul = std::max(best_matmul, line.isa);
  const struct {
    const char* work;
    DType type;
    bool exact;
  } kMatmuls[] = {{"matmul, low-bit weights", DType::kQ4_0, false},
                  {"matmul, float weights", DType::kBF16, false},
                  {"matmul, low-bit --exact", DType::kQ4_0, true}};
  for (const auto& matmul : kMatmuls) {
    const MatmulKernel& kernel = FindMatmulKernel(matmul.type, cap, matmul.exact);
    choices.push_back({matmul.work, kernel.name, Reason(cpu, cap, kernel.arithmetic->isa, best_matmul)});
  }
  Isa best_tiles = Isa::kScalar;
  for (const Bf16Arithmetic& line : Bf16Arithmetics()) best_tiles = std::max(best_tiles, line.isa);
  const Bf16Arithmetic* tiles = FindBf16Arithmetic(DType::kQ4_0, cap);
  choices.push_back({"matmul, many rows",
                     tiles != nullptr ? "BF16 tiles " + std::string(IsaName(tiles->isa))
                                      : FindMatmulKernel(DType::kQ4_0, cap, false).name,
                     Reason(cpu, cap, tiles != nullptr ? tiles->isa : best_matmul, best_tiles)});
  for (size_t i = 0; i < std::size(kLines);) {  // lines of one kind stand together, best first
    size_t end = i;
    while (end < std::size(kLines) && std::string_view(kLines[end].work) == kLines[i].work) ++end;
    size_t used = i;
    while (used + 1 < end && kLines[used].isa > cap) ++used;
    choices.push_back(
        {kLines[i].work, std::string(IsaName(kLines[used].isa)), Reason(cpu, cap, kLines[used].isa, kLines[i].isa)});
    i = end;
  }
  return choices;
}

}  // namespace hone
