// The tables of kernel.h, expanded from kernels.inc.
#include "kernels/matmul/kernel.h"

#include <deque>

#include "base/check.h"

namespace hone {
namespace {

constexpr MatmulArithmetic kArithmetics[] = {
#define HONE_MATMUL_ARITHMETIC(isa, round, codes, floats, dequantize) {Isa::k##isa, round, codes, floats, dequantize},
#define HONE_UNPACK_CODES(type, isa)
#define HONE_UNPACK_FLOATS(type, isa)
#include "kernels/matmul/kernels.inc"
};

constexpr MatmulUnpack kUnpacks[] = {
#define HONE_MATMUL_ARITHMETIC(isa, round, codes, floats, dequantize)
#define HONE_UNPACK_CODES(type, isa) {DType::k##type, Isa::k##isa, Unpack##type##isa, nullptr},
#define HONE_UNPACK_FLOATS(type, isa) {DType::k##type, Isa::k##isa, nullptr, Unpack##type##isa},
#include "kernels/matmul/kernels.inc"
};

constexpr MatmulFewRows kFewRowsKernels[] = {
#define HONE_FEW_ROWS(type, isa) {DType::k##type, Isa::k##isa, FewRows##type##isa},
#include "kernels/matmul/few_rows.inc"
#undef HONE_FEW_ROWS
};

// Codes take part in the int8 arithmetic only. Every ISA with FMA gives the same bits, so any line up to `isa` will do, but that VNNI
// multiplies unpacked codes faster than AVX2 those in registers.
const MatmulFewRows* FindFewRows(const PanelFormat& format, Isa isa, bool exact) {
  if (exact && !format.is_float()) return nullptr;
  for (const MatmulFewRows& line : kFewRowsKernels) {
    const bool slower = !format.is_float() && isa >= Isa::kVnni && line.isa < Isa::kVnni;
    if (line.type == format.type && line.isa <= isa && !slower) return &line;
  }
  return nullptr;
}

// Every (arithmetic line, type, exact), made once: a table of constants, not state.
std::deque<MatmulKernel> MakeKernels() {
  std::deque<MatmulKernel> kernels;
  for (const MatmulArithmetic& arithmetic : kArithmetics) {
    for (const MatmulUnpack& scalar : kUnpacks) {
      if (scalar.isa != Isa::kScalar) continue;  // one line a type; now the best for this ISA
      const MatmulUnpack* best = &scalar;
      for (const MatmulUnpack& unpack : kUnpacks) {
        if (unpack.type == scalar.type && unpack.isa <= arithmetic.isa && unpack.isa > best->isa) best = &unpack;
      }
      const PanelFormat* format = FindPanelFormat(scalar.type);
      HONE_CHECK(format != nullptr, "a type of kernels.inc has no line in panel_format.cc");
      for (const bool exact : {false, true}) {
        const char* how = format->is_float() ? " f32 " : exact ? " exact " : " int8 ";
        const MatmulFewRows* few = FindFewRows(*format, arithmetic.isa, exact);
        kernels.push_back({format, &arithmetic, best, few != nullptr ? few->run : nullptr, exact,
                           few != nullptr && few->isa == Isa::kVnni, std::string(Info(scalar.type).name) + how + std::string(IsaName(arithmetic.isa))});
      }
    }
  }
  return kernels;
}

}  // namespace

std::span<const MatmulArithmetic> MatmulArithmetics() { return kArithmetics; }
std::span<const MatmulUnpack> MatmulUnpacks() { return kUnpacks; }
std::span<const MatmulFewRows> MatmulFewRowsKernels() { return kFewRowsKernels; }

const MatmulKernel& FindMatmulKernel(DType type, Isa isa, bool exact) {
  static const std::deque<MatmulKernel> kernels = MakeKernels();
  for (const MatmulKernel& kernel : kernels) {
    if (kernel.format->type == type && kernel.arithmetic->isa <= isa && kernel.exact == exact) return kernel;
  }
  HONE_CHECK(false, "no kernel for this type; ask CanMatmul first");
}

}  // namespace hone
