// hone profile: a model under the engine over input x output x requests at once: latencies, where the time goes, the
// bottleneck by name, and how good hone plan's prediction was. How it is measured: docs/measure.md.
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/ledger_flags.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "measure/plan/fitted.h"
#include "measure/plan/read_shape.h"
#include "measure/profile/profile.h"
#include "measure/roof_cache.h"

namespace hone {
namespace {

class ProfileCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("--input", options_.input, "tokens of prompts (default 128,1024)")->delimiter(',');
    flags.Add("--output", options_.output, "tokens of answers (default 32,128)")->delimiter(',');
    flags.Add("--concurrency", options_.concurrency, "requests at once (default 1)")->delimiter(',');
    flags.Add("--rounds", options_.rounds, "rounds of each cell (default 5, at least 3 of cells that take long)")
        ->range(1, 10000);
    flags.Add("--max-sequences", places_, "places of the engine (default: the most of --concurrency)")->range(1, kMaxSequences);
    flags.Add("--kv-bytes", kv_bytes_, "memory of the KV cache (default: enough)")->bytes();
    AddLedgerFlags(flags, &ledger_);
    flags.AddSwitch("--no-keep", no_keep_, "do not keep the fitted constants for hone plan");
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    options_.seed = flags.seed.value_or(1);
    const int context = flags.ctx > 0 ? std::min(flags.ctx, config.context) : config.context;
    HONE_TRY(const std::vector<ProfileCell> cells, PlanProfile(options_, context));
    int longest = 0, most = 1;
    for (const ProfileCell& cell : cells) {
      longest = std::max(longest, cell.input + cell.output);
      most = std::max(most, cell.concurrency);
    }
    EngineOptions engine;
    engine.max_sequences = places_ > 0 ? places_ : most;
    engine.max_queue = most;
    engine.step_tokens = std::max(kDefaultStepTokens, engine.max_sequences);
    engine.prefix_cache = false;
    engine.kv_bytes = kv_bytes_;
    CommonFlags sized = flags;
    sized.ctx = longest;
    HONE_TRY(LoadedModel loaded, LoadModel(model_, sized, engine));
    const Runtime& runtime = loaded.runtime->runtime();
    ProgressLine roof_progress("measuring the machine", flags.progress());
    Roof roof = CachedRoof(runtime, false, [&](double share) { roof_progress.Update(share); });
    roof_progress.Clear();

    const ProfileModel model{loaded.name, loaded.checkpoint, loaded.model, loaded.tokenizer, loaded.engine.get(), loaded.load_s};
    const std::string machine = RoofKey(runtime, roof.machine);
    ProgressLine progress("profiling " + loaded.name, flags.progress());
    const ProfileCallbacks callbacks{[&](double share, const std::string& what) { progress.Update(share, what); },
                                     [] { return Interrupted(); }};
    Efficiency before = AssumedEfficiency({.cpu = true});
    const std::string kernel = KernelName(*loaded.checkpoint, config);
    LoadFitted(FittedPath(), machine, kernel, &before);
    HONE_TRY(ProfileReport report, RunProfile(model, cells, options_, std::move(roof), before, runtime, callbacks));
    progress.Clear();
    report.kv = flags.kv_name();
    if (!no_keep_ && !report.interrupted && !report.cells.empty()) {
      if (const auto saved = SaveFitted(FittedPath(), machine, kernel, report.fitted); !saved)
        runtime.log->Warn("{}", saved.error().message);
    }
    const std::string json = ProfileJson(report, runtime);
    EnterRun(ledger_, runtime, ProfileEntry(report, loaded.checkpoint->path(), json));
    WriteOut(flags.json ? json : ProfileTable(report));
    return report.interrupted ? kExitInterrupted : kExitDone;
  }

 private:
  static std::string KernelName(const Checkpoint& checkpoint, const ModelConfig& config) {
    return std::string(Info(StoredFormat(checkpoint, ShapeOfConfig(config)).kernel).name);
  }

  std::string model_;
  LedgerFlags ledger_;
  ProfileOptions options_;
  int places_ = 0;
  uint64_t kv_bytes_ = 0;
  bool no_keep_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeProfileCommand() { return std::make_unique<ProfileCommand>(); }

}  // namespace hone
