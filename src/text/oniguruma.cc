// Oniguruma (Ruby syntax) to PCRE2. The two differ, for the patterns of tokenizers, in: sets within sets and && inside
// [...], the members of \s \w \h, \b, (?m, \uHHHH, {,n}, a + after an interval, and script names. Everything else is
// passed on. A construct that would silently mean something else is refused.
#include <array>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include "text/regex.h"
#include "text/utf8.h"

namespace hone {
namespace {

constexpr std::string_view kSpaceItems =
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kWordItems =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{"
    "1f189}";
constexpr std::string_view kHexItems = "0-9a-fA-F";
constexpr int kMaxNesting = 100;

// A set of characters: (operand && operand ...), each operand a union of plain items and sets; perhaps negated.
struct CharacterSet {
  struct Union {
    std::string items;  // text between [ and ] for PCRE2
    std::vector<CharacterSet> sets;
  };
  bool negated = false;
  std::vector<Union> operands = std::vector<Union>(1);
};

std::string EmitSet(const CharacterSet& set);

// An expression that matches one character of the union.
std::string EmitUnion(const CharacterSet::Union& from, bool negated) {
  std::string items = from.items;
  std::string rest;
  for (const CharacterSet& inner : from.sets) {
    if (!inner.negated && inner.operands.size() == 1 && inner.operands[0].sets.empty()) {
      items += inner.operands[0].items;
    } else {
      rest += (rest.empty() ? "" : "|") + EmitSet(inner);
    }
  }
  if (rest.empty()) {
    if (items.empty()) return negated ? "(?s:.)" : "(?!)";
    return (negated ? "[^" : "[") + items + "]";
  }
  if (!items.empty()) rest = "[" + items + "]|" + rest;
  return negated ? "(?:(?!" + rest + ")(?s:.))" : "(?:" + rest + ")";
}

std::string EmitSet(const CharacterSet& set) {
  if (set.operands.size() == 1) return EmitUnion(set.operands[0], set.negated);
  std::string all;
  for (size_t i = 0; i < set.operands.size(); ++i) {
    const std::string part = EmitUnion(set.operands[i], false);
    all += i + 1 < set.operands.size() ? "(?=" + part + ")" : part;
  }
  return set.negated ? "(?:(?!" + all + ")(?s:.))" : "(?:" + all + ")";
}

CharacterSet PlainSet(std::string_view items, bool negated) {
  CharacterSet set;
  set.negated = negated;
  set.operands[0].items = items;
  return set;
}

std::string HexItem(char32_t code) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  do {
    hex.insert(hex.begin(), kDigits[code & 15]);
    code >>= 4;
  } while (code != 0);
  return "\\x{" + hex + "}";
}

// A property name without case, spaces, '-' and '_'.
std::string LooseName(std::string_view name) {
  std::string loose;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-')
      loose.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return loose;
}

// The items for a property or POSIX bracket name.
std::string PropertyItems(std::string_view name) {
  const std::string loose = LooseName(name);
  struct Named {
    std::string_view name, items;
  };
  static constexpr std::array<Named, 40> kNames = {{
      {"alnum", "\\p{Alphabetic}\\p{Nd}"},
      {"alpha", "\\p{Alphabetic}"},
      {"blank", "\\p{Zs}\\x{9}"},
      {"cntrl", "\\p{Cc}"},
      {"digit", "\\p{Nd}"},
      {"lower", "\\p{Lowercase}"},
      {"upper", "\\p{Uppercase}"},
      {"punct", "\\p{P}$+<=>\\x{5e}`|~"},
      {"space", kSpaceItems},
      {"xdigit", kHexItems},
      {"word", kWordItems},
      {"ascii", "\\x{0}-\\x{7f}"},
      {"any", "\\p{Any}"},
      {"letter", "\\p{L}"},
      {"uppercaseletter", "\\p{Lu}"},
      {"lowercaseletter", "\\p{Ll}"},
      {"titlecaseletter", "\\p{Lt}"},
      {"modifierletter", "\\p{Lm}"},
      {"otherletter", "\\p{Lo}"},
      {"mark", "\\p{M}"},
      {"combiningmark", "\\p{M}"},
      {"nonspacingmark", "\\p{Mn}"},
      {"spacingmark", "\\p{Mc}"},
      {"enclosingmark", "\\p{Me}"},
      {"number", "\\p{N}"},
      {"decimalnumber", "\\p{Nd}"},
      {"letternumber", "\\p{Nl}"},
      {"othernumber", "\\p{No}"},
      {"punctuation", "\\p{P}"},
      {"symbol", "\\p{S}"},
      {"mathsymbol", "\\p{Sm}"},
      {"currencysymbol", "\\p{Sc}"},
      {"separator", "\\p{Z}"},
      {"spaceseparator", "\\p{Zs}"},
      {"other", "\\p{C}"},
      {"control", "\\p{Cc}"},
      {"format", "\\p{Cf}"},
      {"lc", "\\p{L&}"},
      {"whitespace", kSpaceItems},
      {"unassigned", "\\p{Cn}"},
  }};
  for (const Named& named : kNames) {
    if (named.name == loose) return std::string(named.items);
  }
  static constexpr std::array<std::string_view, 9> kBinary = {
      "alphabetic",           "lowercase", "uppercase", "ideographic", "emoji", "emojipresentation", "emojimodifier",
      "extendedpictographic", "math"};
  for (const std::string_view binary : kBinary) {
    if (binary == loose) return "\\p{" + loose + "}";
  }
  // A category has one or two letters; what is left is a script, which PCRE2 would read as its extensions.
  if (loose.size() <= 2) return "\\p{" + std::string(name) + "}";
  return "\\p{sc:" + std::string(name) + "}";
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> Run() {
    while (pos_ < in_.size()) HONE_RETURN_IF_ERROR(Step());
    return std::move(out_);
  }

 private:
  Error Refuse(std::string_view what) const {
    return Unsupported("regular expression: " + std::string(what) + " at byte " + std::to_string(pos_) + " of '" +
                       std::string(in_.substr(0, 200)) + "'");
  }
  bool At(std::string_view text) const { return in_.substr(pos_, text.size()) == text; }
  void Atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  Result<void> Step() {
    switch (in_[pos_]) {
      case '\\':
        return Escape();
      case '[': {
        ++pos_;
        HONE_TRY(const CharacterSet set, Set(0));
        Atom(EmitSet(set));
        return {};
      }
      case '(':
        return OpenGroup();
      case ')':
        if (groups_.empty()) return Refuse("a ')' without '('");
        atom_ = groups_.back();
        groups_.pop_back();
        out_ += in_[pos_++];
        return {};
      case '{':
        return Interval();
      default:
        break;
    }
    const Utf8Char c = Utf8At(in_, pos_);
    if (!c.valid) return Refuse("malformed UTF-8");
    if (c.code == '*' || c.code == '+' || c.code == '?') {  // a quantifier, with its own ? or +
      out_ += in_[pos_++];
      return {};
    }
    if (c.code == 0) {
      Atom("\\x{0}");
    } else {
      Atom(in_.substr(pos_, c.bytes));
    }
    pos_ += c.bytes;
    return {};
  }

  Result<void> OpenGroup() {
    if (groups_.size() >= kMaxNesting) return Refuse("groups nested too deep");
    if (At("(*")) return Refuse("a verb '(*'");
    if (At("(?#")) {
      const size_t end = in_.find(')', pos_);
      if (end == std::string_view::npos) return Refuse("a comment without end");
      pos_ = end + 1;
      return {};
    }
    const size_t start = out_.size();
    if (!At("(?")) {
      groups_.push_back(start);
      out_ += '(';
      ++pos_;
      return {};
    }
    for (const std::string_view open : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!At(open)) continue;
      groups_.push_back(start);
      out_ += open;
      pos_ += open.size();
      return {};
    }
    if (At("(?<")) {
      const size_t end = in_.find('>', pos_);
      if (end == std::string_view::npos) return Refuse("a group name without end");
      groups_.push_back(start);
      out_ += in_.substr(pos_, end + 1 - pos_);
      pos_ = end + 1;
      return {};
    }
    return Options(start);
  }

  // (?imx-imx) and (?imx-imx: with Ruby's meaning of m: the dot matches a newline.
  Result<void> Options(size_t start) {
    const bool first = groups_.empty() ? start == 0 : out_.back() == ':' || out_.back() == '(';
    std::string options = "(?";
    size_t at = pos_ + 2;
    for (; at < in_.size() && (in_[at] == 'i' || in_[at] == 'm' || in_[at] == '-'); ++at) {
      options += in_[at] == 'm' ? 's' : in_[at];
    }
    if (at >= in_.size() || (in_[at] != ':' && in_[at] != ')')) return Refuse("a group of an unknown kind");
    if (in_[at] == ')' && !first) return Refuse("options in the middle of a group");
    if (in_[at] == ':') groups_.push_back(start);
    out_ += options + in_[at];
    pos_ = at + 1;
    return {};
  }

  Result<void> Interval() {
    size_t at = pos_ + 1;
    const auto number = [&] {
      std::string digits;
      while (at < in_.size() && std::isdigit(static_cast<unsigned char>(in_[at])) != 0) digits += in_[at++];
      return digits;
    };
    const std::string low = number();
    const bool comma = at < in_.size() && in_[at] == ',';
    std::string high;
    if (comma) {
      ++at;
      high = number();
    }
    if (at >= in_.size() || in_[at] != '}' || (low.empty() && high.empty())) {
      Atom("\\{");
      ++pos_;
      return {};
    }
    if (atom_ > out_.size()) return Refuse("an interval without anything before it");
    pos_ = at + 1;
    out_ += "{" + (low.empty() ? "0" : low) + (comma ? "," + high : "") + "}";
    // In Ruby {n,m}+ repeats the interval, and {n}? makes it optional; PCRE2 would read possessive and lazy.
    const bool repeats = pos_ < in_.size() && (in_[pos_] == '+' || (in_[pos_] == '?' && !comma));
    if (repeats) {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
    return {};
  }

  // \p{Name}, \p{^Name}, \P{Name}, \pL; pos_ is at p or P.
  Result<CharacterSet> Property() {
    bool negated = in_[pos_] == 'P';
    ++pos_;
    std::string_view name;
    if (pos_ < in_.size() && in_[pos_] == '{') {
      const size_t end = in_.find('}', pos_);
      if (end == std::string_view::npos) return Refuse("a property name without end");
      name = in_.substr(pos_ + 1, end - pos_ - 1);
      pos_ = end + 1;
    } else if (pos_ < in_.size()) {
      name = in_.substr(pos_++, 1);
    }
    if (!name.empty() && name[0] == '^') {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (name.empty()) return Refuse("a property without name");
    for (const char c : name) {
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '-' && c != ' ' && c != '&') {
        return Refuse("a property name that holds other than letters");
      }
    }
    return PlainSet(PropertyItems(name), negated);
  }

  // A code given by number; pos_ is after the x or u.
  Result<char32_t> Numbered(bool four_digits) {
    uint32_t code = 0;
    size_t digits = 0;
    const bool braces = !four_digits && pos_ < in_.size() && in_[pos_] == '{';
    if (braces) ++pos_;
    const size_t most = braces ? 8 : four_digits ? 4 : 2;
    while (digits < most && pos_ < in_.size() && std::isxdigit(static_cast<unsigned char>(in_[pos_])) != 0) {
      const char c = static_cast<char>(std::tolower(static_cast<unsigned char>(in_[pos_++])));
      code = code * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
      ++digits;
    }
    if (braces) {
      if (pos_ >= in_.size() || in_[pos_] != '}') return Refuse("a code without end");
      ++pos_;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return Refuse("a code that is no character");
    if (!braces && !four_digits && code >= 0x80) return Refuse("a byte of a character by number");
    return static_cast<char32_t>(code);
  }

  // A set escape (\s \w \d \h \p and their negations): true, and the set. pos_ is at the letter.
  Result<bool> SetEscape(CharacterSet* set) {
    switch (in_[pos_]) {
      case 's':
      case 'S':
        *set = PlainSet(kSpaceItems, in_[pos_] == 'S');
        break;
      case 'w':
      case 'W':
        *set = PlainSet(kWordItems, in_[pos_] == 'W');
        break;
      case 'd':
      case 'D':
        *set = PlainSet("\\p{Nd}", in_[pos_] == 'D');
        break;
      case 'h':
      case 'H':
        *set = PlainSet(kHexItems, in_[pos_] == 'H');
        break;
      case 'p':
      case 'P': {
        HONE_TRY(*set, Property());
        return true;
      }
      default:
        return false;
    }
    ++pos_;
    return true;
  }

  // A single character escape; pos_ is at the letter.
  Result<char32_t> CharacterEscape() {
    const Utf8Char c = Utf8At(in_, pos_);
    if (!c.valid) return Refuse("malformed UTF-8");
    pos_ += c.bytes;
    switch (c.code) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'f':
        return U'\f';
      case 'v':
        return U'\v';
      case 'a':
        return U'\a';
      case 'e':
        return char32_t{0x1B};
      case '0':
        return char32_t{0};
      case 'x':
        return Numbered(false);
      case 'u':
        return Numbered(true);
      default:
        return c.code;
    }
  }

  Result<void> Escape() {
    ++pos_;
    if (pos_ >= in_.size()) return Refuse("a backslash at the end");
    const char c = in_[pos_];
    if (c == 'b' || c == 'B') {
      const std::string word = "[" + std::string(kWordItems) + "]";
      const bool at_boundary = c == 'b';
      Atom("(?:(?<=" + word + ")(?" + (at_boundary ? "!" : "=") + word + ")|(?<!" + word + ")(?" +
           (at_boundary ? "=" : "!") + word + "))");
      ++pos_;
      return {};
    }
    if (std::string_view("AzZGRXK").find(c) != std::string_view::npos || (c >= '1' && c <= '9')) {
      Atom(in_.substr(pos_ - 1, 2));
      ++pos_;
      return {};
    }
    if (c == 'g' || c == 'k') return Refuse("a call or named reference");
    CharacterSet set;
    HONE_TRY(const bool is_set, SetEscape(&set));
    if (is_set) {
      Atom(EmitSet(set));
      return {};
    }
    HONE_TRY(const char32_t code, CharacterEscape());
    Atom(HexItem(code));
    return {};
  }

  // After '[' up to and with ']'.
  Result<CharacterSet> Set(int depth) {
    if (depth >= kMaxNesting) return Refuse("sets nested too deep");
    CharacterSet set;
    if (pos_ < in_.size() && in_[pos_] == '^') {
      set.negated = true;
      ++pos_;
    }
    bool first = true;
    bool range_open = false;  // "a-" was read
    bool can_range = false;   // the last item was one character
    for (;; first = false) {
      if (pos_ >= in_.size()) return Refuse("a '[' without ']'");
      CharacterSet::Union& into = set.operands.back();
      const char c = in_[pos_];
      if (c == ']' && !first) {
        ++pos_;
        if (range_open) into.items += "\\x{2d}";
        return set;
      }
      if (At("&&")) {
        pos_ += 2;
        set.operands.emplace_back();
        range_open = can_range = false;
        continue;
      }
      CharacterSet inner;
      bool is_set = false;
      char32_t code = 0;
      if (At("[:") && in_.find(":]", pos_) != std::string_view::npos) {
        HONE_TRY(inner, Bracket());
        is_set = true;
      } else if (c == '[') {
        ++pos_;
        HONE_TRY(inner, Set(depth + 1));
        is_set = true;
      } else if (c == '-' && can_range && !range_open && pos_ + 1 < in_.size() && in_[pos_ + 1] != ']' && !At("-[") &&
                 !At("-&&")) {
        ++pos_;
        range_open = true;
        continue;
      } else if (c == '\\') {
        ++pos_;
        if (pos_ >= in_.size()) return Refuse("a backslash at the end");
        if (in_[pos_] == 'b') {
          code = 8;
          ++pos_;
        } else {
          HONE_TRY(is_set, SetEscape(&inner));
          if (!is_set) {
            HONE_TRY(code, CharacterEscape());
          }
        }
      } else {
        const Utf8Char next = Utf8At(in_, pos_);
        if (!next.valid) return Refuse("malformed UTF-8");
        code = next.code;
        pos_ += next.bytes;
      }
      if (is_set) {
        if (range_open) into.items += "\\x{2d}";
        range_open = can_range = false;
        AddSet(std::move(inner), &into);
        continue;
      }
      if (range_open) into.items += '-';
      into.items += HexItem(code);
      can_range = !range_open;
      range_open = false;
    }
  }

  // A set inside a set. Negated single properties and \S have a spelling that keeps the whole one plain set.
  static void AddSet(CharacterSet inner, CharacterSet::Union* into) {
    if (inner.negated && inner.operands.size() == 1 && inner.operands[0].sets.empty()) {
      const std::string& items = inner.operands[0].items;
      if (items == kSpaceItems) {
        into->items += "\\S\\x{180e}";  // PCRE2 counts U+180E as a space
        return;
      }
      if (items.starts_with("\\p{") && items.find('}') + 1 == items.size()) {
        into->items += "\\P" + items.substr(2);
        return;
      }
    }
    into->sets.push_back(std::move(inner));
  }

  Result<CharacterSet> Bracket() {
    const size_t end = in_.find(":]", pos_);
    std::string_view name = in_.substr(pos_ + 2, end - pos_ - 2);
    const bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    for (const char c : name) {
      if (std::isalpha(static_cast<unsigned char>(c)) == 0) return Refuse("a '[:' that names no class");
    }
    pos_ = end + 2;
    return PlainSet(PropertyItems(name), negated);
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_ = std::string::npos;  // where the last atom starts in out_
  std::vector<size_t> groups_;       // where open groups start in out_
};

}  // namespace

Result<std::string> TranslateOniguruma(std::string_view pattern) {
  // Trailing white space: found from the start of its run only, which is the same and not quadratic.
  if (pattern == "\\s+$") return "(?:\\G|(?<![" + std::string(kSpaceItems) + "]))[" + std::string(kSpaceItems) + "]+$";
  return Translator(pattern).Run();
}

}  // namespace hone
