// JsonWriter: answers as JSON text, in the order of the calls. The result is always valid JSON and valid UTF-8: malformed
// bytes of a string become U+FFFD, numbers that JSON cannot hold become null.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hone {

class JsonWriter {
 public:
  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Shut('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Shut(']'); }
  JsonWriter& Key(std::string_view key);

  JsonWriter& String(std::string_view value);
  JsonWriter& Int(int64_t value);
  JsonWriter& Uint(uint64_t value);
  JsonWriter& Double(double value);
  JsonWriter& Float(float value);  // the shortest digits that read back as it: what a client sent comes back as it was
  JsonWriter& Bool(bool value);
  JsonWriter& Null();
  // Text that is JSON already.
  JsonWriter& Raw(std::string_view json);

  // Members of the open object.
  JsonWriter& Field(std::string_view key, std::string_view value) { return Key(key).String(value); }
  JsonWriter& Field(std::string_view key, const char* value) { return Key(key).String(value); }
  JsonWriter& Field(std::string_view key, int value) { return Key(key).Int(value); }
  JsonWriter& Field(std::string_view key, int64_t value) { return Key(key).Int(value); }
  JsonWriter& Field(std::string_view key, uint64_t value) { return Key(key).Uint(value); }
  JsonWriter& Field(std::string_view key, bool value) { return Key(key).Bool(value); }
  JsonWriter& NullField(std::string_view key) { return Key(key).Null(); }

  const std::string& text() const& { return text_; }
  std::string text() && { return std::move(text_); }

 private:
  JsonWriter& Open(char c);
  JsonWriter& Shut(char c);
  void Separate();  // the comma before a value or key, if one is due

  std::string text_;
};

// The offset of the first byte that is not valid UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);
// Malformed sequences become U+FFFD (one for each maximal part of a character, as WHATWG decodes).
std::string RepairUtf8(std::string_view text);

}  // namespace hone
