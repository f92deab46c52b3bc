// str(), repr() and json.dumps() of values.
#include <charconv>
#include <cmath>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

std::string Hex(uint32_t value, int digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out(static_cast<size_t>(digits), '0');
  for (int i = digits - 1; i >= 0; --i, value >>= 4) out[static_cast<size_t>(i)] = kDigits[value & 15];
  return out;
}

void AppendJsonString(std::string* out, std::string_view text, bool ensure_ascii) {
  out->push_back('"');
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = NextCodePoint(text, &position);
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      case '\f': *out += "\\f"; break;
      case '\b': *out += "\\b"; break;
      default:
        if (c < 32 || (ensure_ascii && c > 126)) {
          if (c >= 0x10000) {
            *out += "\\u" + Hex(0xD800 + ((c - 0x10000) >> 10), 4) + "\\u" + Hex(0xDC00 + ((c - 0x10000) & 0x3FF), 4);
          } else {
            *out += "\\u" + Hex(c, 4);
          }
        } else {
          out->append(text.substr(begin, position - begin));
        }
    }
  }
  out->push_back('"');
}

// A scalar's JSON text, which is also how a dict key of that kind is written; "" for others.
std::string JsonScalar(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone: return "null";
    case Kind::kBool: return value.as_bool() ? "true" : "false";
    case Kind::kInt: return std::to_string(value.as_int());
    case Kind::kFloat:
      if (value.object() != nullptr) return value.as<StringObject>().text();
      if (std::isnan(value.as_double())) return "NaN";
      if (std::isinf(value.as_double())) return value.as_double() > 0 ? "Infinity" : "-Infinity";
      return FloatRepr(value.as_double());
    default: return "";
  }
}

class JsonWriter {
 public:
  JsonWriter(Runtime* rt, const JsonStyle& style) : rt_(*rt), style_(style) {}

  Result<void> Write(const Value& value, int level) {
    const Runtime::Depth depth(&rt_);
    if (!depth.ok()) return rt_.DepthError();
    HONE_RETURN_IF_ERROR(rt_.Step());
    switch (value.kind()) {
      case Kind::kString:
        AppendJsonString(&out_, value.as_string(), style_.ensure_ascii);
        break;
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value.items(), level);
      case Kind::kDict:
        return WriteDict(value.as_dict(), level);
      default: {
        const std::string scalar = JsonScalar(value);
        if (scalar.empty()) return TypeError("Object of type " + TypeName(value) + " is not JSON serializable");
        out_ += scalar;
      }
    }
    if (out_.size() > kMaxStringBytes) return rt_.CheckBytes(out_.size());
    return {};
  }

  std::string Take() { return std::move(out_); }

 private:
  void NewLine(int level) {
    if (!style_.pretty) return;
    out_.push_back('\n');
    for (int i = 0; i < level; ++i) out_ += style_.indent;
  }

  Result<void> WriteList(const std::vector<Value>& items, int level) {
    out_.push_back('[');
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(level + 1);
      HONE_RETURN_IF_ERROR(Write(items[i], level + 1));
    }
    if (!items.empty()) NewLine(level);
    out_.push_back(']');
    return {};
  }

  Result<void> WriteDict(const Dict& dict, int level) {
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sort_keys) {
      HONE_RETURN_IF_ERROR(StableSort(&entries, [&](const Dict::Entry& a, const Dict::Entry& b) { return rt_.Less(a.first, b.first); }));
    }
    out_.push_back('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(level + 1);
      const Value& key = entries[i].first;
      const std::string text = key.is_string() ? key.as_string() : JsonScalar(key);
      if (text.empty() && !key.is_string()) return TypeError("keys must be str, int, float, bool or None, not " + TypeName(key));
      AppendJsonString(&out_, text, style_.ensure_ascii);
      out_ += style_.key_separator;
      HONE_RETURN_IF_ERROR(Write(entries[i].second, level + 1));
    }
    if (!entries.empty()) NewLine(level);
    out_.push_back('}');
    return {};
  }

  Runtime& rt_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back as the same number, laid out as Python does.
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end, exponent);
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digits.size() > 1) out += "." + digits.substr(1);
    const int magnitude = std::abs(exponent);
    return out + (exponent < 0 ? "e-" : "e+") + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string StringRepr(std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t position = 0; position < text.size();) {
    const size_t begin = position;
    const uint32_t c = NextCodePoint(text, &position);
    if (c == static_cast<uint32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      out.append(text.substr(begin, position - begin));
    } else if (c < 0x100) {
      out += "\\x" + Hex(c, 2);
    } else if (c < 0x10000) {
      out += "\\u" + Hex(c, 4);
    } else {
      out += "\\U" + Hex(c, 8);
    }
  }
  out.push_back(quote);
  return out;
}

std::string HtmlEscape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out.push_back(c);
    }
  }
  return out;
}

Result<std::string> Runtime::Str(const Value& value) {
  if (value.is_string()) {
    HONE_RETURN_IF_ERROR(ChargeBytes(value.as_string().size()));
    return value.as_string();
  }
  if (value.is_undefined()) return std::string();
  return Repr(value);
}

Result<std::string> Runtime::Repr(const Value& value) {
  std::string out;
  HONE_RETURN_IF_ERROR(AppendRepr(&out, value));
  return out;
}

Result<void> Runtime::AppendRepr(std::string* out, const Value& value) {
  const Depth depth(this);
  if (!depth.ok()) return DepthError();
  HONE_RETURN_IF_ERROR(Step());
  if (out->size() > kMaxStringBytes) return CheckBytes(out->size());
  const auto list = [&](const std::vector<Value>& items, std::string_view open, std::string_view close) -> Result<void> {
    *out += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) *out += ", ";
      HONE_RETURN_IF_ERROR(AppendRepr(out, items[i]));
    }
    *out += close;
    return {};
  };
  const auto dict = [&](const Dict& entries) -> Result<void> {
    *out += "{";
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) *out += ", ";
      HONE_RETURN_IF_ERROR(AppendRepr(out, entries.entries()[i].first));
      *out += ": ";
      HONE_RETURN_IF_ERROR(AppendRepr(out, entries.entries()[i].second));
    }
    *out += "}";
    return {};
  };
  switch (value.kind()) {
    case Kind::kUndefined: *out += "Undefined"; break;
    case Kind::kNone: *out += "None"; break;
    case Kind::kBool: *out += value.as_bool() ? "True" : "False"; break;
    case Kind::kInt: *out += std::to_string(value.as_int()); break;
    case Kind::kFloat:
      *out += value.object() != nullptr ? value.as<StringObject>().text() : FloatRepr(value.as_double());
      break;
    case Kind::kString:
      HONE_RETURN_IF_ERROR(ChargeBytes(value.as_string().size()));
      *out += value.is_markup() ? "Markup(" + StringRepr(value.as_string()) + ")" : StringRepr(value.as_string());
      break;
    case Kind::kList: return list(value.items(), "[", "]");
    case Kind::kTuple: return list(value.items(), "(", value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict: return dict(value.as_dict());
    case Kind::kView:
      if (TypeName(value) == "range") {
        *out += value.as_list_object().view_name;
        break;
      }
      return list(value.items(), value.as_list_object().view_name + "([", "])");
    case Kind::kNamespace:
      *out += "<Namespace ";
      HONE_RETURN_IF_ERROR(dict(value.as<NamespaceObject>().attributes));
      *out += ">";
      break;
    case Kind::kLoop: {
      const LoopObject& loop = value.as<LoopObject>();
      *out += "<LoopContext " + std::to_string(loop.index + 1) + "/" + std::to_string(loop.items.items().size()) + ">";
      break;
    }
    default: *out += "<" + TypeName(value) + " object>"; break;
  }
  return {};
}

Result<std::string> ToJson(Runtime& rt, const Value& value, const JsonStyle& style) {
  JsonWriter writer(&rt, style);
  HONE_RETURN_IF_ERROR(writer.Write(value, 0));
  std::string out = writer.Take();
  HONE_RETURN_IF_ERROR(rt.ChargeBytes(out.size()));
  return out;
}

}  // namespace hone::jinja
