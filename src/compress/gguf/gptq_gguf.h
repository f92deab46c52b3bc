// GPTQ into the block types of a GGUF plan: the matrices of the layers are made layer by layer (layerwise/), in a work
// file of their own beside the output; QuantizeToGguf then takes their rows from there (QuantizeOptions::given). What is
// not a layer's matrix is quantised as ever.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "compress/gguf/quantize_gguf.h"
#include "compress/layerwise/layer_quantizer.h"

namespace hone {

class GptqGguf {
 public:
  // `plan`: of the same model as `walk`. Finished rows lie in `path`.gptq.partial.
  static Result<std::unique_ptr<GptqGguf>> Make(LayerWalk& walk, const QuantizePlan& plan, const std::string& path);
  virtual ~GptqGguf() = default;

  // FitLayerwise for this job; streams that do not fit lie in a file beside the output. The peak.
  virtual uint64_t Fit(const CalibrationText& text, uint64_t bytes, LayerwiseOptions* options) const = 0;
  // Quantises, or goes on with a job that was stopped.
  virtual Result<LayerwiseReport> Run(const CalibrationText& text, const LayerwiseOptions& options, bool resume,
                                      const Runtime& runtime) = 0;
  virtual const std::vector<LayerUnit>& units() const = 0;
  // The rows of a tensor of the file, in the plan's type; nullptr where it is none of ours. After Run.
  virtual const std::byte* Row(const std::string& tensor, int64_t row) const = 0;
  virtual uint64_t fingerprint() const = 0;  // of all that decides the rows
  virtual void Remove() = 0;                 // the work file, when the output is complete
  static std::string WorkPath(const std::string& path) { return path + ".gptq.partial"; }
};

}  // namespace hone
