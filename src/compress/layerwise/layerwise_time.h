// How long quantising layer by layer will take, from a sample of its three kinds of work on this machine: products of many
// rows (forward passes and second moments), factors of second moments, the sweep over columns.
#pragma once

#include <cstdint>
#include <vector>

#include "base/runtime.h"
#include "compress/layerwise/layer_quantizer.h"

namespace hone {

// Seconds, for plans: right within about a factor of two. Takes a few tenths of a second.
double EstimateLayerwiseSeconds(const std::vector<LayerUnit>& units, uint64_t tokens, const Runtime& runtime);

// Operations (multiply and add as one) of each kind. Exposed for tests.
struct LayerwiseWork {
  double products = 0, factors = 0, sweeps = 0;
};
LayerwiseWork CountLayerwiseWork(const std::vector<LayerUnit>& units, uint64_t tokens);

}  // namespace hone
