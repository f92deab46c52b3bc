// JSON numbers within bounds → a rule of a grammar. Digits are compared with those of the bounds one by one, so the bounds hold
// exactly, whatever a float would make of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/grammar/grammar.h"

namespace hone {

inline constexpr int kMaxNumberDigits = 18;  // before the point, and behind it: so many does every reader keep of an integer

struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;  // digits; no zero at the front of `whole` but "0", none at the end of `fraction`
  bool zero() const { return whole == "0" && fraction.empty(); }
};
// A JSON number. Errors: more than kMaxNumberDigits before or behind the point.
Result<Decimal> ParseDecimal(std::string_view text);

struct NumberBounds {
  std::optional<Decimal> least, most;
  bool least_open = false, most_open = false;  // the bound itself does not belong
  bool integer = false;                        // no fraction, no exponent
};

// With a bound there are no exponents. A range that holds nothing gives a rule that nothing fits.
GrammarBuilder::Rule AddNumber(GrammarBuilder& builder, const NumberBounds& bounds);

}  // namespace hone
