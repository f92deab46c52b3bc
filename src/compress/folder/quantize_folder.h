// A Hugging Face folder into another whose linear layers are quantised: planned before any work, one layer in memory at
// a time, resumable, verified before it gets its name. Embeddings, norms, routers and lm_head stay as they are, and so
// do all files beside the weights; config.json gains quantization_config.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/calibrate/kv_ranges.h"
#include "compress/folder/linear_format.h"
#include "compress/folder/quantized_input.h"
#include "compress/layerwise/layer_quantizer.h"
#include "compress/scale/column_scales.h"
#include "formats/checkpoint.h"

namespace hone {

struct FolderTensor {
  std::string name;    // a matrix of the input
  std::string tensor;  // that holds it: another name for stacked experts
  std::string input;   // FolderLinear::input
  TensorView view;     // borrows the input; F32 without data where `stored` is set
  int64_t rows = 0, columns = 0;
  DType dtype = DType::kBF16;
  uint64_t bytes_before = 0, bytes = 0;
  std::shared_ptr<const QuantizedMatrix> stored = nullptr;  // what it is in a quantised input
  double bits_per_weight() const { return 8.0 * static_cast<double>(bytes) / static_cast<double>(rows * columns); }
};

struct FolderPlan {
  std::string not_run;                                           // FolderLinears::not_run
  std::vector<std::pair<std::string, std::string>> passed_over;  // and its matrices that are no linear layers
  std::vector<FolderTensor> tensors;                                            // that are quantised
  QuantizedInput input;                                                         // its matrices: those that become plain ones
  std::vector<std::string> kept_matrices;                                       // that could be, by name
  std::vector<std::string> kept_modules;                                        // of those and of routers, for readers to know
  std::vector<TensorInfo> copied;                                               // that stay as they are, or become plain ones
  double weights = 0;                                                           // of all
  uint64_t bytes_before = 0, bytes = 0, disk_bytes = 0, peak_memory_bytes = 0;  // of all
};

// Errors: GGUF input, input that is quantised already unless `allow_requantize`, a layer whose shape the format cannot hold (all are named).
// `keep`: matrices that stay as they are (kept_modules.h).
Result<FolderPlan> PlanFolder(const Checkpoint& checkpoint, const LinearFormat& format, const std::set<std::string>& keep = {},
                              bool allow_requantize = false);
// The module that a matrix is of: its name without ".weight".
std::string ModuleOf(const std::string& name);
inline constexpr int kFolderLanes = 4;  // matrices that are made at once, at most
// The plan's tensors as units, in its order.
std::vector<LayerUnit> PlannedUnits(const FolderPlan& plan, const WeightMap& map);

// What GPTQ needs beside the format.
struct FolderGptq {
  LayerWalk* walk = nullptr;
  const CalibrationText* text = nullptr;
  LayerwiseOptions options;  // progress and damping included
};

// What AWQ and SmoothQuant need.
struct FolderScales {
  ColumnScales scales;
  std::map<std::string, std::vector<float>> clips;  // AWQ: by canonical matrix, as ClipWeights takes them
  std::map<std::string, float> largest_inputs;      // by input, for static scales of activations
};

struct FolderReport {
  LayerwiseReport layerwise;  // units as the plan's tensors; empty without GPTQ
  std::vector<double> relative_error, max_error, power;  // as the plan's tensors; power: sum of squares of the weights
  double overall_error = 0, quantize_s = 0, verify_s = 0;
  size_t resumed_tensors = 0;
};

struct FolderRun {
  bool resume = false;
  const FolderGptq* gptq = nullptr;  // for method gptq
  const KvCacheScales* kv = nullptr;  // tensors and config of a quantised cache; format compressed-tensors only
  const FolderScales* scales = nullptr;  // for methods awq and smoothquant
  bool overwrite = false;  // what has the name already is replaced when the new folder is complete
  std::function<bool(const char* stage, uint64_t done, uint64_t total)> progress;  // bytes of the input; false stops
};

// `scheme` is what made `format`: it is part of what --resume compares.
Result<FolderReport> QuantizeFolder(const Checkpoint& checkpoint, const LinearFormat& format,
                                    const LinearScheme& scheme, const FolderPlan& plan, const std::string& path,
                                    const FolderRun& run, const Runtime& runtime);

}  // namespace hone
