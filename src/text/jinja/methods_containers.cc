// Methods of list, tuple, dict and numbers. Those that would change their object do not exist: the sandbox forbids them.
#include <cmath>

#include "text/jinja/runtime.h"

namespace hone::jinja {
namespace {

Result<Value> Index(Runtime& rt, const Value& self, const Bound& args) {
  const auto& items = self.items();
  int64_t begin = 0, end = static_cast<int64_t>(items.size());
  for (size_t i = 1; i <= 2; ++i) {
    if (!args.Has(i)) continue;
    HONE_TRY(int64_t bound, rt.AsIndex(args[i], ""));
    if (bound < 0) bound = std::max<int64_t>(0, bound + static_cast<int64_t>(items.size()));
    (i == 1 ? begin : end) = std::min(bound, static_cast<int64_t>(items.size()));
  }
  for (int64_t i = begin; i < end; ++i) {
    HONE_TRY(const bool equal, rt.Equal(items[static_cast<size_t>(i)], args[0]));
    if (equal) return Value::Int(i);
  }
  if (self.is(Kind::kTuple)) return ValueError("tuple.index(x): x not in tuple");
  HONE_TRY(const std::string text, rt.Repr(args[0]));
  return ValueError(text + " is not in list");
}

Result<Value> Count(Runtime& rt, const Value& self, const Bound& args) {
  int64_t count = 0;
  for (const Value& item : self.items()) {
    HONE_TRY(const bool equal, rt.Equal(item, args[0]));
    count += equal;
  }
  return Value::Int(count);
}

Result<Value> Copy(Runtime&, const Value& self, const Bound&) { return self; }

constexpr Function kListMethods[] = {
    {"copy", "", 0, Copy},
    {"count", "value", 1, Count},
    {"index", "value start stop", 1, Index},
};

Result<Value> Items(Runtime& rt, const Value& self, const Bound&) {
  HONE_RETURN_IF_ERROR(rt.CheckItems(self.as_dict().size()));
  std::vector<Value> items;
  items.reserve(self.as_dict().size());
  for (const auto& [key, value] : self.as_dict().entries()) {
    HONE_TRY(Value pair, rt.Tuple({key, value}));
    items.push_back(std::move(pair));
  }
  Value view = Value::View("dict_items", std::move(items));
  HONE_RETURN_IF_ERROR(rt.CheckDepth(view));
  return view;
}

Result<Value> Keys(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(std::vector<Value> keys, rt.Iterate(self));
  return Value::View("dict_keys", std::move(keys));
}

Result<Value> Values(Runtime& rt, const Value& self, const Bound&) {
  HONE_RETURN_IF_ERROR(rt.CheckItems(self.as_dict().size()));
  std::vector<Value> values;
  values.reserve(self.as_dict().size());
  for (const auto& [key, value] : self.as_dict().entries()) values.push_back(value);
  return Value::View("dict_values", std::move(values));
}

Result<Value> Get(Runtime&, const Value& self, const Bound& args) {
  const Value fallback = args.Has(1) ? args[1] : Value::None();
  if (args[0].is_undefined()) return fallback;
  if (!IsHashable(args[0])) return TypeError("unhashable type: '" + TypeName(args[0]) + "'");
  const Value* value = self.as_dict().Find(args[0]);
  return value != nullptr ? *value : fallback;
}

Result<Value> FromKeys(Runtime& rt, const Value&, const Bound& args) {
  HONE_TRY(const std::vector<Value> keys, rt.Iterate(args[0]));
  auto dict = std::make_shared<Dict>();
  for (const Value& key : keys) HONE_RETURN_IF_ERROR(rt.SetKey(dict.get(), key, args.Has(1) ? args[1] : Value::None()));
  return Value::FromDict(std::move(dict));
}

constexpr Function kDictMethods[] = {
    {"copy", "", 0, Copy},
    {"fromkeys", "iterable value", 1, FromKeys},
    {"get", "key default", 1, Get},
    {"items", "", 0, Items},
    {"keys", "", 0, Keys},
    {"values", "", 0, Values},
};

Result<Value> IsInteger(Runtime&, const Value& self, const Bound&) {
  const double value = self.as_double();
  return Value::Bool(std::isfinite(value) && value == std::floor(value));
}

Result<Value> BitLength(Runtime&, const Value& self, const Bound&) {
  if (!self.is_integral()) return TypeError("'float' object has no attribute 'bit_length'");
  const int64_t value = self.as_int();
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  return Value::Int(magnitude == 0 ? 0 : 64 - __builtin_clzll(magnitude));
}

Result<Value> Conjugate(Runtime&, const Value& self, const Bound&) {
  return self.is_integral() ? Value::Int(self.as_int()) : self;
}

constexpr Function kNumberMethods[] = {
    {"bit_length", "", 0, BitLength},
    {"conjugate", "", 0, Conjugate},
    {"is_integer", "", 0, IsInteger},
};

}  // namespace

std::span<const Function> ListMethods() { return kListMethods; }
std::span<const Function> DictMethods() { return kDictMethods; }
std::span<const Function> NumberMethods() { return kNumberMethods; }

}  // namespace hone::jinja
