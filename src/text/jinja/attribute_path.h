// The "attribute" argument of filters: "a.b.0" or an index names a part of each item; "a,b" names several (a sort key).
#pragma once

#include <string>
#include <vector>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {

class AttributePath {
 public:
  // `attribute` is a string, an integer or none (the item itself).
  static Result<AttributePath> Parse(const Value& attribute) {
    AttributePath path;
    if (attribute.is_none() || attribute.is_undefined()) return path;
    if (attribute.is_integral()) {
      path.parts_.push_back(attribute);
      return path;
    }
    if (!attribute.is_string()) return TypeError("an attribute is a string or an integer, not " + TypeName(attribute));
    const std::string& text = attribute.as_string();
    for (size_t begin = 0; begin <= text.size();) {
      const size_t end = std::min(text.find('.', begin), text.size());
      const std::string part = text.substr(begin, end - begin);
      const bool digits = !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
      path.parts_.push_back(digits ? Value::Int(std::stoll(part)) : Value::String(part));
      begin = end + 1;
    }
    return path;
  }

  bool empty() const { return parts_.empty(); }
  void set_default(Value value) { default_ = std::move(value); }
  void set_ignore_case(bool ignore) { ignore_case_ = ignore; }

  Result<Value> Get(Runtime& rt, const Value& item) const {
    HONE_RETURN_IF_ERROR(rt.Step());
    Value value = item;
    for (const Value& part : parts_) {
      HONE_TRY(value, rt.GetItem(value, part));
      if (value.is_undefined() && !default_.is_none()) value = default_;
    }
    if (ignore_case_ && value.is_string()) {
      HONE_RETURN_IF_ERROR(rt.ChargeBytes(value.as_string().size()));
      return Value::String(ToLower(value.as_string()));
    }
    return value;
  }

 private:
  std::vector<Value> parts_;
  Value default_ = Value::None();
  bool ignore_case_ = false;
};

}  // namespace hone::jinja
