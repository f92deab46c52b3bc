// Separators follow from the last byte written, so the writer has no state but its text. UTF-8: text/utf8.h.
#include "serve/json_writer.h"

#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/utf8.h"

namespace hone {
namespace {

void AppendEscaped(std::string_view s, std::string* out) {
  out->push_back('"');
  for (size_t i = 0; i < s.size();) {
    const unsigned char c = static_cast<unsigned char>(s[i]);
    if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
      size_t end = i + 1;
      while (end < s.size() && s[end] >= 0x20 && s[end] < 0x7f && s[end] != '"' && s[end] != '\\') ++end;
      out->append(s, i, end - i);
      i = end;
      continue;
    }
    if (c >= 0x80) {
      const Utf8Char found = Utf8At(s, i);
      out->append(found.valid ? s.substr(i, found.bytes) : kReplacement);
      i += found.bytes;
      continue;
    }
    switch (c) {
      case '"': out->append("\\\""); break;
      case '\\': out->append("\\\\"); break;
      case '\n': out->append("\\n"); break;
      case '\r': out->append("\\r"); break;
      case '\t': out->append("\\t"); break;
      default: {
        char escape[8];
        std::snprintf(escape, sizeof escape, "\\u%04x", c);
        out->append(escape);
      }
    }
    ++i;
  }
  out->push_back('"');
}

}  // namespace

void JsonWriter::Separate() {
  if (text_.empty()) return;
  const char last = text_.back();
  if (last != '{' && last != '[' && last != ':') text_.push_back(',');
}

JsonWriter& JsonWriter::Open(char c) {
  Separate();
  text_.push_back(c);
  return *this;
}

JsonWriter& JsonWriter::Shut(char c) {
  text_.push_back(c);
  return *this;
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  Separate();
  AppendEscaped(key, &text_);
  text_.push_back(':');
  return *this;
}

JsonWriter& JsonWriter::String(std::string_view value) {
  Separate();
  AppendEscaped(value, &text_);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) { return Raw(std::to_string(value)); }
JsonWriter& JsonWriter::Uint(uint64_t value) { return Raw(std::to_string(value)); }
JsonWriter& JsonWriter::Bool(bool value) { return Raw(value ? "true" : "false"); }
JsonWriter& JsonWriter::Null() { return Raw("null"); }

JsonWriter& JsonWriter::Double(double value) {
  if (!std::isfinite(value)) return Null();
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return Raw(text);
}

JsonWriter& JsonWriter::Float(float value) {
  if (!std::isfinite(value)) return Null();
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return Raw({text, static_cast<size_t>(end - text)});
}

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  text_.append(json);
  return *this;
}

size_t FindInvalidUtf8(std::string_view text) {
  const size_t good = ValidUtf8Prefix(text);
  return good == text.size() ? std::string_view::npos : good;
}

std::string RepairUtf8(std::string_view text) { return ToValidUtf8(text); }

}  // namespace hone
