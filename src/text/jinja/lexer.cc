// One pass over the source: text up to the next tag, then the tag's tokens up to its end.
#include "text/jinja/lexer.h"

#include <charconv>
#include <cstdlib>

#include "base/result.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

constexpr size_t kMaxSourceBytes = 64 << 20;

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}
bool IsDigitByte(char c) { return c >= '0' && c <= '9'; }

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : owned_(NormalizeNewlines(source)), source_(owned_) {}

  Result<std::vector<Token>> Run() {
    while (position_ < source_.size()) HONE_RETURN_IF_ERROR(ReadText());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  Error Fail(const std::string& what, size_t at) const {
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < source_.size(); ++i) {
      if (source_[i] == '\n') {
        ++line;
        column = 1;
      } else {
        ++column;
      }
    }
    return InvalidInput("template line " + std::to_string(line) + " column " + std::to_string(column) + ": " + what);
  }

  void Add(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  // Moves to `to`, counting lines.
  void Advance(size_t to) {
    for (; position_ < to; ++position_) line_ += source_[position_] == '\n';
  }

  void SkipSpace() {
    size_t next = position_;
    while (next < source_.size()) {
      size_t after = next;
      if (!IsSpace(NextCodePoint(source_, &after))) break;
      next = after;
    }
    Advance(next);
  }

  bool At(size_t at, std::string_view what) const { return source_.substr(at, what.size()) == what; }
  char ByteAt(size_t at) const { return at < source_.size() ? source_[at] : '\0'; }

  // Text up to the next tag, with what the tag's sign and lstrip_blocks take from its end.
  void AddText(size_t end, char sign, bool is_variable) {
    std::string_view text = source_.substr(position_, end - position_);
    if (sign == '-') {
      text = StripRight(text);
    } else if (sign != '+' && !is_variable) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starting_) && StripLeft(text.substr(line)).empty()) text = text.substr(0, line);
    }
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
    Advance(end);
  }

  size_t FindTag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string_view::npos; at = source_.find('{', at + 1)) {
      const char next = ByteAt(at + 1);
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  Result<void> ReadText() {
    const size_t tag = FindTag(position_);
    if (tag == std::string_view::npos) {
      Add(TokenKind::kData, std::string(source_.substr(position_)));
      Advance(source_.size());
      return {};
    }
    const char type = source_[tag + 1];
    const char sign = ByteAt(tag + 2);
    const bool has_sign = sign == '-' || sign == '+';
    AddText(tag, has_sign ? sign : '\0', type == '{');
    Advance(tag + 2 + (has_sign ? 1 : 0));
    line_starting_ = false;
    if (type == '#') return ReadComment(tag);
    if (type == '%') {
      bool is_raw = false;
      HONE_RETURN_IF_ERROR(TryRaw(tag, &is_raw));
      if (is_raw) return {};
    }
    return ReadTag(tag, type == '{');
  }

  // After a tag's end: "-" takes all white space, trim_blocks one newline.
  void AfterTag(bool minus, bool trims) {
    const size_t end = position_;
    if (minus) {
      SkipSpace();
    } else if (trims && ByteAt(position_) == '\n') {
      Advance(position_ + 1);
    }
    line_starting_ = position_ > end && source_[position_ - 1] == '\n';
  }

  Result<void> ReadComment(size_t tag) {
    const size_t end = source_.find("#}", position_);
    if (end == std::string_view::npos) return Fail("missing end of comment tag", tag);
    const char sign = end > position_ ? source_[end - 1] : '\0';
    Advance(end + 2);
    AfterTag(sign == '-', sign != '+');
    return {};
  }

  // {% raw %} ... {% endraw %} at the tag whose "{%" and sign are read. Leaves the position alone if it is another tag.
  Result<void> TryRaw(size_t tag, bool* is_raw) {
    const auto skip = [&](size_t at) {
      while (at < source_.size()) {
        size_t after = at;
        if (!IsSpace(NextCodePoint(source_, &after))) break;
        at = after;
      }
      return at;
    };
    size_t at = skip(position_);
    if (!At(at, "raw")) return {};
    at = skip(at + 3);
    const bool minus = At(at, "-%}");
    if (!minus && !At(at, "%}")) return {};
    *is_raw = true;
    Advance(at + (minus ? 3 : 2));
    AfterTag(minus, false);
    for (size_t end = source_.find("{%", position_); end != std::string_view::npos; end = source_.find("{%", end + 1)) {
      const char sign = ByteAt(end + 2);
      const bool has_sign = sign == '-' || sign == '+';
      size_t close = skip(end + 2 + (has_sign ? 1 : 0));
      if (!At(close, "endraw")) continue;
      close = skip(close + 6);
      const char closing = ByteAt(close);
      const size_t mark = close + (closing == '-' || closing == '+' ? 1 : 0);
      if (!At(mark, "%}")) continue;
      AddText(end, has_sign ? sign : '\0', false);
      Advance(mark + 2);
      AfterTag(closing == '-', closing != '+');
      return {};
    }
    return Fail("missing end of raw block", tag);
  }

  Result<void> ReadTag(size_t tag, bool is_variable) {
    Add(is_variable ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    const std::string_view end = is_variable ? "}}" : "%}";
    while (true) {
      SkipSpace();
      if (position_ >= source_.size()) {
        return Fail(is_variable ? "this {{ has no }}" : "this {% has no %}", tag);
      }
      if (brackets_.empty()) {
        const char sign = source_[position_];
        const bool signed_end = (sign == '-' || (sign == '+' && !is_variable)) && At(position_ + 1, end);
        if (signed_end || At(position_, end)) {
          Add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          Advance(position_ + 2 + (signed_end ? 1 : 0));
          AfterTag(signed_end && sign == '-', !is_variable && !signed_end);
          return {};
        }
      }
      HONE_RETURN_IF_ERROR(ReadToken());
    }
  }

  Result<void> ReadToken() {
    const char c = source_[position_];
    if (IsDigitByte(c)) return ReadNumber();
    if (IsNameByte(c)) {
      size_t end = position_;
      while (end < source_.size() && IsNameByte(source_[end])) ++end;
      Add(TokenKind::kName, std::string(source_.substr(position_, end - position_)));
      Advance(end);
      return {};
    }
    if (c == '"' || c == '\'') return ReadString();
    for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="}) {
      if (At(position_, op)) return AddOperator(op);
    }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) != std::string_view::npos) {
      return AddOperator(source_.substr(position_, 1));
    }
    size_t next = position_;
    NextCodePoint(source_, &next);
    return Fail("unexpected character '" + std::string(source_.substr(position_, next - position_)) + "'", position_);
  }

  Result<void> AddOperator(std::string_view op) {
    const char c = op[0];
    if (c == '(' || c == '[' || c == '{') brackets_.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets_.empty()) return Fail("unexpected '" + std::string(op) + "'", position_);
      if (brackets_.back() != c) {
        return Fail("unexpected '" + std::string(op) + "', expected '" + brackets_.back() + "'", position_);
      }
      brackets_.pop_back();
    }
    Add(TokenKind::kOperator, std::string(op));
    Advance(position_ + op.size());
    return {};
  }

  // Digits with single underscores between them, from `at`: where they end (== at: none).
  size_t DigitsEnd(size_t at, int base) const {
    const auto is_digit = [&](char c) { const int v = HexValue(c); return v >= 0 && v < base; };
    if (!is_digit(ByteAt(at))) return at;
    while (is_digit(ByteAt(at)) || (ByteAt(at) == '_' && is_digit(ByteAt(at + 1)))) ++at;
    return at;
  }

  static std::string WithoutUnderscores(std::string_view text) {
    std::string out;
    for (const char c : text) {
      if (c != '_') out.push_back(c);
    }
    return out;
  }

  Result<void> ReadNumber() {
    const size_t begin = position_;
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    const size_t whole = DigitsEnd(begin, 10);
    size_t end = whole;
    if (!after_dot) {
      if (ByteAt(end) == '.' && DigitsEnd(end + 1, 10) > end + 1) end = DigitsEnd(end + 1, 10);
      if (ByteAt(end) == 'e' || ByteAt(end) == 'E') {
        const size_t digits = end + 1 + (ByteAt(end + 1) == '+' || ByteAt(end + 1) == '-' ? 1 : 0);
        if (DigitsEnd(digits, 10) > digits) end = DigitsEnd(digits, 10);
      }
      if (end > whole) {
        Add(TokenKind::kFloat, "");
        tokens_.back().number = std::strtod(WithoutUnderscores(source_.substr(begin, end - begin)).c_str(), nullptr);
        Advance(end);
        return {};
      }
    }
    int base = 10;
    size_t digits = begin;
    if (source_[begin] == '0') {
      const char kind = static_cast<char>(ByteAt(begin + 1) | 0x20);
      const int prefixed = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
      size_t first = begin + 2 + (ByteAt(begin + 2) == '_' ? 1 : 0);
      if (prefixed != 0 && DigitsEnd(first, prefixed) > first) {
        base = prefixed;
        digits = first;
      }
    }
    end = DigitsEnd(digits, base);
    const std::string text = WithoutUnderscores(source_.substr(digits, end - digits));
    if (base == 10 && text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos) {
      return Fail("a number must not begin with 0", begin);
    }
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc()) {
      return Fail("integer " + text + " does not fit 64 bits", begin);
    }
    Add(TokenKind::kInteger, text);
    tokens_.back().integer = value;
    Advance(end);
    return {};
  }

  Result<void> ReadString() {
    const size_t begin = position_;
    const char quote = source_[begin];
    std::string text;
    size_t at = begin + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\') {
        text.push_back(source_[at++]);
        continue;
      }
      if (at + 1 >= source_.size()) break;
      HONE_RETURN_IF_ERROR(ReadEscape(&at, &text));
    }
    if (at >= source_.size()) return Fail("this string has no end", begin);
    Add(TokenKind::kString, std::move(text));
    Advance(at + 1);
    return {};
  }

  // The escape whose backslash is at *at, as in a Python string literal.
  Result<void> ReadEscape(size_t* at, std::string* text) {
    const size_t begin = *at;
    const char c = source_[begin + 1];
    *at = begin + 2;
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t i = kNames.find(c); i != std::string_view::npos) {
      text->push_back(kMeanings[i]);
      return {};
    }
    if (c == '\n') return {};
    if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t end = begin + 1;
      for (; end < begin + 4 && ByteAt(end) >= '0' && ByteAt(end) <= '7'; ++end) value = value * 8 + static_cast<uint32_t>(ByteAt(end) - '0');
      AppendCodePoint(text, value);
      *at = end;
      return {};
    }
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (c == 'N') return Fail("\\N{...} is not supported in strings: use \\u", begin);
    if (digits == 0) {
      // Not an escape: both characters stay.
      *at = begin + 1;
      text->push_back('\\');
      return {};
    }
    uint32_t value = 0;
    for (size_t i = 0; i < digits; ++i) {
      const int digit = HexValue(ByteAt(begin + 2 + i));
      if (digit < 0) return Fail(std::string("truncated \\") + c + " escape", begin);
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (value > 0x10FFFF) return Fail("illegal Unicode character", begin);
    AppendCodePoint(text, value >= 0xD800 && value < 0xE000 ? 0xFFFD : value);
    *at = begin + 2 + digits;
    return {};
  }

  std::string owned_;
  std::string_view source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;     // nothing but the end of a line stands before the position
  std::string brackets_;          // closing brackets still to come
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes) return InvalidInput("template longer than 64 MiB");
  return Lexer(source).Run();
}

}  // namespace hone::jinja
