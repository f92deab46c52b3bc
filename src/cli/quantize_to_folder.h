// hone quantize --method: a Hugging Face folder into another with quantised linear layers. The other half of
// cli/quantize.cc, which writes GGUF.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/calibration_text.h"
#include "cli/common_flags.h"
#include "cli/quantize_quality.h"
#include "compress/folder/linear_format.h"
#include "compress/layerwise/layer_quantizer.h"

namespace hone {

struct FolderRequest {
  std::string in, out;
  LinearScheme scheme;
  CalibrationFlags calibration;     // gptq
  LayerwiseOptions layerwise;       // gptq; progress is set here
  double smoothing = 0.5;           // smoothquant's alpha
  QualityRequest quality;  // original and result are filled in here
  bool measure = true;
  bool plan_only = false, resume = false, force = false;
};

// Lines of a summary: what the text was, what fell back and why. "" without a layerwise report.
std::string LayerwiseText(const LayerwiseReport& report);

// Returns the exit code. Paths and flags of their own kind are checked here.
Result<int> QuantizeToFolder(const FolderRequest& request, const CommonFlags& flags);

}  // namespace hone
