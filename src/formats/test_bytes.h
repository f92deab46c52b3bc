// For the tests of formats/: builds files byte by byte, right or wrong, without the code that is tested.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace hone {

// Little-endian bytes, appended in order.
class Bytes {
 public:
  template <typename T>
  Bytes& Put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    text_.append(raw, sizeof(T));
    return *this;
  }
  Bytes& U8(uint8_t x) { return Put(x); }
  Bytes& U16(uint16_t x) { return Put(x); }
  Bytes& U32(uint32_t x) { return Put(x); }
  Bytes& U64(uint64_t x) { return Put(x); }
  Bytes& Raw(std::string_view x) {
    text_ += x;
    return *this;
  }
  Bytes& Str(std::string_view x) { return U64(x.size()).Raw(x); }  // a string of GGUF
  Bytes& Pad(size_t alignment) {
    text_.resize((text_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// A fresh folder, removed at the end of the test.
class TempFolder {
 public:
  TempFolder() {
    static int count = 0;
    path_ = testing::TempDir() + "/formats-" + std::to_string(getpid()) + "-" + std::to_string(count++);
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file there and returns its path.
  std::string Write(std::string_view name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::error_code ignored;
    std::filesystem::remove(path, ignored);  // cheaper than cutting the old one short, and a mapping of it stays whole
    std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  size_t FileCount() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::string path_;
};

// A file that is only in memory, for tests that open thousands. What was mapped from it outlives it.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(write(fd_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

inline std::string ReadBytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// A safetensors file of this header text and this many bytes 0, 1, 2 ...
inline std::string SafetensorsBytes(std::string_view header, size_t buffer_bytes) {
  Bytes bytes;
  bytes.U64(header.size()).Raw(header);
  for (size_t i = 0; i < buffer_bytes; ++i) bytes.U8(static_cast<uint8_t>(i));
  return bytes.text();
}

}  // namespace hone

// EXPECT_ERROR(result, "part of the message")
#define EXPECT_ERROR(result, part)                                                     \
  do {                                                                                 \
    const auto& expect_error_result = (result);                                        \
    if (expect_error_result.has_value()) {                                             \
      ADD_FAILURE() << "no error, wanted: " << (part);                                 \
    } else {                                                                           \
      const std::string& expect_error_text = expect_error_result.error().message;      \
      EXPECT_NE(expect_error_text.find(part), std::string::npos) << expect_error_text; \
    }                                                                                  \
  } while (0)
