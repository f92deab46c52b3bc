// One GGUF file read and checked, before the parts of a split are joined. Internal to formats/: others use
// formats/gguf.h.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "base/result.h"
#include "formats/gguf.h"
#include "formats/named_tensor.h"

namespace hone {

inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr size_t kGgufMaxRank = 4;
inline constexpr size_t kGgufMaxTensorName = 63;              // bytes
inline constexpr uint64_t kGgufMaxLength = uint64_t{1} << 30;  // of a string in bytes, of an array in elements
inline constexpr uint64_t kGgufMaxTensors = uint64_t{1} << 20;
inline constexpr uint64_t kGgufMaxKeys = uint64_t{1} << 20;
inline constexpr uint64_t kGgufMaxMetadataBytes = uint64_t{1} << 30;  // once in memory, numbers widened

struct GgufPart {
  std::shared_ptr<const MappedFile> file;
  uint32_t version = 0;
  uint64_t alignment = kGgufDefaultAlignment;
  std::vector<std::pair<std::string, GgufValue>> metadata;
  std::vector<NamedTensor> tensors;  // views into the file
  uint64_t unused_bytes = 0;         // after the last tensor and its padding
};

// Every check that one file allows: docs/formats/gguf.md lists them in order.
Result<GgufPart> ReadGgufPart(std::shared_ptr<const MappedFile> file);

std::string_view GgufTypeName(GgufType type);  // "u32", "string" ...
std::string GgufTypeName(const GgufValue& value);  // "array of string" too

}  // namespace hone
