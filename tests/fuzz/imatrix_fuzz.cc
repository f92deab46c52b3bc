// fuzzes: compress
// Importance matrices from arbitrary bytes, GGUF or the old form: an error, or finite numbers a column that can be
// used.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "compress/imatrix/imatrix.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  HONE_CHECK(fd >= 0 && write(fd, data, size) == static_cast<ssize_t>(size));
  const auto imatrix = hone::ReadImatrix("/proc/self/fd/" + std::to_string(fd));
  close(fd);
  if (!imatrix) {
    HONE_CHECK(!imatrix.error().message.empty() && imatrix.error().message.size() < 2000);
    return 0;
  }
  for (const auto& [name, entry] : imatrix->entries) {
    HONE_CHECK(entry.columns > 0 && entry.matrices() > 0);
    HONE_CHECK(entry.sums.size() == static_cast<size_t>(entry.columns * entry.matrices()) && entry.sums.size() <= size);
    for (const float x : hone::Imatrix::Importance(entry)) HONE_CHECK(x >= 0 && !std::isnan(x));
  }
  return 0;
}
