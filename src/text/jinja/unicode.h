// Code points of UTF-8 strings as Python's str sees them: length, positions, case, classes. A byte that is not part of valid
// UTF-8 counts as one code point and is copied unchanged. Pure functions; no locale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone::jinja {

// The code point at `*position` (< text.size()), which moves past it. An invalid byte b gives 0xDC00 + b, which no valid text
// holds.
uint32_t NextCodePoint(std::string_view text, size_t* position);
void AppendCodePoint(std::string* text, uint32_t code_point);
size_t CodePointCount(std::string_view text);
// Byte position of code point `index`; text.size() if there are fewer.
size_t ByteOffset(std::string_view text, size_t index);
std::vector<std::string_view> CodePoints(std::string_view text);  // each code point's bytes

// Classes as str.isspace(), isalpha() ... of one character.
bool IsSpace(uint32_t c);
bool IsAlpha(uint32_t c);
bool IsDecimal(uint32_t c);
bool IsDigit(uint32_t c);
bool IsNumeric(uint32_t c);
bool IsUpper(uint32_t c);
bool IsLower(uint32_t c);
bool IsTitle(uint32_t c);
bool IsPrintable(uint32_t c);
inline bool IsAlnum(uint32_t c) { return IsAlpha(c) || IsDecimal(c) || IsDigit(c) || IsNumeric(c); }
inline bool IsWord(uint32_t c) { return c == '_' || IsAlnum(c); }  // \w
bool IsLineBreak(uint32_t c);                                      // of str.splitlines()

std::string ToUpper(std::string_view text);
std::string ToLower(std::string_view text);
std::string ToTitle(std::string_view text);       // str.title()
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);
std::string CaseFold(std::string_view text);

// Without leading (trailing) code points that are white space, or that stand in `chars`.
std::string_view StripLeft(std::string_view text, const std::string_view* chars = nullptr);
std::string_view StripRight(std::string_view text, const std::string_view* chars = nullptr);

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends = false);

}  // namespace hone::jinja
