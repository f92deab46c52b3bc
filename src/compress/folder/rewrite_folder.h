// The matrices of a quantised Hugging Face folder in another format that says the very same numbers: codes, zero points,
// scales and groups are packed anew, never rounded; or they are dequantised. What the other format cannot say is refused
// with the reason, before anything is written.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "compress/folder/linear_format.h"
#include "formats/checkpoint.h"
#include "formats/named_tensor.h"
#include "models/convert_rows.h"
#include "models/weight_map.h"

namespace hone {

// What a quantization_config says beside its matrices and other formats cannot say, for people; "" where it is nothing.
Result<std::string> SaidBesideMatrices(const JsonConfig& quantization);

class FolderRewrite {
 public:
  // `format`: a name of Formats(). `plain`: the type of dequantised matrices. Borrows the checkpoint.
  static Result<std::unique_ptr<FolderRewrite>> Make(const Checkpoint& checkpoint, const std::string& format, DType plain,
                                                     const Runtime& runtime);
  static const std::vector<std::string>& Formats();  // "gptq", "gptq-v2", "awq", "compressed-tensors", "safetensors"

  // Tensors of the checkpoint that are not in the new folder, and those that take their place.
  bool Drops(const std::string& tensor) const { return dropped_.count(tensor) > 0; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  bool Makes(const std::string& tensor) const { return where_.count(tensor) > 0; }
  uint64_t weights() const { return weights_; }  // of the matrices
  // The bytes of one of tensors(), whose matrix was seen to read back as the same numbers. Neighbours are cheap.
  Result<std::span<const std::byte>> Bytes(const std::string& tensor, RoundingCount* tally);

  // quantization_config, a JSON object; "": the folder is not quantised any more. It names the modules that are kept as they are.
  const std::string& quantization() const { return quantization_; }
  bool writes_gptq() const { return format_name_.starts_with("gptq"); }

 private:
  struct Matrix {
    std::string module;
    std::shared_ptr<const QuantizedMatrix> from;
    std::vector<TensorInfo> outputs;
  };
  FolderRewrite(const Checkpoint& checkpoint, const std::string& format, DType plain, const Runtime& runtime)
      : checkpoint_(checkpoint), format_name_(format), plain_(plain), runtime_(runtime) {}
  Result<void> FindMatrices();
  Result<void> PlanPlain();
  Result<void> PlanCodes();
  Result<void> CheckCodes(const Matrix& matrix) const;
  Error Refuse(const Matrix& matrix, const std::string& why) const;
  Result<void> EncodePlain(const Matrix& matrix, RoundingCount* tally);
  Result<void> EncodeCodes(const Matrix& matrix);
  void SayConfig();

  const Checkpoint& checkpoint_;
  const std::string format_name_;
  const DType plain_;
  const Runtime& runtime_;
  WeightMap map_;
  std::vector<Matrix> matrices_;
  uint64_t weights_ = 0;
  std::set<std::string> dropped_;
  std::vector<std::string> kept_;  // linear layers that are not quantised
  bool output_quantized_ = false;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::pair<size_t, size_t>> where_;  // tensor: its matrix, and which of its outputs
  LinearScheme scheme_;
  DType scale_type_ = DType::kF16;
  std::unique_ptr<LinearFormat> format_;  // nullptr: dequantised
  std::string quantization_;
  size_t encoded_ = ~size_t{0};  // the matrix whose tensors are in outputs_
  std::vector<std::vector<std::byte>> outputs_;
};

}  // namespace hone
