// See perplexity.h.
#include "measure/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/sha256.h"
#include "measure/window_scorer.h"

namespace hone {

using nlohmann::ordered_json;

namespace {
constexpr int64_t kNoTarget = INT64_MAX;
}  // namespace

EvalText PrepareText(const Tokenizer& tokenizer, std::string_view text, Protocol protocol, bool parse_special) {
  EvalText prepared;
  prepared.digest = Sha256Hex(text);
  if (protocol == Protocol::kLlamaCpp && text.ends_with('\n')) text.remove_suffix(1);
  prepared.tokens = tokenizer.Encode(text, {.add_special = false, .parse_special = parse_special});
  prepared.parse_special = parse_special;
  prepared.bos_rule = "none";
  const std::optional<int32_t> bos = tokenizer.bos();
  if (!tokenizer.adds_bos() || !bos) return prepared;
  prepared.tokens.insert(prepared.tokens.begin(), *bos);
  prepared.bos_rule = "at the start";
  if (protocol == Protocol::kLlamaCpp) {
    prepared.window_bos = *bos;
    prepared.bos_rule = "first token of each window";
  }
  return prepared;
}

MeanError MeanAndError(std::span<const double> values) {
  if (values.empty()) return {};
  double sum = 0, squares = 0;
  for (const double v : values) sum += v, squares += v * v;
  const double n = static_cast<double>(values.size()), mean = sum / n;
  if (values.size() < 2) return {mean, 0};
  return {mean, std::sqrt(std::max(0.0, squares / n - mean * mean) / (n - 1))};
}

Result<PerplexityResult> MeasurePerplexity(Model& model, const Runtime& runtime, KvType kv, const Tokenizer& tokenizer,
                                           const EvalText& text, const ProtocolRules& rules,
                                           const EvalCallbacks& callbacks) {
  HONE_TRY(const std::vector<Window> windows, PlanWindows(rules, static_cast<int64_t>(text.tokens.size())));
  PerplexityResult result;
  result.rules = rules, result.bos_rule = text.bos_rule, result.parse_special = text.parse_special,
  result.dataset_digest = text.digest;
  WindowScorer scorer(model, runtime, kv, rules.context);
  for (size_t first = 0; first < windows.size(); first += scorer.windows_at_once()) {
    if (callbacks.stop && callbacks.stop()) {
      result.interrupted = true;
      break;
    }
    auto some =
        std::span(windows).subspan(first, std::min<size_t>(scorer.windows_at_once(), windows.size() - first));
    std::vector<size_t> starts;
    size_t total = result.nll.size();
    for (const Window& window : some) starts.push_back(total), total += static_cast<size_t>(window.targets());
    result.nll.resize(total);
    std::atomic<int64_t> bad{kNoTarget};
    scorer.Run(text.tokens, some, text.window_bos, [&](int window, int64_t index, std::span<const float> logits) {
      const int64_t target = some[window].first_target + index;
      const double nll = -LogSumOf(logits).LogProb(logits[text.tokens[target]]);
      if (!std::isfinite(nll)) {
        for (int64_t least = bad.load(); target < least && !bad.compare_exchange_weak(least, target);) {
        }
      }
      result.nll[starts[window] + index] = nll;
    });
    if (bad.load() != kNoTarget) {
      const auto fine = static_cast<size_t>(std::count_if(some.begin(), some.end(), [&](const Window& window) { return window.last_target <= bad.load(); }));
      result.failed = fmt::format("the logits for token {} of the text are not finite: the model is damaged, or a kernel is wrong (--exact may "
                                  "help); {} windows before it are fine",
                                  bad.load(), first + fine);
      if (first + fine == 0) return Error{ErrorCode::kInternal, result.failed};
      result.nll.resize(fine < some.size() ? starts[fine] : total);
      some = some.first(fine);
    }
    for (size_t w = 0; w < some.size(); ++w) {
      double sum = 0;
      for (int64_t i = 0; i < some[w].targets(); ++i) sum += result.nll[starts[w] + i];
      result.window_nll.push_back(sum);
      result.nll_sum += sum;
      result.tokens_scored += some[w].targets();
      for (int64_t t = some[w].first_target; t < some[w].last_target; ++t) {
        result.bytes_scored += static_cast<int64_t>(tokenizer.TokenBytes(text.tokens[t]).size());
      }
      ++result.windows;
    }
    if (!result.failed.empty()) break;
    if (callbacks.progress) {
      callbacks.progress(static_cast<double>(first + some.size()) / static_cast<double>(windows.size()),
                         std::exp(result.nll_sum / static_cast<double>(result.tokens_scored)));
    }
  }
  if (result.tokens_scored == 0) return Error{ErrorCode::kCancelled, "stopped before the first window was done"};
  const MeanError mean = MeanAndError(result.nll);
  result.nll_mean = result.nll_sum / static_cast<double>(result.tokens_scored);
  result.ppl = std::exp(result.nll_mean);
  result.ppl_stderr = result.ppl * mean.error;
  result.bits_per_byte =
      result.bytes_scored > 0 ? result.nll_sum / M_LN2 / static_cast<double>(result.bytes_scored) : 0;
  return result;
}

std::string PerplexityJson(const PerplexityResult& result, const std::string& model) {
  ordered_json json = {{"nll_sum", result.nll_sum},
                       {"tokens_scored", result.tokens_scored},
                       {"windows", result.windows},
                       {"ppl", result.ppl},
                       {"ppl_stderr", result.ppl_stderr},
                       {"bits_per_byte", result.bits_per_byte},
                       {"protocol", ProtocolName(result.rules.protocol)},
                       {"dataset_digest", result.dataset_digest},
                       {"model", model},
                       {"ctx", result.rules.context},
                       {"bos", result.bos_rule},
                       {"special_tokens", result.parse_special ? "parsed" : "text"},
                       {"bytes_scored", result.bytes_scored},
                       {"nll_mean", result.nll_mean},
                       {"interrupted", result.interrupted},
                       {"failed", result.failed}};
  if (result.rules.protocol == Protocol::kSliding) json["stride"] = result.rules.stride;
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string PerplexityTable(const PerplexityResult& result, const std::string& model) {
  std::string protocol(ProtocolName(result.rules.protocol));
  protocol += fmt::format(", windows of {}", result.rules.context);
  if (result.rules.protocol == Protocol::kSliding) protocol += fmt::format(", stride {}", result.rules.stride);
  return fmt::format(
      "{}\nperplexity       {:.4f} +/- {:.4f}\nbits per byte    {:.4f}\nprotocol         {}, BOS: {}, special tokens: "
      "{}\nscored           "
      "{} tokens ({} bytes) in {} windows{}\ntext             sha256 {}\n",
      model, result.ppl, result.ppl_stderr, result.bits_per_byte, protocol, result.bos_rule,
      result.parse_special ? "parsed" : "text", result.tokens_scored, result.bytes_scored, result.windows,
      result.interrupted ? ", INTERRUPTED" : !result.failed.empty() ? ", ENDED EARLY" : "", result.dataset_digest);
}

}  // namespace hone
