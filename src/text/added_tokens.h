// Added tokens: texts that become one id wherever they stand, before anything else is done to the text around them.
//
// Matched leftmost, longest first, as the `tokenizers` library does (llama.cpp takes the longest of the whole text
// first, which differs only where two of them overlap).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/trie.h"

namespace hone {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false;             // only with no word character on either side
  bool lstrip = false, rstrip = false;  // swallow white space before, after
  bool normalized = false;              // content and text are normalised before they are compared
  bool special = false;                 // recognised with parse_special only; skipped by Decode(skip_special)
};

// A part of a text: an added token, or what lies between (id -1).
struct TextPart {
  std::string_view text;
  int32_t id = -1;
};

// Finds a set of added tokens. Immutable, thread-safe.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  // Appends the parts of `text`, in order, the ones between tokens not empty. A special token is passed over (it stays
  // text) unless `parse_special`.
  void Split(std::string_view text, bool parse_special, std::vector<TextPart>* parts) const;

 private:
  std::vector<AddedToken> tokens_;
  Trie trie_;  // values are places in tokens_
};

}  // namespace hone
