// What the hardware can do at best, measured: reading memory, int8 products, F32 FMAs. The yardstick of benchmarks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/cpu.h"
#include "base/threads.h"

namespace hone {

// Reads all buffers once with the widest loads of `isa`, each split over the threads as Pack splits it; returns the bytes.
double ReadRoof(Isa isa, const std::vector<std::span<const std::byte>>& buffers, ThreadPool& threads);

// Runs independent chains of the widest multiply-add of `isa` in registers on every thread (u8 x s8 if `codes`, else F32);
// returns the operations done, a multiply and an add counting two. REQUIRES: the CPU has `isa`, which is not scalar.
double ComputeRoof(Isa isa, bool codes, ThreadPool& threads);

}  // namespace hone
