// Open addressing with linear probing, at most half full.
#include "text/string_index.h"

#include <algorithm>
#include <bit>

namespace hone {

void StringIndex::Reserve(size_t count, size_t bytes) {
  text_.reserve(bytes);
  if (count * 2 > cells_.size()) Rebuild(std::bit_ceil(std::max<size_t>(count * 2, 16)));
}

void StringIndex::Rebuild(size_t cells) {
  std::vector<Cell> old(cells);
  old.swap(cells_);
  mask_ = cells - 1;
  for (const Cell& cell : old) {
    if (cell.value < 0) continue;
    size_t i = cell.hash & mask_;
    while (cells_[i].value >= 0) i = (i + 1) & mask_;
    cells_[i] = cell;
  }
}

StringIndex::Cell* StringIndex::Place(std::string_view key, uint32_t hash) {
  if ((count_ + 1) * 2 > cells_.size()) Rebuild(std::max<size_t>(16, cells_.size() * 2));
  size_t i = hash & mask_;
  while (cells_[i].value >= 0) {
    const Cell& cell = cells_[i];
    if (cell.hash == hash && cell.bytes == key.size() &&
        std::memcmp(text_.data() + cell.offset, key.data(), key.size()) == 0) {
      break;
    }
    i = (i + 1) & mask_;
  }
  return &cells_[i];
}

bool StringIndex::Insert(std::string_view key, int32_t value) {
  const uint32_t hash = Hash(key);
  Cell* cell = Place(key, hash);
  if (cell->value >= 0) return false;
  *cell = {text_.size(), static_cast<uint32_t>(key.size()), hash, value};
  text_.append(key);
  ++count_;
  longest_ = std::max(longest_, key.size());
  return true;
}

void StringIndex::Set(std::string_view key, int32_t value) {
  if (!Insert(key, value)) Place(key, Hash(key))->value = value;
}

}  // namespace hone
