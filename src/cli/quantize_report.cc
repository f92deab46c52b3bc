// See quantize_report.h.
#include "cli/quantize_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cache/free_memory.h"
#include "cli/progress.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

// The layer that a tensor's name says, in any format: its first part that is a number. -1: none.
int LayerOf(const std::string& name) {
  for (size_t at = name.find('.'); at != std::string::npos; at = name.find('.', at + 1)) {
    size_t end = at + 1;
    while (end < name.size() && std::isdigit(static_cast<unsigned char>(name[end]))) ++end;
    if (end > at + 1 && end - at < 8 && end < name.size() && name[end] == '.')
      return std::stoi(name.substr(at + 1, end - at - 1));
  }
  return -1;
}

struct LayerLoss {
  double error = 0, power = 0;         // sums of squares
  double output = 0, output_parts = 0;  // sum of squared output errors, of how many
  double relative_error() const { return power > 0 ? std::sqrt(error / power) : 0; }
  double output_error() const { return output_parts > 0 ? std::sqrt(output / output_parts) : -1; }
};

std::map<int, LayerLoss> LayerLosses(const std::vector<TensorLoss>& tensors) {
  std::map<int, LayerLoss> layers;
  for (const TensorLoss& tensor : tensors) {
    const int layer = LayerOf(tensor.name);
    if (layer < 0) continue;
    LayerLoss& loss = layers[layer];
    loss.error += tensor.relative_error * tensor.relative_error * tensor.power;
    loss.power += tensor.power;
    if (tensor.output_error < 0) continue;
    loss.output += tensor.output_error * tensor.output_error;
    ++loss.output_parts;
  }
  return layers;
}

// "    0: 0.041 0.042 ...", eight layers a line.
template <typename Fn>
std::string LayerLines(const std::map<int, LayerLoss>& layers, const char* title, Fn value) {
  constexpr int kLine = 8;
  std::string text = fmt::format("  {}\n", title);
  int shown = 0;
  for (const auto& [layer, loss] : layers) {
    if (shown % kLine == 0) text += fmt::format("{}{:>5}:", shown > 0 ? "\n" : "", layer);
    text += fmt::format(" {:.4f}", value(loss));
    ++shown;
  }
  return text + "\n";
}

std::string LayerText(const std::vector<TensorLoss>& tensors) {
  const std::map<int, LayerLoss> layers = LayerLosses(tensors);
  if (layers.empty()) return "";
  std::string text = LayerLines(layers, "relative error of the weights, layer by layer:",
                                [](const LayerLoss& loss) { return loss.relative_error(); });
  if (std::any_of(layers.begin(), layers.end(), [](const auto& layer) { return layer.second.output_parts > 0; }))
    text += LayerLines(layers, "relative error of the matrices' outputs, layer by layer:",
                       [](const LayerLoss& loss) { return std::max(0.0, loss.output_error()); });
  return text;
}

std::string LayerwiseText(const LayerwiseReport& report) {
  if (report.tokens == 0) return "";
  std::string text = fmt::format("  calibration: {} tokens in {} chunks; {} at the end of the text were left out\n",
                                 report.tokens, report.chunks, report.dropped_tokens);
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(report.warnings.size(), kShown); ++i) text += "  " + report.warnings[i] + "\n";
  if (report.warnings.size() > kShown)
    text += fmt::format("  and {} more such lines (--json has all)\n", report.warnings.size() - kShown);
  return text;
}

LedgerEntry Entry(const QuantizeOutcome& outcome) {
  LedgerEntry entry;
  entry.kind = "quantize";
  entry.model = outcome.in;
  entry.model_digest = ModelDigest(outcome.in);
  entry.recipe = outcome.recipe;
  entry.dataset = outcome.calibration;
  entry.other = outcome.out;
  entry.result = outcome.json;
  return entry;
}

Figure Exact(const char* name, double value, Direction better) { return {name, {value, value, value, 1}, better}; }
Figure Once(const char* name, double value, Direction better) { return {name, {value, value, value, 0}, better}; }
Figure WithError(const char* name, double value, double error, Direction better) {
  constexpr double kNormal95 = 1.959963984540054;
  return {name, {value, value - kNormal95 * error, value + kNormal95 * error, 0.95}, better};
}

}  // namespace

std::string MemoryText(uint64_t peak_bytes, uint64_t allowed_bytes) {
  return fmt::format("memory: {} at most, {} allowed (--memory){}\n", FormatBytes(peak_bytes), FormatBytes(allowed_bytes),
                     peak_bytes > allowed_bytes ? ": does not fit" : "");
}

Result<void> CheckPeak(uint64_t peak_bytes, uint64_t least_bytes, uint64_t allowed_bytes) {
  if (peak_bytes <= allowed_bytes) return {};
  return Error{ErrorCode::kLimit,
               fmt::format("this needs {} of memory, {} are allowed; --memory {}M would do", FormatBytes(peak_bytes),
                           FormatBytes(allowed_bytes), (least_bytes >> 20) + 1)};
}

uint64_t AllowedMemory(uint64_t flag_bytes) {
  if (flag_bytes > 0) return flag_bytes;
  const uint64_t free_bytes = FreeMemoryBytes();
  return free_bytes > 0 ? free_bytes / 2 : uint64_t{16} << 30;
}

std::vector<size_t> WorstTensors(const std::vector<TensorLoss>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tensors[a].relative_error > tensors[b].relative_error; });
  order.resize(std::min<size_t>(order.size(), 5));
  return order;
}

std::string OutcomeText(const QuantizeOutcome& outcome) {
  std::string text = fmt::format(
      "{}: {}; {} to {}, {:.2f} bits per weight; relative error of the weights {:.4f}; peak memory {}\n", outcome.out,
      outcome.recipe, FormatBytes(outcome.bytes_before), FormatBytes(outcome.bytes), outcome.bits_per_weight,
      outcome.relative_error, FormatBytes(outcome.peak_rss_bytes));
  text += LayerText(outcome.tensors);
  text += "  tensors that lost most:\n";
  for (const size_t i : WorstTensors(outcome.tensors)) {
    const TensorLoss& t = outcome.tensors[i];
    text += fmt::format("  {:<50} {:<7} error {:.4f}, at most {:.3g}\n", t.name, t.to, t.relative_error, t.max_error);
  }
  return text + LayerwiseText(outcome.layerwise) + (outcome.measured ? QualityText(outcome.quality) : "");
}

void AddOutcome(const QuantizeOutcome& outcome, ordered_json* out) {
  ordered_json& json = *out;
  json["in"] = outcome.in;
  json["in_digest"] = ModelDigest(outcome.in);
  json["out_digest"] = ModelDigest(outcome.out);
  json["recipe"] = outcome.recipe;
  json["relative_error"] = outcome.relative_error;
  json["peak_rss_bytes"] = outcome.peak_rss_bytes;
  json["layers"] = ordered_json::array();
  for (const auto& [layer, loss] : LayerLosses(outcome.tensors)) {
    ordered_json line = {{"layer", layer}, {"relative_error", loss.relative_error()}};
    if (loss.output_parts > 0) line["output_error"] = loss.output_error();
    json["layers"].push_back(std::move(line));
  }
  json["worst"] = ordered_json::array();
  for (const size_t i : WorstTensors(outcome.tensors)) json["worst"].push_back(outcome.tensors[i].name);
  if (outcome.layerwise.tokens > 0) {
    json["calibration"] = {{"tokens", outcome.layerwise.tokens},
                           {"chunks", outcome.layerwise.chunks},
                           {"dropped_tokens", outcome.layerwise.dropped_tokens}};
    json["calibration_warnings"] = outcome.layerwise.warnings;
  }
  if (outcome.measured) json["quality"] = ordered_json::parse(QualityJson(outcome.quality));
}

void EnterQuantize(const LedgerFlags& flags, const Runtime& runtime, const QuantizeOutcome& outcome) {
  LedgerEntry entry = Entry(outcome);
  entry.figures = {Exact("bits_per_weight", outcome.bits_per_weight, Direction::kLower),
                   Exact("bytes", static_cast<double>(outcome.bytes), Direction::kLower),
                   Exact("bytes_before", static_cast<double>(outcome.bytes_before), Direction::kNeither),
                   Exact("relative_error", outcome.relative_error, Direction::kLower),
                   Once("peak_rss_bytes", static_cast<double>(outcome.peak_rss_bytes), Direction::kLower)};
  const Quality& quality = outcome.quality;
  if (outcome.measured && quality.skipped.empty()) {
    const DivergenceFigures& f = quality.figures;
    entry.load = fmt::format("{} windows of {}", quality.windows, quality.text);
    entry.figures.push_back(WithError("kld.mean", f.kld.mean, f.kld.error, Direction::kLower));
    entry.figures.push_back(
        WithError("same_top_percent", 100 * f.same_top, 100 * f.same_top_error, Direction::kHigher));
    entry.figures.push_back(WithError("ppl", f.ppl, f.ppl_error, Direction::kLower));
    entry.figures.push_back(WithError("ppl_base", f.ppl_base, f.ppl_base_error, Direction::kNeither));
    entry.figures.push_back(Once("decode_tok_s", quality.decode_after, Direction::kHigher));
    entry.figures.push_back(Once("decode_tok_s_base", quality.decode_before, Direction::kNeither));
    entry.figures.push_back(Once("prefill_tok_s", quality.prefill_after, Direction::kHigher));
    entry.figures.push_back(Once("prefill_tok_s_base", quality.prefill_before, Direction::kNeither));
  }
  for (const std::string& warning : outcome.layerwise.warnings)
    entry.failures.push_back({"fallback or warning", "", warning, 1});
  EnterRun(flags, runtime, std::move(entry));
}

void EnterFailedQuantize(const LedgerFlags& flags, const Runtime& runtime, const QuantizeOutcome& outcome,
                         const Error& error) {
  LedgerEntry entry = Entry(outcome);
  entry.outcome = error.code == ErrorCode::kCancelled ? "interrupted" : "failed";
  entry.failures.push_back({entry.outcome, outcome.in, error.message, 1});
  EnterRun(flags, runtime, std::move(entry));
}

}  // namespace hone
