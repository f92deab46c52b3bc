// The table behind dtype.h, expanded from dtype.inc.
#include "tensor/dtype.h"

#include <iterator>

namespace hone {
namespace {

constexpr DTypeInfo kTypes[] = {
#define HONE_DTYPE(name, block_elements, block_bytes, ggml_id) {#name, block_elements, block_bytes, ggml_id},
#include "tensor/dtype.inc"
#undef HONE_DTYPE
};

}  // namespace

const DTypeInfo& Info(DType type) { return kTypes[static_cast<size_t>(type)]; }

std::optional<DType> DTypeFromGgml(uint32_t ggml_id) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i].ggml_id >= 0 && static_cast<uint32_t>(kTypes[i].ggml_id) == ggml_id) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace hone
