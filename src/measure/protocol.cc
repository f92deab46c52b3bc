// See protocol.h.
#include "measure/protocol.h"

#include <fmt/format.h>

#include <algorithm>

namespace hone {

Result<Protocol> ParseProtocol(std::string_view name) {
  if (name == "gptq") return Protocol::kGptq;
  if (name == "llama.cpp") return Protocol::kLlamaCpp;
  if (name == "sliding") return Protocol::kSliding;
  return UsageError("--protocol '" + std::string(name) + "' is not known; use llama.cpp, gptq or sliding");
}

std::string_view ProtocolName(Protocol protocol) {
  switch (protocol) {
    case Protocol::kGptq: return "gptq";
    case Protocol::kLlamaCpp: return "llama.cpp";
    case Protocol::kSliding: return "sliding";
  }
  return "?";
}

Result<ProtocolRules> ResolveRules(ProtocolRules rules) {
  if (rules.context == 0) rules.context = rules.protocol == Protocol::kLlamaCpp ? 512 : 2048;
  const int least = rules.protocol == Protocol::kLlamaCpp ? 4 : 2;
  if (rules.context < least)
    return UsageError(fmt::format("--ctx {}: a window of {} needs at least {} tokens", rules.context,
                                  ProtocolName(rules.protocol), least));
  if (rules.protocol != Protocol::kSliding) {
    if (rules.stride != 0)
      return UsageError(fmt::format("--stride is for --protocol sliding; windows of {} lie side by side",
                                    ProtocolName(rules.protocol)));
    return rules;
  }
  if (rules.stride == 0) rules.stride = rules.context / 2;
  if (rules.stride < 1 || rules.stride > rules.context) {
    return UsageError(fmt::format("--stride {}: wanted 1 to the window's {} tokens", rules.stride, rules.context));
  }
  return rules;
}

Result<std::vector<Window>> PlanWindows(const ProtocolRules& rules, int64_t tokens, bool stored) {
  std::vector<Window> windows;
  const int64_t width = rules.context, most = rules.chunks > 0 ? rules.chunks : INT64_MAX;
  const auto full = [&] { return static_cast<int64_t>(windows.size()) >= most; };
  switch (rules.protocol) {
    case Protocol::kGptq:
      if (tokens < width) break;
      for (int64_t begin = 0; begin + width <= tokens && !full(); begin += width)
        windows.push_back({begin, begin + width, begin + 1, begin + width});
      break;
    case Protocol::kLlamaCpp:
      if (tokens < (stored ? 1 : 2) * width) break;  // as the tool asks
      for (int64_t begin = 0; begin + width <= tokens && !full(); begin += width) {
        windows.push_back({begin, begin + width, begin + width / 2 + 1, begin + width});
      }
      break;
    case Protocol::kSliding:
      if (tokens < 2) break;
      for (int64_t begin = 0, scored = 1; scored < tokens && !full(); begin += rules.stride) {
        const int64_t end = std::min(begin + width, tokens);
        windows.push_back({begin, end, scored, end});
        scored = end;
      }
      break;
  }
  if (windows.empty()) {
    const int64_t needed = rules.protocol == Protocol::kLlamaCpp ? 2 * width
                           : rules.protocol == Protocol::kGptq   ? width
                                                                 : 2;
    return InvalidInput(
        fmt::format("the text has {} tokens, but protocol {} with windows of {} needs at least {}; give a longer text "
                    "or a smaller --ctx",
                    tokens, ProtocolName(rules.protocol), width, needed));
  }
  return windows;
}

}  // namespace hone
