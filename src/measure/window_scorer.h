// Runs windows of a text through a model, several at once, and hands out the logits of each target. What perplexity and
// divergence have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "kernels/attention/kv_view.h"
#include "measure/model_runner.h"
#include "measure/protocol.h"
#include "models/model.h"

namespace hone {

inline constexpr int kScoreRows = 512;  // rows of one forward pass

// The logarithm of the softmax's denominator, sums in F64; not finite if a logit is not.
struct LogSum {
  float max = 0;
  double log_sum = 0;  // ln sum exp(l - max)
  double LogProb(float logit) const { return static_cast<double>(logit) - max - log_sum; }
};
LogSum LogSumOf(std::span<const float> logits);

class WindowScorer {
 public:
  // Room for windows of `width` tokens. REQUIRES: the model was loaded for them and for at least kScoreRows rows.
  WindowScorer(Model& model, const Runtime& runtime, KvType kv, int width);

  int windows_at_once() const { return at_once_; }

  // Runs `windows` (at most windows_at_once(), all but the last of the same width) over `tokens`. `first`, if set,
  // stands in place of the first token of each window. For every target of every window, `row(window, target -
  // first_target, logits)` is called, from several threads at once, each once.
  using RowFunction = std::function<void(int window, int64_t index, std::span<const float> logits)>;
  void Run(std::span<const int32_t> tokens, std::span<const Window> windows, std::optional<int32_t> first,
           const RowFunction& row);

 private:
  const Runtime runtime_;
  const int at_once_;
  int rows_;
  ModelRunner runner_;
  std::vector<int32_t> copy_;
};

}  // namespace hone
