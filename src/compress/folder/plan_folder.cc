// Of quantize_folder.h: what a folder would become.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "compress/folder/folder_linears.h"
#include "compress/folder/quantize_folder.h"

namespace hone {

std::string ModuleOf(const std::string& name) { return name.substr(0, name.size() - std::string_view(".weight").size()); }

std::vector<LayerUnit> PlannedUnits(const FolderPlan& plan, const WeightMap& map) {
  std::vector<LayerUnit> units = ListLayerUnits(map, false);
  std::erase_if(units, [&](const LayerUnit& unit) {
    return std::find(plan.kept_matrices.begin(), plan.kept_matrices.end(), unit.name) != plan.kept_matrices.end();
  });
  for (LayerUnit& unit : units) {
    if (unit.quantized != nullptr) unit.view.type = plan.input.dtype;
  }
  return units;
}

namespace {

// What is quantised already is refused, or read as what it means.
Result<QuantizedInput> ReadInput(const Checkpoint& checkpoint, bool allow_requantize) {
  if (!checkpoint.is_folder()) {
    return Unsupported(checkpoint.path() + ": a GGUF file, and these formats are Hugging Face folders, with a config.json and a tokenizer "
                                           "that GGUF has in part only; take the folder that the file was made from, or --type, which writes GGUF");
  }
  const bool said = checkpoint.config() != nullptr && checkpoint.config()->Has("quantization_config");
  QuantizedInput input;
  if (allow_requantize || !said) {
    HONE_TRY(input, ReadQuantizedInput(checkpoint));
  }
  if (!allow_requantize && (said || !input.matrices.empty())) {
    return InvalidInput(checkpoint.path() +
                        ": quantised already, and quantising again loses twice; take the original, or give --allow-requantize");
  }
  return input;
}

// The matrix as the plan has it, without its bytes; takes it out of what stays of a quantised input.
Result<FolderTensor> PlanMatrix(const Checkpoint& checkpoint, const FolderLinear& linear, QuantizedInput* input) {
  FolderTensor tensor{.name = linear.name, .tensor = linear.tensor, .input = linear.input, .view = linear.view};
  if (const auto stored = input->matrices.find(linear.name); stored != input->matrices.end()) {
    tensor.stored = stored->second;
    input->matrices.erase(stored);
    tensor.view = {DType::kF32, Shape{tensor.stored->rows(), tensor.stored->columns()}, nullptr};
  }
  const TensorView& view = tensor.view;
  if (view.type != DType::kF32 && view.type != DType::kF16 && view.type != DType::kBF16) {
    return InvalidInput(fmt::format("{}: {} is {}, wanted F32, F16 or BF16; start from the original", checkpoint.path(), linear.name,
                                    Info(view.type).name));
  }
  if (view.shape.rank() != 2 || !linear.name.ends_with(".weight")) {
    return Unsupported(fmt::format("{}: {} {} is no linear layer's matrix", checkpoint.path(), linear.name, view.shape.ToString()));
  }
  tensor.rows = view.shape[0], tensor.columns = view.shape[1];
  tensor.dtype = tensor.stored != nullptr ? input->dtype : view.type;
  tensor.bytes_before = tensor.stored != nullptr ? tensor.stored->file_bytes() : view.bytes();
  return tensor;
}

Error MadeTwice(const Checkpoint& checkpoint, const std::string& name, const std::string& one, const std::string& other) {
  return InvalidInput(fmt::format("{}: tensors {} and {} would both be called {} in the result; wanted a model as it was published, or "
                                  "--recipe with lines 'PATTERN keep' for one of them", checkpoint.path(), one, other, name));
}

}  // namespace

Result<FolderPlan> PlanFolder(const Checkpoint& checkpoint, const LinearFormat& format, const std::set<std::string>& keep,
                              bool allow_requantize) {
  FolderPlan plan;
  HONE_TRY(plan.input, ReadInput(checkpoint, allow_requantize));
  HONE_TRY(FolderLinears found, FindFolderLinears(checkpoint));
  plan.not_run = std::move(found.not_run), plan.passed_over = std::move(found.passed_over);
  std::string refused;
  uint64_t largest = 0, mapped = 0;  // mapped: of the largest matrix of a quantised input
  std::set<uint64_t> sizes;
  std::set<std::string> quantized;  // tensors
  std::map<std::string, std::string> made;  // names of the result, and the matrix that each is a part of
  for (const FolderLinear& linear : found.linears) {
    if (keep.count(linear.name) > 0) {
      plan.kept_matrices.push_back(linear.name);
      plan.kept_modules.push_back(ModuleOf(linear.name));
      continue;
    }
    HONE_TRY(FolderTensor tensor, PlanMatrix(checkpoint, linear, &plan.input));
    quantized.insert(linear.tensor);
    if (const Result<void> fits = format.Check(tensor.rows, tensor.columns); !fits) {
      refused += fmt::format("\n  {} {}: {}", linear.name, tensor.view.shape.ToString(), fits.error().message);
      continue;
    }
    for (const TensorInfo& info : format.Outputs(ModuleOf(linear.name), tensor.rows, tensor.columns, tensor.dtype)) {
      tensor.bytes += info.bytes();
      if (!made.emplace(info.name, linear.tensor).second) return MadeTwice(checkpoint, info.name, made.at(info.name), linear.tensor);
    }
    largest = std::max<uint64_t>(largest, static_cast<uint64_t>(tensor.rows * tensor.columns));
    if (tensor.stored != nullptr) mapped = std::max(mapped, tensor.bytes_before);
    plan.bytes += tensor.bytes;
    plan.weights += static_cast<double>(tensor.rows * tensor.columns);
    sizes.insert(tensor.bytes);
    plan.tensors.push_back(std::move(tensor));
  }
  if (!refused.empty()) {
    return Unsupported(checkpoint.path() + ": these layers do not fit the format (--recipe with lines 'PATTERN keep' leaves them as they "
                                           "are):" + refused);
  }
  if (plan.tensors.empty()) {
    std::string kept;
    for (const auto& [name, why] : plan.passed_over) kept += kept.find(why) != std::string::npos ? "" : fmt::format("\n  {}: {}", name, why);
    return InvalidInput(checkpoint.path() + ": no linear layers to quantise" + (kept.empty() ? "" : "; what is kept:") + kept);
  }
  plan.kept_modules.insert(plan.kept_modules.end(), found.kept_modules.begin(), found.kept_modules.end());
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    plan.bytes_before += tensor.view.bytes();
    if (quantized.count(tensor.name) > 0 || plan.input.tensors.count(tensor.name) > 0) continue;
    if (const auto part = made.find(tensor.name); part != made.end()) return MadeTwice(checkpoint, tensor.name, part->second, tensor.name);
    plan.weights += static_cast<double>(tensor.view.shape.elements());
    plan.bytes += tensor.view.bytes();
    plan.copied.push_back({tensor.name, tensor.view.type, tensor.view.shape});
  }
  for (const auto& [name, matrix] : plan.input.matrices) {
    plan.weights += static_cast<double>(matrix->rows() * matrix->columns());
    plan.copied.push_back({name, plan.input.dtype, Shape{matrix->rows(), matrix->columns()}});
    plan.bytes += plan.copied.back().bytes();
  }
  plan.disk_bytes = plan.bytes + (uint64_t{16} << 20);
  // F32, codes, the packed tensors; or packed tensors alone in several lanes.
  plan.peak_memory_bytes = (uint64_t{64} << 20) + kFolderLanes * mapped +
                           std::max(largest * 7, kFolderLanes * std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}));
  return plan;
}

}  // namespace hone
