// hone calibrate: what a model's matrices read (an importance matrix) or how large its keys and values become, from text.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/memory.h"
#include "cli/calibration_text.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/ledger_flags.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/quantize_report.h"
#include "compress/calibrate/collect.h"
#include "compress/calibrate/kv_ranges.h"
#include "measure/sha256.h"
#include "models/model.h"

namespace hone {
namespace {

class CalibrateCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("-f,--file", text_, "calibration text; - is standard input")->required();
    flags.Add("-o,--output", output_, "the importance matrix to write (GGUF), or with --kv-scales the ranges (safetensors)")
        ->required();
    Flag* imatrix = flags.AddSwitch("--imatrix", imatrix_, "write an importance matrix in llama.cpp's form (the default)");
    flags.AddSwitch("--kv-scales", kv_scales_,
                    "write how large keys and values become, a layer and head: what hone quantize --kv-scheme makes scales of")
        ->excludes(imatrix);
    flags.Add("--chunk", chunk_, "tokens of a chunk; each is a sequence of its own")
        ->range(16, 1 << 16);
    flags.Add("--chunks", chunks_, "use at most this many chunks (default: all of the text)")
        ->range(1, 1 << 24);
    flags.AddSwitch("--parse-special", parse_special_, "special tokens in the text count as such");
    flags.Add("--memory", memory_,
              "most memory for the job (default: half of what is free); a model that does not fit is run a layer at a time")
        ->bytes();
    AddLedgerFlags(flags, &ledger_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_RETURN_IF_ERROR(CheckOutput(output_, {model_, text_}));
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    const Runtime& runtime = owner->runtime();
    memory_ = AllowedMemory(memory_);
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    PrintWarnings("calibrate", *checkpoint);
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
    HONE_TRY(const CalibrationText text,
             ReadCalibrationText({text_, chunk_, chunks_, parse_special_}, *tokenizer, config));
    LedgerEntry entry{.kind = "calibrate"};
    entry.model = checkpoint->path();
    entry.model_digest = ModelDigest(checkpoint->path());
    entry.recipe = kv_scales_ ? "keys and values" : "importance matrix";
    entry.dataset = text_;
    entry.dataset_digest =
        Sha256Hex({reinterpret_cast<const char*>(text.tokens.data()), text.tokens.size() * sizeof(text.tokens[0])});
    entry.other = output_;
    CalibrationReport report;
    const Result<void> done = kv_scales_ ? WriteRanges(checkpoint, text, flags, runtime, &report)
                                         : WriteImportance(checkpoint, text, flags, runtime, &report);
    if (!done) {
      entry.outcome = done.error().code == ErrorCode::kCancelled ? "interrupted" : "failed";
      entry.failures.push_back({entry.outcome, model_, done.error().message, 1});
      EnterRun(ledger_, runtime, std::move(entry));
      return done.error();
    }
    for (const std::string& warning : report.warnings) {
      if (!flags.quiet) std::fprintf(stderr, "hone calibrate: %s\n", warning.c_str());
      entry.failures.push_back({"warning", "", warning, 1});
    }
    const nlohmann::ordered_json json = {{"out", output_},
                                         {"out_digest", ModelDigest(output_)},
                                         {"tokens", report.tokens},
                                         {"chunks", report.chunks},
                                         {"dropped_tokens", report.dropped_tokens},
                                         {"peak_rss_bytes", PeakResidentBytes()},
                                         {"warnings", report.warnings}};
    entry.result = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    const double tokens = static_cast<double>(report.tokens);
    entry.figures = {{"tokens", {tokens, tokens, tokens, 1}, Direction::kNeither}};
    EnterRun(ledger_, runtime, entry);
    if (!flags.quiet)
      std::fputs(fmt::format("{}: {} from {} tokens in {} chunks; {} tokens at the end of the text were left out\n", output_,
                             entry.recipe, report.tokens, report.chunks, report.dropped_tokens)
                     .c_str(),
                 stderr);
    if (flags.json) WriteOut(entry.result);
    return kExitDone;
  }

 private:
  using Shared = std::shared_ptr<const Checkpoint>;

  // A walk over the layers, and where its streams lie; refused if it cannot be done in the memory there is.
  Result<std::unique_ptr<LayerWalk>> Walk(const Shared& checkpoint, const CalibrationText& text, const Runtime& runtime,
                                          StreamOptions* stream) const {
    HONE_TRY(auto walk, LayerWalk::Open(checkpoint, runtime, text.chunk_tokens));
    *stream = StreamsWithin(*walk, text, memory_, output_ + ".streams");
    const uint64_t peak = WalkMemory(*walk, text, *stream);
    HONE_RETURN_IF_ERROR(CheckPeak(peak, peak, memory_));
    return walk;
  }

  Result<void> WriteRanges(const Shared& checkpoint, const CalibrationText& text, const CommonFlags& flags,
                           const Runtime& runtime, CalibrationReport* report) const {
    StreamOptions stream;
    HONE_TRY(const auto walk, Walk(checkpoint, text, runtime, &stream));
    ProgressLine progress("reading keys and values", flags.progress());
    HONE_TRY(const KvRanges ranges, CollectKvRanges(*walk, text, stream, [&](uint64_t done, uint64_t total) {
               progress.Update(done, total);
               return !Interrupted();
             }));
    report->chunks = std::max<uint64_t>(1, text.tokens.size() / text.chunk_tokens);
    report->tokens = std::min<uint64_t>(text.tokens.size(), report->chunks * text.chunk_tokens);
    report->dropped_tokens = text.tokens.size() - report->tokens;
    return WriteKvRanges(output_, ranges);
  }

  // The model as a whole where it fits, which is what llama.cpp does; else a layer at a time.
  Result<void> WriteImportance(const Shared& checkpoint, const CalibrationText& text, const CommonFlags& flags,
                               const Runtime& runtime, CalibrationReport* report) const {
    ProgressLine progress("calibrating", flags.progress());
    const auto tell = [&](uint64_t done, uint64_t total) {
      progress.Update(done, total);
      return !Interrupted();
    };
    HONE_TRY(const uint64_t weights, WeightBytes(*checkpoint));
    Imatrix imatrix;
    if (weights + (uint64_t{192} << 20) <= memory_) {
      HONE_RETURN_IF_ERROR(CheckMemory(*checkpoint, 0));
      const LoadOptions load{.max_rows = text.chunk_tokens, .exact = flags.exact, .max_context = text.chunk_tokens};
      HONE_TRY(const std::unique_ptr<Model> model, Model::Load(checkpoint, runtime, load));
      HONE_TRY(imatrix, CollectImatrix(*model, *checkpoint, text, tell, report));
    } else {
      StreamOptions stream;
      HONE_TRY(const auto walk, Walk(checkpoint, text, runtime, &stream));
      HONE_TRY(imatrix, CollectImatrix(*walk, text, stream, tell, report));
    }
    imatrix.datasets = {text_};
    return WriteImatrix(output_, imatrix);
  }

  std::string model_, text_, output_;
  int chunk_ = 512, chunks_ = 0;
  uint64_t memory_ = 0;
  bool imatrix_ = false, kv_scales_ = false, parse_special_ = false;
  LedgerFlags ledger_;
};

}  // namespace

std::unique_ptr<Command> MakeCalibrateCommand() { return std::make_unique<CalibrateCommand>(); }

}  // namespace hone
