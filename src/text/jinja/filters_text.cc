// Filters that make text of a value: case, trimming, escaping, JSON.
#include <algorithm>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Result<Value> Changed(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const std::string text, rt.Str(self));
  std::string changed = kChange(text);
  return self.is_markup() ? Value::Markup(std::move(changed)) : Value::String(std::move(changed));
}

Result<Value> Title(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const std::string text, rt.Str(self));
  std::string out;
  bool word_starts = true;
  const auto breaks = [](uint32_t c) { return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'; };
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    // A run of one kind: one character that starts a word, or the rest of it.
    const uint32_t c = NextCodePoint(text, &position);
    const std::string_view character = std::string_view(text).substr(begin, position - begin);
    if (breaks(c)) {
      out += character;
      word_starts = true;
      continue;
    }
    out += word_starts ? ToUpper(character) : ToLower(character);
    word_starts = false;
  }
  return Value::String(std::move(out));
}

Result<Value> Escape(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_markup()) return self;
  HONE_TRY(const std::string text, rt.Str(self));
  return Value::Markup(HtmlEscape(text));
}

Result<Value> ForceEscape(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const std::string text, rt.Str(self));
  return Value::Markup(HtmlEscape(text));
}

Result<Value> Safe(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(std::string text, rt.Str(self));
  return Value::Markup(std::move(text));
}

Result<Value> ToString(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_string()) return self;
  HONE_TRY(std::string text, rt.Str(self));
  return Value::String(std::move(text));
}

Result<Value> PrettyPrint(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(std::string text, rt.Repr(self));
  return Value::String(std::move(text));
}

Result<Value> Trim(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const std::string text, rt.Str(self));
  std::string_view chars;
  const std::string_view* set = nullptr;
  if (args.Given(0)) {
    if (!args[0].is_string()) return TypeError("strip arg must be None or str");
    chars = args[0].as_string();
    set = &chars;
    HONE_RETURN_IF_ERROR(rt.Step(static_cast<int64_t>(1 + text.size() / 64 * (1 + chars.size() / 16))));
  }
  return Value::String(std::string(StripRight(StripLeft(text, set), set)));
}

Result<Value> Center(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const std::string text, rt.Str(self));
  const int64_t width = args.Has(0) && args[0].is_integral() ? args[0].as_int() : 80;
  const int64_t length = static_cast<int64_t>(CodePointCount(text));
  if (width <= length) return Value::String(text);
  HONE_RETURN_IF_ERROR(rt.CheckBytes(static_cast<uint64_t>(width)));
  const int64_t margin = width - length;
  const int64_t left = margin / 2 + (margin & width & 1);
  return Value::String(std::string(static_cast<size_t>(left), ' ') + text + std::string(static_cast<size_t>(margin - left), ' '));
}

// Counts occurrences first, so that a result is never larger than allowed.
Result<Value> ReplaceText(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const std::string text, rt.Str(self));
  HONE_TRY(const std::string from, rt.Str(args[0]));
  HONE_TRY(const std::string to, rt.Str(args[1]));
  Args inner;
  inner.positional = {Value::String(from), Value::String(to)};
  if (args.Given(2)) inner.positional.push_back(args[2]);
  const Value string = Value::String(text);
  return rt.CallFunction(*FindMethod(string, "replace"), string, inner);
}

Result<Value> Indent(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(std::string text, rt.Str(self));
  std::string indent = "    ";
  if (args.Has(0)) {
    if (args[0].is_string()) {
      indent = args[0].as_string();
    } else {
      HONE_TRY(const int64_t width, rt.AsIndex(args[0], "width"));
      HONE_RETURN_IF_ERROR(rt.CheckBytes(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
      indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
  }
  const bool first = args.Has(1) && rt.Truth(args[1]), blank = args.Has(2) && rt.Truth(args[2]);
  text.push_back('\n');
  const std::vector<std::string_view> lines = SplitLines(text);
  HONE_RETURN_IF_ERROR(rt.CheckBytes(text.size() + lines.size() * indent.size()));
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.push_back('\n');
    const bool indents = i == 0 ? first : (blank || !lines[i].empty());
    if (indents) out += indent;
    out += lines[i];
  }
  return Value::String(std::move(out));
}

Result<Value> Format(Runtime& rt, const Value& self, const Bound& args) {
  const Args& all = args.all();
  if (!all.positional.empty() && !all.named.empty()) return ValueError("can't handle positional and keyword arguments at the same time");
  HONE_TRY(const std::string format, rt.Str(self));
  Value argument;
  if (all.named.empty()) {
    HONE_TRY(argument, rt.Tuple(all.positional));
  } else {
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, value] : all.named) HONE_RETURN_IF_ERROR(rt.SetKey(dict.get(), Value::String(name), value));
    argument = Value::FromDict(std::move(dict));
  }
  HONE_TRY(std::string text, PercentFormat(rt, format, argument));
  return Value::String(std::move(text));
}

// json.dumps as transformers sets it up: characters stay as they are, nothing is escaped for HTML.
Result<Value> ToJsonText(Runtime& rt, const Value& self, const Bound& args) {
  JsonStyle style;
  style.ensure_ascii = args.Has(0) && rt.Truth(args[0]);
  style.sort_keys = args.Has(3) && rt.Truth(args[3]);
  if (args.Given(1)) {
    style.pretty = true;
    style.item_separator = ",";
    if (args[1].is_string()) {
      style.indent = args[1].as_string();
    } else {
      HONE_TRY(const int64_t width, rt.AsIndex(args[1], "indent"));
      HONE_RETURN_IF_ERROR(rt.CheckBytes(static_cast<uint64_t>(std::max<int64_t>(width, 0))));
      style.indent.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
    }
    if (style.indent.size() > 64) return LimitError("tojson: an indent longer than 64");
  }
  if (args.Given(2)) {
    HONE_TRY(const std::vector<Value> separators, rt.Iterate(args[2]));
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string()) {
      return ValueError("tojson: separators are a pair of strings");
    }
    style.item_separator = separators[0].as_string();
    style.key_separator = separators[1].as_string();
    if (style.item_separator.size() + style.key_separator.size() > 64) return LimitError("tojson: separators longer than 64");
  }
  HONE_TRY(std::string text, ToJson(rt, self, style));
  return Value::String(std::move(text));
}

Result<Value> Truncate(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const std::string text, rt.Str(self));
  const int64_t length = args.Has(0) && args[0].is_integral() ? args[0].as_int() : 255;
  const bool kill_words = args.Has(1) && rt.Truth(args[1]);
  std::string end = "...";
  if (args.Has(2)) {
    HONE_TRY(end, rt.Str(args[2]));
  }
  const int64_t leeway = args.Has(3) && args[3].is_integral() ? args[3].as_int() : 5;
  const int64_t end_length = static_cast<int64_t>(CodePointCount(end));
  if (length < end_length) return ValueError("expected length >= " + std::to_string(end_length) + ", got " + std::to_string(length));
  if (leeway < 0) return ValueError("expected leeway >= 0, got " + std::to_string(leeway));
  if (static_cast<int64_t>(CodePointCount(text)) <= length || static_cast<int64_t>(CodePointCount(text)) - length <= leeway) {
    return Value::String(text);
  }
  std::string kept = text.substr(0, ByteOffset(text, static_cast<size_t>(length - end_length)));
  if (!kill_words) {
    const size_t space = kept.rfind(' ');
    if (space != std::string::npos) kept.resize(space);
  }
  return Value::String(kept + end);
}

constexpr Function kTextFilters[] = {
    {"capitalize", "", 0, Changed<Capitalize>},
    {"center", "width", 0, Center},
    {"e", "", 0, Escape},
    {"escape", "", 0, Escape},
    {"forceescape", "", 0, ForceEscape},
    {"format", "*", 0, Format},
    {"indent", "width first blank", 0, Indent},
    {"lower", "", 0, Changed<ToLower>},
    {"pprint", "", 0, PrettyPrint},
    {"replace", "old new count", 2, ReplaceText},
    {"safe", "", 0, Safe},
    {"string", "", 0, ToString},
    {"title", "", 0, Title},
    {"tojson", "ensure_ascii indent separators sort_keys", 0, ToJsonText},
    {"trim", "chars", 0, Trim},
    {"truncate", "length killwords end leeway", 0, Truncate},
    {"upper", "", 0, Changed<ToUpper>},
};

}  // namespace

std::span<const Function> TextFilters() { return kTextFilters; }

}  // namespace hone::jinja
