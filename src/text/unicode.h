// Character properties and normalisation forms (Unicode 15, by utf8proc).
#pragma once

#include <string>
#include <string_view>

namespace hone {

bool IsWhiteSpace(char32_t c);       // White_Space
bool IsNumeric(char32_t c);          // Nd, Nl, No
bool IsDecimalDigit(char32_t c);     // Nd
bool IsPunctuation(char32_t c);      // Pc, Pd, Ps, Pe, Pi, Pf, Po, and ASCII symbols
bool IsMark(char32_t c);             // Mn, Mc, Me
bool IsNonSpacingMark(char32_t c);   // Mn
bool IsControlOrFormat(char32_t c);  // Cc, Cf, Cs, Co; not the unassigned
bool IsWordCharacter(char32_t c);    // what \w matches: alphabetic, marks, decimal digits, connectors, joiners
bool IsCjkIdeograph(char32_t c);     // the ranges that BERT sets apart

// Full lower case of one character (U+0130 gives two).
void AppendLower(char32_t c, std::string* out);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
// REQUIRES: valid UTF-8. Linear (n log n in runs of combining marks).
std::string Normalize(std::string_view text, NormalForm form);

// The byte length of the extended grapheme cluster at the start. REQUIRES: valid UTF-8, not empty.
size_t GraphemeBytes(std::string_view text);

}  // namespace hone
