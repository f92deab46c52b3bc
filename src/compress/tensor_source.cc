// See tensor_source.h.
#include "compress/tensor_source.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "compress/gguf/mixture.h"
#include "kernels/dequantize/dequantize.h"
#include "models/gguf_export.h"
#include "models/model.h"

namespace hone {
namespace {

// Keys that say how the weights are stored: set anew by who writes them.
bool IsAboutStorage(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" || key.starts_with("split.") ||
         key.starts_with("quantize.imatrix.");
}

class GgufSource : public TensorSource {
 public:
  explicit GgufSource(std::shared_ptr<const Checkpoint> checkpoint) : checkpoint_(std::move(checkpoint)) {
    for (const NamedTensor& tensor : checkpoint_->tensors()) order_.push_back(&tensor);
    std::sort(order_.begin(), order_.end(), [](const auto* a, const auto* b) { return GgufOrder(a->name, b->name); });
    for (const NamedTensor* tensor : order_) tensors_.push_back({tensor->name, tensor->view.type, tensor->view.shape});
    for (const auto& entry : checkpoint_->gguf()->metadata()) {
      if (!IsAboutStorage(entry.first)) metadata_.push_back(entry);
    }
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void ReadRows(size_t tensor, int64_t first, int64_t count, DType as, std::byte* out) const override {
    const TensorView& view = order_[tensor]->view;
    const std::byte* rows = view.data + first * view.row_bytes();
    if (as == view.type) {
      std::memcpy(out, rows, count * view.row_bytes());
    } else {
      HONE_CHECK(as == DType::kF32 && CanDequantize(view.type));
      DequantizeRow(view.type, rows, count * view.shape.back(), reinterpret_cast<float*>(out));
    }
  }
  void Release(size_t tensor) const override { checkpoint_->Release(order_[tensor]->view); }
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const override { return metadata_; }
  const Checkpoint& checkpoint() const override { return *checkpoint_; }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<const NamedTensor*> order_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
};

class FolderSource : public TensorSource {
 public:
  FolderSource(GgufExport model, std::shared_ptr<const Checkpoint> checkpoint,
               const std::vector<std::pair<std::string, GgufValue>>& vocabulary)
      : model_(std::move(model)), checkpoint_(std::move(checkpoint)) {
    const std::vector<TensorInfo> infos = model_.tensors();
    order_.resize(infos.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(),
              [&](size_t a, size_t b) { return GgufOrder(infos[a].name, infos[b].name); });
    for (const size_t i : order_) tensors_.push_back(infos[i]);
    for (const auto& entry : model_.metadata()) {
      if (!IsAboutStorage(entry.first)) metadata_.push_back(entry);
    }
    metadata_.insert(metadata_.end(), vocabulary.begin(), vocabulary.end());
  }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void ReadRows(size_t tensor, int64_t first, int64_t count, DType as, std::byte* out) const override {
    model_.ReadRows(order_[tensor], first, count, as, out);
  }
  void Release(size_t tensor) const override { model_.Release(order_[tensor]); }
  const std::vector<std::pair<std::string, GgufValue>>& metadata() const override { return metadata_; }
  const Checkpoint& checkpoint() const override { return *checkpoint_; }

 private:
  GgufExport model_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::vector<size_t> order_;
  std::vector<TensorInfo> tensors_;
  std::vector<std::pair<std::string, GgufValue>> metadata_;
};

}  // namespace

std::unique_ptr<TensorSource> SourceFromGguf(std::shared_ptr<const Checkpoint> checkpoint) {
  return std::make_unique<GgufSource>(std::move(checkpoint));
}

Result<std::unique_ptr<TensorSource>> SourceFromFolder(
    std::shared_ptr<const Checkpoint> checkpoint, const std::vector<std::pair<std::string, GgufValue>>& vocabulary) {
  // Quantised matrices are read as what they mean.
  HONE_TRY(const bool quantized, IsQuantizedFolder(*checkpoint));
  HONE_TRY(GgufExport model, GgufExport::Make(checkpoint, quantized ? std::optional(DType::kF32) : std::nullopt));
  return std::unique_ptr<TensorSource>(
      std::make_unique<FolderSource>(std::move(model), std::move(checkpoint), vocabulary));
}

}  // namespace hone
