// WeightMap: every weight of a model under one canonical name, whatever file it lies in. Made from a family's
// TensorRules.
//
// Canonical names are GGUF's: token_embd.weight, blk.3.attn_q.weight, output_norm.weight. Fused tensors of a file
// appear as their parts (Phi-3's attn_qkv as attn_q, attn_k, attn_v), stacked experts one by one
// (blk.3.ffn_gate.7.weight), so whoever reads a map sees plain matrices [out, in] and vectors only.
//
// Make checks that each tensor is there, has its shape, and a type that kernels/dequantize reads. Nothing is copied. A matrix
// of a quantised folder (models/quantized) has no bytes of its own in the file: whoever reads numbers looks at `quantized` first.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "models/config.h"
#include "models/quantized/quantized_matrix.h"

namespace hone {

// A size of a tensor, by what it means in the configuration.
enum class Dim : uint8_t {
  kNone,
  kOne,
  kVocab,
  kWidth,
  kQuery,
  kKeyValue,
  kHead,
  kFfn,
  kExperts,
  kExpertFfn,
  kSharedFfn
};
int64_t DimSize(Dim dim, const ModelConfig& config);  // kQuery: H * E; kKeyValue: G * E; kNone: 0

// Where one canonical tensor lies in a file.
struct TensorRule {
  std::string name;  // canonical, below "blk.N." for a layer's; '*' stands for an expert's number
  std::string hf;    // Hugging Face name, below "model.layers.N."; '*' as above
  Dim rows = Dim::kNone;
  Dim columns = Dim::kNone;     // kNone: a vector of `rows`
  std::string gguf = {};        // the file's name where it is not `name`: a fused tensor, stacked experts
  std::vector<Dim> parts = {};  // fused: the rows of its parts in order ...
  int part = 0;                 // ... and which of them this is
  bool plus_one = false;        // Hugging Face stores w - 1 (Gemma's norms); GGUF stores w
};

// Building blocks of families' rules. Names are without ".weight".
void AddNorm(const std::string& name, const std::string& hf, Dim width, std::vector<TensorRule>& rules,
             bool plus_one = false);
void AddLinear(const std::string& name, const std::string& hf, Dim rows, Dim columns, bool bias,
               std::vector<TensorRule>& rules);
void AddAttention(const ModelConfig& config,
                  std::vector<TensorRule>& rules);  // q, k, v, output, biases by the configuration
void AddGatedFfn(const ModelConfig& config, std::vector<TensorRule>& rules);  // ffn_gate, ffn_up, ffn_down
// Router and experts; the Hugging Face names differ by family.
struct ExpertNames {
  std::string router, gate, up, down;  // "mlp.gate", "mlp.experts.*.gate_proj", ...
};
void AddExperts(const ExpertNames& names, std::vector<TensorRule>& rules);

struct Weight {
  std::string name;       // canonical
  std::string file_name;  // the tensor's name in the file
  std::string gguf_name;  // the tensor's name in a GGUF file; parts of a fused or stacked tensor share it
  bool stacked = false;   // one of the experts of a stacked GGUF tensor
  TensorView view;        // of a quantised matrix: the type that it runs as, and no data
  bool plus_one = false;  // 1 must be added to every number
  std::shared_ptr<const QuantizedMatrix> quantized = nullptr;  // rows [first_row, first_row + view.shape[0]) of it
  int64_t first_row = 0;

  void Release(const Checkpoint& checkpoint) const;  // its pages of the file are not needed soon
};

struct Family;

class WeightMap {
 public:
  // Borrows the checkpoint's tensors: it must outlive the map.
  static Result<WeightMap> Make(const Checkpoint& checkpoint, const Family& family, const ModelConfig& config);

  const std::vector<Weight>& weights() const {
    return weights_;
  }                                                 // in file-independent order: embedding, layers, output
  const Weight* Find(std::string_view name) const;  // nullptr if this model has none
  // Names of tensors in the file that nothing reads and nothing is known about.
  const std::vector<std::string>& unused() const { return unused_; }
  bool quantized() const { return quantized_; }  // a quantised folder

 private:
  friend class WeightMapMaker;
  std::vector<Weight> weights_;
  std::unordered_map<std::string, size_t> index_;
  std::vector<std::string> unused_;
  bool quantized_ = false;
};

}  // namespace hone
