// Bytes of mapped files, read through their descriptors. Touching each page of a mapping once costs several times what copying it
// costs: a fault, and an entry of the page table that the processor marks as used. For passes over files larger than caches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/checkpoint.h"

namespace hone {

class MappedReader {
 public:
  // The files that this process has mapped by now. Without /proc, or where a file has been replaced since, none: then Read
  // copies out of the mapping.
  MappedReader();
  ~MappedReader();
  MappedReader(const MappedReader&) = delete;

  // Copies `bytes` bytes at `from`, which lie in one mapping, to `out`. Thread-safe.
  void Read(const std::byte* from, size_t bytes, std::byte* out) const;
  // Whether the file that `from` is of has been written to or cut since: then what was read may be of two versions.
  bool Changed(const std::byte* from) const;
  // An error that names a tensor whose file has: weights that were written to while they were read make a model that never was.
  Result<void> CheckUnchanged(const Checkpoint& checkpoint) const;
  // Whether `from` is read through a descriptor.
  bool Knows(const std::byte* from) const { return Find(from) != nullptr; }

 private:
  struct Mapping {
    uintptr_t begin = 0, end = 0;
    uint64_t offset = 0;  // of begin, in the file
    int fd = -1;
    int64_t size = 0, changed_s = 0, changed_ns = 0;
  };
  const Mapping* Find(const std::byte* at) const;
  std::vector<Mapping> mappings_;  // by address
};

}  // namespace hone
