// fuzzes: measure
// What a server streams to the load client, in pieces of every size: the events are the same as in one piece.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "measure/load/sse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece = 1 + data[0] % 7;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::vector<std::string> whole, pieces;
  hone::SseParser one, many;
  one.Add(text, [&](std::string_view event) { whole.emplace_back(event); });
  for (size_t at = 0; at < text.size(); at += piece) {
    many.Add(text.substr(at, piece), [&](std::string_view event) { pieces.emplace_back(event); });
  }
  if (whole != pieces) __builtin_trap();
  for (const std::string& event : whole) hone::ParseStreamEvent(event);
  hone::ErrorText(text);
  return 0;
}
