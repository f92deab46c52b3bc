// SecondMoments: H = sum over tokens of x x^T for the inputs of a matrix, the sum that GPTQ works from. Tokens are
// collected and multiplied many at a time on the kernels of kernels/matmul: with AMX inputs are rounded to BF16 once
// (both factors alike, so H stays what it must be, positive), else they are F32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/runtime.h"
#include "kernels/matmul/matmul.h"

namespace hone {

class SecondMoments {
 public:
  static constexpr int64_t kTokensTogether = 2048;
  // Bytes that one object of so many columns holds while it collects.
  static uint64_t BytesFor(int64_t columns);

  SecondMoments(int64_t columns, const Runtime& runtime);
  // x: rows of `columns` numbers, x_stride apart.
  void Add(const float* x, int64_t x_stride, int64_t rows);
  // No Add after it; gives back all but H.
  void Finish();

  int64_t columns() const { return columns_; }
  uint64_t tokens() const { return tokens_; }
  // [columns, columns]; the lower triangle counts. REQUIRES: Finish was called.
  std::span<const float> h() const { return h_; }
  bool finite() const;

 private:
  void Flush();
  const int64_t columns_;
  const Runtime& runtime_;
  const bool half_;  // inputs in BF16
  uint64_t tokens_ = 0;
  int64_t filled_ = 0;
  std::vector<float> h_;
  std::vector<float> turned_;          // [columns][kTokensTogether]
  std::vector<uint16_t> turned_half_;  // the same in BF16
};

}  // namespace hone
