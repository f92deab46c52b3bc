// A number is a sign and a magnitude; magnitudes are compared digit by digit. A state knows its place and whether the digits so far
// are those of the lower bound, of the upper one, of both or of neither ("tight").
#include "serve/structured/number_grammar.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace hone {
namespace {

// Magnitudes from `least` to `most` (none: no end).
struct Span {
  Decimal least;
  std::optional<Decimal> most;
  bool least_open = false, most_open = false;
};

class Magnitudes {
 public:
  Magnitudes(GrammarBuilder& builder, const Span& span, bool integer, int end)
      : builder_(builder), span_(span), integer_(integer), end_(end) {}

  void Add(int from) {
    const int shortest = static_cast<int>(span_.least.whole.size());
    const int longest = span_.most ? static_cast<int>(span_.most->whole.size()) : kMaxNumberDigits;
    for (int size = shortest; size <= longest; ++size) {
      const bool low = size == shortest, high = span_.most && size == longest;
      size_ = size;
      whole_.clear();
      Whole(from, 0, low, high);
    }
  }

 private:
  static int DigitAt(const std::string& digits, int at) { return at < static_cast<int>(digits.size()) ? digits[at] - '0' : 0; }

  // The digits that may follow where the bounds' next ones are `least` and `most`; `next` gives the state after one.
  template <typename Next>
  void Digits(int from, int first, bool low, int least, bool high, int most, Next next) {
    for (int digit = std::max(first, low ? least : 0); digit <= (high ? most : 9); ++digit) {
      const auto c = static_cast<uint8_t>('0' + digit);
      builder_.Bytes(from, c, c, next(low && digit == least, high && digit == most));
    }
  }

  void Whole(int from, int at, bool low, bool high) {
    const int least = DigitAt(span_.least.whole, at), most = span_.most ? DigitAt(span_.most->whole, at) : 9;
    Digits(from, at == 0 && size_ > 1 ? 1 : 0, low, least, high, most, [&](bool still_low, bool still_high) {
      const auto [it, added] = whole_.emplace(std::tuple(at + 1, still_low, still_high), 0);
      if (!added) return it->second;
      const int state = it->second = builder_.AddState();
      if (at + 1 < size_) Whole(state, at + 1, still_low, still_high);
      else Point(state, still_low, still_high);
      return state;
    });
  }

  void Point(int from, bool low, bool high) {
    EndHere(from, 0, low, high);
    if (integer_) return;
    const int to = builder_.AddState();
    builder_.Bytes(from, '.', '.', to);
    Fraction(to, 0, low, high);
  }

  void Fraction(int from, int at, bool low, bool high) {
    if (at == kMaxNumberDigits) return;
    const int least = DigitAt(span_.least.fraction, at), most = span_.most ? DigitAt(span_.most->fraction, at) : 9;
    Digits(from, 0, low, least, high, most, [&](bool still_low, bool still_high) {
      const auto [it, added] = fraction_.emplace(std::tuple(at + 1, still_low, still_high), 0);
      if (!added) return it->second;
      const int state = it->second = builder_.AddState();
      EndHere(state, at + 1, still_low, still_high);
      Fraction(state, at + 1, still_low, still_high);
      return state;
    });
  }

  // After `at` digits of the fraction: is the number, if it ends here, between the bounds?
  void EndHere(int from, int at, bool low, bool high) {
    const bool at_least = !low || (at >= static_cast<int>(span_.least.fraction.size()) && !span_.least_open);
    const bool at_most = !high || at < static_cast<int>(span_.most->fraction.size()) || !span_.most_open;
    if (at_least && at_most) builder_.Empty(from, end_);
  }

  GrammarBuilder& builder_;
  const Span& span_;
  const bool integer_;
  const int end_;
  int size_ = 0;
  std::map<std::tuple<int, bool, bool>, int> whole_, fraction_;
};

bool Less(const Decimal& a, const Decimal& b) {  // of magnitudes
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size();
  return std::tie(a.whole, a.fraction) < std::tie(b.whole, b.fraction);
}

void AddSpan(GrammarBuilder& builder, int from, const Span& span, bool integer, int end) {
  if (span.most && Less(*span.most, span.least)) return;
  Magnitudes(builder, span, integer, end).Add(from);
}

// One to `most` digits, from `from` on; the state after each is put into `ends`.
void SomeDigits(GrammarBuilder& builder, int from, uint8_t first, int most, std::vector<int>* ends) {
  for (int i = 0; i < most; ++i, first = '0') {
    const int to = builder.AddState();
    builder.Bytes(from, first, '9', to);
    ends->push_back(to);
    from = to;
  }
}

GrammarBuilder::Rule AddAnyNumber(GrammarBuilder& builder, bool integer) {
  const GrammarBuilder::Rule rule = builder.AddRule();
  const int unsigned_part = builder.AddState(), after_whole = builder.AddState();
  builder.Empty(rule.start, unsigned_part);
  builder.Bytes(rule.start, '-', '-', unsigned_part);
  builder.Bytes(unsigned_part, '0', '0', after_whole);
  std::vector<int> ends;
  SomeDigits(builder, unsigned_part, '1', kMaxNumberDigits, &ends);
  for (const int state : ends) builder.Empty(state, after_whole);
  builder.Empty(after_whole, rule.end);
  if (integer) return rule;
  const int after_fraction = builder.AddState();
  builder.Empty(after_whole, after_fraction);
  ends.clear();
  SomeDigits(builder, builder.Text(after_whole, "."), '0', kMaxNumberDigits, &ends);
  for (const int state : ends) builder.Empty(state, after_fraction);
  builder.Empty(after_fraction, rule.end);
  const int exponent = builder.AddState(), signed_exponent = builder.AddState();
  for (const uint8_t e : {'e', 'E'}) builder.Bytes(after_fraction, e, e, exponent);
  builder.Empty(exponent, signed_exponent);
  for (const uint8_t sign : {'+', '-'}) builder.Bytes(exponent, sign, sign, signed_exponent);
  ends.clear();
  SomeDigits(builder, signed_exponent, '0', 2, &ends);
  for (const int state : ends) builder.Empty(state, rule.end);
  return rule;
}

}  // namespace

Result<Decimal> ParseDecimal(std::string_view text) {
  Decimal result;
  const std::string_view all = text;
  if (text.starts_with("-")) result.negative = true, text.remove_prefix(1);
  int exponent = 0;
  if (const size_t e = text.find_first_of("eE"); e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    const bool negative = digits.starts_with("-");
    digits.remove_prefix(digits.starts_with("-") || digits.starts_with("+") ? 1 : 0);
    for (const char c : digits) exponent = std::min(exponent * 10 + (c - '0'), 1000);
    if (negative) exponent = -exponent;
    text = text.substr(0, e);
  }
  const size_t point = std::min(text.find('.'), text.size());
  std::string digits(text.substr(0, point));
  if (point < text.size()) digits += text.substr(point + 1);
  int before = static_cast<int>(point) + exponent;  // digits before the point
  if (before < 0) digits.insert(0, static_cast<size_t>(-before), '0'), before = 0;
  if (before > static_cast<int>(digits.size())) digits.append(static_cast<size_t>(before) - digits.size(), '0');
  result.whole = digits.substr(0, static_cast<size_t>(before));
  result.fraction = digits.substr(static_cast<size_t>(before));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole = "0";
  while (result.fraction.ends_with('0')) result.fraction.pop_back();
  if (result.whole.size() > kMaxNumberDigits || result.fraction.size() > kMaxNumberDigits) {
    return Unsupported(std::string(all.substr(0, 40)) + ": bounds have at most " + std::to_string(kMaxNumberDigits) +
                       " digits before and behind the point");
  }
  return result;
}

GrammarBuilder::Rule AddNumber(GrammarBuilder& builder, const NumberBounds& bounds) {
  if (!bounds.least && !bounds.most) return AddAnyNumber(builder, bounds.integer);
  const GrammarBuilder::Rule rule = builder.AddRule();
  const auto below_zero = [](const std::optional<Decimal>& bound) { return bound && bound->negative && !bound->zero(); };
  if (!below_zero(bounds.most)) {
    Span span{.most = bounds.most, .most_open = bounds.most_open};
    if (bounds.least && !below_zero(bounds.least)) span.least = *bounds.least, span.least_open = bounds.least_open;
    AddSpan(builder, rule.start, span, bounds.integer, rule.end);
  }
  if (!bounds.least || below_zero(bounds.least)) {
    Span span{.most = bounds.least, .most_open = bounds.least_open};
    if (below_zero(bounds.most)) span.least = *bounds.most, span.least_open = bounds.most_open;
    else if (bounds.most && bounds.most->zero()) span.least_open = bounds.most_open;  // -0
    AddSpan(builder, builder.Text(rule.start, "-"), span, bounds.integer, rule.end);
  }
  return rule;
}

}  // namespace hone
