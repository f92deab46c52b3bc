// Quantising a decoder layer by layer from what goes through it: the inputs of each layer's matrices are summed up
// (moments.h), the matrices quantised, and the layer is run again as quantised, so that later layers learn to make up
// for earlier ones. One layer's weights are in memory, and the residual streams of the calibration text.
//
// What a matrix becomes is a UnitCodec's business. Finished matrices go to a WorkFile, a piece a matrix; a job that is
// killed goes on with the piece after the last to the same bytes (layers before it are run again, not quantised).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/calibrate/collect.h"
#include "compress/gptq/sweep.h"
#include "compress/layerwise/moments.h"
#include "compress/work_file.h"
#include "models/layer_walk.h"

namespace hone {

// A matrix that is quantised: a weight of the model, or a tensor of the file that several of them share.
struct LayerUnit {
  std::string name;                // in the file; canonical where `split`
  std::vector<std::string> parts;  // canonical weights, whose rows follow each other
  std::string input;               // units of the same layer and input read the same rows
  int layer = 0;
  bool expert = false;  // sees only the tokens that are routed to it
  TensorView view;      // of all parts
  std::shared_ptr<const QuantizedMatrix> quantized = nullptr;  // its rows from first_row on, if it is stored so: then view has no data
  int64_t first_row = 0;
  int64_t rows() const { return view.shape[0]; }
  int64_t columns() const { return view.shape[1]; }
};

// The linear layers of a model, layer by layer, those of an input together. `split`: weights that share a tensor of the
// file are units of their own.
std::vector<LayerUnit> ListLayerUnits(const WeightMap& map, bool split);
// What it holds. The error names a weight that is no finite number.
Result<std::vector<float>> ReadUnit(const Checkpoint& checkpoint, const LayerUnit& unit, ThreadPool& threads);
// Layers that engines run as one matrix, by canonical name: q, k, v; gate, up of one expert. Else the name itself.
std::string SharedInput(const std::string& canonical);

enum class UnitFallback : uint8_t { kNone, kMoreDamping, kRounding, kFewTokens };

struct UnitReport {
  uint64_t tokens = 0;
  double output_error = 0;  // sqrt(sum |x (w' - w)|^2 / sum |x w|^2) over the calibration text, of some rows
  double damping = 0;
  int64_t dead_columns = 0;
  UnitFallback fallback = UnitFallback::kNone;
  bool resumed = false;  // from an earlier run: only `tokens` and below are unknown
};

class UnitCodec {
 public:
  virtual ~UnitCodec() = default;
  virtual size_t piece_bytes(const LayerUnit& unit) const = 0;
  // How columns are taken: one factor serves all units of an input that agree.
  virtual ColumnOrder order(const LayerUnit& unit) const = 0;
  virtual int64_t order_group(const LayerUnit& unit) const = 0;
  // w: [rows, columns]; piece: piece_bytes.
  virtual Result<void> Encode(const LayerUnit& unit, std::span<const float> w, const GptqFactor& factor,
                              std::span<std::byte> piece) = 0;
  // Back to [rows, columns].
  virtual void Decode(const LayerUnit& unit, std::span<const std::byte> piece, std::span<float> w) = 0;
};

struct LayerwiseOptions {
  double damping = 0.01;
  bool matrix_by_matrix = false;  // inputs are collected anew after each group of matrices of a layer ("true sequential")
  uint64_t moments_bytes = 0;     // most for the sums of one pass over the text; 0: no limit. More passes beyond it
  double least_share = 0.005;     // experts that see a smaller share of the tokens are rounded to nearest
  const TensorView* embedding = nullptr;  // in place of the file's
  std::string stream_file;        // the text's streams lie in a file of this name (StreamOptions); "": in memory
  std::function<bool(double share, const std::string& what)> progress;  // false stops with kCancelled
};

struct LayerwiseReport {
  std::vector<UnitReport> units;
  std::vector<std::string> warnings;
  uint64_t tokens = 0, chunks = 0, dropped_tokens = 0;
};

// Peak memory beyond the file's pages.
uint64_t LayerwiseMemory(const ModelConfig& config, const std::vector<LayerUnit>& units, const CalibrationText& text,
                         const LayerwiseOptions& options);

// Chooses where the streams lie (`file`) and how many sums are collected at once so that the peak is at most `bytes`; what is
// quantised does not depend on it. The peak, which is more than `bytes` where nothing helps.
uint64_t FitLayerwise(const ModelConfig& config, const std::vector<LayerUnit>& units, const CalibrationText& text,
                      uint64_t bytes, const std::string& file, LayerwiseOptions* options);

// Errors: weights or inputs that are not finite (named), no text, a stop.
Result<LayerwiseReport> QuantizeLayers(LayerWalk& walk, const std::vector<LayerUnit>& units,
                                       const CalibrationText& text, UnitCodec& codec, const LayerwiseOptions& options,
                                       WorkFile& work, const Runtime& runtime);

}  // namespace hone
