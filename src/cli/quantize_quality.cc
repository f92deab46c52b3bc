// See quantize_quality.h.
#include "cli/quantize_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/check.h"
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

constexpr int kLongestWindow = 512;
constexpr int kPrompt = 128, kSteps = 24, kRounds = 3;  // of the speeds

int WindowOf(const ModelConfig& config) { return std::min(kLongestWindow, config.context); }

struct Loaded {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::unique_ptr<Model> model;
};

Result<Loaded> Load(const std::string& path, const Runtime& runtime) {
  Loaded loaded;
  HONE_TRY(loaded.checkpoint, OpenModel(path));
  HONE_TRY(const ModelConfig config, ReadModelConfig(*loaded.checkpoint));
  HONE_RETURN_IF_ERROR(CheckMemory(*loaded.checkpoint, 0));
  HONE_TRY(loaded.model, Model::Load(loaded.checkpoint, runtime, {.max_rows = kScoreRows, .max_context = WindowOf(config)}));
  return loaded;
}

// What measuring takes beside the weights: logits of a step for two models, caches, the program.
uint64_t BytesBeside(const ModelConfig& config) {
  return (uint64_t{96} << 20) + uint64_t{4} * kScoreRows * static_cast<uint64_t>(config.vocab) * sizeof(float) +
         2 * ModelRunner::KvBytes(config, KvType::kBF16, 1, WindowOf(config));
}

struct Speed {
  double prefill = 0, decode = 0;
};

Speed TimeOnce(ModelRunner& runner, std::span<const int32_t> tokens, const Runtime& runtime) {
  const int prompt = static_cast<int>(std::min<size_t>(tokens.size(), kPrompt));
  const double start = runtime.clock->Now();
  runner.Prefill(0, tokens.subspan(0, prompt));
  const double filled = runtime.clock->Now();
  for (int step = 0; step < kSteps; ++step) {
    const int32_t token = tokens[step % prompt];
    const ModelRunner::Rows row{.first_position = prompt + step, .tokens = {&token, 1}};
    runner.Forward({&row, 1});
  }
  const double end = runtime.clock->Now();
  return {prompt / (filled - start), kSteps / (end - filled)};
}

// Of the models turn by turn, the best round of each.
std::vector<Speed> TimeAll(const std::vector<Model*>& models, std::span<const int32_t> tokens, const Runtime& runtime) {
  std::vector<std::unique_ptr<ModelRunner>> runners;
  for (Model* model : models)
    runners.push_back(std::make_unique<ModelRunner>(*model, runtime, KvType::kBF16, 1, WindowOf(model->config()), 1));
  std::vector<Speed> best(models.size());
  for (int round = 0; round < kRounds && !Interrupted(); ++round) {
    for (size_t i = 0; i < models.size(); ++i) {
      const Speed speed = TimeOnce(*runners[i], tokens, runtime);
      best[i] = {std::max(best[i].prefill, speed.prefill), std::max(best[i].decode, speed.decode)};
    }
  }
  return best;
}

void SetSpeeds(const Speed& before, const Speed& after, Quality* quality) {
  quality->prefill_before = before.prefill, quality->prefill_after = after.prefill;
  quality->decode_before = before.decode, quality->decode_after = after.decode;
}

Quality Skipped(const std::string& why) {
  Quality quality;
  quality.skipped = why;
  return quality;
}

struct Measured {
  const Tokenizer& tokenizer;
  const ProtocolRules& rules;
  const EvalText& text;
  const std::vector<Window>& windows;
  const CommonFlags& flags;
  const Runtime& runtime;
};

Result<Quality> MeasureTogether(const QualityRequest& request, const Measured& by, Quality quality) {
  auto before = Load(request.original, by.runtime);
  if (!before) return Skipped("hone does not run the original: " + before.error().message);
  auto after = Load(request.result, by.runtime);
  if (!after) return Skipped("hone does not run the result: " + after.error().message);
  ProgressLine progress("measuring", by.flags.progress());
  const EvalCallbacks callbacks{[&](double share, double) { progress.Update(share, "divergence"); },
                                [] { return Interrupted(); }};
  HONE_TRY(const DivergenceResult result,
           MeasureDivergence(*after->model, {.model = before->model.get()}, by.runtime, KvType::kBF16, by.text,
                             by.windows, nullptr, callbacks));
  if (result.rows.empty()) return Skipped("stopped");
  quality.figures = FiguresOf(result.rows);
  const std::vector<Speed> speeds = TimeAll({before->model.get(), after->model.get()}, by.text.tokens, by.runtime);
  SetSpeeds(speeds[0], speeds[1], &quality);
  return quality;
}

// One model in memory at a time; the original's log-probabilities wait in a file beside the result.
Result<Quality> MeasureApart(const QualityRequest& request, const Measured& by, Quality quality) {
  const std::string path = request.result + ".kld.partial";
  const struct Remover {
    const std::string& path;
    ~Remover() { std::remove(path.c_str()); }
  } remover{path};
  ProgressLine progress("measuring", by.flags.progress());
  const char* stage = "the original";
  const EvalCallbacks callbacks{[&](double share, double) { progress.Update(share, stage); },
                                [] { return Interrupted(); }};
  Speed speed_before;
  std::vector<double> nll;  // the file holds no probability below e^-16 of the best, which the right token may have
  {
    auto before = Load(request.original, by.runtime);
    if (!before) return Skipped("hone does not run the original: " + before.error().message);
    const KldShape shape{WindowOf(before->model->config()), before->model->config().vocab, static_cast<int>(by.windows.size())};
    HONE_TRY(const auto writer, KldWriter::Create(path, shape, by.text.tokens));
    const Result<void> saved =
        SaveLogits(*before->model, by.runtime, KvType::kBF16, by.text, by.windows, writer.get(), callbacks);
    if (Interrupted()) return Skipped("stopped");
    HONE_RETURN_IF_ERROR(saved);
    HONE_TRY(const PerplexityResult perplexity, MeasurePerplexity(*before->model, by.runtime, KvType::kBF16, by.tokenizer,
                                                                  by.text, by.rules, callbacks));
    if (perplexity.interrupted) return Skipped("stopped");
    nll = perplexity.nll;
    speed_before = TimeAll({before->model.get()}, by.text.tokens, by.runtime)[0];
  }
  stage = "the result";
  auto after = Load(request.result, by.runtime);
  if (!after) return Skipped("hone does not run the result: " + after.error().message);
  HONE_TRY(const auto base, KldFile::Open(path));
  HONE_TRY(DivergenceResult result, MeasureDivergence(*after->model, {.file = base.get()}, by.runtime, KvType::kBF16,
                                                      by.text, by.windows, nullptr, callbacks));
  if (result.rows.empty()) return Skipped("stopped");
  HONE_CHECK(result.interrupted || nll.size() == result.rows.size());
  for (size_t i = 0; i < result.rows.size(); ++i) result.rows[i].nll_base = nll[i];
  quality.figures = FiguresOf(result.rows);
  SetSpeeds(speed_before, TimeAll({after->model.get()}, by.text.tokens, by.runtime)[0], &quality);
  return quality;
}

double PerplexityChange(const DivergenceFigures& figures) {
  return figures.ppl_base > 0 ? 100 * (figures.ppl / figures.ppl_base - 1) : 0;
}

// Rounds differ by a few percent; less than that is no difference.
std::vector<std::string> SlowerIn(const Quality& quality) {
  std::vector<std::string> slower;
  if (quality.decode_after < 0.97 * quality.decode_before) slower.emplace_back("decode");
  if (quality.prefill_after < 0.97 * quality.prefill_before) slower.emplace_back("prefill");
  return slower;
}

}  // namespace

Result<Quality> MeasureQuality(const QualityRequest& request, const CommonFlags& flags, const Runtime& runtime) {
  Quality quality;
  quality.text = request.text;
  if (quality.text.empty()) {
    const auto assets = AssetsFolder();
    if (!assets) return Skipped("no held-out text: " + assets.error().message);
    quality.text = *assets + "/calibration/held-out.txt";
  }
  HONE_TRY(const std::string bytes, ReadText(quality.text));
  auto before = OpenModel(request.original);
  auto after = OpenModel(request.result);
  const auto config = before ? ReadModelConfig(**before) : Result<ModelConfig>(before.error());
  if (!config) return Skipped("hone does not run the original: " + config.error().message);
  if (!after) return Skipped("hone does not run the result: " + after.error().message);
  if (config->context < kPrompt + kSteps) return Skipped(fmt::format("the model's context is shorter than {} tokens", kPrompt + kSteps));
  HONE_TRY(const uint64_t bytes_before, WeightBytes(**before));
  HONE_TRY(const uint64_t bytes_after, WeightBytes(**after));
  const uint64_t beside = BytesBeside(*config), apart = std::max(bytes_before, bytes_after) + beside;
  if (request.memory_bytes > 0 && apart > request.memory_bytes)
    return Skipped(fmt::format("it needs {} of memory for the larger model, --memory allows {}; hone eval kld compares them",
                               FormatBytes(apart), FormatBytes(request.memory_bytes)));
  const bool together = request.memory_bytes == 0 || bytes_before + bytes_after + beside <= request.memory_bytes;
  HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(**before, flags.pre));
  const EvalText text = PrepareText(*tokenizer, bytes, Protocol::kLlamaCpp);
  HONE_TRY(const ProtocolRules rules, ResolveRules({Protocol::kLlamaCpp, WindowOf(*config), 0, request.windows}));
  auto windows = PlanWindows(rules, static_cast<int64_t>(text.tokens.size()));
  if (!windows) return Skipped(quality.text + ": " + windows.error().message);
  quality.windows = static_cast<int>(windows->size());
  const Measured measured{*tokenizer, rules, text, *windows, flags, runtime};
  return together ? MeasureTogether(request, measured, std::move(quality))
                  : MeasureApart(request, measured, std::move(quality));
}

std::string QualityText(const Quality& quality) {
  if (!quality.skipped.empty()) return "  quality not measured: " + quality.skipped + "\n";
  const DivergenceFigures& f = quality.figures;
  std::string text = fmt::format(
      "  on {} windows of {}: divergence (KL) {:.5f} +- {:.5f}, perplexity {:.4f} -> {:.4f} ({:+.2f} %), same best token "
      "{:.2f} %\n",
      quality.windows, quality.text, f.kld.mean, f.kld.error, f.ppl_base, f.ppl, PerplexityChange(f), 100 * f.same_top);
  text += fmt::format("  tokens a second before and after: decode {:.1f} -> {:.1f}, prefill {:.0f} -> {:.0f}\n",
                      quality.decode_before, quality.decode_after, quality.prefill_before, quality.prefill_after);
  for (const std::string& work : SlowerIn(quality)) text += fmt::format("  slower in {} than the original\n", work);
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
                                {"ppl_change_percent", PerplexityChange(f)},
                                {"same_top", f.same_top},
                                {"decode_tok_s", {quality.decode_before, quality.decode_after}},
                                {"prefill_tok_s", {quality.prefill_before, quality.prefill_after}},
                                {"slower_in", SlowerIn(quality)}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace hone
