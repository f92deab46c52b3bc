// Column scales: before rounding, the columns of matrices that share an input are multiplied by s, and what makes that
// input is divided by it, which changes nothing but what rounding costs. SmoothQuant (Xiao et al. 2022, arXiv
// 2211.10438), here, moves the range of activations into weights; AWQ (Lin et al. 2023, arXiv 2306.00978), in awq.h,
// protects columns that large activations read.
//
// Where scales go is an explicit map (Taker): q, k, v's into attn_norm; gate's and up's of a dense feed-forward into
// ffn_norm; attention's output's into the rows of attn_v where there are as many heads of values as of queries; down's of
// a gated dense feed-forward into the rows of ffn_up. Experts are left as they are, and so are q, k, v, gate, up without
// a norm before them (OLMo 2).
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
#include "models/layer_walk.h"
#include "models/weight_map.h"

namespace hone {

struct InputStats {
  int64_t columns = 0;
  uint64_t tokens = 0;
  std::vector<float> max;         // of |x|, a column
  std::vector<double> sum, sum2;  // of |x| and x^2
  void Add(const float* x, int64_t stride, int64_t rows);
};

// Statistics of the inputs of a model's matrices, by SharedInput name. One layer's weights are in memory. Errors: no
// text, an input that is not finite (named), a stop.
Result<std::map<std::string, InputStats>> CollectInputStats(LayerWalk& walk, const CalibrationText& text,
                                                            const std::function<bool(double)>& progress);
// An error that names the input and the column.
Result<void> CheckFinite(const std::map<std::string, InputStats>& stats);
// The one canonical weight of each shared input that speaks for it, to the input.
std::map<std::string, std::string> InputSpeakers(const WeightMap& map);

// Scales of the columns of all matrices of an input, and what is divided by them.
struct ColumnScale {
  std::vector<float> scale;  // [columns], finite and positive
  std::string taker;         // canonical name of a norm, or of a matrix whose rows (and bias) take 1 / scale
  double gain = 0;           // AWQ: loss over the loss without scales; SmoothQuant: 0
};
using ColumnScales = std::map<std::string, ColumnScale>;  // by input

// What an input's scales can go into; "" where there is nothing.
std::string Taker(const WeightMap& map, const std::string& input);

// s_j = max|x_j|^alpha / max|w_j|^(1 - alpha), at least 1e-5; inputs whose taker is a norm, as the authors' code.
Result<ColumnScales> SmoothQuantScales(const LayerWalk& walk, const std::map<std::string, InputStats>& stats,
                                       double alpha, const Runtime& runtime);

// Of all units of inputs: the largest |x_j / s_j| that calibration saw, by input: what static scales of activations come
// from.
std::map<std::string, float> LargestInputs(const std::map<std::string, InputStats>& stats, const ColumnScales& scales);

}  // namespace hone
