// See weight_map.h.
#include "models/weight_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "kernels/dequantize/dequantize.h"
#include "models/family.h"
#include "models/quantized/quantized_folder.h"

namespace hone {

int64_t DimSize(Dim dim, const ModelConfig& config) {
  switch (dim) {
    case Dim::kNone:
      return 0;
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return config.vocab;
    case Dim::kWidth:
      return config.width;
    case Dim::kQuery:
      return int64_t{config.heads} * config.head_width;
    case Dim::kKeyValue:
      return int64_t{config.kv_heads} * config.head_width;
    case Dim::kHead:
      return config.head_width;
    case Dim::kFfn:
      return config.ffn_width;
    case Dim::kExperts:
      return config.experts;
    case Dim::kExpertFfn:
      return config.expert_ffn_width;
    case Dim::kSharedFfn:
      return config.shared_ffn_width;
  }
  return 0;
}

void AddNorm(const std::string& name, const std::string& hf, Dim width, std::vector<TensorRule>& rules, bool plus_one) {
  rules.push_back({.name = name + ".weight", .hf = hf + ".weight", .rows = width, .plus_one = plus_one});
}

void AddLinear(const std::string& name, const std::string& hf, Dim rows, Dim columns, bool bias,
               std::vector<TensorRule>& rules) {
  rules.push_back({.name = name + ".weight", .hf = hf + ".weight", .rows = rows, .columns = columns});
  if (bias) rules.push_back({.name = name + ".bias", .hf = hf + ".bias", .rows = rows});
}

void AddAttention(const ModelConfig& config, std::vector<TensorRule>& rules) {
  AddLinear("attn_q", "self_attn.q_proj", Dim::kQuery, Dim::kWidth, config.qkv_bias, rules);
  AddLinear("attn_k", "self_attn.k_proj", Dim::kKeyValue, Dim::kWidth, config.qkv_bias, rules);
  AddLinear("attn_v", "self_attn.v_proj", Dim::kKeyValue, Dim::kWidth, config.qkv_bias, rules);
  AddLinear("attn_output", "self_attn.o_proj", Dim::kWidth, Dim::kQuery, config.output_bias, rules);
}

void AddGatedFfn(const ModelConfig& config, std::vector<TensorRule>& rules) {
  AddLinear("ffn_gate", "mlp.gate_proj", Dim::kFfn, Dim::kWidth, config.ffn_bias, rules);
  AddLinear("ffn_up", "mlp.up_proj", Dim::kFfn, Dim::kWidth, config.ffn_bias, rules);
  AddLinear("ffn_down", "mlp.down_proj", Dim::kWidth, Dim::kFfn, config.ffn_bias, rules);
}

void AddExperts(const ExpertNames& names, std::vector<TensorRule>& rules) {
  AddLinear("ffn_gate_inp", names.router, Dim::kExperts, Dim::kWidth, false, rules);
  const auto add = [&](const std::string& name, const std::string& hf, Dim rows, Dim columns) {
    rules.push_back({.name = name + ".*.weight",
                     .hf = hf + ".weight",
                     .rows = rows,
                     .columns = columns,
                     .gguf = name + "_exps.weight"});
  };
  add("ffn_gate", names.gate, Dim::kExpertFfn, Dim::kWidth);
  add("ffn_up", names.up, Dim::kExpertFfn, Dim::kWidth);
  add("ffn_down", names.down, Dim::kWidth, Dim::kExpertFfn);
}

// Builds a map rule by rule; the first problem ends it.
class WeightMapMaker {
 public:
  WeightMapMaker(const Checkpoint& checkpoint, const ModelConfig& config) : checkpoint_(checkpoint), config_(config) {}

  Result<WeightMap> Make(const Family& family) {
    if (checkpoint_.tensors().empty()) {
      return InvalidInput(checkpoint_.path() + ": has no weights (a vocabulary or configuration only)");
    }
    HONE_TRY(folder_, QuantizedFolder::Make(checkpoint_));
    map_.quantized_ = folder_.quantized();
    FindPrefix();
    HONE_RETURN_IF_ERROR(
        Add({.name = "token_embd.weight", .hf = "embed_tokens.weight", .rows = Dim::kVocab, .columns = Dim::kWidth}, "",
            prefix_));
    for (int layer = 0; layer < config_.layers; ++layer) {
      const std::string below = fmt::format("blk.{}.", layer), hf_below = fmt::format("{}layers.{}.", prefix_, layer);
      for (const TensorRule& rule : family.layer_tensors(config_, layer)) {
        HONE_RETURN_IF_ERROR(AddRule(rule, below, hf_below));
      }
    }
    TensorRule norm{.name = "output_norm.weight", .hf = "norm.weight", .rows = Dim::kWidth};
    norm.plus_one = config_.norms_store_minus_one;
    HONE_RETURN_IF_ERROR(Add(norm, "", prefix_));
    if (!config_.tied_embeddings) {
      HONE_RETURN_IF_ERROR(
          Add({.name = "output.weight", .hf = "lm_head.weight", .rows = Dim::kVocab, .columns = Dim::kWidth}, "",
              head_prefix_));
    }
    FindUnused();
    return std::move(map_);
  }

 private:
  // Base models and the text part of multimodal models put other words before the same names.
  void FindPrefix() {
    for (const char* prefix : {"model.", "language_model.model.", "model.language_model.", ""}) {
      if (checkpoint_.FindTensor(std::string(prefix) + "embed_tokens.weight") == nullptr) continue;
      prefix_ = prefix;
      head_prefix_ = prefix_ == "language_model.model." ? "language_model." : "";
      return;
    }
  }

  Result<void> AddRule(const TensorRule& rule, const std::string& below, const std::string& hf_below) {
    if (rule.name.find('*') == std::string::npos) return Add(rule, below, hf_below);
    for (int expert = 0; expert < config_.experts; ++expert) {
      TensorRule one = rule;
      const std::string number = std::to_string(expert);
      one.name.replace(one.name.find('*'), 1, number);
      if (const size_t star = one.hf.find('*'); star != std::string::npos) one.hf.replace(star, 1, number);
      HONE_RETURN_IF_ERROR(Add(one, below, hf_below, expert));
    }
    return {};
  }

  Result<void> Add(const TensorRule& rule, const std::string& below, const std::string& hf_below, int expert = -1) {
    const bool folder = checkpoint_.is_folder();
    const std::string name = folder ? hf_below + rule.hf : below + (rule.gguf.empty() ? rule.name : rule.gguf);
    Shape wanted = WholeShape(rule, !folder && expert >= 0);
    if (folder_.quantized() && wanted.rank() == 2 && rule.name != "token_embd.weight") {
      HONE_TRY(auto matrix, folder_.Find(name, wanted[0], wanted[1]));
      if (matrix != nullptr) return AddQuantized(rule, below, name, expert >= 0, std::move(matrix));
    }
    const NamedTensor* tensor = checkpoint_.FindTensor(name);
    if (tensor == nullptr) {
      const char* hint = rule.name == "output.weight" ? " (or tie_word_embeddings true in config.json)" : "";
      return InvalidInput(
          fmt::format("{}: tensor {} is missing; wanted {}{}", checkpoint_.path(), name, wanted.ToString(), hint));
    }
    TensorView view = tensor->view;
    if (wanted.rank() == 2 && wanted[0] == 1 && view.shape == Shape{wanted[1]})
      view.shape = wanted;  // converters drop a 1
    if (view.shape != wanted) {
      return InvalidInput(fmt::format("{}: tensor {} is {} {}; wanted shape {}", checkpoint_.path(), name,
                                      Info(view.type).name, view.shape.ToString(), wanted.ToString()));
    }
    if (!CanDequantize(view.type)) {
      return Unsupported(fmt::format("{}: tensor {} is of type {}, which hone cannot compute with", checkpoint_.path(),
                                     name, Info(view.type).name));
    }
    if (view.shape.back() % Info(view.type).block_elements != 0) {
      return InvalidInput(fmt::format("{}: tensor {}: rows of {} are no multiple of the block of {}",
                                      checkpoint_.path(), name, view.shape.back(), Info(view.type).name));
    }
    used_.insert(name);
    if (!folder && expert >= 0) view = view.Slice(expert);
    if (!rule.parts.empty()) view = view.Rows(PartBegin(rule), DimSize(rule.rows, config_));
    map_.index_.emplace(below + rule.name, map_.weights_.size());
    map_.weights_.push_back({.name = below + rule.name,
                             .file_name = name,
                             .gguf_name = below + (rule.gguf.empty() ? rule.name : rule.gguf),
                             .stacked = expert >= 0,
                             .view = view,
                             .plus_one = rule.plus_one});
    return {};
  }

  Result<void> AddQuantized(const TensorRule& rule, const std::string& below, const std::string& name, bool stacked,
                            std::shared_ptr<const QuantizedMatrix> matrix) {
    // A fused matrix is met once a part.
    if (const auto seen = quantized_.find(name); seen != quantized_.end()) matrix = seen->second;
    quantized_.emplace(name, matrix);
    for (const NamedTensor* tensor : matrix->tensors()) used_.insert(tensor->name);
    const int64_t rows = rule.parts.empty() ? matrix->rows() : DimSize(rule.rows, config_);
    map_.index_.emplace(below + rule.name, map_.weights_.size());
    map_.weights_.push_back({.name = below + rule.name,
                             .file_name = name,
                             .gguf_name = below + (rule.gguf.empty() ? rule.name : rule.gguf),
                             .stacked = stacked,
                             .view = {matrix->type(false), Shape{rows, matrix->columns()}, nullptr},
                             .plus_one = false,
                             .quantized = matrix,
                             .first_row = rule.parts.empty() ? 0 : PartBegin(rule)});
    return {};
  }

  // The shape of the tensor in the file that holds this rule's weight.
  Shape WholeShape(const TensorRule& rule, bool stacked) const {
    Shape shape;
    if (stacked) shape.Append(config_.experts);
    int64_t rows = DimSize(rule.rows, config_);
    if (!rule.parts.empty()) {
      rows = 0;
      for (const Dim dim : rule.parts) rows += DimSize(dim, config_);
    }
    shape.Append(rows);
    if (rule.columns != Dim::kNone) shape.Append(DimSize(rule.columns, config_));
    return shape;
  }

  int64_t PartBegin(const TensorRule& rule) const {
    int64_t begin = 0;
    for (int i = 0; i < rule.part; ++i) begin += DimSize(rule.parts[i], config_);
    return begin;
  }

  // Known and rightly unread: old buffers of rotary frequencies, what the configuration reader has read already, and an
  // output matrix beside tied embeddings.
  void FindUnused() {
    for (const NamedTensor& tensor : checkpoint_.tensors()) {
      if (used_.count(tensor.name)) continue;
      const bool known = tensor.name.find("rotary_emb.inv_freq") != std::string::npos ||
                         tensor.name.rfind("rope_f", 0) == 0 || tensor.name == head_prefix_ + "lm_head.weight" ||
                         (folder_.quantized() && tensor.name.ends_with(".bias") && IsZero(tensor.view));
      if (!known) map_.unused_.push_back(tensor.name);
    }
  }

  // Some tools give every matrix a bias, of zeros where the model has none.
  static bool IsZero(const TensorView& view) {
    return std::all_of(view.data, view.data + view.bytes(), [](std::byte byte) { return byte == std::byte{0}; });
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  QuantizedFolder folder_;
  std::unordered_map<std::string, std::shared_ptr<const QuantizedMatrix>> quantized_;
  std::string prefix_ = "model.", head_prefix_;
  std::unordered_set<std::string> used_;
  WeightMap map_;
};

Result<WeightMap> WeightMap::Make(const Checkpoint& checkpoint, const Family& family, const ModelConfig& config) {
  return WeightMapMaker(checkpoint, config).Make(family);
}

void Weight::Release(const Checkpoint& checkpoint) const {
  if (quantized != nullptr) return quantized->Release(checkpoint);
  checkpoint.Release(view);
}

const Weight* WeightMap::Find(std::string_view name) const {
  const auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &weights_[it->second];
}

}  // namespace hone
