// Facts, reasons, JSON and cache of a roof. The figures themselves are the machine's: only that they are positive is
// tested.
#include "measure/roof.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_shared.h"
#include "measure/roof_cache.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

CpuFacts AmxCpu() {
  CpuFacts cpu;
  cpu.brand = "Test CPU";
  cpu.avx2 = cpu.fma = cpu.f16c = cpu.bmi2 = true;
  cpu.avx512f = cpu.avx512bw = cpu.avx512dq = cpu.avx512vl = cpu.avx512vnni = cpu.avx512bf16 = cpu.avx512vbmi = true;
  cpu.amx_tile = cpu.amx_int8 = cpu.amx_bf16 = true;
  cpu.cpuid_avx512 = cpu.cpuid_amx = cpu.os_saves_avx512 = cpu.os_saves_amx = true;
  return cpu;
}

TEST(WhyNotTest, NamesTheOneThingThatIsMissing) {
  CpuFacts cpu = AmxCpu();
  EXPECT_EQ(WhyNot(cpu, Isa::kAmx, Isa::kAmx), "");
  EXPECT_EQ(WhyNot(cpu, Isa::kAvx2, Isa::kAmx), "--isa avx2 caps it");
  cpu.amx_tile = cpu.amx_int8 = cpu.amx_bf16 = false;
  EXPECT_EQ(WhyNot(cpu, Isa::kVnni, Isa::kAmx), "the kernel denies AMX tile state (arch_prctl)");
  cpu.os_saves_amx = false;
  EXPECT_EQ(WhyNot(cpu, Isa::kVnni, Isa::kAmx), "the system does not enable AMX tile state (XCR0)");
  cpu.cpuid_amx = false;
  EXPECT_EQ(WhyNot(cpu, Isa::kVnni, Isa::kAmx), "this CPU has no AMX");
  EXPECT_EQ(WhyNot(cpu, Isa::kVnni, Isa::kVnni), "");
  cpu.avx512vnni = false;
  EXPECT_EQ(WhyNot(cpu, Isa::kAvx512, Isa::kVnni), "this CPU has no AVX-512 VNNI");
  cpu.avx512f = cpu.cpuid_avx512 = false;
  EXPECT_EQ(WhyNot(cpu, Isa::kAvx2, Isa::kAmx), "this CPU has no AVX-512");
  EXPECT_NE(WhyNot(CpuFacts(), Isa::kScalar, Isa::kAvx2), "");
}

TEST(WhyNotTest, UnitsFollowTheirIsaAndBf16StandsAlone) {
  CpuFacts zen4 = AmxCpu();
  zen4.amx_tile = zen4.amx_int8 = zen4.amx_bf16 = zen4.cpuid_amx = false;
  EXPECT_EQ(WhyNotUnit(zen4, Isa::kVnni, ComputeUnit::kBf16Avx512), std::nullopt);
  EXPECT_EQ(WhyNotUnit(zen4, Isa::kVnni, ComputeUnit::kVnni), std::nullopt);
  EXPECT_EQ(WhyNotUnit(zen4, Isa::kVnni, ComputeUnit::kAmxInt8), "this CPU has no AMX");
  EXPECT_EQ(WhyNotUnit(zen4, Isa::kAvx2, ComputeUnit::kBf16Avx512), "--isa avx2 caps it");
  zen4.avx512bf16 = false;
  EXPECT_EQ(WhyNotUnit(zen4, Isa::kVnni, ComputeUnit::kBf16Avx512), "this CPU has no AVX-512 BF16");
}

TEST(ChosenKernelsTest, EveryKindOfWorkHasOneAndAReason) {
  const CpuFacts cpu = AmxCpu();
  for (const Isa cap : AllIsas()) {
    const std::vector<KernelChoice> choices = ChosenKernels(cpu, cap);
    EXPECT_GE(choices.size(), 8u);
    for (const KernelChoice& choice : choices) {
      EXPECT_FALSE(choice.work.empty());
      EXPECT_FALSE(choice.kernel.empty());
      EXPECT_FALSE(choice.reason.empty());
      if (cap == Isa::kScalar || cap == Isa::kAvx2) {
        EXPECT_NE(choice.kernel.find(IsaName(cap)), std::string::npos) << choice.kernel;
        EXPECT_NE(choice.reason.find("--isa " + std::string(IsaName(cap)) + " caps it"), std::string::npos)
            << choice.reason;
      }
    }
  }
}

TEST(MachineTest, ReadsTheFilesOfARoot) {
  const std::string root = TestPath("machine");
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text;
  };
  write("/proc/cpuinfo", "processor\t: 0\nmicrocode\t: 0x2b000603\nflags\t\t: fpu hypervisor avx\n");
  write(
      "/proc/meminfo",
      "MemTotal:       1048576 kB\nHugePages_Total:      12\nHugePages_Free:        3\nHugepagesize:       2048 kB\n");
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  write("/sys/devices/system/node/node0/cpulist", "0-3\n");
  write("/sys/devices/system/node/node0/meminfo", "Node 0 MemTotal:        2048 kB\n");
  write("/sys/devices/system/node/node1/cpulist", "4-7\n");
  write("/sys/devices/system/node/possible", "0-1\n");
  const MachineFacts facts = ReadMachineFacts(root);
  EXPECT_EQ(facts.microcode, "0x2b000603");
  EXPECT_TRUE(facts.virtual_machine);
  EXPECT_EQ(facts.memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(facts.huge_pages, "madvise");
  EXPECT_EQ(facts.huge_page_bytes, uint64_t{2} << 20);
  EXPECT_EQ(facts.huge_pages_total, 12);
  EXPECT_EQ(facts.huge_pages_free, 3);
  ASSERT_EQ(facts.numa.size(), 2u);
  EXPECT_EQ(facts.numa[0].cpus, "0-3");
  EXPECT_EQ(facts.numa[0].memory_bytes, 2048u * 1024);
  EXPECT_EQ(facts.numa[1].memory_bytes, 0u);
  std::filesystem::remove_all(root);
  const MachineFacts nothing = ReadMachineFacts(root);
  EXPECT_EQ(nothing.huge_pages, "");
  EXPECT_TRUE(nothing.numa.empty());
  EXPECT_EQ(nothing.memory_bytes, 0u);
}

Roof SomeRoof() {
  Roof roof;
  roof.cpu = "Test CPU";
  roof.cores = 2, roof.threads = 2;
  roof.isa = Isa::kVnni;
  roof.read_gbs = {{1, {14.51, 14.2}}, {2, {27.74, 26}}};
  roof.gops = {{ComputeUnit::kFmaAvx512, {330.123, 300}}, {ComputeUnit::kVnni, {1400, 1350}}};
  roof.excluded = {{ComputeUnit::kAmxInt8, "this CPU has no AMX"}};
  roof.barrier_ns = {210, 250};
  roof.fork_join_ns = {900, 1000};
  roof.measured_s = 1.5;
  return roof;
}

TEST(RoofTextTest, KeysThatScriptsRelyOn) {
  const ordered_json json = ordered_json::parse(RoofJson(SomeRoof()));
  for (const char* key : {"cpu", "cores", "threads", "isa", "read_gbs", "fp32_gflops", "avx512_bf16_gflops",
                          "vnni_gops", "amx_bf16_gflops", "amx_int8_gops", "barrier_ns"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(json["isa"], "avx512-vnni");
  EXPECT_EQ(json["read_gbs"]["1"], 14.51);
  EXPECT_EQ(json["read_gbs"]["2"], 27.74);
  EXPECT_EQ(json["read_gbs"]["N"], 27.74);
  EXPECT_EQ(json["fp32_gflops"], 330.1);
  EXPECT_EQ(json["vnni_gops"], 1400);
  EXPECT_TRUE(json["amx_int8_gops"].is_null());
  EXPECT_EQ(json["excluded"]["amx_int8_gops"], "this CPU has no AMX");
  const std::string table = RoofTable(SomeRoof());
  EXPECT_NE(table.find("this CPU has no AMX"), std::string::npos);
  EXPECT_NE(table.find("27.7 GB/s"), std::string::npos);
}

TEST(RoofCacheTest, ReadsBackWhatItWroteForTheSameKeyOnly) {
  const std::string path = TestPath("cache") + "/hone/roof.json";
  const auto saved = SaveRoof(path, "host a", SomeRoof());
  ASSERT_TRUE(saved) << saved.error().message;
  ASSERT_TRUE(SaveRoof(path, "host b", SomeRoof()));
  Roof roof;
  EXPECT_FALSE(LoadRoof(path, "host c", &roof));
  ASSERT_TRUE(LoadRoof(path, "host a", &roof));
  EXPECT_TRUE(roof.cached);
  EXPECT_DOUBLE_EQ(roof.read_gbs.at(2).best, 27.74);
  EXPECT_DOUBLE_EQ(roof.read_gbs.at(2).median, 26);
  EXPECT_EQ(roof.read_gbs.size(), 2u);
  EXPECT_DOUBLE_EQ(*roof.Gops(ComputeUnit::kVnni), 1400);
  EXPECT_EQ(roof.Gops(ComputeUnit::kAmxInt8), std::nullopt);
  EXPECT_DOUBLE_EQ(roof.barrier_ns.median, 250);
  std::filesystem::remove_all(TestPath("cache"));
}

TEST(RoofCacheTest, NonsenseInTheFileIsNoRoof) {
  const std::string path = TestPath("roof.json");
  for (const char* text :
       {"", "{", "{}", "[1, null, []]", "[{\"key\": 3}]", "[{\"key\": \"k\"}]", "[{\"key\": \"k\", \"roof\": 7}]",
        "[{\"key\": \"k\", \"roof\": {\"read_gbs\": 4}}]", "[{\"key\": \"k\", \"roof\": {\"read_gbs\": {\"x\": 4}}}]",
        "[{\"key\": \"k\", \"roof\": {\"read_gbs\": {\"1\": 4}, \"medians\": []}}]"}) {
    std::ofstream(path) << text;
    Roof roof;
    EXPECT_FALSE(LoadRoof(path, "k", &roof)) << text;
    EXPECT_TRUE(roof.read_gbs.empty()) << text;
  }
  std::ofstream(path) << std::string(100000, '[') + std::string(100000, ']');
  ASSERT_TRUE(SaveRoof(path, "k", SomeRoof()));  // replaces it
  Roof roof;
  EXPECT_TRUE(LoadRoof(path, "k", &roof));
  std::filesystem::remove(path);
  EXPECT_FALSE(SaveRoof("/proc/no/such/roof.json", "k", SomeRoof()));
}

TEST(RoofProbeTest, FiguresArePositive) {
  const CpuFacts cpu = ReadCpuFacts();
  if (!cpu.Supports(Isa::kAvx2)) GTEST_SKIP() << "this CPU lacks AVX2";
  ThreadPool threads(2);
  const Clock clock;
  Log quiet(LogLevel::kOff);
  RoofProbe probe({&cpu, Isa::kAvx2, &threads, &quiet, &clock});
  EXPECT_GT(probe.ReadGbs(), 0);
  EXPECT_GT(probe.Gops(ComputeUnit::kFmaAvx2), 0);
  EXPECT_GE(probe.bytes(), size_t{16} << 20);
}

}  // namespace
}  // namespace hone
