// Tests: what stands after `is`.
#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {
namespace {

Value Bool(bool value) { return Value::Bool(value); }

template <Kind kKind>
Result<Value> IsKind(Runtime&, const Value& self, const Bound&) { return Bool(self.is(kKind)); }

template <CompareOp kOp>
Result<Value> Compares(Runtime& rt, const Value& self, const Bound& args) {
  HONE_TRY(const bool holds, rt.Compare(kOp, self, args[0]));
  return Bool(holds);
}

Result<Value> Defined(Runtime&, const Value& self, const Bound&) { return Bool(!self.is_undefined()); }
Result<Value> Number(Runtime&, const Value& self, const Bound&) { return Bool(self.is_number()); }
Result<Value> Integer(Runtime&, const Value& self, const Bound&) {
  return Bool(self.is(Kind::kInt) || (self.is(Kind::kFloat) && self.object() != nullptr));
}
Result<Value> Float(Runtime&, const Value& self, const Bound&) { return Bool(self.is(Kind::kFloat) && self.object() == nullptr); }
Result<Value> True(Runtime&, const Value& self, const Bound&) { return Bool(self.is(Kind::kBool) && self.as_bool()); }
Result<Value> False(Runtime&, const Value& self, const Bound&) { return Bool(self.is(Kind::kBool) && !self.as_bool()); }
Result<Value> Escaped(Runtime&, const Value& self, const Bound&) { return Bool(self.is_markup()); }

Result<Value> Callable(Runtime&, const Value& self, const Bound&) {
  return Bool(self.is(Kind::kCallable) || self.is(Kind::kLoop) || self.is_undefined());
}

Result<Value> Iterable(Runtime&, const Value& self, const Bound&) {
  return Bool(!self.is_none() && !self.is_number() && !self.is(Kind::kNamespace) && !self.is(Kind::kCallable) && !self.is(Kind::kCycler));
}

// What has a length and [ ].
Result<Value> Sequence(Runtime&, const Value& self, const Bound&) {
  const bool is_range = self.is(Kind::kView) && TypeName(self) == "range";
  return Bool(self.is_string() || self.is(Kind::kList) || self.is(Kind::kTuple) || self.is(Kind::kDict) || is_range || self.is_undefined());
}

Result<Value> Modulo(Runtime& rt, const Value& self, const Value& divisor, int64_t wanted) {
  HONE_TRY(const Value rest, rt.Arithmetic(ExprKind::kMod, self, divisor));
  HONE_TRY(const bool equal, rt.Equal(rest, Value::Int(wanted)));
  return Bool(equal);
}
Result<Value> Odd(Runtime& rt, const Value& self, const Bound&) { return Modulo(rt, self, Value::Int(2), 1); }
Result<Value> Even(Runtime& rt, const Value& self, const Bound&) { return Modulo(rt, self, Value::Int(2), 0); }
Result<Value> DivisibleBy(Runtime& rt, const Value& self, const Bound& args) { return Modulo(rt, self, args[0], 0); }

// str.islower() and isupper(): cased characters exist and all are of that case.
Result<Value> HasCase(Runtime& rt, const Value& self, bool lower) {
  HONE_TRY(const std::string text, rt.Str(self));
  bool any = false;
  for (size_t position = 0; position < text.size();) {
    const uint32_t c = NextCodePoint(text, &position);
    if (IsTitle(c) || (lower ? IsUpper(c) : IsLower(c))) return Bool(false);
    any |= lower ? IsLower(c) : IsUpper(c);
  }
  return Bool(any);
}
Result<Value> Lower(Runtime& rt, const Value& self, const Bound&) { return HasCase(rt, self, true); }
Result<Value> Upper(Runtime& rt, const Value& self, const Bound&) { return HasCase(rt, self, false); }

// Python's `is`, where small values of one kind are one object.
Result<Value> SameAs(Runtime& rt, const Value& self, const Bound& args) {
  const Value& other = args[0];
  if (self.kind() != other.kind()) return Bool(false);
  if (self.object() != nullptr && !self.is_string()) return Bool(self.object() == other.object());
  HONE_TRY(const bool equal, rt.Equal(self, other));
  return Bool(equal);
}

Result<Value> IsFilter(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const std::string name, rt.Str(self));
  return Bool(FindFilter(name) != nullptr);
}
Result<Value> IsTest(Runtime& rt, const Value& self, const Bound&) {
  HONE_TRY(const std::string name, rt.Str(self));
  return Bool(FindTest(name) != nullptr);
}

constexpr Function kTests[] = {
    {"!=", "b", 1, Compares<CompareOp::kNe>},
    {"<", "b", 1, Compares<CompareOp::kLt>},
    {"<=", "b", 1, Compares<CompareOp::kLe>},
    {"==", "b", 1, Compares<CompareOp::kEq>},
    {">", "b", 1, Compares<CompareOp::kGt>},
    {">=", "b", 1, Compares<CompareOp::kGe>},
    {"boolean", "", 0, IsKind<Kind::kBool>},
    {"callable", "", 0, Callable},
    {"defined", "", 0, Defined},
    {"divisibleby", "num", 1, DivisibleBy},
    {"eq", "b", 1, Compares<CompareOp::kEq>},
    {"equalto", "b", 1, Compares<CompareOp::kEq>},
    {"escaped", "", 0, Escaped},
    {"even", "", 0, Even},
    {"false", "", 0, False},
    {"filter", "", 0, IsFilter},
    {"float", "", 0, Float},
    {"ge", "b", 1, Compares<CompareOp::kGe>},
    {"greaterthan", "b", 1, Compares<CompareOp::kGt>},
    {"gt", "b", 1, Compares<CompareOp::kGt>},
    {"in", "seq", 1, Compares<CompareOp::kIn>},
    {"integer", "", 0, Integer},
    {"iterable", "", 0, Iterable},
    {"le", "b", 1, Compares<CompareOp::kLe>},
    {"lessthan", "b", 1, Compares<CompareOp::kLt>},
    {"lower", "", 0, Lower},
    {"lt", "b", 1, Compares<CompareOp::kLt>},
    {"mapping", "", 0, IsKind<Kind::kDict>},
    {"ne", "b", 1, Compares<CompareOp::kNe>},
    {"none", "", 0, IsKind<Kind::kNone>},
    {"number", "", 0, Number},
    {"odd", "", 0, Odd},
    {"sameas", "other", 1, SameAs},
    {"sequence", "", 0, Sequence},
    {"string", "", 0, IsKind<Kind::kString>},
    {"test", "", 0, IsTest},
    {"true", "", 0, True},
    {"undefined", "", 0, IsKind<Kind::kUndefined>},
    {"upper", "", 0, Upper},
};

}  // namespace

std::span<const Function> Tests() { return kTests; }

}  // namespace hone::jinja
