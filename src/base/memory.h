// Memory that kernels and files live in: aligned owned buffers and read-only file mappings.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace hone {

// An owned, zeroed, 64-byte aligned buffer. Large ones are mapped at 2 MiB with transparent huge pages asked for and are not
// touched here, so the thread that writes a page first owns it (NUMA first touch). Move-only.
class Buffer {
 public:
  static constexpr size_t kHugePage = size_t{2} << 20;

  Buffer() = default;
  explicit Buffer(size_t bytes);  // out of memory aborts: callers bound their sizes first
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <typename T>
  T* as() { return reinterpret_cast<T*>(data_); }
  template <typename T>
  const T* as() const { return reinterpret_cast<const T*>(data_); }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;  // bytes to unmap; 0 if from the heap
};

// A whole file mapped read-only. Shared by everything that points into it. Thread-safe.
class MappedFile {
 public:
  // Errors name the path and what the system said. An empty file is an error (nothing can be in it).
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // The kernel may drop these pages: they are not needed soon (read again from the file if touched).
  void Release(const std::byte* begin, size_t bytes) const;
  // The kernel should read these pages ahead.
  void WillNeed(const std::byte* begin, size_t bytes) const;

 private:
  MappedFile(std::string path, const std::byte* data, size_t size) : path_(std::move(path)), data_(data), size_(size) {}
  std::string path_;
  const std::byte* data_;
  size_t size_;
};

// Gives every page of these bytes memory now, as a first write to each would, and changes no content. Safe beside readers and writers.
// REQUIRES: begin is where a page begins.
void TouchPages(std::byte* begin, size_t bytes);

// Bytes of physical memory this process holds now, and the most it held (VmRSS, VmHWM); 0 if unknown.
size_t ResidentBytes();
size_t PeakResidentBytes();

}  // namespace hone
