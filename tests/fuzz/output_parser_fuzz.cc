// fuzzes: serve
// What a model may write, in every format: any text ends, comes out the same whole and byte by byte, and call numbers
// rise.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "serve/openai/output_parser.h"

namespace {

using namespace hone;

// Pieces joined: content, reasoning, then every call as its name and arguments.
std::vector<std::string> Join(const std::vector<OutputPiece>& pieces) {
  std::vector<std::string> out(2);
  for (const OutputPiece& piece : pieces) {
    switch (piece.kind) {
      case OutputPiece::Kind::kContent:
        out[0] += piece.text;
        break;
      case OutputPiece::Kind::kReasoning:
        out[1] += piece.text;
        break;
      case OutputPiece::Kind::kCall:
        HONE_CHECK(piece.call == static_cast<int>(out.size() / 2 - 1));
        out.push_back(piece.text);
        out.emplace_back();
        break;
      case OutputPiece::Kind::kArguments:
        HONE_CHECK(piece.call == static_cast<int>(out.size() / 2 - 2));
        out.back() += piece.text;
        break;
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1 || size > 4000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  OutputFormat format;
  if (data[0] & 4)
    format.think_open = "<think>", format.think_close = "</think>", format.in_thinking = (data[0] & 8) != 0;
  format.tools = static_cast<ToolFormat>(data[0] & 3);
  format.tool_names = {"f", "g"};
  std::vector<OutputPiece> whole, bytes;
  OutputParser at_once(format), one_by_one(format);
  at_once.Feed(text, &whole);
  at_once.Finish(&whole);
  for (const char& c : text) one_by_one.Feed({&c, 1}, &bytes);
  one_by_one.Finish(&bytes);
  HONE_CHECK(Join(whole) == Join(bytes));
  return 0;
}
