// AWQ (Lin et al. 2023, arXiv 2306.00978) as AutoAWQ does it, layer by layer with one layer's weights in memory.
//
// Scales: for each input that has a Taker (column_scales.h), s_j = mean|x_j|^r / (mean share of the group's largest
// |w_j|)^(1 - r), r = k / 20, k = 0 .. 19, over sqrt(max s * min s); kept is the one with the least squared error of what
// reads the matrices: the attention's output for q, k, v; the feed-forward's for gate, up; the matrix's own for
// attention's output and down. All searches of a layer run on the layer as it is in the file; the scales are then applied
// together. No scale at all is tried too: the authors do not.
//
// Clips: of each group of the scaled weights the range of 100, 95 .. 55 % with the least mean squared error of the
// group's part of the output. Not of q and k, and not of experts that few tokens reached.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/numbers/uniform.h"
#include "compress/scale/column_scales.h"
#include "models/layer_walk.h"

namespace hone {

struct AwqOptions {
  int bits = 4;
  int64_t group = 128;  // columns; 0: a whole row
  bool symmetric = false;
  bool duo = true;             // weights count in s; false: s = mean|x|^r
  uint64_t loss_tokens = 512;  // errors of outputs are summed over whole chunks with about so many tokens; at least one
  std::function<bool(double share, const std::string& what)> progress;  // false stops with kCancelled
  // "": nothing is kept. Else a work file that keeps what was found for each layer; with `resume` layers that an earlier search of
  // the same job has finished are taken from there. It stays, for the caller to remove once all is done (RemoveKeptAwq); a fault
  // of the input leaves none.
  std::string work_path;
  bool resume = false;
};

struct AwqChoice {
  ColumnScales scales;
  std::map<std::string, std::vector<float>> clips;    // by canonical matrix: the largest |w s| [rows, groups]
  std::map<std::string, std::vector<double>> losses;  // by input, a number of outputs: of k = 0 .. 19, then unscaled
};

// The grid that ranges are searched for and codes made with.
GridSpec AwqGrid(int bits, bool symmetric);

// Errors: no text; weights or inputs that are not finite, named; a stop. REQUIRES: groups divide all columns.
Result<AwqChoice> ChooseAwq(LayerWalk& walk, const CalibrationText& text, const AwqOptions& options,
                            const Runtime& runtime);
void RemoveKeptAwq(const std::string& work_path);
// The ranges of the groups of w [rows, columns], scales in it, that lose least on inputs x [tokens, columns], scales out
// of them. REQUIRES: whole groups.
std::vector<float> ChooseClips(const GridSpec& spec, const std::vector<float>& w, const std::vector<float>& x,
                               int64_t columns, int64_t group, const Runtime& runtime);
// Memory beyond the file's pages.
uint64_t AwqMemory(const ModelConfig& config, const WeightMap& map, const CalibrationText& text,
                   const AwqOptions& options);

// Rows [rows, columns] of one matrix, cut to its clips.
void ClipWeights(const std::vector<float>& clip, int64_t rows, int64_t columns, int64_t group, float* w);

}  // namespace hone
