// fuzzes: formats
// GGUF from arbitrary bytes: an error, or a file of which every value and every byte of every tensor can be read.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "formats/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  HONE_CHECK(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size));
  const auto opened = hone::GgufFile::Open("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  if (!opened) {
    HONE_CHECK(!opened.error().message.empty() && opened.error().message.size() < 2000);
    return 0;
  }
  const hone::GgufFile& file = **opened;
  for (const auto& [key, value] : file.metadata()) {
    HONE_CHECK(file.Find(key) == &value);
    static_cast<void>(file.Int(key));
    static_cast<void>(file.Number(key));
    static_cast<void>(file.Bool(key, false));
    static_cast<void>(file.String(key));
    static_cast<void>(file.Ints(key));
    static_cast<void>(file.Numbers(key));
    static_cast<void>(file.Strings(key));
  }
  for (const hone::NamedTensor& tensor : file.tensors()) {
    HONE_CHECK(file.FindTensor(tensor.name) == &tensor);
    HONE_CHECK(tensor.view.bytes() <= size);
    unsigned sum = 0;
    for (size_t i = 0; i < tensor.view.bytes(); ++i) sum += static_cast<unsigned>(tensor.view.data[i]);
    volatile unsigned sink = sum;
    static_cast<void>(sink);
    static_cast<void>(tensor.view.shape.rows());
    file.Release(tensor.view);
  }
  return 0;
}
