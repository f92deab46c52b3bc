// How long quantising layer by layer will take, from a sample of its kinds of work on this machine: forward passes, sums of
// second moments, their factors, the sweep over columns.
#pragma once

#include <cstdint>
#include <vector>

#include "base/runtime.h"
#include "compress/layerwise/layer_quantizer.h"

namespace hone {

// Seconds, for plans: right within about a factor of two. Takes a few tenths of a second.
double EstimateLayerwiseSeconds(const std::vector<LayerUnit>& units, uint64_t tokens, const Runtime& runtime);

// The forward passes alone, each matrix once.
double EstimateForwardSeconds(const std::vector<LayerUnit>& units, uint64_t tokens, const Runtime& runtime);

// Operations (multiply and add as one) of each kind. Exposed for tests.
struct LayerwiseWork {
  double forward = 0, moments = 0, factors = 0;
  double rounded = 0, sweeps = 0;  // weights that are rounded (scales searched too), and what their errors do to others
};
LayerwiseWork CountLayerwiseWork(const std::vector<LayerUnit>& units, uint64_t tokens);

}  // namespace hone
