// Deployment: a model in a format on hardware under a load; the account of its memory, the cards that it needs, and
// the time of its steps as the roof allows. Pure arithmetic, no files. What is assumed and how it is checked against
// measurements: docs/plan.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "measure/plan/hardware.h"
#include "measure/plan/model_shape.h"
#include "measure/plan/stored_formats.h"

namespace hone {

// How several cards share a model.
enum class Split {
  kTensor,  // each has a part of every matrix; two exchanges a layer
  kLayers,  // each has some layers; one works after the other, so their bandwidths do not add for one sequence
};

struct Deployment {
  ModelShape shape;
  WeightFormat format;
  KvFormat kv;
  Hardware hardware;
  Efficiency efficiency;
  Split split = Split::kTensor;
  int input = 512, output = 128;  // tokens of a typical request
  int concurrency = 1;            // sequences decoded at once
  int context = 0;                // tokens reserved a sequence; 0: input + output
  int step_tokens = 512;          // most rows of a step
  int shared_input = 0;           // of the input, how many tokens most requests have in common
  int cached_input = 0;           // of the input, how many are found in the prefix cache

  int reserved_tokens() const { return context > 0 ? context : input + output; }
};

// Where the bytes go, of all cards together.
struct MemoryAccount {
  WeightAccount weights;
  double kv_token_bytes = 0;     // of one more token where no window is full
  double kv_sequence_bytes = 0;  // of one sequence of reserved_tokens()
  double state_bytes = 0;        // of one sequence
  double activation_bytes = 0;   // working memory of a step, on each card
  double usable_bytes = 0;       // of all cards: memory * free_share
  double needed_bytes = 0;       // weights, activations and `concurrency` sequences
  int64_t most_sequences = 0;    // that fit at reserved_tokens(); 0: not one
  bool fits() const { return needed_bytes <= usable_bytes; }
};
MemoryAccount AccountMemory(const Deployment& deployment);

struct CardCount {
  int weights_only = 0;    // weights over whole memories: the figure of the back of an envelope
  int layers = 0;          // with cache, activations and reserve, layers shared out
  int tensor = 0;          // the same, by tensor parallelism; 0: no allowed count is enough
  std::vector<int> tensor_counts;  // that divide the heads, up to 64
  std::string tensor_rule;         // why just these
  int nodes = 0;           // of the smaller of the two
};
// How many cards of deployment.hardware (its count is not looked at) hold the deployment.
CardCount CountCards(const Deployment& deployment);

// What bounds a step.
enum class Bound { kCompute, kWeights, kKv, kLink, kOverhead };
std::string_view BoundName(Bound bound);  // "compute", "weight bandwidth", ...

struct StepTime {
  double weight_bytes = 0, kv_bytes = 0, flops = 0;             // of all cards
  double read_s = 0, compute_s = 0, link_s = 0, overhead_s = 0;  // a step takes max(read, compute) + link + overhead
  bool overlapped = true;                                         // false: read + compute + link + overhead
  double seconds() const { return (overlapped ? (read_s > compute_s ? read_s : compute_s) : read_s + compute_s) + link_s + overhead_s; }
  Bound bound() const;
};
// A step of `sequences` sequences with `rows` new tokens each after `cached` ones. With fitted constants up to few_rows tokens
// take what kernels of few rows do (the arithmetic of the first row hides behind the reading), prompts of more those of many
// rows, and more sequences the cheaper of the two.
StepTime PredictStep(const Deployment& deployment, int sequences, int rows, double cached);

struct Prediction {
  double ttft_s = 0;       // of one prompt on an idle machine
  double ttft_all_s = 0;   // until the last of `concurrency` prompts that came together has its first token
  double tpot_s = 0;       // at `concurrency`, in the middle of the output
  double tok_s = 0;        // output of all sequences together
  double tpot_limit_s = 0;  // the same step if the full roof were reached, without overhead
  StepTime prefill;        // of the whole prompt
  StepTime decode;         // of one step
};
Prediction Predict(const Deployment& deployment);

}  // namespace hone
