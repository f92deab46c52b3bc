// Routing of tokens to experts: which experts a token takes, and with which weights.
#pragma once

#include <cstdint>

namespace hone {

struct RouteParams {
  int experts = 0;
  int chosen = 0;              // experts a token takes
  bool softmax_first = true;   // softmax over all experts, then take the best (Qwen-MoE); false: softmax over the chosen
                               // ones' logits (Mixtral: the same as softmax first, then renormalise)
  bool renormalise = true;     // weights of the chosen experts are divided by their sum
};

// For each of `rows` rows of router logits [experts]: writes `chosen` expert ids, best first (lower id first on a tie), and
// their weights. One thread, pure, double accumulation.
void RouteExperts(const RouteParams& params, const float* logits, int64_t rows, int32_t* ids, float* weights);

}  // namespace hone
