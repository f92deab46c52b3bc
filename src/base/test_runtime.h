// For tests that need a Runtime: two threads, everything the CPU has, no log.
#pragma once

#include <gtest/gtest.h>

#include "base/runtime.h"

namespace hone {

class RuntimeTest : public testing::Test {
 protected:
  CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{2};
  Clock clock_;
  Runtime runtime_{.cpu = &cpu_, .isa = cpu_.best_isa(), .threads = &threads_, .clock = &clock_};
};

}  // namespace hone
