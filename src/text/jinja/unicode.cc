// UTF-8 decoding, and Python's character classes and case mapping over utf8proc's tables; ASCII never reaches the tables.
#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace hone::jinja {
namespace {

constexpr uint32_t kInvalidBase = 0xDC00;  // a lone surrogate: never decoded from valid UTF-8

utf8proc_category_t Category(uint32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Characters whose upper case is more than one character (SpecialCasing of Unicode, unconditional part in common use).
struct LongUpper {
  uint32_t from;
  const char* upper;
  const char* title;
};
constexpr LongUpper kLongUpper[] = {
    {0xDF, "SS", "Ss"},     {0x149, "\u02BCN", "\u02BCN"},     {0x1F0, "J\u030C", "J\u030C"},
    {0x390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},         {0x3B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x587, "\u0535\u0552", "\u0535\u0582"},                     {0x1E96, "H\u0331", "H\u0331"},
    {0x1E97, "T\u0308", "T\u0308"},                              {0x1E98, "W\u030A", "W\u030A"},
    {0x1E99, "Y\u030A", "Y\u030A"},                              {0x1E9A, "A\u02BE", "A\u02BE"},
    {0xFB00, "FF", "Ff"},   {0xFB01, "FI", "Fi"},               {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"}, {0xFB04, "FFL", "Ffl"},             {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
};

const LongUpper* FindLongUpper(uint32_t c) {
  if (c < 0xDF) return nullptr;
  for (const LongUpper& entry : kLongUpper) {
    if (entry.from == c) return &entry;
  }
  return nullptr;
}

void AppendUpper(std::string* out, uint32_t c) {
  if (const LongUpper* entry = FindLongUpper(c)) {
    *out += entry->upper;
  } else {
    AppendCodePoint(out, c < 128 ? (c >= 'a' && c <= 'z' ? c - 32 : c)
                                 : static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void AppendTitle(std::string* out, uint32_t c) {
  if (const LongUpper* entry = FindLongUpper(c)) {
    *out += entry->title;
  } else {
    AppendCodePoint(out, c < 128 ? (c >= 'a' && c <= 'z' ? c - 32 : c)
                                 : static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool IsCased(uint32_t c) { return IsUpper(c) || IsLower(c) || IsTitle(c); }

bool IsCaseIgnorable(uint32_t c) {
  if (c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2019) return true;
  if (c < 128) return c == '^' || c == '`';
  const utf8proc_category_t category = Category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_SK;
}

// Capital sigma is final where a cased letter stands before and none after, case-ignorable characters skipped.
bool IsFinalSigma(std::string_view text, size_t begin, size_t end) {
  bool before = false;
  for (size_t position = 0; position < begin;) {
    const uint32_t c = NextCodePoint(text, &position);
    if (!IsCaseIgnorable(c)) before = IsCased(c);
  }
  if (!before) return false;
  while (end < text.size()) {
    const uint32_t c = NextCodePoint(text, &end);
    if (!IsCaseIgnorable(c)) return !IsCased(c);
  }
  return true;
}

void AppendLower(std::string* out, std::string_view text, size_t begin, size_t end, uint32_t c) {
  if (c < 128) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    *out += "i\u0307";
  } else if (c == 0x3A3) {
    // A window of the text decides, so a text of sigmas stays linear.
    const size_t from = begin > 64 ? begin - 64 : 0;
    *out += IsFinalSigma(text.substr(from, 128 + (end - begin)), begin - from, end - from) ? "\u03C2" : "\u03C3";
  } else {
    AppendCodePoint(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool Contains(std::string_view chars, uint32_t c) {
  for (size_t position = 0; position < chars.size();) {
    if (NextCodePoint(chars, &position) == c) return true;
  }
  return false;
}

bool Strips(uint32_t c, const std::string_view* chars) { return chars == nullptr ? IsSpace(c) : Contains(*chars, c); }

}  // namespace

uint32_t NextCodePoint(std::string_view text, size_t* position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const size_t i = *position;
  const uint32_t first = byte(i);
  *position = i + 1;
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC2 ? 1 : 0;
  if (more == 0 || first > 0xF4 || i + static_cast<size_t>(more) >= text.size()) {
    return kInvalidBase + first;
  }
  uint32_t c = first & (0x3Fu >> more);
  for (int k = 1; k <= more; ++k) {
    const uint32_t next = byte(i + static_cast<size_t>(k));
    if ((next & 0xC0) != 0x80) return kInvalidBase + first;
    c = (c << 6) | (next & 0x3F);
  }
  const bool overlong = (more == 2 && c < 0x800) || (more == 3 && c < 0x10000);
  if (overlong || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return kInvalidBase + first;
  *position = i + 1 + static_cast<size_t>(more);
  return c;
}

void AppendCodePoint(std::string* text, uint32_t c) {
  if (c < 0x80) {
    text->push_back(static_cast<char>(c));
  } else if (c >= kInvalidBase + 0x80 && c < kInvalidBase + 0x100) {
    text->push_back(static_cast<char>(c - kInvalidBase));
  } else {
    utf8proc_uint8_t bytes[4];
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) c = 0xFFFD;
    const utf8proc_ssize_t count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
    text->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
  }
}

size_t CodePointCount(std::string_view text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (ascii) return text.size();
  size_t count = 0;
  for (size_t position = 0; position < text.size(); ++count) NextCodePoint(text, &position);
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t position = 0;
  while (index > 0 && position < text.size()) {
    NextCodePoint(text, &position);
    --index;
  }
  return position;
}

std::vector<std::string_view> CodePoints(std::string_view text) {
  std::vector<std::string_view> out;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    NextCodePoint(text, &position);
    out.push_back(text.substr(begin, position - begin));
  }
  return out;
}

bool IsSpace(uint32_t c) {
  if (c < 128) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsAlpha(uint32_t c) {
  if (c < 128) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDecimal(uint32_t c) {
  if (c < 128) return c >= '0' && c <= '9';
  return Category(c) == UTF8PROC_CATEGORY_ND;
}

bool IsDigit(uint32_t c) {
  if (IsDecimal(c)) return true;
  // Superscripts, subscripts, and circled digits: the digits that are not decimal.
  return c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490) || c == 0x24EA ||
         (c >= 0x24F5 && c <= 0x24FD) || c == 0x24FF || (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) ||
         (c >= 0x278A && c <= 0x2792) || (c >= 0x1369 && c <= 0x1371);
}

bool IsNumeric(uint32_t c) {
  if (c < 128) return c >= '0' && c <= '9';
  const utf8proc_category_t category = Category(c);
  if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return true;
  // Ideographs that are numbers.
  constexpr uint32_t kIdeographs[] = {0x3007, 0x4E00, 0x4E8C, 0x4E09, 0x56DB, 0x4E94, 0x516D, 0x4E03,
                                      0x516B, 0x4E5D, 0x5341, 0x767E, 0x5343, 0x4E07, 0x5104, 0x5146};
  return std::find(std::begin(kIdeographs), std::end(kIdeographs), c) != std::end(kIdeographs);
}

bool IsUpper(uint32_t c) {
  if (c < 128) return c >= 'A' && c <= 'Z';
  return Category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}

bool IsLower(uint32_t c) {
  if (c < 128) return c >= 'a' && c <= 'z';
  return Category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2B0 && c <= 0x2B8) ||
         (c >= 0x2170 && c <= 0x217F) || (c >= 0x24D0 && c <= 0x24E9);
}

bool IsTitle(uint32_t c) { return c >= 128 && Category(c) == UTF8PROC_CATEGORY_LT; }

bool IsPrintable(uint32_t c) {
  if (c < 128) return c >= 32 && c < 127;
  const utf8proc_category_t category = Category(c);
  return !(category == UTF8PROC_CATEGORY_CN || (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_CO));
}

bool IsLineBreak(uint32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

std::string ToUpper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) AppendUpper(&out, NextCodePoint(text, &position));
  return out;
}

std::string ToLower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = NextCodePoint(text, &position);
    AppendLower(&out, text, begin, position, c);
  }
  return out;
}

std::string ToTitle(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = NextCodePoint(text, &position);
    if (inside) {
      AppendLower(&out, text, begin, position, c);
    } else {
      AppendTitle(&out, c);
    }
    inside = IsCased(c);
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = NextCodePoint(text, &position);
    if (begin == 0) {
      AppendTitle(&out, c);
    } else {
      AppendLower(&out, text, begin, position, c);
    }
  }
  return out;
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = NextCodePoint(text, &position);
    if (IsUpper(c)) {
      AppendLower(&out, text, begin, position, c);
    } else if (IsLower(c)) {
      AppendUpper(&out, c);
    } else {
      AppendCodePoint(&out, c);
    }
  }
  return out;
}

std::string CaseFold(std::string_view text) {
  std::string out;
  for (size_t position = 0; position < text.size();) {
    const uint32_t c = NextCodePoint(text, &position);
    if (c == 0xDF || c == 0x1E9E) {
      out += "ss";
    } else if (c == 0x3C2) {
      out += "\u03C3";
    } else {
      AppendCodePoint(&out, c < 128 ? (c >= 'A' && c <= 'Z' ? c + 32 : c)
                                    : static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
    }
  }
  return out;
}

std::string_view StripLeft(std::string_view text, const std::string_view* chars) {
  size_t begin = 0;
  while (begin < text.size()) {
    size_t next = begin;
    if (!Strips(NextCodePoint(text, &next), chars)) break;
    begin = next;
  }
  return text.substr(begin);
}

std::string_view StripRight(std::string_view text, const std::string_view* chars) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    // Back to the lead byte, where there is one that reaches `end`.
    for (size_t k = 0; k < 3 && begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80; ++k) --begin;
    size_t next = begin;
    uint32_t c = NextCodePoint(text.substr(0, end), &next);
    if (next != end) {
      begin = end - 1;
      next = begin;
      c = NextCodePoint(text.substr(0, end), &next);
    }
    if (!Strips(c, chars)) break;
    end = begin;
  }
  return text.substr(0, end);
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t line = 0;
  for (size_t position = 0; position < text.size();) {
    const size_t at = position;
    const uint32_t c = NextCodePoint(text, &position);
    if (!IsLineBreak(c)) continue;
    if (c == '\r' && position < text.size() && text[position] == '\n') ++position;
    lines.push_back(text.substr(line, (keep_ends ? position : at) - line));
    line = position;
  }
  if (line < text.size()) lines.push_back(text.substr(line));
  return lines;
}

}  // namespace hone::jinja
