// A file that appears whole or not at all: written beside its place under a temporary name, flushed to the disk,
// renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

class AtomicFile {
 public:
  // Over a regular file or nothing: a folder, device or pipe under that name is an error and stays.
  // Reserves `bytes` on the disk where the file system can, so that a full disk is an error now and not after an hour.
  static Result<std::unique_ptr<AtomicFile>> Create(const std::string& path, uint64_t bytes);
  ~AtomicFile();  // not renamed: the temporary file is removed
  AtomicFile(const AtomicFile&) = delete;

  Result<void> Write(std::span<const std::byte> bytes);
  Result<void> Write(std::string_view text) {
    return Write(std::as_bytes(std::span<const char>(text.data(), text.size())));
  }
  Result<void> Zeros(uint64_t bytes);
  uint64_t written() const { return written_; }

  // Flushes everything to the disk and closes. Write no more. Rename() does it if it was not done.
  Result<void> Finish();
  // Gives the file its name, over what had it before. What was mapped from the old file stays as it was.
  Result<void> Rename();

 private:
  AtomicFile(std::string path, std::string temporary, int fd)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}
  Error System(const char* verb) const;
  Result<void> Flush();

  std::string path_, temporary_;
  int fd_;
  std::string buffer_;
  uint64_t written_ = 0;
};

}  // namespace hone
