// See mapped_reader.h. /proc/self/maps: "BEGIN-END PERMISSIONS OFFSET MAJOR:MINOR INODE   PATH" a line, in the order of addresses.
#include "compress/mapped_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace hone {
namespace {

constexpr uintptr_t kLeastBytes = uintptr_t{1} << 16;  // smaller ones are libraries' and configurations

}  // namespace

MappedReader::MappedReader() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Mapping mapping;
    uint64_t inode = 0;
    unsigned major_number = 0, minor_number = 0;
    char permissions[8] = {};
    int at = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %7s %" SCNx64 " %x:%x %" SCNu64 " %n", &mapping.begin, &mapping.end,
                    permissions, &mapping.offset, &major_number, &minor_number, &inode, &at) < 7 ||
        at == 0 || static_cast<size_t>(at) >= line.size() || line[at] != '/' || mapping.end - mapping.begin < kLeastBytes ||
        std::strcmp(permissions, "r--s") != 0)
      continue;
    mapping.fd = open(line.c_str() + at, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status {};
    // The same file still, and a name that the list has not escaped.
    if (mapping.fd >= 0 && (fstat(mapping.fd, &status) != 0 || status.st_ino != inode || major(status.st_dev) != major_number ||
                            minor(status.st_dev) != minor_number)) {
      close(mapping.fd);
      mapping.fd = -1;
    }
    if (mapping.fd < 0) continue;
    mapping.size = status.st_size, mapping.changed_s = status.st_mtim.tv_sec, mapping.changed_ns = status.st_mtim.tv_nsec;
    mappings_.push_back(mapping);
  }
}

MappedReader::~MappedReader() {
  for (const Mapping& mapping : mappings_) close(mapping.fd);
}

const MappedReader::Mapping* MappedReader::Find(const std::byte* at) const {
  const auto address = reinterpret_cast<uintptr_t>(at);
  const auto after = std::upper_bound(mappings_.begin(), mappings_.end(), address,
                                      [](uintptr_t value, const Mapping& mapping) { return value < mapping.begin; });
  if (after == mappings_.begin() || address >= (after - 1)->end) return nullptr;
  return &*(after - 1);
}

bool MappedReader::Changed(const std::byte* from) const {
  const Mapping* mapping = Find(from);
  struct stat now {};
  return mapping != nullptr && fstat(mapping->fd, &now) == 0 &&
         (now.st_size != mapping->size || now.st_mtim.tv_sec != mapping->changed_s || now.st_mtim.tv_nsec != mapping->changed_ns);
}

Result<void> MappedReader::CheckUnchanged(const Checkpoint& checkpoint) const {
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    if (Changed(tensor.view.data))
      return InvalidInput(fmt::format("{}: the file with {} changed while it was read; start again when nobody writes to it",
                                      checkpoint.path(), tensor.name));
  }
  return {};
}

void MappedReader::Read(const std::byte* from, size_t bytes, std::byte* out) const {
  if (const Mapping* mapping = Find(from); mapping != nullptr) {
    uint64_t offset = mapping->offset + (reinterpret_cast<uintptr_t>(from) - mapping->begin);
    while (bytes > 0) {
      const ssize_t done = pread(mapping->fd, out, bytes, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) break;
      from += done, out += done, bytes -= static_cast<size_t>(done), offset += static_cast<uint64_t>(done);
    }
  }
  if (bytes > 0) std::memcpy(out, from, bytes);
}

}  // namespace hone
