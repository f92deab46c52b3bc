#include "serve/json_writer.h"

#include <cmath>
#include <cstdio>

namespace hone {
namespace {

// Bytes of the well-formed character at the front of `s`; 0 if it is malformed, and then `bad` is how many bytes one U+FFFD
// stands for. Table 3-7 of the Unicode standard.
size_t CharBytes(std::string_view s, size_t* bad) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char c = byte(0);
  *bad = 1;
  if (c < 0x80) return 1;
  size_t n = 0;
  unsigned low = 0x80, high = 0xBF;
  if (c >= 0xC2 && c <= 0xDF) n = 2;
  else if (c >= 0xE0 && c <= 0xEF) n = 3;
  else if (c >= 0xF0 && c <= 0xF4) n = 4;
  else return 0;
  if (c == 0xE0) low = 0xA0;
  if (c == 0xED) high = 0x9F;
  if (c == 0xF0) low = 0x90;
  if (c == 0xF4) high = 0x8F;
  for (size_t i = 1; i < n; ++i) {
    if (i >= s.size() || byte(i) < low || byte(i) > high) {
      *bad = i;
      return 0;
    }
    low = 0x80;
    high = 0xBF;
  }
  return n;
}

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
      size_t bad = 0;
      const size_t n = CharBytes(s.substr(i), &bad);
      if (n == 0) out->append("\xEF\xBF\xBD");
      else out->append(s, i, n);
      i += n == 0 ? bad : n;
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

JsonWriter& JsonWriter::Raw(std::string_view json) {
  Separate();
  text_.append(json);
  return *this;
}

size_t FindInvalidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    size_t bad = 0;
    const size_t n = CharBytes(text.substr(i), &bad);
    if (n == 0) return i;
    i += n;
  }
  return std::string_view::npos;
}

std::string RepairUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t bad = 0;
    const size_t n = CharBytes(text.substr(i), &bad);
    if (n == 0) out.append("\xEF\xBF\xBD");
    else out.append(text, i, n);
    i += n == 0 ? bad : n;
  }
  return out;
}

}  // namespace hone
