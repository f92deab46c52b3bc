// TensorSource: the tensors of a model under GGUF's names and conventions, wherever they lie, read some rows at a time.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"
#include "formats/gguf.h"
#include "formats/named_tensor.h"

namespace hone {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // In the order of GgufOrder (compress/gguf/mixture.h).
  virtual const std::vector<TensorInfo>& tensors() const = 0;
  // Rows [first, first + count) of tensors()[tensor], rows counted over all outer dimensions, as F32 or in the tensor's
  // own type. Thread-safe. REQUIRES: as is F32 (and CanDequantize the tensor's type) or the tensor's type.
  virtual void ReadRows(size_t tensor, int64_t first, int64_t count, DType as, std::byte* out) const = 0;
  virtual void Release(size_t tensor) const = 0;  // its pages are not needed soon
  // What the file says about the model, without the keys that quantising sets anew.
  virtual const std::vector<std::pair<std::string, GgufValue>>& metadata() const = 0;
  virtual const Checkpoint& checkpoint() const = 0;  // where they lie
  const std::string& path() const { return checkpoint().path(); }
};

// The tensors of a GGUF file as they are.
std::unique_ptr<TensorSource> SourceFromGguf(std::shared_ptr<const Checkpoint> checkpoint);
// A Hugging Face folder through models/gguf_export.h. `vocabulary`: metadata of the tokenizer, added to the model's.
Result<std::unique_ptr<TensorSource>> SourceFromFolder(
    std::shared_ptr<const Checkpoint> checkpoint, const std::vector<std::pair<std::string, GgufValue>>& vocabulary);

}  // namespace hone
