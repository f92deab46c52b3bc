// Values, their shared parts, and dicts: a vector in insertion order with an ordered index beside it, so that no choice of
// keys makes lookups slow.
#include "text/jinja/value.h"

#include <algorithm>

#include "base/check.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {

thread_local int64_t Object::live_bytes = 0;

namespace {

int DepthOf(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth + 1;
}

// Order of keys: numbers, strings, None, tuples, undefined. Long double holds every int64 and double exactly.
int Rank(const Value& key) {
  if (key.is_number()) return 0;
  return key.is_string() ? 1 : key.is_none() ? 2 : key.is(Kind::kTuple) ? 3 : 4;
}

int CompareKeys(const Value& a, const Value& b) {
  const int rank = Rank(a);
  if (rank != Rank(b)) return rank < Rank(b) ? -1 : 1;
  if (rank == 0) {
    const auto number = [](const Value& v) {
      return v.is(Kind::kFloat) ? static_cast<long double>(v.as_double()) : static_cast<long double>(v.as_int());
    };
    const long double x = number(a), y = number(b);
    if (x != x || y != y) return (x == x) - (y == y);  // NaN stands before all numbers
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (rank == 1) return a.as_string().compare(b.as_string());
  if (rank == 2 || rank == 4) return 0;
  const auto &x = a.items(), &y = b.items();
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    if (const int order = CompareKeys(x[i], y[i]); order != 0) return order;
  }
  return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
}

}  // namespace

Value Value::Bool(bool value) {
  Value out(Kind::kBool, nullptr);
  out.bool_ = value;
  return out;
}

Value Value::Int(int64_t value) {
  Value out(Kind::kInt, nullptr);
  out.int_ = value;
  return out;
}

Value Value::Float(double value) {
  Value out(Kind::kFloat, nullptr);
  out.float_ = value;
  return out;
}

Value Value::BigInt(double value, std::string digits) {
  Value out(Kind::kFloat, std::make_shared<StringObject>(std::move(digits)));
  out.float_ = value;
  return out;
}

Value Value::String(std::string text) { return Value(Kind::kString, std::make_shared<StringObject>(std::move(text))); }

Value Value::Markup(std::string text) {
  Value out = String(std::move(text));
  out.markup_ = true;
  return out;
}

Value Value::List(std::vector<Value> items) { return Value(Kind::kList, std::make_shared<ListObject>(std::move(items))); }
Value Value::Tuple(std::vector<Value> items) { return Value(Kind::kTuple, std::make_shared<ListObject>(std::move(items))); }

Value Value::View(std::string name, std::vector<Value> items) {
  auto view = std::make_shared<ListObject>(std::move(items));
  view->view_name = std::move(name);
  return Value(Kind::kView, std::move(view));
}

Value Value::FromDict(std::shared_ptr<const Dict> dict) {
  return Value(Kind::kDict, std::const_pointer_cast<Dict>(std::move(dict)));
}

Value Value::Undefined(std::string message, bool unsafe) {
  return Value(Kind::kUndefined, std::make_shared<UndefinedObject>(std::move(message), unsafe));
}

const std::string& Value::as_string() const { return as<StringObject>().text(); }
const StringObject& Value::as_string_object() const { return as<StringObject>(); }
const std::vector<Value>& Value::items() const { return as<ListObject>().items; }
const ListObject& Value::as_list_object() const { return as<ListObject>(); }
const Dict& Value::as_dict() const { return as<Dict>(); }
const UndefinedObject* Value::as_undefined() const { return static_cast<const UndefinedObject*>(object_.get()); }

int Value::depth() const {
  // Namespaces and macros count as flat: what they hold is dropped at the end of a render, not by recursion.
  if (object_ == nullptr || kind_ == Kind::kNamespace) return 0;
  return object_->depth();
}

StringObject::StringObject(std::string text)
    : Object(80 + text.size()), text_(std::move(text)), length_(CodePointCount(text_)) {}

ListObject::ListObject(std::vector<Value> elements)
    : Object(64 + elements.size() * sizeof(Value)), items(std::move(elements)), depth_(DepthOf(items)) {}

bool IsHashable(const Value& key) {
  switch (key.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
    case Kind::kString:
      return true;
    case Kind::kTuple:
      return std::all_of(key.items().begin(), key.items().end(),
                         [](const Value& item) { return !item.is(Kind::kTuple) && IsHashable(item); });
    default:
      return false;
  }
}

bool Dict::Less::operator()(const Value& a, const Value& b) const { return CompareKeys(a, b) < 0; }
bool Dict::Less::operator()(const Value& a, std::string_view b) const {
  return Rank(a) != 1 ? Rank(a) < 1 : a.as_string() < b;
}
bool Dict::Less::operator()(std::string_view a, const Value& b) const {
  return Rank(b) != 1 ? 1 < Rank(b) : a < b.as_string();
}

Dict::Dict() : Object(128) {}
Dict::~Dict() = default;

const Value* Dict::Find(std::string_view key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

const Value* Dict::Find(const Value& key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &entries_[it->second].second;
}

void Dict::Clear() {
  // The entries die after the dict is empty: what they hold may reach this dict again.
  std::vector<Entry> entries = std::move(entries_);
  entries_.clear();
  index_.clear();
}

void Dict::Set(Value key, Value value) {
  HONE_CHECK(IsHashable(key));
  depth_ = std::max({depth_, value.depth() + 1, key.depth() + 1});
  const auto it = index_.find(key);
  if (it != index_.end()) {
    entries_[it->second].second = std::move(value);
    return;
  }
  AddBytes(160);
  index_.emplace(key, entries_.size());
  entries_.emplace_back(std::move(key), std::move(value));
}

}  // namespace hone::jinja
