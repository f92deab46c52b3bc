// UTF-8: decoding with the "maximal subpart" rule of the Unicode standard (one U+FFFD for each), encoding, validation.
// Every function accepts any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Char {
  char32_t code = 0xFFFD;  // U+FFFD where !valid
  uint32_t bytes = 1;      // of the character, or of the maximal malformed part
  bool valid = false;
  bool cut = false;  // malformed only because the text ends here; more bytes could complete it
};
// The character at `text[pos]`. REQUIRES: pos < text.size().
Utf8Char Utf8At(std::string_view text, size_t pos);

void AppendUtf8(char32_t code, std::string* out);
bool IsValidUtf8(std::string_view text);
// The bytes from the start that are well-formed.
size_t ValidUtf8Prefix(std::string_view text);
// Malformed parts replaced by U+FFFD.
std::string ToValidUtf8(std::string_view text);

// Text that arrives in pieces cut anywhere: gives whole characters, holds back an incomplete one (at most 3 bytes).
class Utf8Assembler {
 public:
  void Push(std::string_view bytes, std::string* out);
  void Finish(std::string* out);  // an incomplete tail becomes U+FFFD

 private:
  std::string held_;
};

}  // namespace hone
