// Element and block types of stored tensors, and their sizes. One line a type in dtype.inc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hone {

enum class DType : uint8_t {
#define HONE_DTYPE(name, block_elements, block_bytes, ggml_id) k##name,
#include "tensor/dtype.inc"
#undef HONE_DTYPE
};

struct DTypeInfo {
  std::string_view name;   // "Q4_0", "BF16": as GGUF and safetensors write it
  uint32_t block_elements; // elements a block holds; 1 for plain types
  uint32_t block_bytes;
  int ggml_id;             // type id in GGUF; -1: only in safetensors, -2: in no file
};

const DTypeInfo& Info(DType type);
std::optional<DType> DTypeFromGgml(uint32_t ggml_id);   // nullopt: unknown or removed id
std::optional<DType> DTypeFromName(std::string_view name);

// Bytes of `elements` elements. REQUIRES: elements is a multiple of the block.
inline size_t BytesFor(DType type, size_t elements) {
  return elements / Info(type).block_elements * Info(type).block_bytes;
}
// Block types and sub-byte floats; false for F32, I8 and other plain types.
inline bool IsBlock(DType type) { return Info(type).block_elements > 1; }

}  // namespace hone
