// Checkpoint: what MODEL on the command line names, opened: a GGUF file or a Hugging Face folder, one way to reach its
// tensors and its configuration. It says nothing about architectures: families in models/ read it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/gguf.h"
#include "formats/json_config.h"
#include "formats/named_tensor.h"
#include "formats/safetensors.h"

namespace hone {

class Checkpoint {
 public:
  // A path to a GGUF file (first part of a split), to a Hugging Face folder (config.json and *.safetensors), or to a
  // folder that holds just one GGUF file. Weights need not be present: a vocabulary-only GGUF, or a folder with only
  // tokenizer.json, opens with no tensors (loading a model from it is what fails). Anything else is one clear error.
  static Result<std::shared_ptr<const Checkpoint>> Open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string name() const;  // the file's stem or the folder's name
  // Exactly one of the two holds: gguf() != nullptr, or is_folder().
  const GgufFile* gguf() const { return gguf_.get(); }
  bool is_folder() const { return gguf_ == nullptr; }
  const JsonConfig* config() const { return config_ ? &*config_ : nullptr; }  // config.json, if there
  const JsonConfig* generation_config() const { return generation_ ? &*generation_ : nullptr; }  // if there

  const std::vector<NamedTensor>& tensors() const;
  const NamedTensor* FindTensor(std::string_view name) const;
  uint64_t file_bytes() const;                    // of the files that hold weights
  std::vector<std::string> warnings() const;
  void Release(const TensorView& view) const;     // its pages are not needed soon

  // Tells weights apart: 32 hexadecimal digits of the configuration (a GGUF's metadata but for its arrays, a folder's config.json),
  // of every tensor's name, type and shape, and of up to 4 KiB of its numbers, taken at 16 places from its first byte to its last.
  // The same for the same files under other names; milliseconds, whatever the size. A change of a few numbers may go unseen,
  // as only the file's whole digest would see it.
  std::string Digest() const;

 private:
  Checkpoint() = default;
  std::string path_;
  std::shared_ptr<const GgufFile> gguf_;
  std::shared_ptr<const SafetensorsFile> safetensors_;  // nullptr: no weights in the folder
  std::optional<JsonConfig> config_, generation_;
};

}  // namespace hone
