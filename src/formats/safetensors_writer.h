// SafetensorsWriter: one safetensors file written tensor by tensor, for models that do not fit in memory twice. Names,
// types and shapes are given first; the bytes follow in the order of order(). Nothing has the file's name before
// Commit.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/atomic_file.h"
#include "formats/named_tensor.h"

namespace hone {

// Where everything lies in a file of these tensors: for who writes them in another order, or several at once.
struct SafetensorsLayout {
  std::vector<TensorInfo> tensors;  // in the order of the file: rank of the dtype falling, then name
  std::vector<uint64_t> offsets;    // of their bytes, from the beginning of the file
  std::string head;                 // what the file begins with
  uint64_t bytes = 0;               // of the file
};
// Errors: a name there twice, "__metadata__" or no UTF-8; a type that safetensors lacks; a header over 100,000,000 bytes.
Result<SafetensorsLayout> LayOutSafetensors(const std::string& path, std::vector<TensorInfo> tensors,
                                            const std::map<std::string, std::string>& metadata);

class SafetensorsWriter {
 public:
  // Errors: those of LayOutSafetensors, and of the disk.
  static Result<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path, std::vector<TensorInfo> tensors,
                                                           const std::map<std::string, std::string>& metadata);
  // The tensors in the order of the file.
  const std::vector<TensorInfo>& order() const { return tensors_; }
  // The next bytes of the current tensor; the next begins when it is full. REQUIRES: within one tensor.
  Result<void> Append(std::span<const std::byte> bytes);
  Result<void> Finish();  // flushed, not yet named. REQUIRES: every tensor is full
  Result<void> Commit();  // Finish, then the file gets its name

 private:
  SafetensorsWriter() = default;
  void StepOver();
  std::vector<TensorInfo> tensors_;
  std::unique_ptr<AtomicFile> file_;
  size_t current_ = 0;
  uint64_t left_ = 0;
};

}  // namespace hone
