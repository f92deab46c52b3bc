// Dense products of plain matrices, for linear algebra off the decoding path (factorising second moments, passing
// rounding errors on): c[i][j] -= sum over k of a[i][k] * b[k][j], in float or double. Weights in stored formats are
// kernels/matmul's business.
//
// Sums run over k in order, in blocks of kSubtractBlock, each added up before it is subtracted, so a number of c does
// not depend on m, n or on how callers deal out rows and columns. a and b may have any strides; rows of c are
// contiguous. c must not overlap a or b.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace hone {

inline constexpr int64_t kSubtractBlock = 256;

template <typename T>
struct SubtractArgs {
  int64_t m = 0, n = 0, k = 0;
  const T* a = nullptr;  // element (i, k) at a[i * a_row + k * a_column]
  int64_t a_row = 0, a_column = 1;
  const T* b = nullptr;  // element (k, j) at b[k * b_row + j * b_column]
  int64_t b_row = 0, b_column = 1;
  T* c = nullptr;  // element (i, j) at c[i * c_row + j]
  int64_t c_row = 0;
};

void SubtractProduct(const SubtractArgs<float>& args, Isa isa) noexcept;
void SubtractProduct(const SubtractArgs<double>& args, Isa isa) noexcept;
// One row and k = 1: c[j] -= x * b[j].
void SubtractScaled(float x, const float* b, int64_t n, float* c, Isa isa) noexcept;

}  // namespace hone
