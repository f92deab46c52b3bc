// Regular expressions as JSON Schema has them (ECMA-262, Unicode) → a rule of a grammar. The language is what counts, so lazy and
// greedy repetition are the same.
//
// Refuses by name what is no regular language or not known here: look-around, back references, \b, \p{...}, flags, and anchors but
// at the ends of the pattern or of its outermost alternatives.
#pragma once

#include <string_view>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "serve/structured/char_set.h"

namespace hone {

inline constexpr size_t kMaxPatternBytes = 4096;

// kWhole: the text matches from end to end. kSearch: some part of it matches, as `pattern` means it.
enum class RegexUse { kWhole, kSearch };

// `pattern` is valid UTF-8. Errors name the place (kInvalidInput: no regular expression; kUnsupported).
Result<GrammarBuilder::Rule> AddRegex(GrammarBuilder& builder, std::string_view pattern, RegexUse use, Spelling spelling);

}  // namespace hone
