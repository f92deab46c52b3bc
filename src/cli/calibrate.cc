// hone calibrate: an importance matrix of a model, from text.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "compress/calibrate/collect.h"
#include "models/model.h"

namespace hone {
namespace {

class CalibrateCommand : public Command {
 public:
  void AddFlags(CLI::App& app) override {
    app.add_option("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    app.add_option("-f,--file", text_, "calibration text; - is standard input")->required();
    app.add_option("-o,--output", output_, "the importance matrix to write (GGUF)")->required();
    app.add_flag("--imatrix", imatrix_, "write llama.cpp's form (the only one, and the default)");
    app.add_option("--chunk", chunk_, "tokens of a chunk; each is a sequence of its own")
        ->check(CLI::Range(16, 1 << 16));
    app.add_option("--chunks", chunks_, "use at most this many chunks (default: all of the text)")
        ->check(CLI::Range(1, 1 << 24));
    app.add_flag("--parse-special", parse_special_, "special tokens in the text count as such");
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_RETURN_IF_ERROR(CheckOutput(output_, {model_, text_}));
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
    HONE_TRY(const CalibrationText text, ReadCalibration(*tokenizer, config));
    HONE_RETURN_IF_ERROR(CheckMemory(*checkpoint, 0));
    ProgressLine progress("loading", flags.progress());
    LoadOptions load{.max_rows = text.chunk_tokens, .exact = flags.exact, .max_context = text.chunk_tokens};
    load.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
    HONE_TRY(const std::unique_ptr<Model> model, Model::Load(checkpoint, runtime->runtime(), load));
    progress.Clear();
    ProgressLine reading("calibrating", flags.progress());
    CalibrationReport report;
    HONE_TRY(Imatrix imatrix, CollectImatrix(
                                  *model, *checkpoint, text,
                                  [&](uint64_t done, uint64_t total) {
                                    reading.Update(static_cast<double>(done) / static_cast<double>(total),
                                                   fmt::format("{} of {} tokens", done, total));
                                    return !Interrupted();
                                  },
                                  &report));
    reading.Clear();
    imatrix.datasets = {text_};
    HONE_RETURN_IF_ERROR(WriteImatrix(output_, imatrix));
    if (!flags.quiet) {
      for (const std::string& warning : report.warnings) std::fprintf(stderr, "hone calibrate: %s\n", warning.c_str());
      std::fputs(
          fmt::format("{}: {} matrices from {} tokens in {} chunks; {} tokens at the end of the text were left out\n",
                      output_, imatrix.entries.size(), report.tokens, report.chunks, report.dropped_tokens)
              .c_str(),
          stderr);
    }
    return kExitDone;
  }

 private:
  Result<CalibrationText> ReadCalibration(const Tokenizer& tokenizer, const ModelConfig& config) const {
    HONE_TRY(const std::string bytes, ReadText(text_));
    CalibrationText text;
    text.tokens = tokenizer.Encode(bytes, {.add_special = true, .parse_special = parse_special_});
    if (text.tokens.empty()) return InvalidInput(text_ + ": no tokens; calibration needs text");
    if (text.tokens.size() == 1 && bytes.empty()) return InvalidInput(text_ + ": empty; calibration needs text");
    for (const int32_t id : text.tokens) {
      if (id < 0 || id >= config.vocab)
        return InvalidInput(fmt::format("{}: token {} of the tokenizer is not in the model's vocabulary of {}", text_,
                                        id, config.vocab));
    }
    text.chunk_tokens = std::min(chunk_, config.context);
    if (chunks_ > 0)
      text.tokens.resize(std::min<size_t>(text.tokens.size(), static_cast<size_t>(chunks_) * text.chunk_tokens));
    if (tokenizer.adds_bos() && tokenizer.bos()) text.bos = *tokenizer.bos();
    return text;
  }

  std::string model_, text_, output_;
  int chunk_ = 512, chunks_ = 0;
  bool imatrix_ = false, parse_special_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCalibrateCommand() { return std::make_unique<CalibrateCommand>(); }

}  // namespace hone
