// The JSON of safetensors, read strictly: a file's header and a folder's index. Duplicate keys are errors, which a
// parser that builds a tree would swallow. Internal to formats/: others use formats/safetensors.h.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace hone {

inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  DType type = DType::kF32;
  Shape shape;
  uint64_t begin = 0, end = 0;  // in the buffer; end - begin is what type and shape need
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by begin; they cover [0, buffer bytes) with no hole and no overlap
  std::map<std::string, std::string> metadata;
};

// `text` is the header without its length; `buffer_bytes` is what follows it in the file. `path` stands in messages.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text, uint64_t buffer_bytes, const std::string& path);

// weight_map of model.safetensors.index.json: tensor to file, each a plain file name ending in .safetensors.
Result<std::map<std::string, std::string>> ParseSafetensorsIndex(std::string_view text, const std::string& path);

// Whether safetensors has this type; GGUF's block types it has not.
bool IsSafetensorsType(DType type);

}  // namespace hone
