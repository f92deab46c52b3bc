// Column scales: before rounding, the columns of matrices that read the same norm are multiplied by s and the norm's
// weight is divided by it, which changes nothing but what rounding costs. SmoothQuant (Xiao et al. 2022, arXiv
// 2211.10438) moves the range of activations into weights; AWQ (Lin et al. 2023, arXiv 2306.00978) protects columns
// that large activations read.
//
// Where scales go is an explicit map: q, k, v into attn_norm, gate and up of a dense feed-forward into ffn_norm. Layers
// without such a norm before them (OLMo 2), experts, attention's output and down are left as they are. AWQ's loss here is
// of the matrices' outputs on sampled inputs, not of the whole block's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/calibrate/collect.h"
#include "compress/layerwise/layer_quantizer.h"
#include "models/model.h"
#include "models/weight_map.h"

namespace hone {

struct InputStats {
  int64_t columns = 0;
  uint64_t tokens = 0;
  std::vector<float> max;         // of |x|, a column
  std::vector<double> sum, sum2;  // of |x| and x^2
  std::vector<float> samples;     // [n][columns], inputs spread over the text
};

// Runs the model over the text; statistics by SharedInput name. At most `samples` inputs of each are kept. Errors as of
// CollectImatrix. REQUIRES: as CollectImatrix.
Result<std::map<std::string, InputStats>> CollectInputStats(Model& model, const WeightMap& map,
                                                            const CalibrationText& text, int64_t samples,
                                                            const std::function<bool(double)>& progress);

// Scales of the columns of all units of an input, and the norm that they go into.
struct ColumnScale {
  std::vector<float> scale;  // [columns], finite and positive
  std::string norm;          // canonical name
  double gain = 0;           // AWQ: loss over the loss without scales; SmoothQuant: 0
};
using ColumnScales = std::map<std::string, ColumnScale>;  // by input

// The norm that an input's scales can go into; "" where there is none.
std::string NormOf(const WeightMap& map, const std::string& input);

// s_j = max|x_j|^alpha / max|w_j|^(1 - alpha), at least 1e-5.
Result<ColumnScales> SmoothQuantScales(const WeightMap& map, const std::vector<LayerUnit>& units,
                                       const std::map<std::string, InputStats>& stats, double alpha,
                                       const Runtime& runtime);

// Of s_j = mean|x_j|^(k/20) / (mean share of the group's largest |w_j|)^(1 - k/20), k = 0 .. 19, and no scale at all, the
// one with the least squared error of the outputs on the samples, weights rounded to `bits` in groups with zero points.
Result<ColumnScales> AwqScales(const WeightMap& map, const std::vector<LayerUnit>& units,
                               const std::map<std::string, InputStats>& stats, int bits, int64_t group,
                               const std::function<bool(double)>& progress, const Runtime& runtime);

}  // namespace hone
