// Facts about the machine beyond base/cpu.h that explain a measurement: system, microcode, NUMA, huge pages, memory.
// Read from /proc and /sys; what cannot be read keeps its default and is reported as unknown, never as an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/runtime.h"

namespace hone {

struct NumaNode {
  int id = 0;
  std::string cpus;  // "0-15,32-47"
  uint64_t memory_bytes = 0;
};

struct MachineFacts {
  std::string system;     // "Linux 6.1.0-18-amd64"
  std::string microcode;  // "0x2b000603"; "" if unknown
  std::string governor;   // frequency governor; "" where the system shows none (virtual machines)
  bool virtual_machine = false;
  uint64_t memory_bytes = 0;
  std::vector<NumaNode> numa;    // at least one if /sys shows it
  std::string huge_pages;        // transparent huge pages: "always", "madvise", "never"; "" if unknown
  uint64_t huge_page_bytes = 0;  // of hugetlbfs
  int64_t huge_pages_total = 0, huge_pages_free = 0;  // reserved hugetlbfs pages
};

// `root` is put before /proc and /sys paths, for tests.
MachineFacts ReadMachineFacts(const std::string& root = "");

// One line: what transparent huge pages mean for hone, which asks for them with madvise.
std::string HugePageAdvice(const MachineFacts& machine);

// Which instruction set each kind of kernel runs with, and why not more.
struct KernelChoice {
  std::string work;    // "matmul, low-bit weights"
  std::string kernel;  // "Q4_0 int8 avx512-vnni", "avx512"
  std::string reason;  // "the widest that hone has for this work", "--isa avx2 caps it"
};
std::vector<KernelChoice> ChosenKernels(const CpuFacts& cpu, Isa cap);

// Why `isa` is not used: "" if it is. `cap`: what --isa allows.
std::string WhyNot(const CpuFacts& cpu, Isa cap, Isa isa);

}  // namespace hone
