// The weights of a decoder as its forward pass wants them: matrices packed for kernels/matmul, vectors as F32. Made
// from a WeightMap; every source page is given back to the file once its matrix is packed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "formats/checkpoint.h"
#include "kernels/matmul/matmul.h"
#include "models/config.h"
#include "models/weight_map.h"

namespace hone {

// y = W x + b.
struct Linear {
  PackedMatrix weight;
  std::vector<float> bias;  // [N] or empty
  int64_t inputs = 0;       // numbers of a row of x
  // Input i of the matrix is x[columns[i]], 0 where that is below 0 (QuantizedMatrix::order); nullptr: x as it is.
  std::shared_ptr<const std::vector<int32_t>> columns = nullptr;
  const PackedMatrix* next = nullptr;  // what a step reads after this, if it is always the same (LinkInReadingOrder)
  const float* bias_or_null() const { return bias.empty() ? nullptr : bias.data(); }
};

// gate, up: [F, D]; down: [D, F].
struct FfnWeights {
  Linear gate, up, down;
};

// One layer. What a family does not have stays empty.
struct LayerWeights {
  int index = 0;
  const LayerConfig* config = nullptr;

  std::vector<float> attn_norm;  // before attention [D]
  Linear q, k, v, attn_output;
  std::vector<float> q_norm, k_norm;  // [E], a head at a time; or the whole projection [H * E], [G * E] (OLMo 2)
  std::vector<float> post_attn_norm;  // on attention's output [D]

  std::vector<float> ffn_norm;  // before the feed-forward [D]
  FfnWeights ffn;               // dense layers
  Linear router;                // [experts, D]
  std::vector<FfnWeights> experts;
  FfnWeights shared;                 // the expert every token takes
  Linear shared_gate;                // [1, D]
  std::vector<float> post_ffn_norm;  // on the feed-forward's output [D]
};

struct ModelWeights {
  TensorView embedding;  // [V, D], in the file's mapping
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // [D]
  PackedMatrix output;             // [V, D]; packed from the embedding where they are tied
  std::shared_ptr<const std::vector<int32_t>> output_columns;  // as Linear::columns
  Buffer panels;                   // where the matrices lie, one after the other; empty: in WeightLoadOptions::panels

  uint64_t bytes = 0;  // resident: packed matrices and vectors
};

struct WeightLoadOptions {
  PackOptions pack;
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress;
  // A matrix for which this gives a view is packed from there in place of the file. May be empty.
  std::function<TensorView(const Weight&)> replace;
  // What ModelWeights::panels held after an earlier LoadWeights of the same checkpoint and options, PanelBytes of it: nothing is
  // packed, and the weights point into it. Empty: packed from the checkpoint.
  std::span<const std::byte> panels = {};
};

// Bytes of ModelWeights::panels.
size_t PanelBytes(const WeightMap& map, const ModelConfig& config, const PackOptions& pack);

// `config` must outlive the weights (layers point into it). Errors name the file and the tensor.
Result<ModelWeights> LoadWeights(const Checkpoint& checkpoint, const WeightMap& map, const ModelConfig& config,
                                 const WeightLoadOptions& options, ThreadPool& threads);

// Only the layer `index`. Its matrices own their memory.
Result<LayerWeights> LoadLayerWeights(const Checkpoint& checkpoint, const WeightMap& map, const ModelConfig& config,
                                      int index, const WeightLoadOptions& options, ThreadPool& threads);

// Adds what the layer's packed matrices are called (canonical names) to `names`.
void NameMatrices(const LayerWeights& layer, std::unordered_map<const PackedMatrix*, std::string>& names);

// Adds the layer's matrices whose inputs are wanted in another order (Linear::columns) to `orders`.
using InputOrders = std::unordered_map<const PackedMatrix*, const std::vector<int32_t>*>;
void CollectInputOrders(const LayerWeights& layer, InputOrders& orders);

// Sets Linear::next where one layer's matrices lead to the next's. The pointers point into `weights`, which must stay where it is.
void LinkInReadingOrder(ModelWeights& weights);

// A stored vector as F32, 1 added where the file leaves it out.
std::vector<float> ReadVector(const Weight& weight);

}  // namespace hone
