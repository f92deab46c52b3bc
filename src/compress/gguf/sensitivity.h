// How much each matrix matters for what a model says, measured: a few matrices at a time are quantised, the model is run on
// text, and the divergence of its next tokens from those of the original is taken. A few runs at a time go through the layers side
// by side, from the first layer that they change (models/layer_walk.h), so that memory does not depend on the number of layers
// and what is measured is kept before the job ends (sensitivity_log.h).
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
#include "compress/gguf/sensitivity_log.h"
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
  SensitivityLog* log = nullptr;  // groups that it has are not measured; those that are go there. Of MakeSensitivityKey
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
  size_t measured = 0;  // groups that the log did not have
};

// Which tensors go together and how many tokens are run: none where the budget is too small for this model.
struct SensitivityPlan {
  std::vector<std::vector<std::string>> groups;
  uint64_t tokens = 0;
};
SensitivityPlan PlanSensitivity(const LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options);
// Reads all weights of the model; `options.progress` may stop it.
Result<SensitivityKey> MakeSensitivityKey(const LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options);
// How long the groups that the log does not have will take, from a sample of the work on this machine.
Result<double> EstimateSensitivitySeconds(LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options,
                                          const Runtime& runtime);

// `text`: windows spread over it are run. Errors: a stop, a quantised model (there is no original to compare with), logits
// that are not finite. The same text, types and budget give the same groups and tokens. What a log has
// makes no difference to the result. REQUIRES: walk.max_rows() is at least kSensitivityRows.
Result<Sensitivity> MeasureSensitivity(LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options,
                                       const Runtime& runtime);

// Peak memory of it with all streams in files: a layer, two output matrices, logits, a window of every stream.
uint64_t LeastSensitivityMemory(const LayerWalk& walk, size_t probes);

}  // namespace hone
