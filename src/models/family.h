// Family: what one kind of decoder adds to the shared parts: its names, how its configuration is read, where its
// tensors lie, and its layer. A family is one file that defines `const Family k<Name>Family` and one line in
// families.inc. How to add one: docs/howto/add-a-model-family.md.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "models/config.h"
#include "models/weight_map.h"

namespace hone {

struct Step;          // blocks.h
struct LayerWeights;  // weights.h

struct Family {
  std::string_view name;                     // "qwen3"
  std::vector<std::string_view> hf_names;    // values of `architectures` and `model_type` in config.json
  std::vector<std::string_view> gguf_names;  // values of general.architecture
  bool gguf_experts = false;                 // several families share a GGUF name: this one has expert_count > 0

  // Fill `config` (family, architecture, name and, if tensors tell it, vocab are set already). The result is checked by
  // the caller with CheckConfig.
  Result<void> (*read_hf)(const JsonConfig& json, ModelConfig& config) = nullptr;
  Result<void> (*read_gguf)(const GgufFile& file, ModelConfig& config) = nullptr;

  // Writing GGUF (models/gguf_export.h): whether rows of q and k are permuted there, and metadata keys of the family's
  // own (config.architecture is GGUF's name).
  bool gguf_permutes_qk = false;
  void (*write_gguf)(const ModelConfig& config, std::vector<std::pair<std::string, GgufValue>>& metadata) = nullptr;

  // The tensors of one layer.
  std::vector<TensorRule> (*layer_tensors)(const ModelConfig& config, int layer) = nullptr;

  // One layer over the rows of a step: reads and updates step.x, the residual stream.
  void (*layer)(Step& step, const LayerWeights& weights) = nullptr;
};

std::span<const Family* const> Families();
// The family of a checkpoint, or an error that names what the file says and lists the known names.
Result<const Family*> FindFamily(const Checkpoint& checkpoint);

}  // namespace hone
