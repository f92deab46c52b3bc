// QuantizedFolder: what config.json's quantization_config says about a Hugging Face folder's matrices, and the matrices
// themselves. Which ones are quantised, with how many bits and in which groups is read from the tensors that are there;
// the configuration says only what tensors do not (the method, GPTQ's version, blocks).
//
// A format is one file here and one line in formats.inc.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "models/quantized/quantized_matrix.h"

namespace hone {

// One matrix that a format is asked for.
struct QuantizedSource {
  const Checkpoint& checkpoint;
  const JsonConfig& config;  // quantization_config
  std::string module;        // "model.layers.0.mlp.down_proj"
  int64_t rows, columns;     // what the model wants

  const NamedTensor* Find(std::string_view suffix) const;  // module + suffix, nullptr if it is not there
  // The tensor, of one of these types and of this shape, or an error that names found and wanted.
  Result<const NamedTensor*> Need(std::string_view suffix, std::initializer_list<DType> types, const Shape& shape) const;
  std::string where() const { return checkpoint.path() + ": " + module; }
  // An error about this matrix: found, wanted.
  Error Bad(const std::string& what) const;
};

// nullptr: this module is not quantised.
using OpenQuantized = Result<std::shared_ptr<const QuantizedMatrix>> (*)(const QuantizedSource& source);

class QuantizedFolder {
 public:
  // Nothing (has_value() with !quantized()) for GGUF files and for folders whose configuration says nothing.
  // Errors: an unknown quant_method (lists the known ones), options of it that hone does not read.
  static Result<QuantizedFolder> Make(const Checkpoint& checkpoint);

  bool quantized() const { return open_ != nullptr; }
  std::string_view method() const { return method_; }
  // The matrix that stands for tensor `name`, which the model wants as [rows, columns]; nullptr: it is no quantised one.
  Result<std::shared_ptr<const QuantizedMatrix>> Find(std::string_view name, int64_t rows, int64_t columns) const;

 private:
  const Checkpoint* checkpoint_ = nullptr;
  std::string method_;
  std::shared_ptr<const JsonConfig> config_;
  OpenQuantized open_ = nullptr;
};

// What `quantization_config` (or compression_config) of this object says, checked as Make does; used by the reader of
// configurations, so that an unknown method is known before any tensor is looked at.
Result<void> CheckQuantization(const JsonConfig& json);

}  // namespace hone
