// GgufExport: a model of a Hugging Face folder as GGUF: metadata from its configuration, tensors under GGUF's names, in GGUF's
// conventions (fused and stacked tensors, permuted rows of q and k, 1 added to Gemma's norms). Which conventions a family has
// stands in its file (models/family.h). The tokenizer is not its business (text/gguf_vocabulary.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "formats/gguf_writer.h"
#include "models/config.h"
#include "models/convert_rows.h"
#include "models/weight_map.h"

namespace hone {

using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// Values as GGUF stores them.
GgufValue GgufU32(uint64_t value);
GgufValue GgufF32(double value);
GgufValue GgufBool(bool value);
GgufValue GgufString(std::string value);

class GgufExport {
 public:
  // `type`: of matrices; none keeps the folder's. Vectors become F32, as all readers of GGUF expect.
  // Errors: all that loading the model would find.
  static Result<GgufExport> Make(std::shared_ptr<const Checkpoint> checkpoint, std::optional<DType> type);

  const ModelConfig& config() const { return config_; }
  const GgufMetadata& metadata() const { return metadata_; }     // general.* and <architecture>.*
  std::vector<TensorInfo> tensors() const;
  // Appends all tensors to the writer, in the order of tensors(). `progress` gets bytes done and to do; false from it stops
  // with kCancelled.
  Result<void> Write(GgufWriter& writer, const std::function<bool(uint64_t, uint64_t)>& progress, RoundingCount* tally) const;

  // Rows [first, first + count) of tensors()[tensor], rows counted over all outer dimensions, in GGUF's order; as F32 or in the
  // tensor's own type. Thread-safe. REQUIRES: `as` is F32 or that type; out holds them.
  void ReadRows(size_t tensor, int64_t first, int64_t count, DType as, std::byte* out) const;
  void Release(size_t tensor) const;  // its pages are not needed soon

 private:
  struct Output {
    TensorInfo info;
    std::vector<const Weight*> sources;   // their rows follow each other
    int permuted_heads = 0;               // > 0: rows of each head go from halves to pairs
    std::vector<float> values;            // made here, no source
  };
  GgufExport() = default;
  static Result<void> ReadRow(const Output& output, const Weight& source, int64_t row, DType as, std::byte* out,
                              RoundingCount* tally);
  void PlanTensors(std::optional<DType> type, bool permutes_qk);
  void AddRopeTensors();
  void DescribeModel();
  void DescribeRope();

  std::shared_ptr<const Checkpoint> checkpoint_;
  ModelConfig config_;
  std::string architecture_;              // GGUF's name
  std::unique_ptr<WeightMap> map_;
  std::vector<Output> outputs_;
  GgufMetadata metadata_;
};

// Whether two configurations describe the same computation, whatever files they come from: sizes, windows, scales, frequencies
// (to 1e-6). An error names the first difference. This is how a conversion is checked after it is written.
Result<void> CheckSameModel(const ModelConfig& a, const ModelConfig& b);

}  // namespace hone
