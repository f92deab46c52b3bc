// Perplexity protocols: how a text is cut into windows and which tokens of a window are scored. Figures of different
// protocols are never comparable, so a result always names its own. Pure integers; docs/measure.md has the rules in
// words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

enum class Protocol {
  kGptq,      // papers: windows side by side, all targets but the first token's, tail dropped
  kLlamaCpp,  // llama-perplexity: windows side by side, targets of the second half
  kSliding,   // windows that overlap: each scores what earlier ones did not
};

Result<Protocol> ParseProtocol(std::string_view name);  // "gptq", "llama.cpp", "sliding"
std::string_view ProtocolName(Protocol protocol);

struct Window {
  int64_t begin = 0, end = 0;  // tokens that the model sees
  int64_t first_target =
      0;  // targets are tokens [first_target, last_target); the logits of a target are those one before
  int64_t last_target = 0;
  int64_t targets() const { return last_target - first_target; }
};

struct ProtocolRules {
  Protocol protocol = Protocol::kLlamaCpp;
  int context = 0;  // tokens of a window; 0: 512 for llama.cpp, else 2048
  int stride = 0;   // sliding: tokens from one window to the next; 0: half of the window
  int chunks = 0;   // at most so many windows; 0: all
};
// Fills in the zeros. Errors (usage): a stride larger than the window or given to another protocol, windows too small.
Result<ProtocolRules> ResolveRules(ProtocolRules rules);

// REQUIRES: resolved rules. An error (invalid input) if the text is too short for the protocol, with the counts.
// `stored`: the tokens are those of a .kld file, whose one window is enough.
Result<std::vector<Window>> PlanWindows(const ProtocolRules& rules, int64_t tokens, bool stored = false);

}  // namespace hone
