// The factor that GPTQ and SparseGPT need: U upper triangular with U^T U = H^-1, for symmetric positive H.
#pragma once

#include <cstdint>
#include <vector>

#include "base/threads.h"

namespace hone {

// h: [n, n] row-major, only its lower triangle is read. Writes U [n, n] (zeros below the diagonal). False where H is
// not positive definite (or holds NaN), and then `u` is of no use. Computed in double, n^3 * 2 / 3 multiplications: H =
// R R^T with R upper, U = R^-1.
bool InverseFactor(const std::vector<double>& h, int64_t n, std::vector<double>* u, ThreadPool& threads);

}  // namespace hone
