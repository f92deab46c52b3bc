// How much each matrix matters for what a model says, measured: a few matrices at a time are quantised, the model is run on
// text, and the divergence of its next tokens from those of the original is taken. All runs go through the layers side by
// side, each layer loaded once a group (models/layer_walk.h), so that memory does not depend on the number of layers.
//
// Errors of weights alone say nothing of this: the same share of error costs a hundred times as much in some matrices as in
// others. Divergence grows with the square of an error, so one measurement a matrix is enough to price all types.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/calibrate/collect.h"
#include "compress/imatrix/imatrix.h"
#include "models/layer_walk.h"
#include "tensor/dtype.h"

namespace hone {

// Rows that are run at once: a walk needs room for as many.
inline constexpr int kSensitivityRows = 256;

struct SensitivityOptions {
  std::map<std::string, DType> probes;  // the type that each tensor of the GGUF file is quantised to; others are left alone
  const Imatrix* imatrix = nullptr;
  std::string work_path;      // files of this beginning hold what memory_bytes has no room for
  uint64_t memory_bytes = 0;  // 0: no limit
  double budget_flops = 6e13;  // decides how many tokens are run and how many matrices go together
  std::function<bool(double share)> progress;  // false stops with kCancelled
};

// Tensors that were quantised together, and the mean divergence (nats a token) that this made.
struct SensitivityGroup {
  std::vector<std::string> tensors;
  double divergence = 0;
};

struct Sensitivity {
  std::vector<SensitivityGroup> groups;  // empty: the budget is too small for this model
  uint64_t tokens = 0;
};

// `text`: windows spread over it are run. Errors: a stop, a quantised model (there is no original to compare with), logits
// that are not finite. The same text, types and budget give the same groups and tokens. REQUIRES: walk.max_rows() is at least
// kSensitivityRows.
Result<Sensitivity> MeasureSensitivity(LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options,
                                       const Runtime& runtime);

// Peak memory of it with all streams in files: a layer, two output matrices, logits, a window of every stream.
uint64_t LeastSensitivityMemory(const LayerWalk& walk, size_t probes);

// KL divergence of two rows of logits, in nats. Exposed for tests.
double LogitDivergence(const float* base, const float* other, int64_t vocab);

}  // namespace hone
