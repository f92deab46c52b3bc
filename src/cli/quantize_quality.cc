// See quantize_quality.h.
#include "cli/quantize_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "measure/model_runner.h"
#include "measure/perplexity.h"
#include "measure/window_scorer.h"

namespace hone {
namespace {

constexpr int kWindow = 512;
constexpr int kPrompt = 128, kSteps = 24, kRounds = 3;  // of the speeds

struct Loaded {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
};

Result<Loaded> Load(const std::string& path, const Runtime& runtime) {
  Loaded loaded;
  HONE_TRY(loaded.checkpoint, OpenModel(path));
  HONE_RETURN_IF_ERROR(CheckMemory(*loaded.checkpoint, 0));
  HONE_TRY(loaded.model, Model::Load(loaded.checkpoint, runtime, {.max_rows = kScoreRows, .max_context = kWindow}));
  return loaded;
}

struct Speed {
  double prefill = 0, decode = 0;
};

// Of both, turn by turn, the best round of each.
void TimeBoth(Model& before, Model& after, std::span<const int32_t> tokens, const Runtime& runtime, Quality* quality) {
  ModelRunner runners[2] = {ModelRunner(before, runtime, KvType::kBF16, 1, kWindow, 1),
                            ModelRunner(after, runtime, KvType::kBF16, 1, kWindow, 1)};
  Speed best[2];
  const int prompt = static_cast<int>(std::min<size_t>(tokens.size(), kPrompt));
  for (int round = 0; round < kRounds && !Interrupted(); ++round) {
    for (int i = 0; i < 2; ++i) {
      const double start = runtime.clock->Now();
      runners[i].Prefill(0, tokens.subspan(0, prompt));
      const double filled = runtime.clock->Now();
      for (int step = 0; step < kSteps; ++step) {
        const int32_t token = tokens[step % prompt];
        const ModelRunner::Rows row{.first_position = prompt + step, .tokens = {&token, 1}};
        runners[i].Forward({&row, 1});
      }
      const double end = runtime.clock->Now();
      best[i].prefill = std::max(best[i].prefill, prompt / (filled - start));
      best[i].decode = std::max(best[i].decode, kSteps / (end - filled));
    }
  }
  quality->prefill_before = best[0].prefill, quality->prefill_after = best[1].prefill;
  quality->decode_before = best[0].decode, quality->decode_after = best[1].decode;
}

Quality Skipped(const std::string& why) {
  Quality quality;
  quality.skipped = why;
  return quality;
}

}  // namespace

Result<Quality> MeasureQuality(const QualityRequest& request, const CommonFlags& flags, const Runtime& runtime) {
  Quality quality;
  quality.text = request.text;
  if (quality.text.empty()) {
    HONE_TRY(const std::string assets, AssetsFolder());
    quality.text = assets + "/calibration/held-out.txt";
  }
  HONE_TRY(const std::string bytes, ReadText(quality.text));
  auto before = Load(request.original, runtime);
  if (!before) return Skipped("hone does not run the original: " + before.error().message);
  auto after = Load(request.result, runtime);
  if (!after) return Skipped("hone does not run the result: " + after.error().message);
  if (before->model->config().context < kWindow) return Skipped("the model's context is shorter than a window");
  HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*before->checkpoint, flags.pre));
  const EvalText text = PrepareText(*tokenizer, bytes, Protocol::kLlamaCpp);
  HONE_TRY(const ProtocolRules rules, ResolveRules({Protocol::kLlamaCpp, kWindow, 0, request.windows}));
  auto windows = PlanWindows(rules, static_cast<int64_t>(text.tokens.size()));
  if (!windows) return Skipped(quality.text + ": " + windows.error().message);
  ProgressLine progress("measuring", flags.progress());
  const EvalCallbacks callbacks{[&](double share, double) { progress.Update(share, "divergence"); },
                                [] { return Interrupted(); }};
  HONE_TRY(const DivergenceResult result,
           MeasureDivergence(*after->model, {.model = before->model.get()}, runtime, KvType::kBF16, text, *windows,
                             nullptr, callbacks));
  if (result.rows.empty()) return Skipped("stopped");
  quality.windows = static_cast<int>(windows->size());
  quality.figures = FiguresOf(result.rows);
  TimeBoth(*before->model, *after->model, text.tokens, runtime, &quality);
  return quality;
}

std::string QualityText(const Quality& quality) {
  if (!quality.skipped.empty()) return "  quality not measured: " + quality.skipped + "\n";
  const DivergenceFigures& f = quality.figures;
  std::string text = fmt::format(
      "  on {} windows of {}: divergence {:.5f} +- {:.5f}, perplexity {:.4f} -> {:.4f}, same best token {:.2f} %\n",
      quality.windows, quality.text, f.kld.mean, f.kld.error, f.ppl_base, f.ppl, 100 * f.same_top);
  text += fmt::format("  tokens a second before and after: decode {:.1f} -> {:.1f}, prefill {:.0f} -> {:.0f}\n",
                      quality.decode_before, quality.decode_after, quality.prefill_before, quality.prefill_after);
  if (quality.decode_after < 0.97 * quality.decode_before) text += "  decode is slower than the original's here\n";
  if (quality.prefill_after < 0.97 * quality.prefill_before) text += "  prefill is slower than the original's here\n";
  return text;
}

std::string QualityJson(const Quality& quality) {
  if (!quality.skipped.empty()) return nlohmann::ordered_json{{"skipped", quality.skipped}}.dump();
  const DivergenceFigures& f = quality.figures;
  return nlohmann::ordered_json{{"text", quality.text},
                                {"windows", quality.windows},
                                {"kld", f.kld.mean},
                                {"kld_stderr", f.kld.error},
                                {"ppl_base", f.ppl_base},
                                {"ppl", f.ppl},
                                {"same_top", f.same_top},
                                {"decode_tok_s", {quality.decode_before, quality.decode_after}},
                                {"prefill_tok_s", {quality.prefill_before, quality.prefill_after}}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hone
