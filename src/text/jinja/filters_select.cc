// Filters that apply another filter or test to every item, and those that pick a part or a default.
#include "text/jinja/attribute_path.h"
#include "text/jinja/runtime.h"

namespace hone::jinja {
namespace {

Args Rest(const Args& args, size_t skip) {
  Args rest;
  if (args.positional.size() > skip) {
    rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(skip), args.positional.end());
  }
  rest.named = args.named;
  return rest;
}

// Applies `keep` to each item. As a generator would, an error waits until its item is asked for.
template <typename Each>
Result<Value> Lazily(Runtime& rt, const Value& self, const Each& each) {
  if (!rt.Truth(self)) return rt.Generator({});
  HONE_TRY(const std::vector<Value> items, rt.Iterate(self));
  std::vector<Value> out;
  Error error;
  bool failed = false;
  for (const Value& item : items) {
    Result<void> result = each(item, &out);
    if (result) continue;
    if (result.error().code == ErrorCode::kLimit || rt.raised) return std::move(result).error();
    error = std::move(result).error();
    failed = true;
    break;
  }
  HONE_TRY(Value generator, rt.Generator(std::move(out)));
  generator.as<GeneratorObject>().failed = failed;
  generator.as<GeneratorObject>().error = std::move(error);
  return generator;
}

Result<Value> Select(Runtime& rt, const Value& self, const Bound& args, bool by_attribute, bool wanted) {
  const Args& all = args.all();
  const size_t skip = by_attribute ? 1 : 0;
  AttributePath path;
  if (by_attribute) {
    if (all.positional.empty()) return ValueError("Missing parameter for attribute name");
    HONE_TRY(path, AttributePath::Parse(all.positional[0]));
  }
  const Function* test = nullptr;
  Args rest;
  if (all.positional.size() > skip) {
    HONE_TRY(const std::string name, rt.Str(all.positional[skip]));
    test = FindTest(name);
    if (test == nullptr) return InvalidInput("No test named '" + name + "'.");
    rest = Rest(all, skip + 1);
  }
  return Lazily(rt, self, [&](const Value& item, std::vector<Value>* out) -> Result<void> {
    HONE_TRY(Value value, path.Get(rt, item));
    if (test != nullptr) {
      HONE_TRY(value, rt.CallFunction(*test, value, rest));
    }
    if (rt.Truth(value) == wanted) out->push_back(item);
    return {};
  });
}

Result<Value> SelectItems(Runtime& rt, const Value& self, const Bound& args) { return Select(rt, self, args, false, true); }
Result<Value> RejectItems(Runtime& rt, const Value& self, const Bound& args) { return Select(rt, self, args, false, false); }
Result<Value> SelectAttr(Runtime& rt, const Value& self, const Bound& args) { return Select(rt, self, args, true, true); }
Result<Value> RejectAttr(Runtime& rt, const Value& self, const Bound& args) { return Select(rt, self, args, true, false); }

Result<Value> Map(Runtime& rt, const Value& self, const Bound& args) {
  const Args& all = args.all();
  const Value* attribute = nullptr;
  Value fallback = Value::None();
  for (const auto& [name, value] : all.named) {
    if (name == "attribute") attribute = &value;
    if (name == "default") fallback = value;
  }
  if (all.positional.empty() && attribute != nullptr) {
    for (const auto& [name, value] : all.named) {
      if (name != "attribute" && name != "default") return ValueError("Unexpected keyword argument " + StringRepr(name));
    }
    HONE_TRY(AttributePath path, AttributePath::Parse(*attribute));
    path.set_default(fallback);
    return Lazily(rt, self, [&](const Value& item, std::vector<Value>* out) -> Result<void> {
      HONE_TRY(Value value, path.Get(rt, item));
      out->push_back(std::move(value));
      return {};
    });
  }
  if (!rt.Truth(self)) return rt.Generator({});
  if (all.positional.empty()) return ValueError("map requires a filter argument");
  HONE_TRY(const std::string name, rt.Str(all.positional[0]));
  const Function* filter = FindFilter(name);
  if (filter == nullptr) return InvalidInput("No filter named '" + name + "'.");
  const Args rest = Rest(all, 1);
  const Runtime::Depth depth(&rt);
  if (!depth.ok()) return rt.DepthError();
  return Lazily(rt, self, [&](const Value& item, std::vector<Value>* out) -> Result<void> {
    HONE_TRY(Value value, rt.CallFunction(*filter, item, rest));
    out->push_back(std::move(value));
    return {};
  });
}

Result<Value> Default(Runtime& rt, const Value& self, const Bound& args) {
  const bool boolean = args.Has(1) && rt.Truth(args[1]);
  if (!self.is_undefined() && !(boolean && !rt.Truth(self))) return self;
  return args.Has(0) ? args[0] : Value::String("");
}

Result<Value> Attr(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const std::string name, rt.Str(args[0]));
  bool found = false;
  return rt.OnlyAttr(self, name, &found);
}

constexpr Function kSelectFilters[] = {
    {"attr", "name", 1, Attr},
    {"d", "default_value boolean", 0, Default},
    {"default", "default_value boolean", 0, Default},
    {"map", "*", 0, Map},
    {"reject", "*", 0, RejectItems},
    {"rejectattr", "*", 0, RejectAttr},
    {"select", "*", 0, SelectItems},
    {"selectattr", "*", 0, SelectAttr},
};

}  // namespace

std::span<const Function> SelectFilters() { return kSelectFilters; }

}  // namespace hone::jinja
