// What a step of a model costs at least: bytes that must be read, operations that must be done. Counted from the
// checkpoint's tensors and the configuration, so that a measured time can be held against the roof.
//
// Counted: every matrix once a step at its file bits (experts: those that a batch is expected to reach, if the router
// spreads evenly), keys and values of every cached token that a query sees (sliding windows counted), a multiply and an
// add as two. Not counted: activations, norms, sampling. The embedding table is a lookup, not a read of the table.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "kernels/attention/kv_view.h"
#include "kernels/matmul/roof.h"
#include "models/config.h"
#include "models/model.h"

namespace hone {

// What a tensor of a checkpoint is, by its name.
enum class TensorRole { kEmbedding, kOutput, kRoutedExpert, kLayer };
TensorRole RoleOfTensor(std::string_view name);
// The tensors of rank 2 and more as they run; of a quantised folder, one for each matrix that its tensors say.
std::vector<WeightInfo> MatricesOf(const Checkpoint& checkpoint);

class ModelCost {
 public:
  ModelCost(const Checkpoint& checkpoint, const ModelConfig& config, KvType kv);

  struct Step {
    double bytes = 0, flops = 0;
    Step& operator+=(const Step& other) { return bytes += other.bytes, flops += other.flops, *this; }
  };
  // One forward pass over `sequences` sequences, each with `rows` new tokens after `cached` ones, logits for the last
  // only.
  Step Forward(int sequences, int rows, int64_t cached) const;

  double weight_bytes() const { return layer_bytes_ + expert_bytes_ + output_bytes_; }
  double kv_token_bytes() const { return kv_token_bytes_; }

  // The unit that does most multiplications of a long prompt, with kernels of at most `isa`, which is not scalar.
  ComputeUnit PrefillUnit(Isa isa, bool exact) const;

 private:
  ModelConfig config_;
  double layer_bytes_ = 0, expert_bytes_ = 0, output_bytes_ = 0;
  double layer_elements_ = 0, expert_elements_ = 0, output_elements_ = 0;
  double kv_token_bytes_ = 0;
  std::map<DType, double> elements_by_type_;  // of matrices in layers
};

// The unit that multiplies long prompts with weights of this type, with kernels of at most `isa`, which is not scalar.
// The widest F32 unit where the type has no kernel.
ComputeUnit UnitOfType(DType type, Isa isa, bool exact);

}  // namespace hone
