// See model_cost.h.
#include "measure/model_cost.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "cache/kv_cache.h"
#include "kernels/matmul/kernel.h"
#include "kernels/matmul/many_rows.h"
#include "kernels/matmul/matmul.h"

namespace hone {
namespace {

// nullopt: the type has no kernel wider than scalar code.
std::optional<ComputeUnit> KernelUnit(DType type, Isa isa, bool exact) {
  if (!CanMatmul(type)) return std::nullopt;
  if (const Bf16Arithmetic* tiles = exact ? nullptr : FindBf16Arithmetic(type, isa)) return UnitOf(*tiles);
  const MatmulKernel& kernel = FindMatmulKernel(type, isa, exact);
  if (kernel.arithmetic->isa == Isa::kScalar) return std::nullopt;
  return UnitOf(kernel.arithmetic->isa, kernel.uses_codes());
}

}  // namespace

TensorRole RoleOfTensor(std::string_view name) {
  if (name.ends_with("token_embd.weight") || name.ends_with("embed_tokens.weight")) return TensorRole::kEmbedding;
  if (name == "output.weight" || name.ends_with("lm_head.weight")) return TensorRole::kOutput;
  const auto has = [name](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("shexp") || has("shared_expert")) return TensorRole::kLayer;
  return has("_exps.") || has(".experts.") ? TensorRole::kRoutedExpert : TensorRole::kLayer;
}

std::vector<WeightInfo> MatricesOf(const Checkpoint& checkpoint) {
  std::vector<WeightInfo> matrices;
  const Result<bool> quantized = IsQuantizedFolder(checkpoint);
  auto list = quantized && *quantized ? ListWeights(checkpoint) : Result<std::vector<WeightInfo>>(std::vector<WeightInfo>());
  if (list) matrices = std::move(*list);
  if (matrices.empty()) {
    for (const NamedTensor& tensor : checkpoint.tensors()) {
      matrices.push_back({.name = tensor.name, .stored = {}, .type = tensor.view.type, .shape = tensor.view.shape,
                          .file_bytes = tensor.view.bytes()});
    }
  }
  std::erase_if(matrices, [](const WeightInfo& weight) { return weight.shape.rank() < 2; });
  return matrices;
}

ModelCost::ModelCost(const Checkpoint& checkpoint, const ModelConfig& config, KvType kv) : config_(config) {
  const KvCacheShape block{
      .type = kv, .layers = config.layers, .kv_heads = config.kv_heads, .head_width = config.head_width, .blocks = 1};
  kv_token_bytes_ = static_cast<double>(block.total_bytes()) / kKvBlockTokens;
  for (const WeightInfo& weight : MatricesOf(checkpoint)) {
    const double bytes = static_cast<double>(weight.bytes()), elements = static_cast<double>(weight.shape.elements());
    switch (RoleOfTensor(weight.name)) {
      case TensorRole::kEmbedding:
        if (config.tied_embeddings) output_bytes_ += bytes, output_elements_ += elements;
        continue;
      case TensorRole::kOutput:
        if (!config.tied_embeddings) output_bytes_ += bytes, output_elements_ += elements;
        continue;
      case TensorRole::kRoutedExpert: expert_bytes_ += bytes, expert_elements_ += elements; break;
      case TensorRole::kLayer: layer_bytes_ += bytes, layer_elements_ += elements; break;
    }
    elements_by_type_[weight.type] += elements;
  }
}

ModelCost::Step ModelCost::Forward(int sequences, int rows, int64_t cached) const {
  const double tokens = static_cast<double>(sequences) * rows;
  Step step;
  double used = 0;  // share of the experts
  if (config_.experts > 0) {
    const double share = static_cast<double>(config_.experts_per_token) / config_.experts;
    used = 1 - std::pow(1 - share, tokens);
    step.flops += 2 * expert_elements_ * share * tokens;
  }
  step.bytes += layer_bytes_ + expert_bytes_ * used + output_bytes_;
  step.flops += 2 * layer_elements_ * tokens + 2 * output_elements_ * sequences;
  // Row i of a sequence sees cached + i + 1 tokens, at most the window.
  for (const LayerConfig& layer : config_.layer) {
    const double all = static_cast<double>(cached + rows);
    double seen = 0;
    for (int i = 0; i < rows; ++i) {
      const double sees = static_cast<double>(cached + i + 1);
      seen += layer.window > 0 ? std::min<double>(sees, layer.window) : sees;
    }
    step.flops += 4 * static_cast<double>(config_.heads) * config_.head_width * seen * sequences;
    const double read = layer.window > 0 ? std::min<double>(all, layer.window + rows - 1) : all;
    step.bytes += kv_token_bytes_ / std::max(1, config_.layers) * read * sequences;
  }
  return step;
}

ComputeUnit ModelCost::PrefillUnit(Isa isa, bool exact) const {
  std::map<ComputeUnit, double> units;
  for (const auto& [type, elements] : elements_by_type_) {
    if (const auto unit = KernelUnit(type, isa, exact)) units[*unit] += elements;
  }
  ComputeUnit best = UnitOf(std::max(isa, Isa::kAvx2), false);
  double most = 0;
  for (const auto& [unit, elements] : units) {
    if (elements > most) best = unit, most = elements;
  }
  return best;
}

ComputeUnit UnitOfType(DType type, Isa isa, bool exact) {
  return KernelUnit(type, isa, exact).value_or(UnitOf(std::max(isa, Isa::kAvx2), false));
}

}  // namespace hone
