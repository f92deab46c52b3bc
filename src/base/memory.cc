// mmap for files and large buffers; the heap for small ones.
#include "base/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace hone {
namespace {

constexpr size_t kHuge = Buffer::kHugePage;
constexpr size_t kLine = 64;

size_t ReadStatus(const char* field) {
  std::FILE* f = std::fopen("/proc/self/status", "r");
  if (f == nullptr) return 0;
  char line[256];
  size_t kib = 0;
  while (std::fgets(line, sizeof(line), f) != nullptr) {
    if (std::strncmp(line, field, std::strlen(field)) == 0) {
      kib = std::strtoull(line + std::strlen(field) + 1, nullptr, 10);
      break;
    }
  }
  std::fclose(f);
  return kib * 1024;
}

}  // namespace

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  if (bytes < kHuge) {
    const size_t rounded = (bytes + kLine - 1) / kLine * kLine;
    data_ = static_cast<std::byte*>(std::aligned_alloc(kLine, rounded));
    HONE_CHECK(data_ != nullptr, "out of memory");
    std::memset(data_, 0, rounded);
    return;
  }
  // Map one huge page more than needed, then give back the unaligned ends.
  const size_t rounded = (bytes + kHuge - 1) / kHuge * kHuge;
  void* raw = mmap(nullptr, rounded + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  HONE_CHECK(raw != MAP_FAILED, "out of memory");
  const uintptr_t start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + kHuge - 1) / kHuge * kHuge;
  if (aligned > start) munmap(raw, aligned - start);
  if (start + kHuge > aligned) munmap(reinterpret_cast<void*>(aligned + rounded), start + kHuge - aligned);
  data_ = reinterpret_cast<std::byte*>(aligned);
  mapped_ = rounded;
  madvise(data_, mapped_, MADV_HUGEPAGE);
}

Buffer::~Buffer() {
  if (mapped_ > 0) {
    munmap(data_, mapped_);
  } else {
    std::free(data_);
  }
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      mapped_(std::exchange(other.mapped_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO returns instead of waiting for a writer; S_ISREG then refuses it.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const int error = errno;
    return Error{error == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, path + ": cannot open: " + std::strerror(error)};
  }
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return InvalidInput(path + ": not a regular file");
  }
  if (info.st_size == 0) {
    close(fd);
    return InvalidInput(path + ": the file is empty (0 bytes); download or copy it again");
  }
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  close(fd);
  if (data == MAP_FAILED) return IoError(path + ": cannot map: " + std::strerror(error));
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const std::byte*>(data), static_cast<size_t>(info.st_size)));
}

MappedFile::~MappedFile() { munmap(const_cast<std::byte*>(data_), size_); }

void MappedFile::Release(const std::byte* begin, size_t bytes) const {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t b = (reinterpret_cast<uintptr_t>(begin) + kPage - 1) / kPage * kPage;  // whole pages only
  const uintptr_t e = (reinterpret_cast<uintptr_t>(begin) + bytes) / kPage * kPage;
  if (e > b) madvise(reinterpret_cast<void*>(b), e - b, MADV_DONTNEED);
}

void MappedFile::WillNeed(const std::byte* begin, size_t bytes) const {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t b = reinterpret_cast<uintptr_t>(begin) / kPage * kPage;
  const uintptr_t e = reinterpret_cast<uintptr_t>(begin) + bytes;
  madvise(reinterpret_cast<void*>(b), e - b, MADV_WILLNEED);
}

void TouchPages(std::byte* begin, size_t bytes) {
  unsigned char* const bytewise = reinterpret_cast<unsigned char*>(begin);
  constexpr size_t kPage = 4096;  // a larger page is touched more than once, which costs nanoseconds
  for (size_t at = 0; at < bytes; at += kPage) std::atomic_ref(bytewise[at]).fetch_or(0, std::memory_order_relaxed);
}

size_t ResidentBytes() { return ReadStatus("VmRSS"); }
size_t PeakResidentBytes() { return ReadStatus("VmHWM"); }

}  // namespace hone
