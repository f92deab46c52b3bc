// The loops of SubtractProduct for one vector width. A strip of b (kSubtractBlock rows, two vectors of columns) is laid
// out contiguously once, zero padded; HONE_DENSE_ROWS rows of c by that strip stay in registers over all its k:
//
//            strip of b  [k][2 vectors]          32 KiB at 64-byte vectors: it stays in L1
//   a rows -> c [HONE_DENSE_ROWS][2 vectors]     AVX-512: 8 x 2 of 32 registers; else 4 x 2 of 16
#pragma once

#include <cstring>

#include "kernels/dense/subtract.h"

namespace hone {
namespace {

template <typename T>
struct Wide;
template <>
struct Wide<float> {
  typedef float Type __attribute__((vector_size(HONE_DENSE_BYTES)));
};
template <>
struct Wide<double> {
  typedef double Type __attribute__((vector_size(HONE_DENSE_BYTES)));
};

template <typename T>
inline void SubtractStrip(const SubtractArgs<T>& args, int64_t k0, int64_t depth, int64_t j0, int64_t width,
                          const T* strip) noexcept {
  using V = typename Wide<T>::Type;
  constexpr int kLanes = HONE_DENSE_BYTES / sizeof(T), kRows = HONE_DENSE_ROWS;
  for (int64_t i = 0; i < args.m; i += kRows) {
    const int rows = args.m - i < kRows ? static_cast<int>(args.m - i) : kRows;
    const T* a[kRows];
    for (int r = 0; r < kRows; ++r) a[r] = args.a + (i + (r < rows ? r : rows - 1)) * args.a_row + k0 * args.a_column;
    V sum[kRows][2] = {};
    for (int64_t k = 0; k < depth; ++k) {
      V b0, b1;
      std::memcpy(&b0, strip + k * 2 * kLanes, sizeof(V));
      std::memcpy(&b1, strip + k * 2 * kLanes + kLanes, sizeof(V));
      for (int r = 0; r < kRows; ++r) {
        const T x = a[r][k * args.a_column];
        sum[r][0] += b0 * x;
        sum[r][1] += b1 * x;
      }
    }
    for (int r = 0; r < rows; ++r) {
      T* c = args.c + (i + r) * args.c_row + j0;
      if (width == 2 * kLanes) {
        V c0, c1;
        std::memcpy(&c0, c, sizeof(V));
        std::memcpy(&c1, c + kLanes, sizeof(V));
        c0 -= sum[r][0];
        c1 -= sum[r][1];
        std::memcpy(c, &c0, sizeof(V));
        std::memcpy(c + kLanes, &c1, sizeof(V));
      } else {
        for (int64_t j = 0; j < width; ++j) c[j] -= sum[r][j / kLanes][j % kLanes];
      }
    }
  }
}

template <typename T>
inline void Subtract(const SubtractArgs<T>& args) noexcept {
  constexpr int64_t kWidth = 2 * HONE_DENSE_BYTES / sizeof(T);
  alignas(64) T strip[kSubtractBlock * kWidth];
  for (int64_t k0 = 0; k0 < args.k; k0 += kSubtractBlock) {
    const int64_t depth = args.k - k0 < kSubtractBlock ? args.k - k0 : kSubtractBlock;
    for (int64_t j0 = 0; j0 < args.n; j0 += kWidth) {
      const int64_t width = args.n - j0 < kWidth ? args.n - j0 : kWidth;
      const T* b = args.b + k0 * args.b_row + j0 * args.b_column;
      if (args.b_column == 1) {
        for (int64_t k = 0; k < depth; ++k) {
          for (int64_t j = 0; j < width; ++j) strip[k * kWidth + j] = b[k * args.b_row + j];
          for (int64_t j = width; j < kWidth; ++j) strip[k * kWidth + j] = 0;
        }
      } else {
        for (int64_t j = 0; j < kWidth; ++j) {
          for (int64_t k = 0; k < depth; ++k)
            strip[k * kWidth + j] = j < width ? b[k * args.b_row + j * args.b_column] : T{0};
        }
      }
      SubtractStrip(args, k0, depth, j0, width, strip);
    }
  }
}

}  // namespace
}  // namespace hone
