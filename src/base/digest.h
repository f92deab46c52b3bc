// Digest: 128 bits of any bytes, the same on every machine and however the bytes are cut. Several GB/s. It tells contents apart
// that happen to differ; it is not made to withstand somebody who searches for two that collide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

class Digest128 {
 public:
  void Bytes(const void* data, size_t size);
  void Number(uint64_t value);
  void Text(std::string_view text);  // with its length: "ab" "c" is not "a" "bc"
  // 32 hexadecimal digits of everything so far.
  std::string Hex() const;

 private:
  void Word(uint64_t low, uint64_t high);

  uint64_t low_ = 0x9e3779b97f4a7c15, high_ = 0xd6e8feb86659fd93;
  unsigned char rest_[16] = {};
  uint64_t size_ = 0;  // of all bytes; those that fill no word of 16 are in rest_
};

}  // namespace hone
