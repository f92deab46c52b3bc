// Filters on text that chat templates seldom use: words, wrapping, HTML and URLs.
#include <algorithm>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

Result<Value> WordCount(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const std::string text, rt.Str(self));
  int64_t count = 0;
  bool inside = false;
  for (size_t position = 0; position < text.size();) {
    const bool word = IsWord(NextCodePoint(text, &position));
    count += word && !inside;
    inside = word;
  }
  return Value::Int(count);
}

// The pieces a line may break between: white space, words, and the parts of hyphenated words.
std::vector<std::string_view> WrapPieces(std::string_view line, bool break_on_hyphens) {
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  bool space = false;
  uint32_t before = 0, last = 0;
  for (size_t position = 0; position < line.size();) {
    const size_t at = position;
    const uint32_t c = NextCodePoint(line, &position);
    // textwrap breaks at ASCII white space only.
    const bool is_space = c < 128 && IsSpace(c);
    const bool hyphen = break_on_hyphens && !space && last == '-' && IsAlpha(before) && IsAlpha(c);
    if (at > begin && (is_space != space || hyphen)) {
      pieces.push_back(line.substr(begin, at - begin));
      begin = at;
    }
    space = is_space;
    before = last;
    last = c;
  }
  if (begin < line.size()) pieces.push_back(line.substr(begin));
  return pieces;
}

bool IsBlank(std::string_view piece) { return StripLeft(piece).empty(); }

// One line's text in lines of at most `width` code points; blanks at the edges of new lines go.
std::vector<std::string> WrapLine(std::string_view line, size_t width, bool break_long_words, bool break_on_hyphens) {
  std::vector<std::string_view> pieces = WrapPieces(line, break_on_hyphens);
  std::reverse(pieces.begin(), pieces.end());
  std::vector<std::string> lines;
  while (!pieces.empty()) {
    std::vector<std::string_view> current;
    size_t length = 0;
    if (!lines.empty() && IsBlank(pieces.back())) pieces.pop_back();
    while (!pieces.empty() && length + CodePointCount(pieces.back()) <= width) {
      length += CodePointCount(pieces.back());
      current.push_back(pieces.back());
      pieces.pop_back();
    }
    if (!pieces.empty() && CodePointCount(pieces.back()) > width) {
      if (break_long_words) {
        const size_t cut = ByteOffset(pieces.back(), width > length ? width - length : 1);
        current.push_back(pieces.back().substr(0, cut));
        pieces.back().remove_prefix(cut);
        if (pieces.back().empty()) pieces.pop_back();
      } else if (current.empty()) {
        current.push_back(pieces.back());
        pieces.pop_back();
      }
    }
    if (!current.empty() && IsBlank(current.back())) current.pop_back();
    if (current.empty()) continue;
    std::string joined;
    for (const std::string_view piece : current) joined += piece;
    lines.push_back(std::move(joined));
  }
  return lines;
}

Result<Value> WordWrap(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const std::string text, rt.Str(self));
  const int64_t width = args.Has(0) && args[0].is_integral() ? args[0].as_int() : 79;
  if (width <= 0) return ValueError("invalid width " + std::to_string(width) + " (must be > 0)");
  const bool break_long = !args.Has(1) || rt.Truth(args[1]), hyphens = !args.Has(3) || rt.Truth(args[3]);
  std::string separator = "\n";
  if (args.Given(2)) {
    HONE_TRY(separator, rt.Str(args[2]));
  }
  HONE_RETURN_IF_ERROR(rt.CheckBytes(text.size() + (text.size() / static_cast<uint64_t>(width) + 1) * separator.size()));
  std::string out;
  bool first = true;
  for (const std::string_view line : SplitLines(text)) {
    if (!first) out += separator;
    first = false;
    const std::vector<std::string> lines = WrapLine(line, static_cast<size_t>(width), break_long, hyphens);
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) out += separator;
      out += lines[i];
    }
    HONE_RETURN_IF_ERROR(rt.CheckBytes(out.size()));
  }
  return rt.String(std::move(out));
}

std::string Unescape(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"amp;", "&"}, {"lt;", "<"}, {"gt;", ">"}, {"quot;", "\""}, {"apos;", "'"}, {"#34;", "\""}, {"#39;", "'"}, {"nbsp;", "\u00A0"}};
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '&') {
      const auto it = std::find_if(std::begin(kEntities), std::end(kEntities),
                                   [&](const auto& e) { return text.substr(i + 1, e.first.size()) == e.first; });
      if (it != std::end(kEntities)) {
        out += it->second;
        i += it->first.size();
        continue;
      }
    }
    out.push_back(text[i]);
  }
  return out;
}

// Without <!-- comments --> and <tags>; white space becomes single blanks.
Result<Value> StripTags(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const std::string text, rt.Str(self));
  std::string kept;
  size_t position = 0;
  while (position < text.size()) {
    const bool comment = text.compare(position, 4, "<!--") == 0;
    const size_t end = text[position] != '<' ? std::string::npos : text.find(comment ? "-->" : ">", position + (comment ? 4 : 1));
    if (text[position] == '<' && end != std::string::npos) {
      position = end + (comment ? 3 : 1);
    } else if (text[position] == '<') {
      kept.append(text, position);  // no tag ends from here on
      break;
    } else {
      kept.push_back(text[position++]);
    }
  }
  std::string out;
  for (std::string_view rest = StripLeft(kept); !rest.empty(); rest = StripLeft(rest)) {
    size_t end = 0;
    while (end < rest.size()) {
      size_t next = end;
      if (IsSpace(NextCodePoint(rest, &next))) break;
      end = next;
    }
    if (!out.empty()) out.push_back(' ');
    out += rest.substr(0, end);
    rest.remove_prefix(end);
  }
  return Value::String(Unescape(out));
}

std::string UrlQuote(std::string_view text, bool query) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
    if (plain) {
      out.push_back(c);
    } else if (c == ' ' && query) {
      out.push_back('+');
    } else {
      out.push_back('%');
      out.push_back(kHex[static_cast<uint8_t>(c) >> 4]);
      out.push_back(kHex[static_cast<uint8_t>(c) & 15]);
    }
  }
  return out;
}

Result<Value> UrlEncode(Runtime& rt, const Value& self, const Bound&) {
  const bool pairs = self.is(Kind::kDict) || self.is(Kind::kList) || self.is(Kind::kTuple) || self.is(Kind::kGenerator);
  if (!pairs) {
    HONE_TRY(const std::string text, rt.Str(self));
    return rt.String(UrlQuote(text, false));
  }
  std::vector<std::pair<Value, Value>> entries;
  if (self.is(Kind::kDict)) {
    entries = self.as_dict().entries();
  } else {
    HONE_TRY(const std::vector<Value> items, rt.Iterate(self));
    for (const Value& item : items) {
      HONE_TRY(const std::vector<Value> pair, rt.Iterate(item));
      if (pair.size() != 2) return ValueError("urlencode needs pairs");
      entries.emplace_back(pair[0], pair[1]);
    }
  }
  std::string out;
  for (const auto& [key, value] : entries) {
    HONE_TRY(const std::string name, rt.Str(key));
    HONE_TRY(const std::string text, rt.Str(value));
    if (!out.empty()) out.push_back('&');
    out += UrlQuote(name, true) + "=" + UrlQuote(text, true);
    if (out.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(rt.CheckBytes(out.size()));
  }
  return rt.String(std::move(out));
}

Result<Value> XmlAttr(Runtime& rt, const Value& self, const Bound& args) {
  if (!self.is(Kind::kDict)) return TypeError("xmlattr needs a mapping, not " + TypeName(self));
  std::string out;
  for (const auto& [key, value] : self.as_dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    HONE_TRY(const std::string name, rt.Str(key));
    if (name.find_first_of(" \t\n\f\r/>=") != std::string::npos) return ValueError("Invalid character in attribute name: " + StringRepr(name));
    HONE_TRY(const std::string text, rt.Str(value));
    if (!out.empty()) out.push_back(' ');
    out += HtmlEscape(name) + "=\"" + (value.is_markup() ? text : HtmlEscape(text)) + "\"";
    if (out.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(rt.CheckBytes(out.size()));
  }
  if (!out.empty() && (!args.Has(0) || rt.Truth(args[0]))) out.insert(0, " ");
  return rt.String(std::move(out));
}

Result<Value> Urlize(Runtime&, const Value&, const Bound&) {
  return Error{ErrorCode::kUnsupported, "the filter 'urlize' is not supported: a prompt has no links"};
}

constexpr Function kMoreTextFilters[] = {
    {"striptags", "", 0, StripTags},
    {"urlencode", "", 0, UrlEncode},
    {"urlize", "*", 0, Urlize},
    {"wordcount", "", 0, WordCount},
    {"wordwrap", "width break_long_words wrapstring break_on_hyphens", 0, WordWrap},
    {"xmlattr", "autospace", 0, XmlAttr},
};

}  // namespace

std::span<const Function> MoreTextFilters() { return kMoreTextFilters; }

}  // namespace hone::jinja
