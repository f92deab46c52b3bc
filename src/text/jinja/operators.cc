// Python's truth, comparison, membership and arithmetic on values.
#include <cmath>
#include <cstring>

#include "text/jinja/runtime.h"

namespace hone::jinja {
namespace {

constexpr std::string_view kOpNames[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
std::string_view OpName(ExprKind op) { return kOpNames[static_cast<size_t>(op) - static_cast<size_t>(ExprKind::kAdd)]; }

Error Overflow() { return ValueError("integer result does not fit 64 bits"); }

Error UnsupportedOperands(ExprKind op, const Value& a, const Value& b) {
  return TypeError("unsupported operand type(s) for " + std::string(OpName(op)) + ": '" + TypeName(a) + "' and '" + TypeName(b) + "'");
}

// Longer than a double: every int64 and double is exact in it.
long double Exact(const Value& v) {
  return v.is(Kind::kFloat) ? static_cast<long double>(v.as_double()) : static_cast<long double>(v.as_int());
}

bool IsSequence(const Value& v) { return v.is(Kind::kList) || v.is(Kind::kTuple); }

Result<Value> IntPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return ValueError("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

Result<Value> IntArithmetic(ExprKind op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case ExprKind::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case ExprKind::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case ExprKind::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return Value::Int(result);
    case ExprKind::kDiv:
      if (b == 0) return ValueError("division by zero");
      return Value::Float(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: {
      if (b == 0) return ValueError(op == ExprKind::kMod ? "integer modulo by zero" : "integer division or modulo by zero");
      if (b == -1) {  // the one overflow of division
        if (op == ExprKind::kMod) return Value::Int(0);
        if (__builtin_sub_overflow(int64_t{0}, a, &result)) return Overflow();
        return Value::Int(result);
      }
      const int64_t remainder = a % b;
      const bool adjust = remainder != 0 && (remainder < 0) != (b < 0);
      return Value::Int(op == ExprKind::kMod ? remainder + (adjust ? b : 0) : a / b - (adjust ? 1 : 0));
    }
    default:
      return IntPower(a, b);
  }
}

Result<Value> FloatArithmetic(ExprKind op, double a, double b) {
  switch (op) {
    case ExprKind::kAdd: return Value::Float(a + b);
    case ExprKind::kSub: return Value::Float(a - b);
    case ExprKind::kMul: return Value::Float(a * b);
    case ExprKind::kDiv:
      if (b == 0) return ValueError("float division by zero");
      return Value::Float(a / b);
    case ExprKind::kFloorDiv:
    case ExprKind::kMod: {
      if (b == 0) return ValueError(op == ExprKind::kMod ? "float modulo" : "float floor division by zero");
      double remainder = std::fmod(a, b);
      double quotient = (a - remainder) / b;
      if (remainder != 0 && (remainder < 0) != (b < 0)) {
        remainder += b;
        quotient -= 1;
      }
      if (op == ExprKind::kMod) return Value::Float(remainder == 0 ? std::copysign(0.0, b) : remainder);
      double floored = std::floor(quotient);
      if (quotient - floored > 0.5) floored += 1;
      return Value::Float(quotient == 0 ? std::copysign(0.0, a / b) : floored);
    }
    default: {
      if (a == 0 && b < 0) return ValueError("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) return ValueError("complex results are not supported");
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return ValueError("(34, 'Numerical result out of range')");
      return Value::Float(result);
    }
  }
}

Result<Value> Repeat(Runtime& rt, const Value& sequence, int64_t count) {
  const uint64_t times = count > 0 ? static_cast<uint64_t>(count) : 0;
  if (sequence.is_string()) {
    const std::string& text = sequence.as_string();
    if (!text.empty() && times > kMaxStringBytes / text.size()) HONE_RETURN_IF_ERROR(rt.CheckBytes(kMaxStringBytes + 1));
    HONE_RETURN_IF_ERROR(rt.CheckBytes(text.size() * times));
    std::string out;
    out.reserve(text.size() * times);
    if (!text.empty()) {
      for (uint64_t i = 0; i < times; ++i) out += text;
    }
    return sequence.is_markup() ? Value::Markup(std::move(out)) : Value::String(std::move(out));
  }
  const std::vector<Value>& items = sequence.items();
  if (!items.empty() && times > kMaxItems / items.size()) HONE_RETURN_IF_ERROR(rt.CheckItems(kMaxItems + 1));
  HONE_RETURN_IF_ERROR(rt.CheckItems(items.size() * times));
  std::vector<Value> out;
  out.reserve(items.size() * times);
  if (!items.empty()) {
    for (uint64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  }
  return sequence.is(Kind::kList) ? rt.List(std::move(out)) : rt.Tuple(std::move(out));
}

Result<Value> Add(Runtime& rt, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    HONE_RETURN_IF_ERROR(rt.CheckBytes(a.as_string().size() + b.as_string().size()));
    if (a.is_markup() != b.is_markup()) {
      return Value::Markup((a.is_markup() ? a.as_string() : HtmlEscape(a.as_string())) +
                           (b.is_markup() ? b.as_string() : HtmlEscape(b.as_string())));
    }
    std::string text = a.as_string() + b.as_string();
    return a.is_markup() ? Value::Markup(std::move(text)) : Value::String(std::move(text));
  }
  if (a.is_string()) return TypeError("can only concatenate str (not \"" + TypeName(b) + "\") to str");
  if (IsSequence(a)) {
    if (a.kind() != b.kind()) {
      return TypeError("can only concatenate " + TypeName(a) + " (not \"" + TypeName(b) + "\") to " + TypeName(a));
    }
    HONE_RETURN_IF_ERROR(rt.CheckItems(a.items().size() + b.items().size()));
    std::vector<Value> out = a.items();
    out.insert(out.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? rt.List(std::move(out)) : rt.Tuple(std::move(out));
  }
  return UnsupportedOperands(ExprKind::kAdd, a, b);
}

}  // namespace

bool Runtime::Truth(const Value& value) const {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.as_bool();
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_double() != 0;
    case Kind::kString: return !value.as_string().empty();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: return !value.items().empty();
    case Kind::kDict: return value.as_dict().size() != 0;
    case Kind::kLoop: return !value.as<LoopObject>().items.items().empty();
    default: return true;
  }
}

Result<bool> Runtime::Equal(const Value& a, const Value& b) {
  const Depth depth(this);
  if (!depth.ok()) return DepthError();
  HONE_RETURN_IF_ERROR(Step());
  if (a.is_number() && b.is_number()) {
    if (a.object() != nullptr && b.object() != nullptr) return a.as<StringObject>().text() == b.as<StringObject>().text();
    return Exact(a) == Exact(b);
  }
  if (a.kind() != b.kind()) return false;
  if (a.object() == b.object() && a.object() != nullptr) return true;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return true;
    case Kind::kString:
      HONE_RETURN_IF_ERROR(ChargeBytes(std::min(a.as_string().size(), b.as_string().size())));
      return a.as_string() == b.as_string();
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView: {
      if (a.items().size() != b.items().size()) return false;
      for (size_t i = 0; i < a.items().size(); ++i) {
        HONE_TRY(const bool equal, Equal(a.items()[i], b.items()[i]));
        if (!equal) return false;
      }
      return true;
    }
    case Kind::kDict: {
      if (a.as_dict().size() != b.as_dict().size()) return false;
      for (const auto& [key, value] : a.as_dict().entries()) {
        const Value* other = b.as_dict().Find(key);
        if (other == nullptr) return false;
        HONE_TRY(const bool equal, Equal(value, *other));
        if (!equal) return false;
      }
      return true;
    }
    default: return false;
  }
}

Result<bool> Runtime::Less(const Value& a, const Value& b, std::string_view op) {
  const Depth depth(this);
  if (!depth.ok()) return DepthError();
  HONE_RETURN_IF_ERROR(Step());
  // a < b is all that is asked: callers swap and negate. `or_equal` decides equal numbers and prefixes.
  const bool or_equal = op == "<=" || op == ">=";
  const bool swapped = op == ">" || op == ">=";
  const Value& x = swapped ? b : a;
  const Value& y = swapped ? a : b;
  if (a.is_number() && b.is_number()) return or_equal ? Exact(x) <= Exact(y) : Exact(x) < Exact(y);
  if (a.is_string() && b.is_string()) {
    HONE_RETURN_IF_ERROR(ChargeBytes(std::min(a.as_string().size(), b.as_string().size())));
    const int order = x.as_string().compare(y.as_string());
    return or_equal ? order <= 0 : order < 0;
  }
  if (IsSequence(a) && a.kind() == b.kind()) {
    const auto &left = a.items(), &right = b.items();
    for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
      HONE_TRY(const bool equal, Equal(left[i], right[i]));
      if (!equal) return Less(left[i], right[i], op);
    }
    const size_t m = x.items().size(), n = y.items().size();
    return or_equal ? m <= n : m < n;
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  return TypeError("'" + std::string(op) + "' not supported between instances of '" + TypeName(a) + "' and '" + TypeName(b) + "'");
}

Result<bool> Runtime::Compare(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq: return Equal(a, b);
    case CompareOp::kNe: {
      HONE_TRY(const bool equal, Equal(a, b));
      return !equal;
    }
    case CompareOp::kLt: return Less(a, b, "<");
    case CompareOp::kLe: return Less(a, b, "<=");
    case CompareOp::kGt: return Less(a, b, ">");
    case CompareOp::kGe: return Less(a, b, ">=");
    case CompareOp::kIn: return Contains(b, a);
    case CompareOp::kNotIn: {
      HONE_TRY(const bool contains, Contains(b, a));
      return !contains;
    }
  }
  return false;
}

Result<bool> Runtime::Contains(const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) return TypeError("'in <string>' requires string as left operand, not " + TypeName(item));
    const std::string &text = container.as_string(), &needle = item.as_string();
    HONE_RETURN_IF_ERROR(ChargeBytes(text.size()));
    return text.size() >= needle.size() &&
           (needle.empty() || memmem(text.data(), text.size(), needle.data(), needle.size()) != nullptr);
  }
  if (container.is(Kind::kDict)) {
    if (!IsHashable(item) && !item.is_undefined()) return TypeError("unhashable type: '" + TypeName(item) + "'");
    return IsHashable(item) && container.as_dict().Find(item) != nullptr;
  }
  if (container.is(Kind::kList) || container.is(Kind::kTuple) || container.is(Kind::kView)) {
    for (const Value& element : container.items()) {
      HONE_TRY(const bool equal, Equal(element, item));
      if (equal) return true;
    }
    return false;
  }
  if (container.is(Kind::kGenerator)) {
    GeneratorObject& generator = container.as<GeneratorObject>();
    while (generator.next < generator.items.size()) {
      HONE_TRY(const bool equal, Equal(generator.items[generator.next++], item));
      if (equal) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return TypeError("argument of type '" + TypeName(container) + "' is not iterable");
}

Result<Value> Runtime::Arithmetic(ExprKind op, const Value& a, const Value& b) {
  HONE_RETURN_IF_ERROR(Step());
  if (op == ExprKind::kMod && a.is_string()) {
    HONE_TRY(std::string text, PercentFormat(*this, a.as_string(), b));
    return a.is_markup() ? Value::Markup(std::move(text)) : Value::String(std::move(text));
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return IntArithmetic(op, a.as_int(), b.as_int());
    return FloatArithmetic(op, a.as_double(), b.as_double());
  }
  if (op == ExprKind::kAdd) return Add(*this, a, b);
  if (op == ExprKind::kMul) {
    const auto repeats = [](const Value& v) { return v.is_string() || IsSequence(v); };
    if (repeats(a) && b.is_integral()) return Repeat(*this, a, b.as_int());
    if (repeats(b) && a.is_integral()) return Repeat(*this, b, a.as_int());
    if (repeats(a)) return TypeError("can't multiply sequence by non-int of type '" + TypeName(b) + "'");
    if (repeats(b)) return TypeError("can't multiply sequence by non-int of type '" + TypeName(a) + "'");
  }
  return UnsupportedOperands(op, a, b);
}

Result<Value> Runtime::Negate(const Value& value, bool plus) {
  HONE_RETURN_IF_ERROR(Step());
  if (value.is_undefined()) return UndefinedError(value);
  if (!value.is_number()) return TypeError(std::string("bad operand type for unary ") + (plus ? "+" : "-") + ": '" + TypeName(value) + "'");
  if (value.is(Kind::kFloat)) return plus ? value : Value::Float(-value.as_double());
  if (plus) return Value::Int(value.as_int());
  return IntArithmetic(ExprKind::kSub, 0, value.as_int());
}

Result<Value> Runtime::Concat(const std::vector<Value>& values) {
  // Nothing is escaped: chat templates render without autoescape.
  std::string out;
  for (const Value& value : values) {
    HONE_TRY(const std::string text, Str(value));
    out += text;
    if (out.size() > kMaxStringBytes) HONE_RETURN_IF_ERROR(CheckBytes(out.size()));
  }
  HONE_RETURN_IF_ERROR(ChargeBytes(out.size()));
  return Value::String(std::move(out));
}

}  // namespace hone::jinja
