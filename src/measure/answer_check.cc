// See answer_check.h.
#include "measure/answer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "measure/model_runner.h"

namespace hone {
namespace {

constexpr int kTokens = 24;

std::vector<int32_t> CheckTokens(const Model& model) {
  std::vector<int32_t> ids(std::min({kTokens, model.options().max_rows, model.options().max_context}));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 7919 + 11) % static_cast<size_t>(model.config().vocab));
  return ids;
}

// Logits of every token, [tokens][V].
std::vector<float> AllLogits(Model& model, const Runtime& runtime, KvType kv, const std::vector<int32_t>& ids,
                             bool at_once) {
  const int tokens = static_cast<int>(ids.size());
  ModelRunner runner(model, runtime, kv, 1, tokens, tokens);
  std::vector<float> all;
  for (int first = 0; first < tokens;) {
    const int count = at_once ? tokens : 1;
    const ModelRunner::Rows rows{
        .first_position = first, .tokens = std::span(ids).subspan(first, count), .logits = count};
    runner.Forward({&rows, 1});
    for (int i = 0; i < count; ++i) all.insert(all.end(), runner.logits(i).begin(), runner.logits(i).end());
    first += count;
  }
  return all;
}

Result<void> Judge(const LogitsDifference& difference, const std::string& what) {
  if (!difference.finite) return Error{ErrorCode::kInternal, what + ": logits are not finite; nothing was timed"};
  if (difference.relative_rms > kLogitsBound) {
    return Error{
        ErrorCode::kInternal,
        fmt::format("{}: logits differ by {:.1f} % of their deviation, more than {:.0f} %; a wrong answer is not timed",
                    what, 100 * difference.relative_rms, 100 * kLogitsBound)};
  }
  if (difference.clear_wrong > 0) {
    return Error{ErrorCode::kInternal,
                 fmt::format("{}: {} of {} greedy ids with a clear lead differ; a wrong answer is not timed", what,
                             difference.clear_wrong, difference.clear_rows)};
  }
  return {};
}

}  // namespace

LogitsDifference CompareLogits(const float* got, const float* want, int rows, int vocab) {
  LogitsDifference all{.rows = rows};
  double error = 0, spread = 0;
  for (int row = 0; row < rows; ++row) {
    const float *g = got + int64_t{row} * vocab, *w = want + int64_t{row} * vocab;
    double mean = 0, row_error = 0;
    for (int i = 0; i < vocab; ++i) mean += w[i];
    mean /= vocab;
    int best_got = 0, best = 0;
    for (int i = 0; i < vocab; ++i) {
      const double d = double{g[i]} - w[i];
      row_error += d * d;
      spread += (w[i] - mean) * (w[i] - mean);
      if (g[i] > g[best_got]) best_got = i;
      if (w[i] > w[best]) best = i;
    }
    error += row_error;
    if (!std::isfinite(row_error)) all.finite = false;
    double second = -INFINITY;
    for (int i = 0; i < vocab; ++i) {
      if (i != best) second = std::max<double>(second, w[i]);
    }
    if (w[best] - second <= kMarginFactor * std::sqrt(row_error / vocab)) continue;
    ++all.clear_rows;
    all.clear_wrong += best_got != best;
  }
  all.relative_rms = spread > 0 ? std::sqrt(error / spread) : std::sqrt(error);
  return all;
}

Result<std::string> CheckAnswers(Model& model, Model* reference, const Runtime& runtime, KvType kv) {
  const std::vector<int32_t> ids = CheckTokens(model);
  const int rows = static_cast<int>(ids.size()), vocab = model.config().vocab;
  const std::vector<float> at_once = AllLogits(model, runtime, kv, ids, true);
  const std::vector<float> one_by_one = AllLogits(model, runtime, kv, ids, false);
  if (reference == nullptr) {
    const LogitsDifference difference = CompareLogits(at_once.data(), one_by_one.data(), rows, vocab);
    HONE_RETURN_IF_ERROR(Judge(difference, fmt::format("{} tokens at once against one at a time", rows)));
    return fmt::format(
        "{} tokens at once against one at a time: logits within {:.2f} % of their deviation (no memory for an exact "
        "copy)",
        rows, 100 * difference.relative_rms);
  }
  const std::vector<float> exact = AllLogits(*reference, runtime, KvType::kF32, ids, false);
  const LogitsDifference many = CompareLogits(at_once.data(), exact.data(), rows, vocab);
  const LogitsDifference one = CompareLogits(one_by_one.data(), exact.data(), rows, vocab);
  HONE_RETURN_IF_ERROR(Judge(many, fmt::format("{} tokens at once against the exact path", rows)));
  HONE_RETURN_IF_ERROR(Judge(one, fmt::format("{} tokens one at a time against the exact path", rows)));
  return fmt::format(
      "{} tokens against the exact path: logits within {:.2f} % of their deviation at once, {:.2f} % one at a time; "
      "{} of {} greedy ids have a clear lead, all agree",
      rows, 100 * many.relative_rms, 100 * one.relative_rms, many.clear_rows, rows);
}

}  // namespace hone
