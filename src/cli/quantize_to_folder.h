// hone quantize --method: a Hugging Face folder into another with quantised linear layers. The other half of
// cli/quantize.cc, which writes GGUF.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/calibration_text.h"
#include "cli/common_flags.h"
#include "cli/quantize_quality.h"
#include "cli/quantize_report.h"
#include "compress/folder/linear_format.h"
#include "compress/layerwise/layer_quantizer.h"

namespace hone {

struct FolderRequest {
  std::string in, out;
  LinearScheme scheme;
  std::string recipe;               // a file of the matrices that are kept; "": all are quantised
  CalibrationFlags calibration;     // gptq
  LayerwiseOptions layerwise;       // gptq; progress is set here
  double smoothing = 0.5;           // smoothquant's alpha
  QualityRequest quality;  // original and result are filled in here
  bool measure = true;
  bool plan_only = false, resume = false, force = false;
  uint64_t memory_bytes = 0;  // --memory; never 0
  std::string kv_scheme;      // fp8, int8; "": the cache is not spoken of
  std::string kv_ranges;      // a file of hone calibrate --kv-scales; "": collected here
  bool kv_per_head = false;
  bool allow_requantize = false;  // input that is quantised already
};

// Returns the exit code. Paths and flags of their own kind are checked here; `outcome` gets what the ledger wants.
Result<int> QuantizeToFolder(const FolderRequest& request, const CommonFlags& flags, const Runtime& runtime,
                             QuantizeOutcome* outcome);

// --method bcq: what binary codes would give, on standard output. Nothing is written: without `plan_only` that is the error
// that follows.
Result<int> ReportBcq(const std::string& in, const LinearScheme& scheme, bool plan_only, const CommonFlags& flags,
                      const Runtime& runtime);

}  // namespace hone
