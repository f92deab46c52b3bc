// Methods of str: searching, splitting, stripping, joining.
#include <algorithm>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

const std::string& Text(const Value& self) { return self.as_string(); }

Result<Value> Make(Runtime& rt, std::string text) { return rt.String(std::move(text)); }

Error NeedsString(std::string_view method, const Value& value) {
  return TypeError(std::string(method) + " must be str, not " + TypeName(value));
}

// [begin, end) in bytes of the optional start and end arguments (code points, negative from the end); nothing if start lies
// beyond the text or after end.
struct Window {
  std::string_view text;
  int64_t start = 0;  // in code points
};
Result<std::optional<Window>> MakeWindow(Runtime& rt, const Value& self, const Bound& args, size_t first) {
  const StringObject& string = self.as_string_object();
  const int64_t length = static_cast<int64_t>(string.length());
  int64_t bounds[2] = {0, length};
  for (size_t i = 0; i < 2; ++i) {
    if (!args.Given(first + i)) continue;
    if (!args[first + i].is_integral()) return TypeError("slice indices must be integers or None or have an __index__ method");
    bounds[i] = args[first + i].as_int();
    if (bounds[i] < 0) bounds[i] = bounds[i] < -length ? 0 : bounds[i] + length;
  }
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(Text(self).size()));
  if (bounds[0] > length || bounds[0] > bounds[1]) return std::optional<Window>();
  const size_t end = static_cast<size_t>(std::min(bounds[1], length)), begin = static_cast<size_t>(bounds[0]);
  const std::string_view text = Text(self);
  if (string.ascii()) return std::optional<Window>({text.substr(begin, end - begin), bounds[0]});
  const size_t from = ByteOffset(text, begin);
  return std::optional<Window>({text.substr(from, ByteOffset(text.substr(from), end - begin)), bounds[0]});
}

Result<int64_t> FindText(Runtime& rt, const Value& self, const Bound& args, bool last) {
  if (!args[0].is_string()) return NeedsString("find", args[0]);
  HONE_TRY(const std::optional<Window> window, MakeWindow(rt, self, args, 1));
  if (!window) return int64_t{-1};
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(window->text.size() * 8));
  const size_t at = last ? window->text.rfind(Text(args[0])) : window->text.find(Text(args[0]));
  if (at == std::string_view::npos) return int64_t{-1};
  return window->start + static_cast<int64_t>(CodePointCount(window->text.substr(0, at)));
}

Result<Value> Find(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const int64_t at, FindText(rt, self, args, false));
  return Value::Int(at);
}
Result<Value> RFind(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const int64_t at, FindText(rt, self, args, true));
  return Value::Int(at);
}
Result<Value> IndexOf(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const int64_t at, FindText(rt, self, args, false));
  if (at < 0) return ValueError("substring not found");
  return Value::Int(at);
}
Result<Value> RIndex(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const int64_t at, FindText(rt, self, args, true));
  if (at < 0) return ValueError("substring not found");
  return Value::Int(at);
}

int64_t Occurrences(std::string_view text, std::string_view needle) {
  if (needle.empty()) return static_cast<int64_t>(CodePointCount(text)) + 1;
  int64_t count = 0;
  for (size_t at = text.find(needle); at != std::string_view::npos; at = text.find(needle, at + needle.size())) ++count;
  return count;
}

Result<Value> CountOf(Runtime& rt, const Value& self, const Bound& args) {
  if (!args[0].is_string()) return NeedsString("count", args[0]);
  HONE_TRY(const std::optional<Window> window, MakeWindow(rt, self, args, 1));
  if (!window) return Value::Int(0);
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(window->text.size() * 8));
  return Value::Int(Occurrences(window->text, Text(args[0])));
}

Result<Value> Affix(Runtime& rt, const Value& self, const Bound& args, bool start) {
  const std::string name = start ? "startswith" : "endswith";
  std::vector<Value> affixes;
  if (args[0].is(Kind::kTuple)) {
    affixes = args[0].items();
  } else if (args[0].is_string()) {
    affixes = {args[0]};
  } else {
    return TypeError(name + " first arg must be str or a tuple of str, not " + TypeName(args[0]));
  }
  std::optional<Window> window = Window{Text(self), 0};
  if (args.Given(1) || args.Given(2)) {
    HONE_TRY(window, MakeWindow(rt, self, args, 1));
  }
  for (const Value& affix : affixes) {
    if (!affix.is_string()) return TypeError("tuple for " + name + " must only contain str, not " + TypeName(affix));
    HONE_RETURN_IF_ERROR(rt.Step());
    if (window && (start ? window->text.starts_with(Text(affix)) : window->text.ends_with(Text(affix)))) return Value::Bool(true);
  }
  return Value::Bool(false);
}
Result<Value> StartsWith(Runtime& rt, const Value& self, const Bound& args) { return Affix(rt, self, args, true); }
Result<Value> EndsWith(Runtime& rt, const Value& self, const Bound& args) { return Affix(rt, self, args, false); }

template <bool kLeft, bool kRight>
Result<Value> Strip(Runtime& rt, const Value& self, const Bound& args) {
  std::string_view chars;
  const std::string_view* set = nullptr;
  std::string_view text = Text(self);
  if (args.Given(0)) {
    if (!args[0].is_string()) return TypeError("strip arg must be None or str");
    chars = Text(args[0]);
    set = &chars;
    HONE_RETURN_IF_ERROR(rt.Step(static_cast<int64_t>(1 + text.size() / 64 * (1 + chars.size() / 16))));
  }
  if (kLeft) text = StripLeft(text, set);
  if (kRight) text = StripRight(text, set);
  return Make(rt, std::string(text));
}

// At white space: leading and trailing blanks give no items.
std::vector<std::string_view> SplitBlanks(std::string_view text, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  while (true) {
    text = from_right ? StripRight(text) : StripLeft(text);
    if (text.empty()) break;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      parts.push_back(from_right ? StripRight(text) : text);
      break;
    }
    if (from_right) {
      size_t begin = text.size();
      // Back over one word: the last code point that is a blank ends it.
      for (size_t position = text.size(); position > 0;) {
        size_t lead = position - 1;
        while (lead > 0 && (static_cast<uint8_t>(text[lead]) & 0xC0) == 0x80) --lead;
        size_t next = lead;
        if (IsSpace(NextCodePoint(text, &next))) break;
        begin = position = lead;
      }
      parts.push_back(text.substr(begin));
      text = text.substr(0, begin);
    } else {
      size_t end = 0;
      while (end < text.size()) {
        size_t next = end;
        if (IsSpace(NextCodePoint(text, &next))) break;
        end = next;
      }
      parts.push_back(text.substr(0, end));
      text = text.substr(end);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> SplitAt(std::string_view text, std::string_view separator, int64_t limit, bool from_right) {
  std::vector<std::string_view> parts;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    if (from_right) {
      parts.push_back(text.substr(at + separator.size()));
      text = text.substr(0, at);
    } else {
      parts.push_back(text.substr(0, at));
      text = text.substr(at + separator.size());
    }
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Result<Value> ToList(Runtime& rt, const std::vector<std::string_view>& parts) {
  HONE_RETURN_IF_ERROR(rt.CheckItems(parts.size()));
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::String(std::string(part)));
  return rt.List(std::move(items));
}

Result<Value> SplitEither(Runtime& rt, const Value& self, const Bound& args, bool from_right) {
  int64_t limit = -1;
  if (args.Has(1)) {
    HONE_TRY(limit, rt.AsIndex(args[1], "maxsplit"));
  }
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(Text(self).size() * 8));
  if (!args.Given(0)) return ToList(rt, SplitBlanks(Text(self), limit, from_right));
  if (!args[0].is_string()) return NeedsString("separator", args[0]);
  if (Text(args[0]).empty()) return ValueError("empty separator");
  return ToList(rt, SplitAt(Text(self), Text(args[0]), limit, from_right));
}
Result<Value> Split(Runtime& rt, const Value& self, const Bound& args) { return SplitEither(rt, self, args, false); }
Result<Value> RSplit(Runtime& rt, const Value& self, const Bound& args) { return SplitEither(rt, self, args, true); }

Result<Value> SplitAtLines(Runtime& rt, const Value& self, const Bound& args) {
  return ToList(rt, SplitLines(Text(self), args.Has(0) && rt.Truth(args[0])));
}

Result<Value> PartitionEither(Runtime& rt, const Value& self, const Bound& args, bool last) {
  if (!args[0].is_string()) return NeedsString("separator", args[0]);
  const std::string &text = Text(self), &separator = Text(args[0]);
  if (separator.empty()) return ValueError("empty separator");
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(text.size() * 8));
  const size_t at = last ? text.rfind(separator) : text.find(separator);
  if (at == std::string::npos) {
    const Value empty = Value::String("");
    return last ? rt.Tuple({empty, empty, self}) : rt.Tuple({self, empty, empty});
  }
  return rt.Tuple({Value::String(text.substr(0, at)), args[0], Value::String(text.substr(at + separator.size()))});
}
Result<Value> Partition(Runtime& rt, const Value& self, const Bound& args) { return PartitionEither(rt, self, args, false); }
Result<Value> RPartition(Runtime& rt, const Value& self, const Bound& args) { return PartitionEither(rt, self, args, true); }

Result<Value> JoinBy(Runtime& rt, const Value& self, const Bound& args) {
  auto items = rt.Iterate(args[0]);
  if (!items) return TypeError("can only join an iterable");
  std::string out;
  for (size_t i = 0; i < items->size(); ++i) {
    const Value& item = (*items)[i];
    if (!item.is_string()) return TypeError("sequence item " + std::to_string(i) + ": expected str instance, " + TypeName(item) + " found");
    if (i > 0) out += Text(self);
    out += Text(item);
    HONE_RETURN_IF_ERROR(rt.ChargeBytes(Text(self).size()));
    if (out.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(rt.CheckBytes(out.size()));
  }
  return Make(rt, std::move(out));
}

Result<Value> Replace(Runtime& rt, const Value& self, const Bound& args) {
  if (!args[0].is_string() || !args[1].is_string()) {
    return TypeError("replace() argument " + std::string(args[0].is_string() ? "2" : "1") + " must be str, not " +
                     TypeName(args[args[0].is_string() ? 1 : 0]));
  }
  int64_t limit = -1;
  if (args.Has(2)) {
    HONE_TRY(limit, rt.AsIndex(args[2], "count"));
  }
  const std::string &text = Text(self), &from = Text(args[0]), &to = Text(args[1]);
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(text.size() * 8));
  int64_t count = Occurrences(text, from);
  if (limit >= 0) count = std::min(count, limit);
  if (to.size() > from.size()) {
    const uint64_t growth = to.size() - from.size();
    if (growth > kMaxStringBytes || static_cast<uint64_t>(count) > kMaxStringBytes / growth) return rt.CheckBytes(kMaxStringBytes + 1).error();
    HONE_RETURN_IF_ERROR(rt.CheckBytes(text.size() + static_cast<uint64_t>(count) * growth));
  }
  std::string out;
  size_t position = 0;
  for (; count > 0; --count) {
    if (from.empty()) {
      // Before each character, and at the end.
      out += to;
      if (position >= text.size()) break;
      const size_t begin = position;
      NextCodePoint(text, &position);
      out.append(text, begin, position - begin);
      continue;
    }
    const size_t at = text.find(from, position);
    out.append(text, position, at - position);
    out += to;
    position = at + from.size();
  }
  if (position < text.size()) out.append(text, position);
  return Make(rt, std::move(out));
}

Result<Value> RemovePrefix(Runtime& rt, const Value& self, const Bound& args) {
  if (!args[0].is_string()) return NeedsString("removeprefix() argument", args[0]);
  return Make(rt, Text(self).starts_with(Text(args[0])) ? Text(self).substr(Text(args[0]).size()) : Text(self));
}
Result<Value> RemoveSuffix(Runtime& rt, const Value& self, const Bound& args) {
  if (!args[0].is_string()) return NeedsString("removesuffix() argument", args[0]);
  return Make(rt, Text(self).ends_with(Text(args[0])) ? Text(self).substr(0, Text(self).size() - Text(args[0]).size()) : Text(self));
}

constexpr Function kMethods[] = {
    {"count", "sub start end", 1, CountOf},
    {"endswith", "suffix start end", 1, EndsWith},
    {"find", "sub start end", 1, Find},
    {"index", "sub start end", 1, IndexOf},
    {"join", "iterable", 1, JoinBy},
    {"lstrip", "chars", 0, Strip<true, false>},
    {"partition", "sep", 1, Partition},
    {"removeprefix", "prefix", 1, RemovePrefix},
    {"removesuffix", "suffix", 1, RemoveSuffix},
    {"replace", "old new count", 2, Replace},
    {"rfind", "sub start end", 1, RFind},
    {"rindex", "sub start end", 1, RIndex},
    {"rpartition", "sep", 1, RPartition},
    {"rsplit", "sep maxsplit", 0, RSplit},
    {"rstrip", "chars", 0, Strip<false, true>},
    {"split", "sep maxsplit", 0, Split},
    {"splitlines", "keepends", 0, SplitAtLines},
    {"startswith", "prefix start end", 1, StartsWith},
    {"strip", "chars", 0, Strip<true, true>},
};

}  // namespace

std::span<const Function> StringMethods() { return kMethods; }

}  // namespace hone::jinja
