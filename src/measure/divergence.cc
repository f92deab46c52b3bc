// See divergence.h.
#include "measure/divergence.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "measure/statistics.h"
#include "measure/window_scorer.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

// The ids of the k highest, in rising order of id; ties to the first.
std::vector<int32_t> Best(std::span<const float> values, int k) {
  std::vector<int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  const size_t count = std::min<size_t>(k, ids.size());
  std::partial_sort(ids.begin(), ids.begin() + static_cast<int64_t>(count), ids.end(),
                    [&](int32_t a, int32_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  ids.resize(count);
  std::sort(ids.begin(), ids.end());
  return ids;
}

DivergenceFigures::Spread SpreadOf(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  const auto at = [&](double fraction) { return Quantile(sorted, fraction); };
  const MeanError mean = MeanAndError(values);
  return {mean.mean, mean.error, sorted.back(), sorted.front(), at(0.999), at(0.99), at(0.95),
          at(0.9),   at(0.5),    at(0.1),       at(0.05),       at(0.01),  at(0.001)};
}

double Covariance(std::span<const double> x, std::span<const double> y) {
  const double mx = Mean(x), my = Mean(y);
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += (x[i] - mx) * (y[i] - my);
  return x.size() < 2 ? 0 : sum / static_cast<double>(x.size() - 1);
}

Error NotFinite(int64_t target) {
  return {ErrorCode::kInternal, fmt::format("the logits for token {} of the text are not finite: a model or the base "
                                            "file is damaged, or a kernel is wrong (--exact may help)",
                                            target)};
}

// Runs windows in groups and stops between them; `group` gets each group after its rows.
Result<bool> ForGroups(size_t windows, int at_once, const EvalCallbacks& callbacks,
                       const std::function<Result<void>(size_t first, size_t count)>& group) {
  for (size_t first = 0; first < windows; first += static_cast<size_t>(at_once)) {
    if (callbacks.stop && callbacks.stop()) return true;
    const size_t count = std::min<size_t>(at_once, windows - first);
    HONE_RETURN_IF_ERROR(group(first, count));
    if (callbacks.progress) callbacks.progress(static_cast<double>(first + count) / static_cast<double>(windows), 0);
  }
  return false;
}

}  // namespace

DivergenceRow Diverge(std::span<const float> base, std::span<const float> logits, int32_t target) {
  const LogSum sum = LogSumOf(logits);
  DivergenceRow row;
  size_t best_base = 0, best = 0;
  for (size_t i = 0; i < base.size(); ++i) {
    if (base[i] > kLeastLogProb) row.kld += std::exp(double{base[i]}) * (double{base[i]} - sum.LogProb(logits[i]));
    if (base[i] > base[best_base]) best_base = i;
    if (logits[i] > logits[best]) best = i;
  }
  row.nll = -sum.LogProb(logits[target]);
  row.nll_base = -double{base[target]};
  row.delta_p = std::exp(-row.nll) - std::exp(-row.nll_base);
  row.same_top = best_base == best;
  std::vector<int32_t> a = Best(base, kOverlap);
  const std::vector<int32_t> b = Best(logits, kOverlap);
  std::erase_if(a, [&](int32_t id) { return base[id] <= kLeastLogProb; });  // in a file these are all equal
  if (a.empty()) a.push_back(static_cast<int32_t>(best_base));
  std::vector<int32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  row.overlap = static_cast<double>(both.size()) / static_cast<double>(a.size());
  return row;
}

Result<DivergenceResult> MeasureDivergence(Model& model, const DivergenceBase& base, const Runtime& runtime, KvType kv,
                                           const EvalText& text, const std::vector<Window>& windows, KldWriter* writer,
                                           const EvalCallbacks& callbacks) {
  const int vocab = model.config().vocab;
  const int base_vocab = base.file != nullptr ? base.file->shape().vocab : base.model->config().vocab;
  if (vocab != base_vocab) {
    return InvalidInput(
        fmt::format("the vocabularies differ: {} entries, and {} in the base; divergence needs the same tokens", vocab,
                    base_vocab));
  }
  DivergenceResult result;
  result.context = static_cast<int>(windows[0].end - windows[0].begin);
  result.dataset_digest = text.digest, result.bos_rule = text.bos_rule;
  const size_t rows_per_window = static_cast<size_t>(windows[0].targets()), V = static_cast<size_t>(vocab);
  WindowScorer scorer(model, runtime, kv, result.context);
  std::optional<WindowScorer> base_scorer;
  if (base.model != nullptr) base_scorer.emplace(*base.model, runtime, kv, result.context);
  const size_t row_u16 = KldShape{result.context, vocab, 1}.row_u16();
  std::vector<float> base_rows;  // log-probabilities of the base's rows of a window
  std::vector<uint16_t> encoded;

  const Result<bool> stopped = ForGroups(windows.size(), 1, callbacks, [&](size_t first, size_t) -> Result<void> {
             const auto some = std::span(windows).subspan(first, 1);
             std::atomic<int64_t> bad{-1};
             base_rows.resize(rows_per_window * V);
             if (writer != nullptr) encoded.resize(rows_per_window * row_u16);
             if (base_scorer) {
               base_scorer->Run(
                   text.tokens, some, text.window_bos, [&](int, int64_t index, std::span<const float> logits) {
                     const LogSum sum = LogSumOf(logits);
                     if (!std::isfinite(sum.log_sum)) return bad.store(some[0].first_target + index);
                     float* out = base_rows.data() + static_cast<size_t>(index) * V;
                     for (size_t i = 0; i < V; ++i) out[i] = static_cast<float>(sum.LogProb(logits[i]));
                     if (writer != nullptr)
                       EncodeKldRow(logits, std::span(encoded).subspan(static_cast<size_t>(index) * row_u16, row_u16));
                   });
             } else {
               runtime.threads->ParallelFor(rows_per_window, 1, [&](size_t begin, size_t end) {
                 for (size_t r = begin; r < end; ++r) {
                   if (!base.file->Row(static_cast<int>(first), static_cast<int>(r),
                                       std::span(base_rows).subspan(r * V, V))) {
                     bad.store(some[0].first_target + static_cast<int64_t>(r));
                   }
                 }
               });
             }
             if (bad.load() >= 0) return NotFinite(bad.load());
             const size_t start = result.rows.size();
             result.rows.resize(start + rows_per_window);
             scorer.Run(text.tokens, some, text.window_bos, [&](int, int64_t index, std::span<const float> logits) {
               const int64_t target = some[0].first_target + index;
               DivergenceRow row = Diverge(std::span<const float>(base_rows).subspan(static_cast<size_t>(index) * V, V),
                                           logits, text.tokens[target]);
               if (!std::isfinite(row.kld) || !std::isfinite(row.nll)) bad.store(target);
               result.rows[start + static_cast<size_t>(index)] = row;
             });
             if (bad.load() >= 0) return NotFinite(bad.load());
             ++result.chunks;
             return writer != nullptr ? writer->WriteRows(encoded) : Result<void>();
           });
  result.rows.resize(static_cast<size_t>(result.chunks) * rows_per_window);  // of whole windows
  if (!stopped) {
    if (result.rows.empty()) return stopped.error();
    result.failed = stopped.error().message;
    return result;
  }
  result.interrupted = *stopped;
  if (result.rows.empty()) return Error{ErrorCode::kCancelled, "stopped before the first window was done"};
  if (writer != nullptr && !result.interrupted) {
    const Result<void> finished = writer->Finish();  // the figures are not the file's
    if (!finished) result.failed = finished.error().message;
  }
  return result;
}

Result<void> SaveLogits(Model& model, const Runtime& runtime, KvType kv, const EvalText& text,
                        const std::vector<Window>& windows, KldWriter* writer, const EvalCallbacks& callbacks) {
  const int context = static_cast<int>(windows[0].end - windows[0].begin);
  const size_t row_u16 = KldShape{context, model.config().vocab, 1}.row_u16(),
               rows = static_cast<size_t>(windows[0].targets());
  WindowScorer scorer(model, runtime, kv, context);
  std::vector<uint16_t> encoded;
  HONE_TRY(
      const bool stopped,
      ForGroups(windows.size(), scorer.windows_at_once(), callbacks, [&](size_t first, size_t count) -> Result<void> {
        encoded.resize(count * rows * row_u16);
        std::atomic<int64_t> bad{-1};
        scorer.Run(text.tokens, std::span(windows).subspan(first, count), text.window_bos,
                   [&](int window, int64_t index, std::span<const float> logits) {
                     if (!std::isfinite(LogSumOf(logits).log_sum))
                       return bad.store(windows[first + static_cast<size_t>(window)].first_target + index);
                     EncodeKldRow(
                         logits,
                         std::span(encoded).subspan(
                             (static_cast<size_t>(window) * rows + static_cast<size_t>(index)) * row_u16, row_u16));
                   });
        if (bad.load() >= 0) return NotFinite(bad.load());
        return writer->WriteRows(encoded);
      }));
  if (stopped) return Error{ErrorCode::kCancelled, "stopped; no file was written"};
  return writer->Finish();
}

DivergenceFigures FiguresOf(std::span<const DivergenceRow> rows) {
  DivergenceFigures figures;
  if (rows.empty()) return figures;
  std::vector<double> kld, delta, squares, nll, nll_base, difference;
  double same = 0;
  for (const DivergenceRow& row : rows) {
    kld.push_back(row.kld);
    delta.push_back(row.delta_p);
    squares.push_back(row.delta_p * row.delta_p);
    nll.push_back(row.nll);
    nll_base.push_back(row.nll_base);
    difference.push_back(row.nll - row.nll_base);
    same += row.same_top;
    figures.overlap += row.overlap;
    figures.kld_below_zero += row.kld < 0;
  }
  const double n = static_cast<double>(rows.size());
  figures.kld = SpreadOf(kld);
  figures.delta_p = SpreadOf(delta);
  const MeanError square = MeanAndError(squares);
  figures.delta_p_rms = std::sqrt(square.mean);
  figures.delta_p_rms_error = figures.delta_p_rms > 0 ? 0.5 / figures.delta_p_rms * square.error : 0;
  figures.same_top = same / n;
  figures.same_top_error = n > 1 ? std::sqrt(figures.same_top * (1 - figures.same_top) / (n - 1)) : 0;
  figures.overlap /= n;
  const MeanError mean = MeanAndError(nll), mean_base = MeanAndError(nll_base), ratio = MeanAndError(difference);
  figures.ppl = std::exp(mean.mean), figures.ppl_error = figures.ppl * mean.error;
  figures.ppl_base = std::exp(mean_base.mean), figures.ppl_base_error = figures.ppl_base * mean_base.error;
  figures.ln_ratio = ratio.mean, figures.ln_ratio_error = ratio.error;
  const double spread = std::sqrt(Variance(nll) * Variance(nll_base));
  figures.ln_correlation = spread > 0 ? Covariance(nll, nll_base) / spread : 0;
  return figures;
}

std::string DivergenceJson(const DivergenceResult& result, const std::string& model) {
  const DivergenceFigures f = FiguresOf(result.rows);
  const auto spread = [](const DivergenceFigures::Spread& s) {
    return ordered_json{{"mean", s.mean}, {"stderr", s.error}, {"max", s.max},       {"p999", s.p999}, {"p99", s.p99},
                        {"p95", s.p95},   {"p90", s.p90},      {"median", s.median}, {"p10", s.p10},   {"p05", s.p05},
                        {"p01", s.p01},   {"p001", s.p001},    {"min", s.min}};
  };
  ordered_json json = {{"kld", spread(f.kld)}, {"delta_p", spread(f.delta_p)}};
  json["kld"]["rows_below_zero"] = f.kld_below_zero;
  json["delta_p"]["rms"] = f.delta_p_rms;
  json["delta_p"]["rms_stderr"] = f.delta_p_rms_error;
  json["same_top"] = {{"percent", 100 * f.same_top}, {"stderr", 100 * f.same_top_error}};
  json["top_overlap"] = {{"k", kOverlap}, {"percent", 100 * f.overlap}};
  json["ppl"] = f.ppl;
  json["ppl_base"] = f.ppl_base;
  json["ppl_stderr"] = f.ppl_error;
  json["ppl_base_stderr"] = f.ppl_base_error;
  json["ln_ppl_ratio"] = {{"mean", f.ln_ratio}, {"stderr", f.ln_ratio_error}, {"correlation", f.ln_correlation}};
  json["rows"] = result.rows.size();
  json["protocol"] = "llama.cpp";
  json["ctx"] = result.context;
  json["chunks"] = result.chunks;
  json["bos"] = result.bos_rule;
  json["model"] = model;
  json["base"] = result.base;
  json["dataset_digest"] = result.dataset_digest;
  if (!result.saved.empty()) json["saved"] = result.saved;
  json["interrupted"] = result.interrupted;
  json["failed"] = result.failed;
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string DivergenceTable(const DivergenceResult& result, const std::string& model) {
  const DivergenceFigures f = FiguresOf(result.rows);
  std::string out =
      fmt::format("{} against {}\n{} positions in {} windows of {}{}\n\n", model, result.base, result.rows.size(),
                  result.chunks, result.context, result.interrupted ? ", INTERRUPTED" : !result.failed.empty() ? ", ENDED EARLY" : "");
  out += fmt::format("perplexity       {:.4f} +/- {:.4f}, base {:.4f} +/- {:.4f}, ln ratio {:.5f} +/- {:.5f}\n", f.ppl,
                     f.ppl_error, f.ppl_base, f.ppl_base_error, f.ln_ratio, f.ln_ratio_error);
  out += fmt::format("same best token  {:.3f} +/- {:.3f} %, of the ten best {:.2f} %\n", 100 * f.same_top,
                     100 * f.same_top_error, 100 * f.overlap);
  out += fmt::format("{:<16} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "", "mean", "max", "99.9 %",
                     "99 %", "90 %", "median", "10 %", "1 %");
  const auto line = [&](const char* name, const DivergenceFigures::Spread& s) {
    out += fmt::format("{:<16} {:>11.3g} {:>11.3g} {:>11.3g} {:>11.3g} {:>11.3g} {:>11.3g} {:>11.3g} {:>11.3g}\n", name,
                       s.mean, s.max, s.p999, s.p99, s.p90, s.median, s.p10, s.p01);
  };
  line("KL divergence", f.kld);
  line("delta p", f.delta_p);
  return out + fmt::format("delta p rms      {:.4g} +/- {:.2g}\n", f.delta_p_rms, f.delta_p_rms_error);
}

}  // namespace hone
