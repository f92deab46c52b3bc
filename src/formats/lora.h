// LoraFile: a LoRA adapter as it lies in a file: pairs of low-rank matrices, each to be added to one weight of a base model,
// W + scale * B A. Two forms (docs/adapters.md): a GGUF file as llama.cpp converts them (NAME.lora_a, NAME.lora_b), and a folder
// of PEFT (adapter_config.json, adapter_model.safetensors).
//
// Everything that the file says about itself is checked here: kinds of adapters that are more than such pairs (DoRA, saved
// modules, biases ...) are refused by name, as is every tensor that belongs to no pair. Whether the weights exist in a model,
// and whether numbers are finite, is checked where the model is known (models/adapter.h). Immutable; views live as long as it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "tensor/tensor.h"

namespace hone {

inline constexpr int64_t kMaxLoraRank = 4096;

struct LoraPair {
  std::string target;  // the weight, by the name that such a file has for it: "blk.0.attn_q.weight",
                       // "model.layers.0.self_attn.q_proj.weight"
  TensorView a;        // [r, K]
  TensorView b;        // [N, r]
  float scale = 1;
  int64_t rank() const { return a.shape[0]; }
};

class LoraFile {
 public:
  // A GGUF file or a PEFT folder. Errors name the file and the tensor or key.
  static Result<std::shared_ptr<const LoraFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return gguf_ != nullptr; }
  const std::string& architecture() const { return architecture_; }  // of the base, as GGUF says it; "": a PEFT folder
  const std::vector<LoraPair>& pairs() const { return pairs_; }      // by target, each once, at least one
  // A digest of all names, numbers and scales: equal contents have equal ids, whatever the file is called.
  std::string ContentId() const;

 private:
  LoraFile() = default;
  friend class LoraReader;
  std::string path_, architecture_;
  std::vector<LoraPair> pairs_;
  std::shared_ptr<const GgufFile> gguf_;
  std::shared_ptr<const SafetensorsFile> safetensors_;
};

}  // namespace hone
