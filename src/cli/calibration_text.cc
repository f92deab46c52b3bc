// See calibration_text.h.
#include "cli/calibration_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "cli/input.h"
#include "cli/model_path.h"

namespace hone {

Result<std::string> CalibrationSample() {
  // Not a constant: g++ 12 would take sums with one of that length for overflows (its bug 105329).
  const std::string what = fmt::format("hone's calibration sample, which is read where {} names no text", "--calibration");
  HONE_TRY(const std::string assets, AssetsFolder().Context(what));
  const std::string sample = assets + "/calibration/sample.txt";
  std::error_code ignored;
  if (!std::filesystem::exists(sample, ignored)) return NotFound(fmt::format("{}: {} is not there", what, sample));
  return sample;
}

Result<CalibrationText> ReadCalibrationText(const CalibrationFlags& flags, const Tokenizer& tokenizer,
                                            const ModelConfig& config) {
  std::string file = flags.file;
  if (file.empty()) {
    HONE_TRY(file, CalibrationSample());
  }
  HONE_TRY(const std::string bytes, ReadText(file));
  CalibrationText text;
  text.tokens = tokenizer.Encode(bytes, {.add_special = true, .parse_special = flags.parse_special});
  if (text.tokens.empty()) return InvalidInput(file + ": no tokens; calibration needs text");
  if (text.tokens.size() == 1 && bytes.empty()) return InvalidInput(file + ": empty; calibration needs text");
  for (const int32_t id : text.tokens) {
    if (id < 0 || id >= config.vocab)
      return InvalidInput(fmt::format("{}: token {} of the tokenizer is not in the model's vocabulary of {}", file, id,
                                      config.vocab));
  }
  text.chunk_tokens = std::min(flags.chunk, config.context);
  if (flags.chunks > 0)
    text.tokens.resize(std::min<size_t>(text.tokens.size(), static_cast<size_t>(flags.chunks) * text.chunk_tokens));
  if (tokenizer.adds_bos() && tokenizer.bos()) text.bos = *tokenizer.bos();
  return text;
}

}  // namespace hone
