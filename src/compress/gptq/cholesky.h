// The factor that GPTQ and SparseGPT need: U upper triangular with U^T U = H^-1, for symmetric positive H.
#pragma once

#include <cstdint>
#include <span>

#include "base/cpu.h"
#include "base/threads.h"

namespace hone {

// In place, in double: of `h` [n, n], row-major, only the lower triangle is read; it becomes U, with zeros below the
// diagonal. False where H is not positive definite (or holds NaN), and then `h` is of no use. n^3 / 3 multiplications: H
// = R R^T with R upper, U = R^-1. The bits do not depend on the number of threads.
bool InverseFactor(std::span<double> h, int64_t n, ThreadPool& threads, Isa isa = Isa::kScalar);

}  // namespace hone
