// A model into a GGUF file of a named type: planned before any work, done row by row in bounded memory, resumable after
// any kind of death, and verified before it gets its name.
//
// The tensor bytes, the order and the metadata are those of llama.cpp's quantizer for the same input and flags.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/gguf/mixture.h"
#include "compress/imatrix/imatrix.h"
#include "compress/tensor_source.h"

namespace hone {

struct QuantizeOptions {
  const GgufFileType* file_type = nullptr;
  bool pure = false;
  const Imatrix* imatrix = nullptr;  // nullptr: none
  std::string imatrix_path;          // as the file shall name it
  std::map<std::string, DType> types;  // of tensors that shall not have the file type's own (recipe.h)
  bool allow_requantize = false;     // input that is quantised already
  uint64_t memory_bytes = 0;         // the job's buffers are cut to fit; 0: as large as is fast
  // Rows that somebody has quantised already (GPTQ), in the plan's type; nullptr: none of his. May be empty. Thread-safe.
  std::function<const std::byte*(const std::string& tensor, int64_t row)> given;
  uint64_t given_fingerprint = 0;  // of what decides them
};

struct TensorPlan {
  std::string name;
  Shape shape;
  DType from = DType::kF32, to = DType::kF32;
  bool importance = false;
  std::string note;  // why not the file type's own rule
  uint64_t bytes() const { return BytesFor(to, shape.elements()); }
  double bits_per_weight() const {
    return shape.elements() == 0 ? 0 : 8.0 * static_cast<double>(bytes()) / static_cast<double>(shape.elements());
  }
};

struct QuantizePlan {
  std::vector<TensorPlan> tensors;
  std::vector<std::pair<std::string, GgufValue>> metadata;
  uint64_t bytes_before = 0, bytes = 0, disk_bytes = 0;
  uint64_t peak_memory_bytes = 0, least_memory_bytes = 0;  // with these options; with the smallest buffers
  int64_t chunk_weights = 0;                               // rows are read, quantised and written so many weights at a time
  double bits_per_weight = 0, seconds = 0;  // seconds: an estimate from a sample of each type on this machine
  std::vector<std::string> warnings;
};

// Errors: input that is quantised already or cannot be read, an importance matrix of another model, a file type that
// needs one. More memory than memory_bytes is no error here: the caller knows what else there is. Takes a few hundredths
// of a second.
Result<QuantizePlan> PlanQuantize(const TensorSource& source, const QuantizeOptions& options, const Runtime& runtime);

struct TensorReport {
  double relative_error = 0;  // sqrt(sum (w' - w)^2 / sum w^2)
  double max_error = 0;       // max |w' - w|
  double power = 0;           // sum w^2
};

struct QuantizeReport {
  std::vector<TensorReport> tensors;  // as the plan's
  double relative_error = 0;          // over all tensors whose type changed
  double quantize_s = 0, verify_s = 0;
  size_t resumed_tensors = 0;  // taken from an earlier run
};

struct QuantizeRun {
  bool resume = false;
  // Called now and then with what is done (weights) and what is to do; false stops with kCancelled, resumable.
  std::function<bool(const char* stage, uint64_t done, uint64_t total)> progress;
  // Called with the path of the finished, not yet named file: a check of the caller's own. May be empty.
  std::function<Result<void>(const std::string& path)> check;
  uint64_t there_bytes = 0;  // of the plan's disk_bytes, what lies on the disk already beside `path`.partial
};

// Writes `path`. Work in progress lies in `path`.partial and is kept on errors but those of the input itself. Errors: disk too small, NaN or infinity
// in a weight (named), a scale that its type cannot hold, what `check` says.
Result<QuantizeReport> QuantizeToGguf(const TensorSource& source, const QuantizePlan& plan, const std::string& path,
                                      const QuantizeOptions& options, const QuantizeRun& run, const Runtime& runtime);

}  // namespace hone
