// Calibration text as tokens, for commands that run a model over it.
#pragma once

#include <string>

#include "base/result.h"
#include "compress/calibrate/collect.h"
#include "models/config.h"
#include "text/tokenizer.h"

namespace hone {

struct CalibrationFlags {
  std::string file;  // "": the sample that comes with hone; "-": standard input
  int chunk = 512;   // tokens of a chunk
  int chunks = 0;    // at most; 0: all of the text
  bool parse_special = false;
};

// The path of the sample that comes with hone.
Result<std::string> CalibrationSample();

// Errors name the file: no tokens, tokens that the model does not have.
Result<CalibrationText> ReadCalibrationText(const CalibrationFlags& flags, const Tokenizer& tokenizer,
                                            const ModelConfig& config);

}  // namespace hone
