// The rules of a gate, from a small JSON or TOML file. docs/measure.md has the keys and an example.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hone {

// What is bounded: the new figure itself, its ratio to the base's, or its difference from it; from above or below.
struct GateBound {
  enum class Of { kValue, kRatio, kChange } of = Of::kValue;
  bool most = true;  // false: least
  double bound = 0;
  std::string Text() const;  // "ratio <= 1.1"
};

struct GateRule {
  std::string figure;  // a name; '*' stands for any characters: "decode_tok_s[*]"
  std::vector<GateBound> bounds;
  double confidence = 0.95;
};

// What is measured when BASE or NEW is a model; only what the rules need is.
struct GateMeasure {
  std::string text;  // for perplexity and divergence
  int chunks = 0;    // of the text; 0: all
  std::vector<std::string> tasks;
  std::vector<int> prefill, context, batch;  // hone bench; empty: its own lists
  int rounds = 15;
  std::vector<uint64_t> seeds = {1, 2, 3, 4, 5};  // of the load; a pair of runs each
  int requests = 50, concurrency = 0, input = 128, output = 32;
  double rate = 0;  // requests a second; 0: a closed loop
};

// The grid that rules on cells, "ttft_ms.p50[*]", are judged on: hone profile of both models, round by round. Empty lists:
// its default grid.
struct GateMatrix {
  std::vector<int> input, output, concurrency;
  int rounds = 8;
};

struct GateRules {
  std::vector<GateRule> rules;
  // A median that is better while a tail of the same latency is worse fails, whatever the rules say.
  bool tails = true;
  double confidence = 0.95;
  GateMeasure measure;
  GateMatrix matrix;
  bool Wants(std::string_view prefix) const;  // whether a rule's figure can begin with `prefix`
  // Whether a rule names cells of the matrix: "ttft_ms.p99[*]".
  bool WantsMatrix() const;
  // Whether a rule is on a figure of a load as a whole, which has no cells: "ttft_ms.p99".
  bool WantsLoad() const;
};

// JSON if the first character is '{', else TOML: comments, [table], [[array of tables]], key = string, number, boolean
// or array of those on one line. Errors (invalid input) name the line or the key: unknown keys, no rules, a rule
// without a bound.
Result<GateRules> ParseGateRules(std::string_view text);

// Whether `name` is what `pattern` describes.
bool MatchesFigure(std::string_view pattern, std::string_view name);

}  // namespace hone
