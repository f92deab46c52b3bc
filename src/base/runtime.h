// Runtime: what main makes once and passes down instead of globals. Everything that it points to outlives its users.
#pragma once

#include "base/clock.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/threads.h"

namespace hone {

struct Runtime {
  const CpuFacts* cpu = nullptr;
  Isa isa = Isa::kScalar;  // kernels of at most this level are chosen
  ThreadPool* threads = nullptr;
  Log* log = nullptr;
  const Clock* clock = nullptr;
};

}  // namespace hone
