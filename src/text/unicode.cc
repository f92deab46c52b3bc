// utf8proc gives categories, decompositions and compositions; ordering of marks is ours, because utf8proc's is
// quadratic in the length of a run of marks.
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "text/utf8.h"

namespace hone {
namespace {

utf8proc_category_t Category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

}  // namespace

bool IsWhiteSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
         c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsNumeric(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9';
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
}

bool IsDecimalDigit(char32_t c) { return c < 0x80 ? c >= 0x30 && c <= 0x39 : Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsPunctuation(char32_t c) {
  if (c < 0x80) return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
  const auto category = Category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsMark(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

bool IsNonSpacingMark(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_MN; }

bool IsControlOrFormat(char32_t c) {
  const auto category = Category(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CS ||
         category == UTF8PROC_CATEGORY_CO;
}

bool IsWordCharacter(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // circled and squared letters are alphabetic symbols; then the joiners
      return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189) || c == 0x200C || c == 0x200D;
  }
}

bool IsCjkIdeograph(char32_t c) {
  // The fifth range starts at 2B920, not 2B820, in the reference; models were trained with that.
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
         (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void AppendLower(char32_t c, std::string* out) {
  if (c < 0x80) {
    out->push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c));
  } else if (c == 0x130) {
    out->append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), out);
  }
}

std::string Normalize(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool compose = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const auto high = std::find_if(text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; });
  if (high == text.end()) return std::string(text);  // ASCII is in every form

  int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
  if (compatible) options |= UTF8PROC_COMPAT;
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = Utf8At(text, pos);
    pos += c.bytes;
    if (c.code < 0x80) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
      continue;
    }
    utf8proc_int32_t parts[32];  // the longest decomposition has 18
    int bound_class = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts, 32,
                                               static_cast<utf8proc_option_t>(options), &bound_class);
    if (count < 0 || count > 32) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
    } else {
      codes.insert(codes.end(), parts, parts + count);
    }
  }
  // Canonical order: each run of marks is sorted by combining class, stably.
  std::vector<std::pair<int, utf8proc_int32_t>> run;
  for (size_t i = 0; i < codes.size();) {
    const auto combining = [&](size_t k) {
      return codes[k] < 0x300 ? 0 : static_cast<int>(utf8proc_get_property(codes[k])->combining_class);
    };
    if (combining(i) == 0) {
      ++i;
      continue;
    }
    run.clear();
    size_t end = i;
    for (int order = 0; end < codes.size() && (order = combining(end)) != 0; ++end) run.emplace_back(order, codes[end]);
    std::stable_sort(run.begin(), run.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t k = 0; k < run.size(); ++k) codes[i + k] = run[k].second;
    i = end;
  }
  size_t size = codes.size();
  if (compose) {
    const auto composed = utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    HONE_CHECK(composed >= 0, "composition of valid characters failed");
    size = static_cast<size_t>(composed);
  }
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < size; ++i) AppendUtf8(static_cast<char32_t>(codes[i]), &out);
  return out;
}

size_t GraphemeBytes(std::string_view text) {
  Utf8Char c = Utf8At(text, 0);
  size_t pos = c.bytes;
  utf8proc_int32_t state = 0;
  while (pos < text.size()) {
    const Utf8Char next = Utf8At(text, pos);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    c = next;
    pos += next.bytes;
  }
  return pos;
}

}  // namespace hone
