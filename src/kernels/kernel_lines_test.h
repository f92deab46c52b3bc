// For kernel tests: one parameter a line of a kernels.inc. A line whose ISA level this CPU lacks is a skip that ctest counts.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "base/cpu.h"

namespace hone {

struct KernelLine {
  const char* name;
  Isa level;
};

inline void PrintTo(const KernelLine& line, std::ostream* out) { *out << line.name; }

inline std::string KernelLineName(const testing::TestParamInfo<KernelLine>& info) { return info.param.name; }

class KernelLineTest : public testing::TestWithParam<KernelLine> {
 protected:
  void SetUp() override {
    static const CpuFacts facts = ReadCpuFacts();
    if (!facts.Supports(GetParam().level)) GTEST_SKIP() << "this CPU lacks " << IsaName(GetParam().level);
  }
  Isa isa() const { return GetParam().level; }
};

}  // namespace hone
