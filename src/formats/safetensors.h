// safetensors: one file, or a folder's shards through model.safetensors.index.json. Layout and checks:
// docs/formats/safetensors.md. Everything is checked in Open; tensor data stays in the mapping (data at an address
// that its elements do not allow is held as an aligned copy). Immutable, thread-safe.
// Writing tensor by tensor, without holding them all: formats/safetensors_writer.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "formats/named_tensor.h"

namespace hone {

class SafetensorsFile {
 public:
  static Result<std::shared_ptr<const SafetensorsFile>> Open(const std::string& path);
  // The weights of a folder: the index where there is one (every mapped file must exist and hold its tensors; shards
  // that the index does not name are reported in warnings()), else model.safetensors. consolidated*.safetensors are
  // ignored.
  static Result<std::shared_ptr<const SafetensorsFile>> OpenFolder(const std::string& folder);

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const;
  const std::vector<NamedTensor>& tensors() const { return tensors_; }
  const NamedTensor* FindTensor(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  // __metadata__ of the (first) file
  const std::vector<std::string>& warnings() const { return warnings_; }
  void Release(const TensorView& view) const;

 private:
  SafetensorsFile() = default;
  friend class SafetensorsReader;
  std::string path_;
  std::vector<NamedTensor> tensors_;
  std::unordered_map<std::string_view, size_t> index_;
  std::map<std::string, std::string> metadata_;
  std::vector<std::string> warnings_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<Buffer> copies_;  // of tensors that a file does not align
};
// Writes one file under a temporary name and renames it when complete. Order: dtype size falling (the reference's rank
// of dtypes), then name, as the reference writer does. Metadata should hold {"format": "pt"}: transformers asks for it.
// REQUIRES: names are unique.
Result<void> WriteSafetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata);
// Splits at `shard_bytes` into model-0000i-of-0000n.safetensors plus model.safetensors.index.json; one
// model.safetensors if all fits. Refuses a folder with other weights (model*.safetensors or an index that this would
// not replace).
Result<void> WriteSafetensorsFolder(const std::string& folder, const std::vector<NamedTensor>& tensors,
                                    const std::map<std::string, std::string>& metadata, uint64_t shard_bytes);

}  // namespace hone
