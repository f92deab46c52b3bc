// LayerWalk: a decoder run one layer at a time, with the weights of only that layer in memory: what quantising layer by
// layer needs. The caller keeps the residual streams of all its sequences and may put other matrices in a layer's place.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "models/blocks.h"
#include "models/family.h"
#include "models/model.h"
#include "models/weight_map.h"

namespace hone {

// What turns the last layer's stream into logits.
struct OutputHead {
  ModelWeights weights;  // only the norm and the output matrix
};

class LayerWalk {
 public:
  // Reads the configuration and checks all tensors; loads nothing. max_rows: longest sequence, which no call may exceed.
  static Result<std::unique_ptr<LayerWalk>> Open(std::shared_ptr<const Checkpoint> checkpoint, const Runtime& runtime,
                                                 int max_rows);
  LayerWalk(const LayerWalk&) = delete;

  const ModelConfig& config() const { return config_; }
  int max_rows() const { return max_rows_; }
  const WeightMap& map() const { return map_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }

  // x[T][D] = the residual stream before layer 0. `table`: [V, D] in place of the file's embedding, or nullptr.
  void Embed(std::span<const int32_t> tokens, const TensorView* table, float* x);
  // Makes `layer` the one that Run runs. `replace` gives matrices other views (empty view: as in the file), which are
  // read now and need not stay.
  Result<void> Load(int layer, const std::function<TensorView(const Weight&)>& replace);
  // x[rows][D]: the residual stream of one sequence, before the loaded layer and after it. `kv` and `blocks` (a block
  // table for `rows` positions) hold the layer's keys and values during the call; View is asked for the layer's index.
  // `observer` sees inputs of matrices by canonical name; may be empty. With `only_inputs` nothing but them is wanted, and what
  // becomes of x means nothing. REQUIRES: rows <= max_rows.
  void Run(float* x, int rows, const KvLayers& kv, const int32_t* blocks, const InputObserver& observer, bool only_inputs = false);
  // out[rows][D]: what the output matrix reads after the last layer's x. Loads nothing but the norm.
  void FinalNorm(const float* x, int rows, float* out);
  // `output`: [V, D] in place of the file's matrix (empty: the file's), read now.
  Result<OutputHead> LoadOutput(const TensorView& output) const;
  // logits[rows][V] of x[rows][D], the stream after the last layer. REQUIRES: rows <= max_rows.
  void Logits(const OutputHead& head, const float* x, int rows, float* logits);

 private:
  LayerWalk(std::shared_ptr<const Checkpoint> checkpoint, const Runtime& runtime, const Family& family,
            ModelConfig config, int max_rows);
  const std::shared_ptr<const Checkpoint> checkpoint_;
  const Runtime runtime_;
  const Family& family_;
  const ModelConfig config_;
  const int max_rows_;
  WeightMap map_;
  RopeTables ropes_;
  StepScratch scratch_;
  LayerWeights layer_;
  InputWatch watch_;
  InputOrders orders_;
};

}  // namespace hone
