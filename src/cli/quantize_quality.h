// What quantising has cost and gained, measured: divergence from the original on held-out text, and tokens a second of
// both. What the end of hone quantize says.
#pragma once

#include <string>

#include "base/result.h"
#include "base/runtime.h"
#include "cli/common_flags.h"
#include "measure/divergence.h"

namespace hone {

struct QualityRequest {
  std::string original, result;  // MODEL each
  std::string text;              // file; "": the held-out text that comes with hone
  int windows = 8;               // of 512 tokens, the second half scored
  uint64_t memory_bytes = 0;     // where both models do not fit, they are run one after the other; 0: no limit
};

struct Quality {
  std::string skipped;  // why nothing was measured; "": it was
  std::string text;
  int windows = 0;
  DivergenceFigures figures;
  double prefill_before = 0, prefill_after = 0, decode_before = 0, decode_after = 0;  // tokens a second
};

// Errors: a text that was asked for and cannot be read. What hone cannot run, or has no memory for, is skipped and says why.
Result<Quality> MeasureQuality(const QualityRequest& request, const CommonFlags& flags, const Runtime& runtime);

std::string QualityText(const Quality& quality);
std::string QualityJson(const Quality& quality);  // a JSON object

}  // namespace hone
