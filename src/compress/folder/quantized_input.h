// A quantised Hugging Face folder as the input of another: its matrices as what they mean, and the tensors that say so, which have no
// place in the result.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "models/weight_map.h"

namespace hone {

struct QuantizedInput {
  // By the name that the plain matrix would have, "model.layers.0.mlp.down_proj.weight". Borrows the checkpoint.
  std::map<std::string, std::shared_ptr<const QuantizedMatrix>> matrices;
  std::set<std::string> tensors;     // that belong to them, or to a cache that was quantised with them
  DType dtype = DType::kBF16;        // of the model: its embedding's
};

// Empty where nothing is quantised. Errors: what models/quantized does not read; a tensor of a quantised matrix that the model has no
// place for; with matrices that are quantised, a model that hone does not run (which of its tensors are what, its family says).
Result<QuantizedInput> ReadQuantizedInput(const Checkpoint& checkpoint);

// An error that names the first tensor that is part of a quantised matrix, in any format that is read, and not in `known`.
Result<void> CheckPartsAreKnown(const Checkpoint& checkpoint, const std::set<std::string>& known);

}  // namespace hone
