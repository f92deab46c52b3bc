// CharSet: a set of Unicode characters, and the bytes that spell them in plain text or within a JSON string.
//
// In a JSON string each character has one spelling: itself, or the short escape, or \u00xx (lower case) for other control
// characters. So two texts are equal if and only if their bytes are, and a set of texts can be left out byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"

namespace hone {

enum class Spelling { kPlain, kJson };

class CharSet {
 public:
  using Range = std::pair<uint32_t, uint32_t>;  // both ends belong to it
  CharSet() = default;
  CharSet(std::initializer_list<Range> ranges);
  static CharSet All() { return {{0, 0x10FFFF}}; }

  void Add(uint32_t first, uint32_t last);
  void Add(const CharSet& other);
  CharSet Complement() const;
  // Ascending, apart from each other, without surrogates.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool ascii() const { return ranges_.empty() || ranges_.back().second < 0x80; }

 private:
  std::vector<Range> ranges_;
};

// The characters of valid UTF-8.
std::vector<uint32_t> CharsOf(std::string_view utf8);
std::string SpelledChar(uint32_t c, Spelling spelling);
// One character of `set`, between the two states.
void AddChars(GrammarBuilder& builder, int from, const CharSet& set, Spelling spelling, int to);

}  // namespace hone
