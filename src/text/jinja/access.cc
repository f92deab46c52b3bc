// Attributes, items, slices, iteration and length, with the sandbox's and Python's rules: `a.b` looks for an attribute, then
// an item; `a['b']` for an item, then an attribute; what is missing is undefined and remembers its name.
#include <algorithm>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

// How messages name an object: "dict object", "None".
std::string ObjectName(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is(Kind::kNamespace)) return "jinja2.utils.Namespace object";
  if (value.is(Kind::kLoop)) return "jinja2.runtime.LoopContext object";
  if (value.is(Kind::kCycler)) return "jinja2.utils.Cycler object";
  return TypeName(value) + " object";
}

Value MissingAttribute(const Value& object, std::string_view name) {
  return Value::Undefined("'" + ObjectName(object) + "' has no attribute " + StringRepr(name));
}

Value UnsafeAttribute(const Value& object, std::string_view name) {
  return Value::Undefined("access to attribute " + StringRepr(name) + " of '" + TypeName(object) + "' object is unsafe.", true);
}

Value LoopAttribute(const LoopObject& loop, std::string_view name, bool* found) {
  const int64_t index = static_cast<int64_t>(loop.index), length = static_cast<int64_t>(loop.items.items().size());
  *found = true;
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(length - index);
  if (name == "revindex0") return Value::Int(length - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(loop.level + 1);
  if (name == "depth0") return Value::Int(loop.level);
  if (name == "previtem") {
    return index == 0 ? Value::Undefined("there is no previous item") : loop.items.items()[loop.index - 1];
  }
  if (name == "nextitem") {
    return index + 1 >= length ? Value::Undefined("there is no next item") : loop.items.items()[loop.index + 1];
  }
  *found = false;
  return Value();
}

// An index or nothing: Python's TypeError and IndexError both mean "missing" to a template.
const Value* AtIndex(const std::vector<Value>& items, const Value& key) {
  if (!key.is_integral()) return nullptr;
  const int64_t size = static_cast<int64_t>(items.size());
  const int64_t index = key.as_int() < 0 ? key.as_int() + size : key.as_int();
  return index < 0 || index >= size ? nullptr : &items[static_cast<size_t>(index)];
}

// The character at `index`; negative counts from the end.
bool CharacterAt(const StringObject& string, int64_t index, std::string* out) {
  const int64_t length = static_cast<int64_t>(string.length());
  if (index < 0) index += length;
  if (index < 0 || index >= length) return false;
  if (string.ascii()) {
    *out = string.text()[static_cast<size_t>(index)];
  } else {
    const size_t begin = ByteOffset(string.text(), static_cast<size_t>(index));
    size_t end = begin;
    NextCodePoint(string.text(), &end);
    *out = string.text().substr(begin, end - begin);
  }
  return true;
}

// Python's slice.indices(): where to start, where to stop, for a sequence of `length`.
struct Range {
  int64_t begin, end, step, count;
};

}  // namespace

Result<int64_t> Runtime::AsIndex(const Value& value, std::string_view what) {
  if (value.is_integral()) return value.as_int();
  if (value.is_undefined()) return UndefinedError(value);
  return TypeError("'" + TypeName(value) + "' object cannot be interpreted as an integer" + (what.empty() ? "" : " (" + std::string(what) + ")"));
}

Result<Value> Runtime::OnlyAttr(const Value& object, std::string_view name, bool* found) {
  HONE_RETURN_IF_ERROR(Step());
  *found = true;
  switch (object.kind()) {
    case Kind::kUndefined:
      if (IsUnsafeAttribute(object, name)) break;
      return UndefinedError(object);
    case Kind::kNamespace:
      if (const Value* value = object.as<NamespaceObject>().attributes.Find(name)) return *value;
      break;
    case Kind::kLoop: {
      Value value = LoopAttribute(object.as<LoopObject>(), name, found);
      if (*found) return value;
      *found = true;
      break;
    }
    case Kind::kCycler:
      if (name == "current") return object.as<CyclerObject>().items.items()[object.as<CyclerObject>().position];
      break;
    case Kind::kCallable: {
      Value value = object.as<CallableObject>().Attribute(name);
      if (!value.is_undefined()) return value;
      break;
    }
    case Kind::kTuple:
      if (object.as_list_object().is_group && (name == "grouper" || name == "list")) return object.items()[name == "list" ? 1 : 0];
      break;
    case Kind::kInt:
    case Kind::kBool:
      if (name == "real" || name == "numerator") return Value::Int(object.as_int());
      if (name == "imag") return Value::Int(0);
      if (name == "denominator") return Value::Int(1);
      break;
    case Kind::kFloat:
      if (name == "real") return object;
      if (name == "imag") return Value::Float(0);
      break;
    default:
      break;
  }
  if (IsUnsafeAttribute(object, name)) return UnsafeAttribute(object, name);
  if (const Function* method = FindMethod(object, name)) return MakeCallable(method, object);
  *found = false;
  return MissingAttribute(object, name);
}

Result<Value> Runtime::GetAttr(const Value& object, std::string_view name) {
  bool found = false;
  HONE_TRY(Value value, OnlyAttr(object, name, &found));
  if (!found && object.is(Kind::kDict)) {
    if (const Value* item = object.as_dict().Find(name)) return *item;
  }
  return value;
}

Result<Value> Runtime::GetItem(const Value& object, const Value& key) {
  HONE_RETURN_IF_ERROR(Step());
  switch (object.kind()) {
    case Kind::kUndefined:
      return UndefinedError(object);
    case Kind::kDict:
      if (IsHashable(key)) {
        if (const Value* item = object.as_dict().Find(key)) return *item;
      }
      break;
    case Kind::kList:
    case Kind::kTuple:
      if (const Value* item = AtIndex(object.items(), key)) return *item;
      break;
    case Kind::kView:
      if (TypeName(object) == "range") {
        if (const Value* item = AtIndex(object.items(), key)) return *item;
      }
      break;
    case Kind::kString: {
      std::string character;
      if (!object.as_string_object().ascii()) HONE_RETURN_IF_ERROR(ChargeBytes(object.as_string().size()));
      if (key.is_integral() && CharacterAt(object.as_string_object(), key.as_int(), &character)) {
        return object.is_markup() ? Value::Markup(std::move(character)) : Value::String(std::move(character));
      }
      break;
    }
    default:
      break;
  }
  if (key.is_string()) {
    bool found = false;
    return OnlyAttr(object, key.as_string(), &found);
  }
  HONE_TRY(const std::string text, Repr(key));
  return Value::Undefined(ObjectName(object) + " has no element " + text);
}

Result<Value> Runtime::Slice(const Value& object, const Value& begin, const Value& end, const Value& step) {
  HONE_RETURN_IF_ERROR(Step());
  if (object.is_undefined()) return UndefinedError(object);
  const bool is_range = object.is(Kind::kView) && TypeName(object) == "range";
  if (!object.is_string() && !object.is(Kind::kList) && !object.is(Kind::kTuple) && !is_range) {
    if (object.is(Kind::kDict)) return TypeError("unhashable type: 'slice'");
    return TypeError("'" + TypeName(object) + "' object is not subscriptable");
  }
  for (const Value* part : {&begin, &end, &step}) {
    if (!part->is_none() && !part->is_integral()) {
      return TypeError("slice indices must be integers or None or have an __index__ method");
    }
  }
  const int64_t length = object.is_string() ? static_cast<int64_t>(object.as_string_object().length())
                                            : static_cast<int64_t>(object.items().size());
  Range range{0, 0, step.is_none() ? 1 : step.as_int(), 0};
  if (range.step == 0) return ValueError("slice step cannot be zero");
  range.step = std::clamp<int64_t>(range.step, -length - 1, length + 1);
  const bool backward = range.step < 0;
  const auto clip = [&](const Value& part, int64_t fallback) {
    if (part.is_none()) return fallback;
    int64_t index = part.as_int();
    if (index < 0) index = index < -length ? -1 : index + length;
    if (part.as_int() < 0 && index < 0) return backward ? int64_t{-1} : int64_t{0};
    return std::min(index, backward ? length - 1 : length);
  };
  range.begin = clip(begin, backward ? length - 1 : 0);
  range.end = clip(end, backward ? -1 : length);
  const int64_t span = backward ? range.begin - range.end : range.end - range.begin;
  const int64_t stride = backward ? -range.step : range.step;
  range.count = span <= 0 ? 0 : (span + stride - 1) / stride;
  if (object.is_string()) {
    const StringObject& string = object.as_string_object();
    HONE_RETURN_IF_ERROR(ChargeBytes(string.text().size()));
    std::string out;
    if (range.step == 1) {
      if (range.count > 0) {
        const size_t from = string.ascii() ? static_cast<size_t>(range.begin) : ByteOffset(string.text(), static_cast<size_t>(range.begin));
        const std::string_view rest = std::string_view(string.text()).substr(from);
        out = rest.substr(0, string.ascii() ? static_cast<size_t>(range.count) : ByteOffset(rest, static_cast<size_t>(range.count)));
      }
    } else {
      const std::vector<std::string_view> characters = CodePoints(string.text());
      for (int64_t i = 0; i < range.count; ++i) out += characters[static_cast<size_t>(range.begin + i * range.step)];
    }
    return object.is_markup() ? Value::Markup(std::move(out)) : Value::String(std::move(out));
  }
  std::vector<Value> out;
  out.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) out.push_back(object.items()[static_cast<size_t>(range.begin + i * range.step)]);
  if (is_range) return Value::View("range(...)", std::move(out));
  return object.is(Kind::kList) ? List(std::move(out)) : Tuple(std::move(out));
}

Result<std::vector<Value>> Runtime::Iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      HONE_RETURN_IF_ERROR(CheckItems(value.items().size()));
      return value.items();
    case Kind::kDict: {
      HONE_RETURN_IF_ERROR(CheckItems(value.as_dict().size()));
      std::vector<Value> keys;
      keys.reserve(value.as_dict().size());
      for (const auto& [key, item] : value.as_dict().entries()) keys.push_back(key);
      return keys;
    }
    case Kind::kString: {
      HONE_RETURN_IF_ERROR(CheckItems(value.as_string_object().length()));
      std::vector<Value> characters;
      characters.reserve(value.as_string_object().length());
      for (const std::string_view character : CodePoints(value.as_string())) {
        characters.push_back(Value::String(std::string(character)));
      }
      return characters;
    }
    case Kind::kGenerator: {
      GeneratorObject& generator = value.as<GeneratorObject>();
      HONE_RETURN_IF_ERROR(CheckItems(generator.items.size() - generator.next));
      std::vector<Value> rest(generator.items.begin() + static_cast<ptrdiff_t>(generator.next), generator.items.end());
      generator.next = generator.items.size();
      if (generator.failed) return generator.error;
      return rest;
    }
    case Kind::kLoop: {
      // A loop hands out its remaining items.
      const LoopObject& loop = value.as<LoopObject>();
      const auto& items = loop.items.items();
      return std::vector<Value>(items.begin() + static_cast<ptrdiff_t>(std::min(loop.index + 1, items.size())), items.end());
    }
    case Kind::kUndefined:
      return std::vector<Value>();
    default:
      return TypeError("'" + TypeName(value) + "' object is not iterable");
  }
}

Result<int64_t> Runtime::Length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined: return int64_t{0};
    case Kind::kString: return static_cast<int64_t>(value.as_string_object().length());
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return static_cast<int64_t>(value.items().size());
    case Kind::kDict: return static_cast<int64_t>(value.as_dict().size());
    case Kind::kLoop: return static_cast<int64_t>(value.as<LoopObject>().items.items().size());
    default: return TypeError("object of type '" + TypeName(value) + "' has no len()");
  }
}

}  // namespace hone::jinja
