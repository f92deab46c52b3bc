// fuzzes: formats
// safetensors from arbitrary bytes. The first byte chooses: 0 a whole file, 1 a header over a buffer of 64 bytes, 2 an
// index. What opens covers its buffer exactly; what an index names is a plain file name.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "formats/safetensors.h"
#include "formats/safetensors_header.h"

namespace {

void FuzzFile(std::string_view bytes) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  HONE_CHECK(fd >= 0 && write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  const auto opened = hone::SafetensorsFile::Open("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  if (!opened) return;
  uint64_t total = 0;
  unsigned sum = 0;
  for (const hone::NamedTensor& tensor : (*opened)->tensors()) {
    HONE_CHECK((*opened)->FindTensor(tensor.name) == &tensor);
    total += tensor.view.bytes();
    for (size_t i = 0; i < tensor.view.bytes(); ++i) sum += static_cast<unsigned>(tensor.view.data[i]);
  }
  volatile unsigned sink = sum;
  static_cast<void>(sink);
  HONE_CHECK(total <= bytes.size());
}

void FuzzHeader(std::string_view text) {
  const auto header = hone::ParseSafetensorsHeader(text, 64, "fuzz");
  if (!header) return;
  uint64_t at = 0;
  for (const hone::SafetensorsEntry& entry : header->entries) {
    HONE_CHECK(entry.begin == at && hone::BytesFor(entry.type, entry.shape.elements()) == entry.end - entry.begin);
    at = entry.end;
  }
  HONE_CHECK(at == 64);
}

void FuzzIndex(std::string_view text) {
  const auto index = hone::ParseSafetensorsIndex(text, "fuzz");
  if (!index) return;
  for (const auto& [tensor, file] : *index) {
    HONE_CHECK(file.ends_with(".safetensors") && file.find('/') == std::string::npos &&
               file.find('\0') == std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0: FuzzFile(rest); break;
    case 1: FuzzHeader(rest); break;
    default: FuzzIndex(rest); break;
  }
  return 0;
}
