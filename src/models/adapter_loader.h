// From a LoraFile to a LowRankAdapter of one model: names to matrices, shapes, rows of q and k in the order of the model's file,
// finite numbers, packing. All or nothing: the first problem is one error that names file and tensor.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "formats/lora.h"
#include "kernels/matmul/matmul.h"
#include "models/config.h"
#include "models/family.h"
#include "models/low_rank.h"

namespace hone {

// The model that an adapter is loaded for.
struct AdapterTarget {
  const Family& family;
  const ModelConfig& config;
  bool from_gguf = false;  // the order of rows of q and k is GGUF's
  std::unordered_map<std::string, const PackedMatrix*> matrices;  // by canonical name; the output is "output.weight"
  PackOptions pack;
};

// The adapter is `model`'s. Packs on the calling thread alone: the model may be at work.
Result<std::shared_ptr<const LowRankAdapter>> MakeAdapter(const LoraFile& file, const Model* model, const AdapterTarget& target);

}  // namespace hone
