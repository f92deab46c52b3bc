// GgufWriter: a GGUF file (version 3) written tensor by tensor, for models that do not fit in memory twice. Names,
// types and shapes are given first; then the bytes in that order, in pieces of any size. Nothing has the file's name
// before Commit.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "formats/atomic_file.h"
#include "formats/gguf.h"
#include "formats/named_tensor.h"

namespace hone {

class GgufWriter {
 public:
  // Checks all that a reader would refuse: keys or names that are empty or there twice, names over 63 bytes, more than
  // four dimensions, types that GGUF lacks, rows that are no whole blocks, values that do not fit their type.
  // general.alignment in `metadata` is obeyed. Split keys (split.no, split.count, split.tensors.count) are written as
  // they are.
  static Result<std::unique_ptr<GgufWriter>> Create(const std::string& path,
                                                    const std::vector<std::pair<std::string, GgufValue>>& metadata,
                                                    std::vector<TensorInfo> tensors);
  // The next bytes of the current tensor; the next tensor begins when it is full. REQUIRES: within one tensor.
  Result<void> Append(std::span<const std::byte> bytes);
  // Flushed to the disk, not yet named. REQUIRES: every tensor is full.
  Result<void> Finish();
  // Finish, then the file gets its name.
  Result<void> Commit();

 private:
  GgufWriter() = default;
  Result<void> StepOver();  // tensors that are full: pads, goes to the next

  std::vector<TensorInfo> tensors_;
  uint64_t alignment_ = 32;
  std::unique_ptr<AtomicFile> file_;
  size_t current_ = 0;
  uint64_t left_ = 0;  // bytes of the current tensor
};

}  // namespace hone
