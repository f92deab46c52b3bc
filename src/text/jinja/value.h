// Values of the template language: Python's None, bool, int (64 bits), float, str, list, tuple and dict, and what templates
// add (undefined, namespace, macro, loop). Values are immutable except namespaces, so copies share and JSON values may be
// read from many threads; every list, tuple and dict knows its nesting depth, which is bounded (kMaxValueDepth).
// Refused: integers beyond 64 bits in arithmetic, byte strings, sets. Operations (str, ==, <, attributes) are in runtime.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hone::jinja {

enum class Kind : uint8_t {
  kUndefined, kNone, kBool, kInt, kFloat, kString, kList, kTuple, kDict,
  kView,       // range and dict views: sized, iterable again and again
  kGenerator,  // what map, select, items ... give: iterable once
  kNamespace, kCallable, kLoop, kCycler,
};

inline constexpr int kMaxValueDepth = 200;  // lists in lists in ...; deeper is an error

// Base of everything a Value shares. Counts the bytes alive on this thread, which the render bounds.
class Object {
 public:
  explicit Object(size_t bytes) : bytes_(bytes) { live_bytes += static_cast<int64_t>(bytes_); }
  virtual ~Object() { live_bytes -= static_cast<int64_t>(bytes_); }
  Object(const Object&) = delete;
  virtual int depth() const { return 0; }  // of containers: 1 + the deepest element
  virtual void Drop() {}                   // lets go of the values that could lead back here
  static thread_local int64_t live_bytes;

 protected:
  void AddBytes(size_t bytes) {
    bytes_ += bytes;
    live_bytes += static_cast<int64_t>(bytes);
  }

 private:
  size_t bytes_;
};

class Dict;
class StringObject;
struct ListObject;
struct UndefinedObject;

class Value {
 public:
  Value() = default;  // undefined, without a name
  static Value None() { return Value(Kind::kNone, nullptr); }
  static Value Bool(bool value);
  static Value Int(int64_t value);
  static Value Float(double value);
  static Value String(std::string text);
  static Value Markup(std::string text);  // a string marked safe: `x|safe`, `x|escape`
  // An integer of JSON beyond 64 bits: a float in arithmetic that prints its digits.
  static Value BigInt(double value, std::string digits);
  // REQUIRES (all three): elements nest less than kMaxValueDepth deep.
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value View(std::string name, std::vector<Value> items);
  static Value FromDict(std::shared_ptr<const Dict> dict);
  // Printing gives ""; most uses are an error with this message (see runtime.h). `unsafe`: the sandbox forbids it.
  static Value Undefined(std::string message, bool unsafe = false);
  static Value FromObject(Kind kind, std::shared_ptr<Object> object) { return Value(kind, std::move(object)); }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_number() const { return kind_ == Kind::kBool || kind_ == Kind::kInt || kind_ == Kind::kFloat; }
  bool is_integral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool is_markup() const { return markup_; }

  // REQUIRES: the kind that the name says (as_int also bool; as_double any number).
  bool as_bool() const { return bool_; }
  int64_t as_int() const { return kind_ == Kind::kBool ? (bool_ ? 1 : 0) : int_; }
  double as_double() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(as_int()); }
  const std::string& as_string() const;
  const StringObject& as_string_object() const;
  const std::vector<Value>& items() const;  // list, tuple, view
  const ListObject& as_list_object() const;
  const Dict& as_dict() const;
  const UndefinedObject* as_undefined() const;  // nullptr: no name
  template <typename T>
  T& as() const { return static_cast<T&>(*object_); }
  const std::shared_ptr<Object>& object() const { return object_; }
  template <typename T>
  std::shared_ptr<T> shared() const { return std::static_pointer_cast<T>(object_); }

  int depth() const;  // 0 for scalars, 1 + the deepest element for containers

 private:
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}
  Kind kind_ = Kind::kUndefined;
  bool markup_ = false;
  union {
    int64_t int_ = 0;
    bool bool_;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

// UTF-8 text with its length in code points. A byte that is not UTF-8 counts as one code point.
class StringObject : public Object {
 public:
  explicit StringObject(std::string text);
  const std::string& text() const { return text_; }
  size_t length() const { return length_; }             // code points
  bool ascii() const { return length_ == text_.size(); }  // every code point is one byte

 private:
  std::string text_;
  size_t length_;
};

struct ListObject : Object {
  explicit ListObject(std::vector<Value> elements);
  int depth() const override { return depth_; }
  std::vector<Value> items;
  std::string view_name;   // of kView: "range(0, 3)", "dict_items"
  bool is_group = false;   // a tuple of groupby: has .grouper and .list

 private:
  int depth_;
};

struct UndefinedObject : Object {
  UndefinedObject(std::string text, bool is_unsafe) : Object(64 + text.size()), message(std::move(text)), unsafe(is_unsafe) {}
  std::string message;
  bool unsafe;
};

// Whether Python could hash it here: scalars, strings, none, and flat tuples of those. 1, 1.0 and True are one key.
bool IsHashable(const Value& key);

// A dict in insertion order. Built once, then shared read-only.
class Dict : public Object {
 public:
  Dict();
  ~Dict() override;
  using Entry = std::pair<Value, Value>;
  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  const Value* Find(std::string_view key) const;  // nullptr if absent
  const Value* Find(const Value& key) const;      // REQUIRES: IsHashable(key)
  void Set(std::string_view key, Value value) { Set(Value::String(std::string(key)), std::move(value)); }
  void Set(Value key, Value value);               // REQUIRES: IsHashable(key); an existing key keeps its place
  void Clear();
  int depth() const override { return depth_; }

 private:
  struct Less {
    using is_transparent = void;
    bool operator()(const Value& a, const Value& b) const;
    bool operator()(const Value& a, std::string_view b) const;
    bool operator()(std::string_view a, const Value& b) const;
  };
  std::vector<Entry> entries_;
  std::map<Value, size_t, Less> index_;
  int depth_ = 1;
};

// JSON text → value, keys in order, Python's reading of it (NaN refused). Errors: not JSON, or nested deeper than 100.
Result<Value> FromJson(std::string_view text);

}  // namespace hone::jinja
