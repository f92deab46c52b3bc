// Template source → tokens. Whitespace control is settled here: trim_blocks (the newline after a block or comment goes),
// lstrip_blocks (blanks before a block or comment that starts its line go), "-" and "+" signs, raw blocks, and the one newline
// at the end of the source. \r\n and \r are read as \n. Errors name line and column.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone::jinja {

enum class TokenKind : uint8_t { kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kString, kInteger, kFloat,
                                 kOperator, kEnd };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;     // data; a name; a string with escapes resolved; an operator's characters
  int64_t integer = 0;
  double number = 0;    // kFloat

  bool IsOperator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool IsName(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// At most 64 MiB of source. The last token is kEnd.
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace hone::jinja
