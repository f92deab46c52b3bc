// Every roof that this CPU has runs, on several threads and again after another one configured the tiles.
#include "kernels/matmul/roof.h"

#include <gtest/gtest.h>

namespace hone {
namespace {

TEST(Roof, EveryUnitCountsItsOperations) {
  const CpuFacts facts = ReadCpuFacts();
  ThreadPool one(1), three(3);
  for (int round = 0; round < 2; ++round) {
    for (const ComputeUnit unit : kComputeUnits) {
      EXPECT_FALSE(ComputeUnitName(unit).empty());
      if (!facts.Supports(IsaOf(unit))) continue;
      const double alone = ComputeRoof(unit, one);
      EXPECT_GT(alone, 1e8) << ComputeUnitName(unit);
      EXPECT_EQ(ComputeRoof(unit, three), 3 * alone) << ComputeUnitName(unit);
    }
  }
}

TEST(Roof, ReadsEveryByteOfItsBuffers) {
  const CpuFacts facts = ReadCpuFacts();
  if (!facts.Supports(Isa::kAvx2)) GTEST_SKIP() << "no roof for scalar code";
  ThreadPool threads(2);
  const std::vector<std::byte> a(100000), b(4096);
  EXPECT_EQ(ReadRoof(facts.best_isa(), {a, b}, threads), 104096);
  EXPECT_EQ(UnitOf(Isa::kAmx, true), ComputeUnit::kVnni);
  EXPECT_EQ(UnitOf(Isa::kAvx512, false), ComputeUnit::kFmaAvx512);
}

}  // namespace
}  // namespace hone
