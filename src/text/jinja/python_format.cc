// Python's three ways to format: "..." % x, "...".format(x), and the format specification both kinds of numbers share.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int kMaxPrecision = 400;  // a double has no more digits worth printing

struct Spec {
  std::string fill = " ";
  char align = 0;  // '<', '>', '^', '=' or 0
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  bool no_negative_zero = false;
  int64_t width = 0;
  char grouping = 0;  // ',' or '_'
  int64_t precision = -1;
  char type = 0;
};

// Digits from `*at`; -1 if there are none or too large a number.
int64_t ReadCount(std::string_view text, size_t* at) {
  int64_t value = -1;
  for (; *at < text.size() && text[*at] >= '0' && text[*at] <= '9'; ++*at) {
    value = std::min<int64_t>((value < 0 ? 0 : value) * 10 + (text[*at] - '0'), int64_t{1} << 40);
  }
  return value;
}

Result<Spec> ParseSpec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) { return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos; };
  if (!text.empty()) {
    size_t next = 0;
    NextCodePoint(text, &next);
    if (is_align(next)) {
      spec.fill = text.substr(0, next);
      spec.align = text[next];
      at = next + 1;
    } else if (is_align(0)) {
      spec.align = text[0];
      at = 1;
    }
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) spec.sign = text[at++];
  if (at < text.size() && text[at] == 'z') {
    spec.no_negative_zero = true;
    ++at;
  }
  if (at < text.size() && text[at] == '#') {
    spec.alternate = true;
    ++at;
  }
  if (at < text.size() && text[at] == '0') {
    spec.zero = true;
    ++at;
  }
  spec.width = std::max<int64_t>(0, ReadCount(text, &at));
  if (at < text.size() && (text[at] == ',' || text[at] == '_')) spec.grouping = text[at++];
  if (at < text.size() && text[at] == '.') {
    ++at;
    spec.precision = ReadCount(text, &at);
    if (spec.precision < 0) return ValueError("Format specifier missing precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) return ValueError("Invalid format specifier");
  if (spec.width > kMaxWidth) return LimitError("a format width above " + std::to_string(kMaxWidth));
  if (spec.zero && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  return spec;
}

std::string Grouped(const std::string& digits, char separator, size_t every) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % every == 0) out.push_back(separator);
    out.push_back(digits[i]);
  }
  return out;
}

// sign + prefix + digits (+ rest), padded as the specification says.
std::string PadNumber(const Spec& spec, const std::string& prefix, std::string digits, const std::string& rest, size_t group) {
  const size_t width = static_cast<size_t>(spec.width);
  if (spec.grouping != 0) {
    // Zeros that fill the width are grouped too.
    if (spec.align == '=' && spec.fill == "0") {
      while (prefix.size() + Grouped(digits, spec.grouping, group).size() + rest.size() < width) {
        const std::string longer = Grouped("0" + digits, spec.grouping, group);
        digits.insert(0, 1, '0');
        if (prefix.size() + longer.size() + rest.size() >= width) break;
        if (digits.size() > 4096) break;
      }
    }
    digits = Grouped(digits, spec.grouping, group);
  }
  const std::string body = digits + rest;
  const size_t length = CodePointCount(prefix) + CodePointCount(body);
  if (length >= width) return prefix + body;
  const size_t margin = width - length;
  const auto fill = [&](size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) out += spec.fill;
    return out;
  };
  switch (spec.align) {
    case '<': return prefix + body + fill(margin);
    case '^': return fill(margin / 2) + prefix + body + fill(margin - margin / 2);
    case '=': return prefix + fill(margin) + body;
    default: return fill(margin) + prefix + body;
  }
}

std::string SignText(const Spec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

std::string ToBase(uint64_t magnitude, int base) {
  char buffer[72];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof(buffer), magnitude, base).ptr);
}

std::string Upper(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

std::string Printf(const char* format, int precision, double value) {
  std::string out(static_cast<size_t>(std::snprintf(nullptr, 0, format, precision, value)), '\0');
  std::snprintf(out.data(), out.size() + 1, format, precision, value);
  return out;
}

// The digits of |value|, without a sign.
std::string FloatDigits(double value, char type, int precision, bool alternate) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return "inf";
  switch (type) {
    case 'e': return Printf(alternate ? "%#.*e" : "%.*e", precision, value);
    case 'f': return Printf(alternate ? "%#.*f" : "%.*f", precision, value);
    default: return Printf(alternate ? "%#.*g" : "%.*g", precision, value);
  }
}

Result<std::string> FormatInt(int64_t value, Spec spec) {
  if (spec.no_negative_zero) return ValueError("Negative zero coercion (z) not allowed in integer format specifier");
  if (spec.precision >= 0) return ValueError("Precision not allowed in integer format specifier");
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string prefix = SignText(spec, value < 0), digits;
  size_t group = 3;
  switch (spec.type) {
    case 0:
    case 'd':
    case 'n': digits = ToBase(magnitude, 10); break;
    case 'b': digits = ToBase(magnitude, 2); group = 4; if (spec.alternate) prefix += "0b"; break;
    case 'o': digits = ToBase(magnitude, 8); group = 4; if (spec.alternate) prefix += "0o"; break;
    case 'x': digits = ToBase(magnitude, 16); group = 4; if (spec.alternate) prefix += "0x"; break;
    case 'X': digits = Upper(ToBase(magnitude, 16)); group = 4; if (spec.alternate) prefix += "0X"; break;
    case 'c':
      if (value < 0 || value > 0x10FFFF) return ValueError("%c arg not in range(0x110000)");
      AppendCodePoint(&digits, static_cast<uint32_t>(value));
      prefix.clear();
      spec.grouping = 0;
      break;
    default: return ValueError(std::string("Unknown format code '") + spec.type + "' for object of type 'int'");
  }
  return PadNumber(spec, prefix, std::move(digits), "", group);
}

Result<std::string> FormatFloat(double value, const Spec& spec) {
  if (spec.precision > kMaxPrecision) return LimitError("a format precision above " + std::to_string(kMaxPrecision));
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  std::string text, rest;
  switch (spec.type) {
    case 0:
      if (spec.precision < 0) {
        text = FloatRepr(magnitude);
      } else {
        text = FloatDigits(magnitude, 'g', std::max(precision, 1), spec.alternate);
        if (text.find_first_of(".en") == std::string::npos) {
          // Like repr, this form always looks like a float where it can.
          const bool fits = text.size() < static_cast<size_t>(std::max(precision, 1));
          text = fits ? text + ".0" : FloatDigits(magnitude, 'e', std::max(precision - 1, 0), false);
          if (!fits) {
            const size_t e = text.find('e');
            std::string mantissa = text.substr(0, e);
            if (mantissa.find('.') != std::string::npos) {
              while (mantissa.back() == '0') mantissa.pop_back();
              if (mantissa.back() == '.') mantissa.pop_back();
            }
            text = mantissa + text.substr(e);
          }
        }
      }
      break;
    case 'e':
    case 'f':
    case 'g': text = FloatDigits(magnitude, spec.type, spec.type == 'g' ? std::max(precision, 1) : precision, spec.alternate); break;
    case 'n': text = FloatDigits(magnitude, 'g', std::max(precision, 1), spec.alternate); break;
    case 'E':
    case 'F':
    case 'G':
      text = Upper(FloatDigits(magnitude, static_cast<char>(spec.type | 0x20), spec.type == 'G' ? std::max(precision, 1) : precision, spec.alternate));
      break;
    case '%': text = FloatDigits(magnitude * 100, 'f', precision, spec.alternate); rest = "%"; break;
    default: return ValueError(std::string("Unknown format code '") + spec.type + "' for object of type 'float'");
  }
  const size_t whole = std::min(text.find_first_not_of("0123456789"), text.size());
  const bool is_zero = text.find_first_of("123456789in") == std::string::npos;
  return PadNumber(spec, SignText(spec, negative && !(spec.no_negative_zero && is_zero)), text.substr(0, whole), text.substr(whole) + rest, 3);
}

Result<std::string> FormatText(std::string_view text, Spec spec) {
  if (spec.type != 0 && spec.type != 's') return ValueError(std::string("Unknown format code '") + spec.type + "' for object of type 'str'");
  if (spec.align == '=' && !spec.zero) return ValueError("'=' alignment not allowed in string format specifier");
  if (spec.align == '=') spec.align = '<';
  if (spec.precision >= 0) text = text.substr(0, ByteOffset(text, static_cast<size_t>(spec.precision)));
  if (spec.align == 0) spec.align = '<';
  spec.grouping = 0;
  return PadNumber(spec, "", std::string(text), "", 3);
}

}  // namespace

std::string FixedFloat(double value, int precision) { return Printf("%.*f", std::min(precision, kMaxPrecision), value); }

Result<std::string> FormatValue(Runtime& rt, const Value& value, std::string_view text) {
  if (value.is_undefined()) {
    if (text.empty()) return std::string();
    return TypeError("unsupported format string passed to Undefined.__format__");
  }
  if (text.empty()) return rt.Str(value);
  HONE_TRY(Spec spec, ParseSpec(text));
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(static_cast<size_t>(spec.width)));
  if (value.is_string()) return FormatText(value.as_string(), spec);
  const bool float_type = spec.type != 0 && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (value.is(Kind::kFloat) || (value.is_number() && float_type)) return FormatFloat(value.as_double(), spec);
  if (value.is(Kind::kBool) && spec.type == 0) return FormatText(value.as_bool() ? "True" : "False", spec);
  if (value.is_integral()) return FormatInt(value.as_int(), spec);
  return TypeError("unsupported format string passed to " + TypeName(value) + ".__format__");
}

namespace {

// One % conversion: reads its flags, takes its value, appends its text.
class PercentFormatter {
 public:
  PercentFormatter(Runtime* rt, std::string_view format, const Value& argument)
      : rt_(*rt), format_(format), argument_(argument) {}

  Result<std::string> Run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_ += format_.substr(at_, percent - at_);
      at_ = percent + 1;
      if (percent < format_.size()) HONE_RETURN_IF_ERROR(Convert());
      HONE_RETURN_IF_ERROR(rt_.Step());
      if (out_.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(rt_.CheckBytes(out_.size()));
    }
    const bool mapping = argument_.is(Kind::kDict) || argument_.is(Kind::kList);
    const size_t count = argument_.is(Kind::kTuple) ? argument_.items().size() : 1;
    if (!mapping && next_ < count) return TypeError("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  Result<Value> NextArgument() {
    if (argument_.is(Kind::kTuple)) {
      if (next_ < argument_.items().size()) return argument_.items()[next_++];
    } else if (next_ == 0) {
      ++next_;
      return argument_;
    }
    return TypeError("not enough arguments for format string");
  }

  Result<int64_t> Count() {
    if (at_ >= format_.size() || format_[at_] != '*') return ReadCount(format_, &at_);
    ++at_;
    HONE_TRY(const Value value, NextArgument());
    if (!value.is_integral()) return TypeError("* wants int");
    return value.as_int();
  }

  Result<void> Convert() {
    Value keyed;
    bool has_key = false;
    if (at_ < format_.size() && format_[at_] == '(') {
      if (!argument_.is(Kind::kDict)) return TypeError("format requires a mapping");
      const size_t close = format_.find(')', at_);
      if (close == std::string_view::npos) return ValueError("incomplete format key");
      const std::string_view key = format_.substr(at_ + 1, close - at_ - 1);
      const Value* value = argument_.as_dict().Find(key);
      if (value == nullptr) return InvalidInput(StringRepr(key));
      keyed = *value;
      has_key = true;
      at_ = close + 1;
    }
    Spec spec;
    bool left = false;
    for (; at_ < format_.size() && std::string_view("-+ #0").find(format_[at_]) != std::string_view::npos; ++at_) {
      const char flag = format_[at_];
      left |= flag == '-';
      spec.zero |= flag == '0';
      spec.alternate |= flag == '#';
      if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
    }
    HONE_TRY(spec.width, Count());
    if (spec.width < -1) {
      left = true;
      spec.width = spec.width < -kMaxWidth ? kMaxWidth + 1 : -spec.width;
    }
    spec.width = std::max<int64_t>(spec.width, 0);
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      HONE_TRY(spec.precision, Count());
      spec.precision = std::max<int64_t>(spec.precision, 0);
    }
    if (at_ < format_.size() && std::string_view("hlL").find(format_[at_]) != std::string_view::npos) ++at_;
    if (at_ >= format_.size()) return ValueError("incomplete format");
    if (spec.width > kMaxWidth) return LimitError("a format width above " + std::to_string(kMaxWidth));
    HONE_RETURN_IF_ERROR(rt_.ChargeBytes(static_cast<size_t>(spec.width)));
    const char type = format_[at_++];
    if (type == '%') {
      out_.push_back('%');
      return {};
    }
    if (!has_key) {
      HONE_TRY(keyed, NextArgument());
    }
    spec.align = left ? '<' : '>';
    return Append(keyed, type, spec);
  }

  Result<void> Append(const Value& value, char type, Spec spec) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        HONE_TRY(const std::string text, type == 's' ? rt_.Str(value) : rt_.Repr(value));
        spec.zero = false;
        HONE_TRY(const std::string padded, FormatText(text, spec));
        out_ += padded;
        return {};
      }
      case 'c': {
        std::string text;
        if (value.is_string() && value.as_string_object().length() == 1) {
          text = value.as_string();
        } else if (value.is_integral() && value.as_int() >= 0 && value.as_int() <= 0x10FFFF) {
          AppendCodePoint(&text, static_cast<uint32_t>(value.as_int()));
        } else {
          return TypeError("%c requires int or char");
        }
        out_ += PadNumber(spec, "", text, "", 3);
        return {};
      }
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X': return AppendInt(value, type, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        if (value.is_undefined()) return UndefinedError(value);
        if (!value.is_number()) return TypeError("must be real number, not " + TypeName(value));
        if (spec.zero && spec.align == '>' && std::isfinite(value.as_double())) {
          spec.fill = "0";
          spec.align = '=';
        }
        spec.type = type;
        HONE_TRY(const std::string text, FormatFloat(value.as_double(), spec));
        out_ += text;
        return {};
      }
      default: {
        return ValueError(std::string("unsupported format character '") + type + "' (0x" + ToBase(static_cast<uint8_t>(type), 16) +
                          ") at index " + std::to_string(at_ - 1));
      }
    }
  }

  Result<void> AppendInt(const Value& value, char type, Spec spec) {
    if (value.is_undefined()) return UndefinedError(value);
    const bool decimal = type == 'd' || type == 'i' || type == 'u';
    if (!value.is_number()) {
      return TypeError(std::string("%") + type + " format: " + (decimal ? "a real number" : "an integer") + " is required, not " + TypeName(value));
    }
    if (value.is(Kind::kFloat) && !decimal) return TypeError(std::string("%") + type + " format: an integer is required, not float");
    const double number = value.as_double();
    if (value.is(Kind::kFloat) && !(std::fabs(number) < 9.2e18)) return ValueError("integer does not fit 64 bits");
    const int64_t integer = value.is(Kind::kFloat) ? static_cast<int64_t>(number) : value.as_int();
    const uint64_t magnitude = integer < 0 ? 0 - static_cast<uint64_t>(integer) : static_cast<uint64_t>(integer);
    std::string digits = ToBase(magnitude, decimal ? 10 : type == 'o' ? 8 : 16);
    std::string prefix = SignText(spec, integer < 0);
    if (spec.alternate && !decimal) prefix += type == 'o' ? "0o" : type == 'x' ? "0x" : "0X";
    if (type == 'X') digits = Upper(digits);
    if (spec.precision > kMaxPrecision) return LimitError("a format precision above " + std::to_string(kMaxPrecision));
    if (spec.precision > static_cast<int64_t>(digits.size())) digits.insert(0, static_cast<size_t>(spec.precision) - digits.size(), '0');
    if (spec.zero && spec.align == '>') {
      spec.fill = "0";
      spec.align = '=';
    }
    out_ += PadNumber(spec, prefix, digits, "", 3);
    return {};
  }

  Runtime& rt_;
  std::string_view format_;
  const Value& argument_;
  size_t at_ = 0;
  size_t next_ = 0;  // argument
  std::string out_;
};

// "{0.name[key]!r:spec}" with replacement fields inside the specification, one level deep.
class BraceFormatter {
 public:
  BraceFormatter(Runtime* rt, const Args& args) : rt_(*rt), args_(args) {}

  Result<std::string> Run(std::string_view format, int level) {
    std::string out;
    for (size_t at = 0; at < format.size();) {
      HONE_RETURN_IF_ERROR(rt_.Step());
      if (out.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(rt_.CheckBytes(out.size()));
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      out += format.substr(at, brace - at);
      at = brace + 1;
      if (brace >= format.size()) break;
      const char c = format[brace];
      if (at < format.size() && format[at] == c) {
        out.push_back(c);
        ++at;
        continue;
      }
      if (c == '}') return ValueError("Single '}' encountered in format string");
      int open = 1;
      size_t end = at;
      for (; end < format.size(); ++end) {
        open += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
        if (open == 0) break;
      }
      if (open != 0) return ValueError(at >= format.size() ? "Single '{' encountered in format string" : "expected '}' before end of string");
      if (level > 1) return ValueError("Max string recursion exceeded");
      HONE_TRY(const std::string text, Field(format.substr(at, end - at), level));
      out += text;
      at = end + 1;
    }
    return out;
  }

 private:
  Result<std::string> Field(std::string_view field, int level) {
    size_t name_end = 0;
    int bracket = 0;
    for (; name_end < field.size(); ++name_end) {
      bracket += field[name_end] == '[' ? 1 : field[name_end] == ']' ? -1 : 0;
      if (bracket <= 0 && (field[name_end] == '!' || field[name_end] == ':')) break;
    }
    const std::string_view name = field.substr(0, name_end);
    std::string_view rest = field.substr(name_end);
    HONE_TRY(Value value, Lookup(name));
    if (!rest.empty() && rest[0] == '!') {
      if (rest.size() < 2) return ValueError("unmatched '{' in format spec");
      const char conversion = rest[1];
      if (rest.size() > 2 && rest[2] != ':') return ValueError("expected ':' after conversion specifier");
      if (conversion != 'r' && conversion != 's' && conversion != 'a') {
        return ValueError(std::string("Unknown conversion specifier ") + conversion);
      }
      HONE_TRY(std::string text, conversion == 's' ? rt_.Str(value) : rt_.Repr(value));
      value = Value::String(std::move(text));
      rest = rest.substr(2);
    }
    if (rest.empty()) return FormatValue(rt_, value, "");
    HONE_TRY(const std::string spec, Run(rest.substr(1), level + 1));
    return FormatValue(rt_, value, spec);
  }

  Result<Value> Lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, end);
    Value value;
    size_t at = 0;
    const int64_t number = ReadCount(first, &at);
    if (first.empty() || (number >= 0 && at == first.size())) {
      if (first.empty() ? numbered_ == 1 : numbered_ == 2) {
        return ValueError("cannot switch from manual field specification to automatic field numbering");
      }
      numbered_ = first.empty() ? 2 : 1;
      const size_t index = first.empty() ? next_++ : static_cast<size_t>(number);
      if (index >= args_.positional.size()) {
        return InvalidInput("tuple index out of range");
      }
      value = args_.positional[index];
    } else {
      const auto it = std::find_if(args_.named.begin(), args_.named.end(), [&](const auto& entry) { return entry.first == first; });
      if (it == args_.named.end()) return InvalidInput(StringRepr(first));
      value = it->second;
    }
    for (std::string_view rest = name.substr(end); !rest.empty();) {
      HONE_RETURN_IF_ERROR(rt_.Step());
      if (rest[0] == '.') {
        const size_t stop = std::min(rest.find_first_of(".[", 1), rest.size());
        HONE_TRY(value, rt_.GetAttr(value, rest.substr(1, stop - 1)));
        rest = rest.substr(stop);
      } else if (rest[0] == '[') {
        const size_t close = rest.find(']');
        if (close == std::string_view::npos) return ValueError("Missing ']' in format string");
        const std::string_view key = rest.substr(1, close - 1);
        size_t digits = 0;
        const int64_t index = ReadCount(key, &digits);
        HONE_TRY(value, rt_.GetItem(value, index >= 0 && digits == key.size() ? Value::Int(index) : Value::String(std::string(key))));
        rest = rest.substr(close + 1);
      } else {
        return ValueError("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Runtime& rt_;
  const Args& args_;
  size_t next_ = 0;
  int numbered_ = 0;  // 1: by number, 2: by order
};

}  // namespace

Result<std::string> PercentFormat(Runtime& rt, const std::string& format, const Value& argument) {
  return PercentFormatter(&rt, format, argument).Run();
}

Result<std::string> BraceFormat(Runtime& rt, std::string_view format, const Args& args) {
  return BraceFormatter(&rt, args).Run(format, 0);
}

}  // namespace hone::jinja
