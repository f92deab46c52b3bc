// ▁, the mark of a space, and cutting at it: where no token holds a ▁ after another character, no merge crosses from a
// character to a ▁, so a text of megabytes without pre-tokenizer may be merged word by word with the same result.
#pragma once

#include <string_view>

namespace hone {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Whether a ▁ in `text` follows another character.
inline bool HasInnerMark(std::string_view text) {
  size_t at = 0;
  while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
  return text.find(kSpaceMark, at) != std::string_view::npos;
}

// Calls visit(part) for the parts of `text`, cut before each ▁ that follows another character.
template <typename Visit>
void ForEachMarkedWord(std::string_view text, Visit&& visit) {
  while (!text.empty()) {
    size_t at = 0;
    while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
    const size_t end = text.find(kSpaceMark, at);
    visit(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end);
  }
}

}  // namespace hone
