// What the hardware can do at best, measured: reading memory, and multiply-adds of each unit. The yardstick of benchmarks.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/cpu.h"
#include "base/threads.h"

namespace hone {

// Reads all buffers once with the widest loads of `isa`, each split over the threads as Pack splits it; returns the bytes.
double ReadRoof(Isa isa, const std::vector<std::span<const std::byte>>& buffers, ThreadPool& threads);

// What multiplies and adds.
enum class ComputeUnit {
  kFmaAvx2,     // F32, 256 bits
  kInt8Avx2,    // VPMADDUBSW, VPMADDWD, VPADDD: an exact step without VNNI
  kFmaAvx512,   // F32, 512 bits
  kVnni,        // VPDPBUSD, 512 bits
  kBf16Avx512,  // VDPBF16PS, 512 bits: slower than F32 on Intel servers up to Granite Rapids
  kAmxBf16,     // TDPBF16PS with its tile loads from L1: 32 rows by 32 columns, 16 KiB a panel, as the AMX kernels run it
  kAmxInt8,     // TDPBSSD, the same way
};
constexpr ComputeUnit kComputeUnits[] = {ComputeUnit::kFmaAvx2,    ComputeUnit::kInt8Avx2, ComputeUnit::kFmaAvx512, ComputeUnit::kVnni,
                                         ComputeUnit::kBf16Avx512, ComputeUnit::kAmxBf16,  ComputeUnit::kAmxInt8};

std::string_view ComputeUnitName(ComputeUnit unit);  // "amx-bf16"
Isa IsaOf(ComputeUnit unit);                         // the level that has it

// Runs independent chains of the unit's multiply-add for some ten milliseconds on every thread, data in registers (tiles: in
// L1); returns the operations done, a multiply and an add counting two. REQUIRES: ReadCpuFacts said that the CPU has IsaOf(unit)
// (it also asks Linux for the tile registers).
double ComputeRoof(ComputeUnit unit, ThreadPool& threads);

// The unit that code of `isa` multiplies int8 codes (`codes`) or F32 with. REQUIRES: not scalar.
ComputeUnit UnitOf(Isa isa, bool codes);

}  // namespace hone
