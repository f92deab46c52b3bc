// Perplexity of a model on a text, by named protocol.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "kernels/attention/kv_view.h"
#include "measure/protocol.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace hone {

// A text as a protocol sees it.
struct EvalText {
  std::vector<int32_t> tokens;
  std::optional<int32_t>
      window_bos;              // stands in place of every window's first token (llama.cpp, if the tokenizer adds BOS)
  std::string bos_rule;        // "none", "at the start", "first token of each window"
  bool parse_special = false;  // special tokens in the text were read as tokens
  std::string digest;          // SHA-256 of the bytes that were given
};
// Special tokens in the text stay text unless `parse_special`. BOS is added if the tokenizer adds it. llama.cpp drops
// one newline at the end.
EvalText PrepareText(const Tokenizer& tokenizer, std::string_view text, Protocol protocol, bool parse_special = false);

struct EvalCallbacks {
  std::function<void(double share, double ppl_so_far)> progress;  // may be empty
  std::function<bool()> stop;                                     // may be empty
};

struct PerplexityResult {
  ProtocolRules rules;
  double nll_sum = 0;
  int64_t tokens_scored = 0, bytes_scored = 0;
  int windows = 0;
  double nll_mean = 0, ppl = 0, ppl_stderr = 0, bits_per_byte = 0;
  std::vector<double> window_nll;  // sums
  std::vector<double> nll;         // of every scored token, in order
  std::string bos_rule, dataset_digest;
  bool parse_special = false;
  bool interrupted = false;  // the figures are of the windows that were done
  std::string failed;        // why it ended early, if it did; the figures are of the windows before
};

// Errors: too short a text; logits that are not finite, with the window and position, in the first windows (later ones end
// the run: `failed`).
Result<PerplexityResult> MeasurePerplexity(Model& model, const Runtime& runtime, KvType kv, const Tokenizer& tokenizer,
                                           const EvalText& text, const ProtocolRules& rules,
                                           const EvalCallbacks& callbacks);

// Mean, and llama.cpp's standard error of it: sqrt((mean(x^2) - mean(x)^2) / (n - 1)); 0 for fewer than two.
struct MeanError {
  double mean = 0, error = 0;
};
MeanError MeanAndError(std::span<const double> values);

std::string PerplexityJson(const PerplexityResult& result, const std::string& model);
std::string PerplexityTable(const PerplexityResult& result, const std::string& model);

}  // namespace hone
