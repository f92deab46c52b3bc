// The blocks that decoder layers are made of, each a few op calls over all rows of a step. A family's layer is a list
// of them.
//
// Rows are independent: no block lets a row see how many others there are, except attention through the cache. All
// memory is reserved in StepScratch; nothing is allocated in a step once its vectors have grown.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "base/runtime.h"
#include "kernels/attention/attention.h"
#include "kernels/matmul/gated_product.h"
#include "kernels/matmul/matmul.h"
#include "kernels/moe/route.h"
#include "models/config.h"
#include "models/low_rank.h"
#include "models/model.h"
#include "models/op_times.h"
#include "models/rope_table.h"
#include "models/weights.h"

namespace hone {

// Rope tables of a model: one pair a RopeConfig; the long one only for longrope.
struct RopeTables {
  explicit RopeTables(const ModelConfig& config);
  void Extend(int positions);
  std::vector<RopeTable> near, far;  // far is empty where no rope is longrope
};

// Who watches the inputs of matrix products, and what the weights are called.
struct InputWatch {
  InputObserver observer;
  std::unordered_map<const PackedMatrix*, std::string> names;
  bool only_inputs = false;  // products of ffn_down, which no other matrix of the layer reads, are left out
};

// Working memory of a step, made once for max_rows rows.
struct StepScratch {
  StepScratch(const ModelConfig& config, int max_rows);

  MatmulScratch matmul;
  GatedProduct gated;
  Buffer x, h, y;                     // [T][D]
  Buffer q, k, v, attention;          // [T][H * E], [T][G * E] twice, [T][H * E]
  Buffer gate, up;                    // [T][F], or [T * chosen][expert F]
  Buffer router;                      // [T][experts]
  Buffer gathered;                    // [T * chosen][D]
  std::vector<int32_t> positions;     // [T]
  std::vector<int32_t> expert_ids;    // [T * chosen], best first
  std::vector<float> expert_weights;  // the same
  std::vector<int32_t> expert_rows;   // where (row, choice) stands among the gathered rows, sorted by expert
  std::vector<int32_t> expert_begin;  // [experts + 1]
  std::vector<MatmulJob> jobs;
  std::vector<KvStoreJob> stores;
  std::vector<AttentionJob> attention_jobs;
  std::vector<AdapterRows> adapters, logit_adapters;  // rows of the step, of its logits, that have an adapter
  LowRankScratch low_rank;
  const InputWatch* watch = nullptr;  // nobody
  const InputOrders* orders = nullptr;  // no matrix wants its input in another order
  std::vector<MatmulJob> ordered_jobs;
  std::vector<float> ordered;           // inputs in that order
  OpTimes* times = nullptr;           // nobody asks
};

// One step as the layers see it. x is the residual stream; h and y are free for the family to use.
struct Step {
  const ModelConfig& config;
  const Runtime& runtime;
  const ForwardBatch& batch;
  const KvLayers& kv;
  RopeTables& ropes;
  StepScratch& scratch;
  int rows;                      // T
  float *x, *h, *y;              // [T][D]
  float *q, *k, *v, *attention;  // [T][H * E], [T][G * E], [T][G * E], [T][H * E]
  bool exact = false;            // LoadOptions::exact
  bool deterministic = false;    // LoadOptions::deterministic
};
Step BeginStep(const ModelConfig& config, const Runtime& runtime, const ForwardBatch& batch, const KvLayers& kv,
               RopeTables& ropes, StepScratch& scratch);

// out = RMSNorm(in) * weight, rows of D. out may be in.
void Norm(Step& step, const float* in, const std::vector<float>& weight, float* out);
// step.q, step.k, step.v = projections of in [T][D].
void ProjectQkv(Step& step, const LayerWeights& weights, const float* in);
// RMSNorm of q and k, a head at a time (weights [E]), in place.
void NormHeads(Step& step, const LayerWeights& weights);
// RMSNorm of q and k over all heads together (weights [H * E] and [G * E]), in place.
void NormProjections(Step& step, const LayerWeights& weights);
// Rotary embedding of q and k by the layer's rope.
void Rotate(Step& step, const LayerWeights& weights);
// Writes k and v to the cache, then step.attention = softmax(scale q k^T) v, heads side by side.
void Attend(Step& step, const LayerWeights& weights);
// out = W in + b.
void Project(Step& step, const Linear& linear, const float* in, float* out);
// out = down(act(gate(in)) * up(in)).
void GatedFfn(Step& step, const FfnWeights& ffn, const float* in, float* out);
// out = sum over the chosen experts of weight_e * FFN_e(in), in the order of choice.
void Experts(Step& step, const LayerWeights& weights, const RouteParams& route, const float* in, float* out);
// out += sigmoid(shared_gate(in)) * FFN_shared(in). Uses step.attention as working memory.
void SharedExpert(Step& step, const LayerWeights& weights, const float* in, float* out);
// x += residual_scale * from.
void AddResidual(Step& step, const float* from);
// The same, then out = RMSNorm(x) * weight, in one pass. out may be from.
void AddResidualAndNorm(Step& step, const float* from, const std::vector<float>& weight, float* out);

// Before and after the layers.
void Embed(Step& step, const TensorView& table);
// logits[i] = scaled and capped W * Norm(x[batch.logit_rows[i]]).
void Logits(Step& step, const ModelWeights& weights, float* logits);

}  // namespace hone
