// A tensor of a file: its name there and a borrowed view of its bytes; or only what it will be, for writers.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace hone {

struct NamedTensor {
  std::string name;
  TensorView view;
};

// A tensor that is still to be written.
struct TensorInfo {
  std::string name;
  DType type = DType::kF32;
  Shape shape;

  uint64_t bytes() const { return BytesFor(type, shape.elements()); }
};

}  // namespace hone
