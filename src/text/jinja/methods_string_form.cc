// Methods of str: case, classes, padding, format().
#include <algorithm>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Result<Value> Reformed(Runtime& rt, const Value& self, const Bound&) {
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(self.as_string().size() * 4));
  return rt.String(kChange(self.as_string()));
}

// Not empty, and every character of the class.
template <bool (*kIs)(uint32_t)>
Result<Value> All(Runtime& rt, const Value& self, const Bound&) {
  const std::string& text = self.as_string();
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(text.size()));
  for (size_t position = 0; position < text.size();) {
    if (!kIs(NextCodePoint(text, &position))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

bool IsAscii(uint32_t c) { return c < 128; }

Result<Value> IsAsciiText(Runtime& rt, const Value& self, const Bound& args) {
  return self.as_string().empty() ? Result<Value>(Value::Bool(true)) : All<IsAscii>(rt, self, args);
}
Result<Value> IsPrintableText(Runtime& rt, const Value& self, const Bound& args) {
  return self.as_string().empty() ? Result<Value>(Value::Bool(true)) : All<IsPrintable>(rt, self, args);
}

Result<Value> IsIdentifier(Runtime&, const Value& self, const Bound&) {
  const std::string& text = self.as_string();
  for (size_t position = 0; position < text.size();) {
    const bool first = position == 0;
    const uint32_t c = NextCodePoint(text, &position);
    if (!(c == '_' || IsAlpha(c) || (!first && IsDecimal(c)))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

Result<Value> IsCase(Runtime& rt, const Value& self, bool lower) {
  bool any = false;
  const std::string& text = self.as_string();
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(text.size()));
  for (size_t position = 0; position < text.size();) {
    const uint32_t c = NextCodePoint(text, &position);
    if (IsTitle(c) || (lower ? IsUpper(c) : IsLower(c))) return Value::Bool(false);
    any |= lower ? IsLower(c) : IsUpper(c);
  }
  return Value::Bool(any);
}
Result<Value> IsLowerText(Runtime& rt, const Value& self, const Bound&) { return IsCase(rt, self, true); }
Result<Value> IsUpperText(Runtime& rt, const Value& self, const Bound&) { return IsCase(rt, self, false); }

Result<Value> IsTitleText(Runtime&, const Value& self, const Bound&) {
  bool inside = false, any = false;
  const std::string& text = self.as_string();
  for (size_t position = 0; position < text.size();) {
    const uint32_t c = NextCodePoint(text, &position);
    if (IsUpper(c) || IsTitle(c)) {
      if (inside) return Value::Bool(false);
      inside = any = true;
    } else if (IsLower(c)) {
      if (!inside) return Value::Bool(false);
      any = true;
    } else {
      inside = false;
    }
  }
  return Value::Bool(any);
}

Result<Value> Pad(Runtime& rt, const Value& self, const Bound& args, bool left_side, bool right_side) {
  HONE_TRY(const int64_t width, rt.AsIndex(args[0], ""));
  std::string fill = " ";
  if (args.Has(1)) {
    if (!args[1].is_string() || args[1].as_string_object().length() != 1) {
      return TypeError("The fill character must be exactly one character long");
    }
    fill = args[1].as_string();
  }
  const int64_t length = static_cast<int64_t>(self.as_string_object().length());
  if (width <= length) return self;
  HONE_RETURN_IF_ERROR(rt.CheckBytes(static_cast<uint64_t>(width)));
  HONE_RETURN_IF_ERROR(rt.CheckBytes(static_cast<uint64_t>(width) * fill.size()));
  const int64_t margin = width - length;
  const int64_t left = !left_side ? 0 : !right_side ? margin : margin / 2 + (margin & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.as_string();
  for (int64_t i = left; i < margin; ++i) out += fill;
  return rt.String(std::move(out));
}
Result<Value> Centred(Runtime& rt, const Value& self, const Bound& args) { return Pad(rt, self, args, true, true); }
Result<Value> LJust(Runtime& rt, const Value& self, const Bound& args) { return Pad(rt, self, args, false, true); }
Result<Value> RJust(Runtime& rt, const Value& self, const Bound& args) { return Pad(rt, self, args, true, false); }

Result<Value> ZFill(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const int64_t width, rt.AsIndex(args[0], ""));
  const int64_t length = static_cast<int64_t>(self.as_string_object().length());
  if (width <= length) return self;
  HONE_RETURN_IF_ERROR(rt.CheckBytes(static_cast<uint64_t>(width)));
  std::string text = self.as_string();
  const size_t sign = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  text.insert(sign, static_cast<size_t>(width - length), '0');
  return rt.String(std::move(text));
}

Result<Value> ExpandTabs(Runtime& rt, const Value& self, const Bound& args) {
  int64_t size = 8;
  if (args.Has(0)) {
    HONE_TRY(size, rt.AsIndex(args[0], ""));
  }
  size = std::clamp<int64_t>(size, 0, 1 << 20);
  std::string out;
  int64_t column = 0;
  const std::string& text = self.as_string();
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = NextCodePoint(text, &position);
    if (c == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(blanks), ' ');
      column += blanks;
      if (out.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(rt.CheckBytes(out.size()));
      continue;
    }
    out.append(text, begin, position - begin);
    column = c == '\n' || c == '\r' ? 0 : column + 1;
  }
  return rt.String(std::move(out));
}

Result<Value> Formatted(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(std::string text, BraceFormat(rt, self.as_string(), args.all()));
  return rt.String(std::move(text));
}

constexpr Function kFormMethods[] = {
    {"capitalize", "", 0, Reformed<Capitalize>},
    {"casefold", "", 0, Reformed<CaseFold>},
    {"center", "width fillchar", 1, Centred},
    {"expandtabs", "tabsize", 0, ExpandTabs},
    {"format", "*", 0, Formatted},
    {"isalnum", "", 0, All<IsAlnum>},
    {"isalpha", "", 0, All<IsAlpha>},
    {"isascii", "", 0, IsAsciiText},
    {"isdecimal", "", 0, All<IsDecimal>},
    {"isdigit", "", 0, All<IsDigit>},
    {"isidentifier", "", 0, IsIdentifier},
    {"islower", "", 0, IsLowerText},
    {"isnumeric", "", 0, All<IsNumeric>},
    {"isprintable", "", 0, IsPrintableText},
    {"isspace", "", 0, All<IsSpace>},
    {"istitle", "", 0, IsTitleText},
    {"isupper", "", 0, IsUpperText},
    {"ljust", "width fillchar", 1, LJust},
    {"lower", "", 0, Reformed<ToLower>},
    {"rjust", "width fillchar", 1, RJust},
    {"swapcase", "", 0, Reformed<SwapCase>},
    {"title", "", 0, Reformed<ToTitle>},
    {"upper", "", 0, Reformed<ToUpper>},
    {"zfill", "width", 1, ZFill},
};

}  // namespace

std::span<const Function> MoreStringMethods() { return kFormMethods; }

}  // namespace hone::jinja
