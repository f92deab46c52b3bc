// A tensor of a file: its name there and a borrowed view of its bytes.
#pragma once

#include <string>

#include "tensor/tensor.h"

namespace hone {

struct NamedTensor {
  std::string name;
  TensorView view;
};

}  // namespace hone
