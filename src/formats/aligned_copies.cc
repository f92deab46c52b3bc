// Two passes: how many bytes, then the copies. Nothing is allocated for a file that is laid out well.
#include "formats/aligned_copies.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace hone {
namespace {

constexpr size_t kMaxCopyBytes = size_t{1} << 30;

bool Misaligned(const TensorView& view) {
  return view.bytes() > 0 && reinterpret_cast<uintptr_t>(view.data) % AddressAlignment(view.type) != 0;
}
size_t Rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

size_t AddressAlignment(DType type) {
  const size_t block = Info(type).block_bytes;
  return std::min<size_t>(block & (~block + 1), 8);
}

Result<Buffer> AlignTensors(const std::string& path, std::vector<NamedTensor>* tensors) {
  size_t total = 0;
  for (const NamedTensor& tensor : *tensors) {
    if (Misaligned(tensor.view)) total += Rounded(tensor.view.bytes());  // at most the file's size, times 64
    if (total > kMaxCopyBytes) {
      return Unsupported(path + ": more than 1 GiB of its tensors lie at odd addresses (first past the limit: '" +
                         tensor.name +
                         "'), wanted data aligned to its elements; write the file again with a current tool");
    }
  }
  Buffer copies(total);
  size_t used = 0;
  for (NamedTensor& tensor : *tensors) {
    if (!Misaligned(tensor.view)) continue;
    std::memcpy(copies.data() + used, tensor.view.data, tensor.view.bytes());
    tensor.view.data = copies.data() + used;
    used += Rounded(tensor.view.bytes());
  }
  return copies;
}

}  // namespace hone
