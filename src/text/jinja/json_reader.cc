// FromJson: JSON text to values with keys in order, as Python's json.loads reads it. The only file here that sees the JSON
// library; its event parser is iterative, so depth is checked before anything recurses.
#include <nlohmann/json.hpp>

#include <cmath>

#include "text/jinja/value.h"

namespace hone::jinja {
namespace {

constexpr size_t kMaxJsonDepth = 100;

// Builds values bottom up; one Frame an open array or object.
class Builder {
 public:
  bool null() { return Add(Value::None()); }
  bool boolean(bool value) { return Add(Value::Bool(value)); }
  bool number_integer(int64_t value) { return Add(Value::Int(value)); }
  bool number_unsigned(uint64_t value) {
    if (value <= static_cast<uint64_t>(INT64_MAX)) return Add(Value::Int(static_cast<int64_t>(value)));
    return Add(Value::BigInt(static_cast<double>(value), std::to_string(value)));
  }
  bool number_float(double value, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) return Add(Value::BigInt(value, text));
    return Add(Value::Float(value));
  }
  bool string(std::string& value) { return Add(Value::String(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(true); }
  bool key(std::string& value) {
    frames_.back().key = std::move(value);
    return true;
  }
  bool end_object() {
    Value value = Value::FromDict(std::move(frames_.back().dict));
    frames_.pop_back();
    return Add(std::move(value));
  }
  bool start_array(size_t) { return Open(false); }
  bool end_array() {
    Value value = Value::List(std::move(frames_.back().items));
    frames_.pop_back();
    return Add(std::move(value));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    // A number that overflows a double is an error to the library too, without a position of its own.
    error_ = "not JSON at byte " + std::to_string(position);
    return false;
  }

  const std::string& error() const { return error_; }
  Value& root() { return root_; }

 private:
  struct Frame {
    std::shared_ptr<Dict> dict;  // an object, else an array
    std::string key;
    std::vector<Value> items;
  };

  bool Open(bool object) {
    if (frames_.size() >= kMaxJsonDepth) {
      error_ = "JSON nested deeper than " + std::to_string(kMaxJsonDepth);
      return false;
    }
    frames_.emplace_back();
    if (object) frames_.back().dict = std::make_shared<Dict>();
    return true;
  }

  bool Add(Value value) {
    if (frames_.empty()) {
      root_ = std::move(value);
    } else if (frames_.back().dict != nullptr) {
      frames_.back().dict->Set(std::string_view(frames_.back().key), std::move(value));
    } else {
      frames_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Frame> frames_;
  Value root_;
  std::string error_ = "not JSON";
};

}  // namespace

Result<Value> FromJson(std::string_view text) {
  Builder builder;
  try {
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return InvalidInput(builder.error());
  } catch (const std::exception& exception) {
    return InvalidInput(std::string("not JSON: ") + exception.what());
  }
  return std::move(builder.root());
}

}  // namespace hone::jinja
