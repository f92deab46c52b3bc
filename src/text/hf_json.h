// Checked access to the fields of tokenizer.json. Errors name the field by its path ("model.merges[3]"), what was found
// and what was wanted. Only the hf_*.cc files include this; it brings in the JSON library.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hone {

using Json = nlohmann::json;

// A value and its path. Borrows the document.
struct JsonField {
  const Json* value = nullptr;  // nullptr: absent
  std::string path;

  bool present() const { return value != nullptr && !value->is_null(); }
  JsonField operator[](std::string_view key) const {
    std::string inner = path.empty() ? std::string(key) : path + "." + std::string(key);
    if (value == nullptr || !value->is_object()) return {nullptr, std::move(inner)};
    const auto found = value->find(key);
    return {found == value->end() ? nullptr : &*found, std::move(inner)};
  }
  JsonField operator[](size_t index) const { return {&(*value)[index], path + "[" + std::to_string(index) + "]"}; }
  size_t size() const { return value->size(); }

  Error Wanted(std::string_view what) const {
    return InvalidInput(path + ": wanted " + std::string(what) + ", found " +
                        (value == nullptr ? "nothing" : std::string(value->type_name())));
  }
  Result<std::string> String() const {
    if (!present() || !value->is_string()) return Wanted("a string");
    return value->get<std::string>();
  }
  Result<std::string> String(std::string_view fallback) const {
    if (!present()) return std::string(fallback);
    return String();
  }
  Result<bool> Bool(bool fallback) const {
    if (!present()) return fallback;
    if (!value->is_boolean()) return Wanted("true or false");
    return value->get<bool>();
  }
  Result<double> Number() const {
    if (!present() || !value->is_number()) return Wanted("a number");
    return value->get<double>();
  }
  // In [0, most].
  Result<int64_t> Count(int64_t most) const {
    if (!present() || !value->is_number_integer()) return Wanted("a whole number");
    const bool fits = value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(most)
                                                  : value->get<int64_t>() >= 0 && value->get<int64_t>() <= most;
    if (!fits) return InvalidInput(path + ": " + value->dump() + " is not between 0 and " + std::to_string(most));
    return value->get<int64_t>();
  }
  Result<JsonField> Array() const {
    if (!present() || !value->is_array()) return Wanted("an array");
    return *this;
  }
  Result<JsonField> Object() const {
    if (!present() || !value->is_object()) return Wanted("an object");
    return *this;
  }
  Result<std::string> Type() const {
    HONE_TRY(const JsonField object, Object());
    return object["type"].String();
  }
};

// Of a list of known names: "A, B, C".
inline Error UnknownType(const JsonField& field, std::string_view type, std::string_view known) {
  return Unsupported(field.path + ".type: '" + std::string(type).substr(0, 100) + "' is not supported; known are " +
                     std::string(known));
}

}  // namespace hone
