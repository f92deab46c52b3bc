// Regex: a pattern as tokenizer files hold it (Oniguruma, Ruby syntax), matched by PCRE2's compiler.
//
// Promises: the matches Oniguruma would give for what the translation covers (docs/tokenizers.md lists it); no search
// hangs: a search that exceeds its step limit counts as "no further match", the same on every run. Refuses: a pattern
// that PCRE2 cannot compile, with its message and place.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

struct TextRange {
  size_t begin = 0, end = 0;
  bool operator==(const TextRange&) const = default;
};

// Oniguruma's syntax rewritten for PCRE2 (UTF, UCP, MULTILINE, newline LF). Exposed for tests.
Result<std::string> TranslateOniguruma(std::string_view pattern);

// Immutable, thread-safe.
class Regex {
 public:
  static Result<Regex> Compile(std::string_view pattern);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // Appends the matches in `text`, left to right, not overlapping, as ranges within `text`. REQUIRES: valid UTF-8.
  void FindAll(std::string_view text, std::vector<TextRange>* matches) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<Code> code);
  std::unique_ptr<Code> code_;
};

}  // namespace hone
