// hone calibrate: an importance matrix of a model, from text.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/calibration_text.h"
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
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("-f,--file", text_, "calibration text; - is standard input")->required();
    flags.Add("-o,--output", output_, "the importance matrix to write (GGUF)")->required();
    flags.AddSwitch("--imatrix", imatrix_, "write llama.cpp's form (the only one, and the default)");
    flags.Add("--chunk", chunk_, "tokens of a chunk; each is a sequence of its own")
        ->range(16, 1 << 16);
    flags.Add("--chunks", chunks_, "use at most this many chunks (default: all of the text)")
        ->range(1, 1 << 24);
    flags.AddSwitch("--parse-special", parse_special_, "special tokens in the text count as such");
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_RETURN_IF_ERROR(CheckOutput(output_, {model_, text_}));
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
    HONE_TRY(const CalibrationText text,
             ReadCalibrationText({text_, chunk_, chunks_, parse_special_}, *tokenizer, config));
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
  std::string model_, text_, output_;
  int chunk_ = 512, chunks_ = 0;
  bool imatrix_ = false, parse_special_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeCalibrateCommand() { return std::make_unique<CalibrateCommand>(); }

}  // namespace hone
