// The loops of SubtractProduct for one vector width. A strip of b (kSubtractBlock rows, two vectors of columns) and some rows
// of a are laid out contiguously, zero padded: matrices whose rows are a power of two apart would push each other out of L1.
// HONE_DENSE_ROWS rows of c by that strip stay in registers over all its k:
//
//            strip of b  [k][2 vectors]          32 KiB at 64-byte vectors: it stays in L1
//   a [k][HONE_DENSE_ROWS] -> c [HONE_DENSE_ROWS][2 vectors]     AVX-512: 8 x 2 of 32 registers; else 4 x 2 of 16
//
// Meanwhile what is needed next is asked for: those rows of c, and the strip of b after this one.
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

// Asks for the cache lines of a strip of b, a share at a time.
template <typename T>
class StripAhead {
 public:
  // `depth` x `width` from b on, in `shares` shares.
  StripAhead(const SubtractArgs<T>& args, const T* b, int64_t depth, int64_t width, int64_t shares) noexcept
      : b_(b),
        along_(args.b_column == 1 ? width : depth),
        step_(args.b_column == 1 ? args.b_row : args.b_column),
        left_(args.b_column == 1 ? depth : width),
        share_((left_ + shares - 1) / shares) {}
  void Ask() noexcept {
    const int64_t lines = left_ < share_ ? left_ : share_;
    for (int64_t i = 0; i < lines; ++i, b_ += step_) {
      for (int64_t j = 0; j < along_; j += kLine) __builtin_prefetch(b_ + j);
    }
    left_ -= lines;
  }

 private:
  static constexpr int64_t kLine = 64 / sizeof(T);
  const T* b_;
  int64_t along_, step_, left_, share_;  // runs of `along_` numbers, `step_` apart
};

// `a`: rows [i0, i0 + m) of a in groups of HONE_DENSE_ROWS, [group][k][row].
template <typename T>
inline void SubtractStrip(const SubtractArgs<T>& args, int64_t i0, int64_t m, int64_t depth, int64_t j0, int64_t width, const T* a,
                          const T* strip, StripAhead<T> ahead) noexcept {
  using V = typename Wide<T>::Type;
  constexpr int kLanes = HONE_DENSE_BYTES / sizeof(T), kRows = HONE_DENSE_ROWS;
  for (int64_t i = 0; i < m; i += kRows, a += depth * kRows) {
    const int rows = m - i < kRows ? static_cast<int>(m - i) : kRows;
    for (int r = 0; r < rows; ++r) {
      const T* c = args.c + (i0 + i + r) * args.c_row + j0;
      __builtin_prefetch(c, 1), __builtin_prefetch(c + width - 1, 1);
    }
    ahead.Ask();
    V sum[kRows][2] = {};
    for (int64_t k = 0; k < depth; ++k) {
      V b0, b1;
      std::memcpy(&b0, strip + k * 2 * kLanes, sizeof(V));
      std::memcpy(&b1, strip + k * 2 * kLanes + kLanes, sizeof(V));
      for (int r = 0; r < kRows; ++r) {
        const T x = a[k * kRows + r];
        sum[r][0] += b0 * x;
        sum[r][1] += b1 * x;
      }
    }
    for (int r = 0; r < rows; ++r) {
      T* c = args.c + (i0 + i + r) * args.c_row + j0;
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
inline void PackRows(const SubtractArgs<T>& args, int64_t i0, int64_t m, int64_t k0, int64_t depth, T* to) noexcept {
  constexpr int64_t kRows = HONE_DENSE_ROWS;
  for (int64_t i = 0; i < m; i += kRows, to += depth * kRows) {
    for (int64_t r = 0; r < kRows; ++r) {
      const T* from = args.a + (i0 + i + r) * args.a_row + k0 * args.a_column;
      const bool in = i + r < m;
      for (int64_t k = 0; k < depth; ++k) to[k * kRows + r] = in ? from[k * args.a_column] : T{0};
    }
  }
}

template <typename T>
inline void PackStrip(const SubtractArgs<T>& args, const T* b, int64_t depth, int64_t width, T* strip) noexcept {
  constexpr int64_t kWidth = 2 * HONE_DENSE_BYTES / sizeof(T);
  if (args.b_column == 1) {
    for (int64_t k = 0; k < depth; ++k, b += args.b_row, strip += kWidth) {
      if (width == kWidth) {
        std::memcpy(strip, b, kWidth * sizeof(T));  // of a size that is known: a few vectors
        continue;
      }
      for (int64_t j = 0; j < kWidth; ++j) strip[j] = j < width ? b[j] : T{0};
    }
    return;
  }
  for (int64_t j = 0; j < kWidth; ++j) {
    for (int64_t k = 0; k < depth; ++k) strip[k * kWidth + j] = j < width ? b[k * args.b_row + j * args.b_column] : T{0};
  }
}

template <typename T>
inline void Subtract(const SubtractArgs<T>& args) noexcept {
  constexpr int64_t kWidth = 2 * HONE_DENSE_BYTES / sizeof(T), kRowsTogether = 128;  // a: 256 KiB of doubles, in L2
  alignas(64) T strip[kSubtractBlock * kWidth];
  alignas(64) T a[kSubtractBlock * kRowsTogether];
  for (int64_t k0 = 0; k0 < args.k; k0 += kSubtractBlock) {
    const int64_t depth = args.k - k0 < kSubtractBlock ? args.k - k0 : kSubtractBlock;
    for (int64_t i0 = 0; i0 < args.m; i0 += kRowsTogether) {
      const int64_t m = args.m - i0 < kRowsTogether ? args.m - i0 : kRowsTogether;
      PackRows(args, i0, m, k0, depth, a);
      for (int64_t j0 = 0; j0 < args.n; j0 += kWidth) {
        const int64_t width = args.n - j0 < kWidth ? args.n - j0 : kWidth, left = args.n - j0 - width;
        const T* b = args.b + k0 * args.b_row + j0 * args.b_column;
        PackStrip(args, b, depth, width, strip);
        const StripAhead<T> ahead(args, b + width * args.b_column, depth, left < kWidth ? left : kWidth,
                                  (m + HONE_DENSE_ROWS - 1) / HONE_DENSE_ROWS);
        SubtractStrip(args, i0, m, depth, j0, width, a, strip, ahead);
      }
    }
  }
}

inline void SubtractRow(float x, const float* b, int64_t n, float* c) noexcept {
  using V = Wide<float>::Type;
  constexpr int64_t kLanes = HONE_DENSE_BYTES / sizeof(float);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    V from, to;
    std::memcpy(&from, b + j, sizeof(V));
    std::memcpy(&to, c + j, sizeof(V));
    to -= from * x;
    std::memcpy(c + j, &to, sizeof(V));
  }
  for (; j < n; ++j) c[j] -= b[j] * x;
}

}  // namespace
}  // namespace hone
