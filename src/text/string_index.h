// StringIndex: strings to numbers, a flat hash table over one buffer. Built once, then read from many threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

class StringIndex {
 public:
  void Reserve(size_t count, size_t bytes);
  // A key that is there already keeps its number; false.
  bool Insert(std::string_view key, int32_t value);
  // As Insert, but the new number replaces the old.
  void Set(std::string_view key, int32_t value);
  // -1 if absent.
  int32_t Find(std::string_view key) const {
    if (cells_.empty() || key.size() > longest_) return -1;
    const uint32_t hash = Hash(key);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Cell& cell = cells_[i];
      if (cell.value < 0) return -1;
      if (cell.hash == hash && cell.bytes == key.size() &&
          std::memcmp(text_.data() + cell.offset, key.data(), key.size()) == 0) {
        return cell.value;
      }
    }
  }
  size_t size() const { return count_; }
  size_t longest() const { return longest_; }

 private:
  struct Cell {
    uint64_t offset = 0;
    uint32_t bytes = 0;
    uint32_t hash = 0;
    int32_t value = -1;
  };
  static uint32_t Hash(std::string_view key) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ key.size();
    const char* p = key.data();
    size_t n = key.size();
    for (; n >= 8; n -= 8, p += 8) {
      uint64_t word;
      std::memcpy(&word, p, 8);
      h = (h ^ word) * 0xD6E8FEB86659FD93u;
      h ^= h >> 32;
    }
    uint64_t tail = 0;
    if (n != 0) std::memcpy(&tail, p, n);
    h = (h ^ tail) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93u;
    return static_cast<uint32_t>(h >> 32);
  }
  Cell* Place(std::string_view key, uint32_t hash);
  void Rebuild(size_t cells);

  std::vector<Cell> cells_;
  std::string text_;
  size_t mask_ = 0, count_ = 0, longest_ = 0;
};

}  // namespace hone
