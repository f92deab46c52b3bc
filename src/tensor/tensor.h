// TensorView: typed, shaped bytes that somebody else owns. Tensor: the same, owned.
//
// Shapes are row-major, outermost first, as in PyTorch: a matmul weight is [N out, K in], experts are [experts, N, K].
// (GGUF files store the reverse order; formats/ turns it around.) Rows are contiguous; a block type divides its row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"
#include "base/memory.h"
#include "tensor/dtype.h"

namespace hone {

class Shape {
 public:
  static constexpr int kMaxRank = 8;
  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<int64_t> sizes) {
    for (const int64_t size : sizes) Append(size);
  }
  // REQUIRES: rank() < kMaxRank, size >= 0.
  void Append(int64_t size) {
    HONE_CHECK(rank_ < kMaxRank && size >= 0);
    sizes_[rank_++] = size;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return sizes_[i]; }
  int64_t back() const { return rank_ == 0 ? 1 : sizes_[rank_ - 1]; }  // elements a row
  int64_t elements() const {  // the reader of a file has checked that this does not overflow
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= sizes_[i];
    return n;
  }
  int64_t rows() const { return back() == 0 ? 0 : elements() / back(); }
  bool operator==(const Shape& other) const = default;
  std::string ToString() const {  // "[2048, 576]"
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes_[i]);
    return text + "]";
  }

 private:
  std::array<int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

struct TensorView {
  DType type = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;

  size_t bytes() const { return BytesFor(type, shape.elements()); }
  size_t row_bytes() const { return BytesFor(type, shape.back()); }
  explicit operator bool() const { return data != nullptr; }
  template <typename T>
  const T* as() const { return reinterpret_cast<const T*>(data); }
  // The i-th slice along the outermost dimension, e.g. one expert. REQUIRES: rank >= 2.
  TensorView Slice(int64_t i) const { return Rows(i, 1).Squeezed(); }
  // Slices [begin, begin + count) along the outermost dimension, e.g. the Q rows of a fused QKV.
  TensorView Rows(int64_t begin, int64_t count) const {
    HONE_CHECK(shape.rank() >= 2 && begin >= 0 && begin + count <= shape[0]);
    TensorView view{type, Shape{count}, data};
    int64_t inner = 1;
    for (int i = 1; i < shape.rank(); ++i) view.shape.Append(shape[i]), inner *= shape[i];
    view.data += BytesFor(type, begin * inner);
    return view;
  }

 private:
  TensorView Squeezed() const {
    TensorView view{type, Shape{}, data};
    for (int i = 1; i < shape.rank(); ++i) view.shape.Append(shape[i]);
    return view;
  }
};

class Tensor {
 public:
  Tensor() = default;
  Tensor(DType type, Shape shape) : type_(type), shape_(shape), buffer_(BytesFor(type, shape.elements())) {}

  DType type() const { return type_; }
  const Shape& shape() const { return shape_; }
  std::byte* data() { return buffer_.data(); }
  template <typename T>
  T* as() { return buffer_.as<T>(); }
  TensorView view() const { return {type_, shape_, buffer_.data()}; }

 private:
  DType type_ = DType::kF32;
  Shape shape_;
  Buffer buffer_;
};

}  // namespace hone
