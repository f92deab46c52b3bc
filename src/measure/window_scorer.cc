// See window_scorer.h.
#include "measure/window_scorer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hone {
namespace {

constexpr size_t kMostLogitsBytes = size_t{256} << 20;

// Rows of one pass: fewer where a vocabulary would need too much memory for their logits.
int RowsOfPass(const Model& model) {
  const size_t row = sizeof(float) * static_cast<size_t>(model.config().vocab);
  const int most = std::min(kScoreRows, model.options().max_rows);
  return static_cast<int>(std::clamp<size_t>(kMostLogitsBytes / row, 1, most));
}

}  // namespace

LogSum LogSumOf(std::span<const float> logits) {
  LogSum sum{.max = -INFINITY};
  bool finite = true;
  for (const float l : logits) {
    sum.max = std::max(sum.max, l);
    finite &= l - l == 0;
  }
  // Sums of a few terms in F32 would lose digits; partial sums let the compiler overlap the exponentials.
  double parts[4] = {};
  size_t i = 0;
  for (; i + 4 <= logits.size(); i += 4) {
    for (int k = 0; k < 4; ++k) parts[k] += std::exp(logits[i + k] - sum.max);
  }
  for (; i < logits.size(); ++i) parts[0] += std::exp(logits[i] - sum.max);
  sum.log_sum = finite ? std::log((parts[0] + parts[1]) + (parts[2] + parts[3])) : NAN;
  return sum;
}

WindowScorer::WindowScorer(Model& model, const Runtime& runtime, KvType kv, int width)
    : runtime_(runtime),
      at_once_(std::max(1, RowsOfPass(model) / width)),
      rows_(RowsOfPass(model)),
      runner_(model, runtime, kv, at_once_, width, rows_) {}

void WindowScorer::Run(std::span<const int32_t> tokens, std::span<const Window> windows, std::optional<int32_t> first,
                       const RowFunction& row) {
  HONE_CHECK(static_cast<int>(windows.size()) <= at_once_);
  const int share = rows_ / static_cast<int>(windows.size());  // rows of each window in a pass
  int64_t longest = 0;
  for (const Window& window : windows) longest = std::max(longest, window.end - window.begin);
  copy_.resize(static_cast<size_t>(longest) * windows.size());
  for (size_t w = 0; w < windows.size(); ++w) {
    const auto source = tokens.subspan(windows[w].begin, windows[w].end - windows[w].begin);
    std::copy(source.begin(), source.end(), copy_.begin() + static_cast<int64_t>(w) * longest);
    if (first) copy_[w * longest] = *first;
  }
  struct Wanted {
    int window;
    int64_t index;
  };
  std::vector<ModelRunner::Rows> batch;
  std::vector<Wanted> wanted;
  for (int64_t at = 0; at < longest; at += share) {
    batch.clear();
    wanted.clear();
    for (size_t w = 0; w < windows.size(); ++w) {
      const Window& window = windows[w];
      // The last token of a window predicts nothing that is scored.
      const int64_t end = std::min<int64_t>(at + share, window.last_target - 1 - window.begin);
      if (end <= at) continue;
      // Row i is the token at begin + i, whose logits are of the target begin + i + 1.
      const int64_t first_row = std::max(at, window.first_target - 1 - window.begin);
      const int logits = static_cast<int>(std::max<int64_t>(0, end - first_row));
      batch.push_back({.sequence = static_cast<int>(w),
                       .first_position = static_cast<int>(at),
                       .tokens = std::span(copy_).subspan(static_cast<int64_t>(w) * longest + at, end - at),
                       .logits = logits});
      for (int64_t i = end - logits; i < end; ++i)
        wanted.push_back({static_cast<int>(w), window.begin + i + 1 - window.first_target});
    }
    if (batch.empty()) continue;
    runner_.Forward(batch);
    runtime_.threads->ParallelFor(wanted.size(), 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) row(wanted[i].window, wanted[i].index, runner_.logits(static_cast<int>(i)));
    });
  }
}

}  // namespace hone
