// See quantized_input.h.
#include "compress/folder/quantized_input.h"

#include <fmt/format.h>

#include "models/family.h"
#include "models/model.h"
#include "models/quantized/quantized_matrix.h"

namespace hone {
namespace {

bool EndsWithAny(std::string_view name, std::initializer_list<std::string_view> ends) {
  for (const std::string_view end : ends) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace

Result<QuantizedInput> ReadQuantizedInput(const Checkpoint& checkpoint) {
  QuantizedInput input;
  HONE_TRY(const bool quantized, IsQuantizedFolder(checkpoint));
  if (!quantized) return input;
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint));
  HONE_TRY(const WeightMap map, WeightMap::Make(checkpoint, *family, config));
  for (const Weight& weight : map.weights()) {
    if (weight.name == "token_embd.weight" && (weight.view.type == DType::kF32 || weight.view.type == DType::kF16)) input.dtype = weight.view.type;
    if (weight.quantized == nullptr) continue;
    input.matrices[weight.file_name] = weight.quantized;
    for (const NamedTensor* tensor : weight.quantized->tensors()) input.tensors.insert(tensor->name);
  }
  HONE_RETURN_IF_ERROR(CheckPartsAreKnown(checkpoint, input.tensors));
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (EndsWithAny(tensor.name, {".k_scale", ".v_scale", ".k_zero_point", ".v_zero_point"})) input.tensors.insert(tensor.name);
  }
  return input;
}

Result<void> CheckPartsAreKnown(const Checkpoint& checkpoint, const std::set<std::string>& known) {
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (known.count(tensor.name) > 0 || !EndsWithAny(tensor.name, {".qweight", ".qzeros", ".g_idx", ".weight_packed", ".weight_scale",
                                                                    ".weight_scale_inv", ".SCB", ".absmax", ".W_q"}))
      continue;
    return Unsupported(fmt::format("{}: tensor {} belongs to a quantised matrix that hone does not know, so the folder cannot be "
                                   "converted as a whole", checkpoint.path(), tensor.name));
  }
  return {};
}

}  // namespace hone
