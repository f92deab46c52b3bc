// How HQQ packs codes: the matrix is cut into groups, a row each ([n / g, g], axis 1) or a column each ([g, n / g], axis
// 0); the rows of that are split into equal parts, which share words, the first part in the highest bits. Eight codes a
// byte down to one a byte, three-bit ones ten a 32-bit word with rows of zeros up to a multiple of ten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace hone {

struct HqqLayout {
  int bits = 0;       // of a place in a word
  int parts = 0;      // codes a word
  int word_bytes = 1;
  int64_t rows = 0, columns = 0;  // of the grouped matrix

  // `packing`: what the tensor of that name says. parts == 0: unknown.
  static HqqLayout Make(std::string_view packing, int64_t rows, int64_t columns) {
    HqqLayout layout{.rows = rows, .columns = columns};
    if (packing == "8bit_u8") layout.bits = 8, layout.parts = 1;
    if (packing == "4bit_u8") layout.bits = 4, layout.parts = 2;
    if (packing == "3bit_32") layout.bits = 3, layout.parts = 10, layout.word_bytes = 4;
    if (packing == "2bit_u8") layout.bits = 2, layout.parts = 4;
    if (packing == "1bit_u8") layout.bits = 1, layout.parts = 8;
    return layout;
  }
  bool whole() const { return parts == 10 || rows % parts == 0; }  // no rows are lost
  int64_t word_rows() const { return (rows + parts - 1) / parts; }
  size_t bytes() const { return static_cast<size_t>(word_rows() * columns * word_bytes); }

  uint32_t Get(const std::byte* words, int64_t row, int64_t column) const {
    uint32_t word = 0;
    std::memcpy(&word, words + Offset(row, column), word_bytes);
    return word >> Shift(row) & ((1u << bits) - 1);
  }
  // The words start as zeros.
  void Put(std::byte* words, int64_t row, int64_t column, uint32_t code) const {
    uint32_t word = 0;
    std::memcpy(&word, words + Offset(row, column), word_bytes);
    word |= code << Shift(row);
    std::memcpy(words + Offset(row, column), &word, word_bytes);
  }

 private:
  size_t Offset(int64_t row, int64_t column) const {
    return static_cast<size_t>((row % word_rows() * columns + column) * word_bytes);
  }
  int Shift(int64_t row) const { return (parts - 1 - static_cast<int>(row / word_rows())) * bits; }
};

}  // namespace hone
