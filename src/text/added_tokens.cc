// One pass over the text; at each byte that starts any token, the longest one that fits.
#include "text/added_tokens.h"

#include <algorithm>

#include "text/unicode.h"
#include "text/utf8.h"

namespace hone {
namespace {

char32_t LastCharacter(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return Utf8At(text, start).code;
}

size_t LastCharacterBytes(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return text.size() - start;
}

bool StandsAlone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(LastCharacter(text.substr(0, begin)))) return false;
  return end >= text.size() || !IsWordCharacter(Utf8At(text, end).code);
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < tokens_.size(); ++i) entries.emplace_back(tokens_[i].content, static_cast<int32_t>(i));
  trie_ = Trie(std::move(entries));
}

void AddedTokenFinder::Split(std::string_view text, bool parse_special, std::vector<TextPart>* parts) const {
  size_t start = 0;  // of the text that is not in a part yet
  if (!trie_.empty()) {
    for (size_t pos = 0; pos < text.size();) {
      if (!trie_.StartsAny(static_cast<unsigned char>(text[pos]))) {
        ++pos;
        continue;
      }
      size_t length = 0;
      int32_t place = -1;
      trie_.Prefixes(text.substr(pos), [&](size_t bytes, int32_t value) {
        length = bytes;
        place = value;
      });
      if (place < 0) {
        ++pos;
        continue;
      }
      const AddedToken& token = tokens_[static_cast<size_t>(place)];
      size_t begin = pos, end = pos + length;
      pos = end;  // a match that is passed over still uses up its text
      if (token.special && !parse_special) continue;
      if (token.single_word && !StandsAlone(text, begin, end)) continue;
      if (token.lstrip) {
        while (begin > start && IsWhiteSpace(LastCharacter(text.substr(0, begin)))) {
          begin -= LastCharacterBytes(text.substr(0, begin));
        }
        begin = std::max(begin, start);
      }
      if (token.rstrip) {
        while (end < text.size()) {
          const Utf8Char c = Utf8At(text, end);
          if (!c.valid || !IsWhiteSpace(c.code)) break;
          end += c.bytes;
        }
      }
      if (begin > start) parts->push_back({text.substr(start, begin - start), -1});
      parts->push_back({text.substr(begin, end - begin), token.id});
      start = std::max(start, end);
    }
  }
  if (start < text.size()) parts->push_back({text.substr(start), -1});
}

}  // namespace hone
