// Filters on numbers and those that read numbers from text.
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/jinja/runtime.h"
#include "text/jinja/unicode.h"

namespace hone::jinja {

// Text as int(text, base) and float(text) read it: blanks around, a sign, single underscores between digits.
std::optional<std::string> CleanNumber(std::string_view text) {
  text = StripRight(StripLeft(text));
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto digit = [&](size_t at) { return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0); };
    if (i == 0 || !digit(i - 1) || !digit(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<int64_t> ParseInt(std::string_view text, int64_t base) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean || (base != 0 && (base < 2 || base > 36))) return std::nullopt;
  std::string_view digits = *clean;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  if (digits.size() > 2 && digits[0] == '0') {
    const char kind = static_cast<char>(digits[1] | 0x20);
    const int64_t prefixed = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == 0 || base == prefixed)) {
      base = prefixed;
      digits.remove_prefix(2);
    }
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::nullopt;
  const std::string signed_text = (negative ? "-" : "") + std::string(digits);
  int64_t value = 0;
  const char* end = signed_text.data() + signed_text.size();
  const auto [stop, error] = std::from_chars(signed_text.data(), end, value, static_cast<int>(base == 0 ? 10 : base));
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean || clean->empty()) return std::nullopt;
  const std::string lower = ToLower(*clean);
  const std::string_view unsigned_text = std::string_view(lower).substr(lower[0] == '-' || lower[0] == '+' ? 1 : 0);
  const bool word = unsigned_text == "inf" || unsigned_text == "infinity" || unsigned_text == "nan";
  if (!word && lower.find_first_not_of("0123456789+-.e") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(lower.c_str(), &end);
  if (end != lower.c_str() + lower.size() || end == lower.c_str()) return std::nullopt;
  return value;
}

namespace {

Result<Value> ToInt(Runtime&, const Value& self, const Bound& args) {
  const Value fallback = args.Has(0) ? args[0] : Value::Int(0);
  if (self.is_undefined()) return UndefinedError(self);
  double number = 0;
  if (self.is_integral()) return Value::Int(self.as_int());
  if (self.is(Kind::kFloat)) {
    number = self.as_double();
    if (std::isinf(number)) return ValueError("cannot convert float infinity to integer");
  } else if (self.is_string()) {
    const int64_t base = args.Has(1) && args[1].is_integral() ? args[1].as_int() : 10;
    if (const auto value = ParseInt(self.as_string(), base)) return Value::Int(*value);
    const auto value = ParseFloat(self.as_string());
    if (!value) return fallback;
    number = *value;
  } else {
    return fallback;
  }
  if (std::isnan(number) || std::isinf(number)) return fallback;
  if (std::fabs(number) >= 9.2e18) return ValueError("integer result does not fit 64 bits");
  return Value::Int(static_cast<int64_t>(number));
}

Result<Value> ToFloat(Runtime&, const Value& self, const Bound& args) {
  if (self.is_undefined()) return UndefinedError(self);
  if (self.is_number()) return Value::Float(self.as_double());
  if (self.is_string()) {
    if (const auto value = ParseFloat(self.as_string())) return Value::Float(*value);
  }
  return args.Has(0) ? args[0] : Value::Float(0);
}

Result<Value> Abs(Runtime& rt, const Value& self, const Bound&) {
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is_number()) return TypeError("bad operand type for abs(): '" + TypeName(self) + "'");
  if (self.is(Kind::kFloat)) return Value::Float(std::fabs(self.as_double()));
  return self.as_int() < 0 ? rt.Negate(self, false) : Result<Value>(Value::Int(self.as_int()));
}

// Python's round(): to the nearest, ties to even, decided on the exact binary value.
double RoundTo(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits >= 0) return std::strtod(FixedFloat(value, static_cast<int>(digits)).c_str(), nullptr);
  if (digits < -308) return std::copysign(0.0, value);
  const double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / scale) * scale;
}

Result<Value> Round(Runtime& rt, const Value& self, const Bound& args) {
  const int64_t digits = args.Has(0) && args[0].is_integral() ? args[0].as_int() : 0;
  const std::string method = args.Has(1) && args[1].is_string() ? args[1].as_string() : "common";
  if (method != "common" && method != "ceil" && method != "floor") return ValueError("method must be common, ceil or floor");
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is_number()) return TypeError("type " + TypeName(self) + " doesn't define __round__ method");
  if (digits > 308 || digits < -308) return ValueError("round: too many digits");
  if (method == "common") {
    if (self.is(Kind::kFloat)) return Value::Float(RoundTo(self.as_double(), digits));
    if (digits >= 0) return Value::Int(self.as_int());
    const double rounded = RoundTo(self.as_double(), digits);
    return Value::Int(static_cast<int64_t>(rounded));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.as_double() * scale;
  if (!std::isfinite(scaled)) return ValueError("cannot convert float to integer");
  return rt.Arithmetic(ExprKind::kDiv, Value::Float(method == "ceil" ? std::ceil(scaled) : std::floor(scaled)), Value::Float(scale));
}

Result<Value> FileSize(Runtime&, const Value& self, const Bound& args) {
  if (self.is_undefined()) return UndefinedError(self);
  std::optional<double> bytes;
  if (self.is_number()) bytes = self.as_double();
  if (self.is_string()) bytes = ParseFloat(self.as_string());
  if (!bytes) return ValueError("filesizeformat needs a number, not " + TypeName(self));
  const bool binary = args.Has(0) && args[0].is(Kind::kBool) && args[0].as_bool();
  const double base = binary ? 1024 : 1000;
  if (*bytes == 1) return Value::String("1 Byte");
  if (*bytes < base) return Value::String(FixedFloat(std::trunc(*bytes), 0) + " Bytes");
  constexpr std::string_view kLetters = "kMGTPEZY";
  double unit = base;
  for (size_t i = 0; i < kLetters.size(); ++i) {
    unit *= base;
    if (*bytes >= unit && i + 1 < kLetters.size()) continue;
    std::string letter(1, kLetters[i]);
    if (binary) letter = (i == 0 ? "K" : letter) + "i";
    return Value::String(FixedFloat(base * *bytes / unit, 1) + " " + letter + "B");
  }
  return Value();
}

constexpr Function kNumberFilters[] = {
    {"abs", "", 0, Abs},
    {"filesizeformat", "binary", 0, FileSize},
    {"float", "default", 0, ToFloat},
    {"int", "default base", 0, ToInt},
    {"round", "precision method", 0, Round},
};

}  // namespace

std::span<const Function> NumberFilters() { return kNumberFilters; }

}  // namespace hone::jinja
