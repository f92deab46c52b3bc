// SecondMoments: H = sum over tokens of x x^T for the inputs of a matrix, the sum that GPTQ works from. Tokens are
// collected and multiplied many at a time: with AVX-512 BF16 (kernels/dense) or AMX (kernels/matmul) inputs are rounded to BF16
// once (both factors alike, so H stays what it must be, positive), else they are F32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/memory.h"
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
  std::span<const float> h() const { return {h_.as<float>(), static_cast<size_t>(columns_ * columns_)}; }
  bool finite() const;

 private:
  int64_t panels() const;
  void AddPairs(const float* x, int64_t x_stride, int64_t rows);
  void Flush();
  void FlushPairs();
  const int64_t columns_;
  const Runtime& runtime_;
  const bool pairs_;  // the kernel of kernels/dense
  const bool half_;   // inputs in BF16 for kernels/matmul
  uint64_t tokens_ = 0;
  int64_t filled_ = 0;
  Buffer h_;                           // F32
  std::vector<float> turned_;          // [columns][kTokensTogether]; none with pairs
  std::vector<uint16_t> turned_half_;  // the same in BF16
  Buffer words_;                       // as kernels/dense/second_moments.h says
};

}  // namespace hone
