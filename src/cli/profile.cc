// hone profile: models under the engine over input x output x requests at once x format: latencies, where the time goes, the
// bottleneck by name, and how good hone plan's prediction was. How it is measured: docs/measure.md.
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/ledger_flags.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/report_page.h"
#include "measure/plan/fitted.h"
#include "measure/plan/read_shape.h"
#include "measure/profile/profile.h"
#include "measure/roof_cache.h"

namespace hone {
namespace {

class ProfileCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODELS", models_, "GGUF files, Hugging Face folders, builtin or builtin-draft; several, as one model in several formats, side by side")
        ->required();
    flags.Add("--kv-formats", kv_formats_, "formats of the cache to run side by side (default: that of --kv)")->delimiter(',');
    flags.Add("--input", options_.input, "tokens of prompts (default 128,1024)")->delimiter(',');
    flags.Add("--output", options_.output, "tokens of answers (default 32,128)")->delimiter(',');
    flags.Add("--concurrency", options_.concurrency, "requests at once (default 1)")->delimiter(',');
    flags.Add("--rounds", options_.rounds, "rounds of each cell (default 5, at least 3 of cells that take long)")
        ->range(1, 10000);
    flags.Add("--max-sequences", places_, "places of the engine (default: the most of --concurrency)")->range(1, kMaxSequences);
    flags.Add("--kv-bytes", kv_bytes_, "memory of the KV cache (default: enough)")->bytes();
    AddLedgerFlags(flags, &ledger_);
    AddPageFlag(flags, &html_);
    flags.AddSwitch("--no-keep", no_keep_, "do not keep the fitted constants for hone plan");
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_RETURN_IF_ERROR(CheckPage(html_, models_));
    options_.seed = flags.seed.value_or(1);
    HONE_TRY(const std::vector<ProfileCell> cells, PlanCells(flags));
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    const Runtime& runtime = owner->runtime();
    HONE_TRY(const std::vector<LoadedModel> loaded, Load(cells, flags, runtime));
    ProgressLine roof_progress("measuring the machine", flags.progress());
    const Roof roof = CachedRoof(runtime, false, [&](double share) { roof_progress.Update(share); });
    roof_progress.Clear();
    const std::string machine = RoofKey(runtime, roof.machine);
    std::vector<ProfileModel> variants;
    for (const LoadedModel& one : loaded) {
      ProfileModel model{one.name, one.checkpoint, one.model, one.tokenizer, one.engine.get(), one.load_s, kv_names_[variants.size()],
                         AssumedEfficiency({.cpu = true})};
      HONE_TRY(const ModelConfig config, ReadModelConfig(*one.checkpoint));
      const std::string kernel(Info(StoredFormat(*one.checkpoint, ShapeOfConfig(config)).kernel).name);
      LoadFitted(FittedPath(), machine, kernel, &model.before);
      variants.push_back(std::move(model));
    }
    ProgressLine progress("profiling " + loaded[0].name, flags.progress());
    const ProfileCallbacks callbacks{[&](double share, const std::string& what) { progress.Update(share, what); },
                                     [] { return Interrupted(); }};
    const std::vector<ProfileReport> reports = RunProfile(variants, cells, options_, roof, runtime, callbacks);
    progress.Clear();
    return Finish(reports, machine, loaded[0].checkpoint->path(), flags, runtime);
  }

 private:
  // The grid that every model can hold.
  Result<std::vector<ProfileCell>> PlanCells(const CommonFlags& flags) const {
    int context = flags.ctx > 0 ? flags.ctx : 1 << 30;
    for (const std::string& model : models_) {
      HONE_TRY(const auto checkpoint, OpenModel(model));
      HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
      context = std::min(context, config.context);
    }
    return PlanProfile(options_, context);
  }

  // Every model with every format of the cache; formats share the weights.
  Result<std::vector<LoadedModel>> Load(const std::vector<ProfileCell>& cells, const CommonFlags& flags, const Runtime& runtime) {
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
    std::vector<LoadedModel> loaded;
    for (const std::string& model : models_) {
      for (size_t i = 0; i < std::max<size_t>(1, kv_formats_.size()); ++i) {
        if (!kv_formats_.empty()) sized.kv = kv_formats_[i];
        kv_names_.push_back(sized.kv_name());
        if (i == 0) {
          HONE_TRY(LoadedModel first, LoadModel(model, sized, engine, &runtime));
          loaded.push_back(std::move(first));
          continue;
        }
        LoadedModel next;
        const LoadedModel& same = loaded.back();
        next.checkpoint = same.checkpoint, next.tokenizer = same.tokenizer, next.model = same.model;
        next.name = same.name, next.load_s = same.load_s;
        EngineOptions other = same.engine->options();
        HONE_TRY(other.kv, sized.kv_type());
        other.kv_bytes = kv_bytes_;
        HONE_TRY(next.engine, Engine::Create(next.model, next.tokenizer, runtime, other));
        loaded.push_back(std::move(next));
      }
    }
    return loaded;
  }

  Result<int> Finish(const std::vector<ProfileReport>& reports, const std::string& machine, const std::string& path,
                     const CommonFlags& flags, const Runtime& runtime) const {
    for (const ProfileReport& report : reports) {
      if (no_keep_ || report.interrupted || report.cells.empty()) continue;
      if (const auto saved = SaveFitted(FittedPath(), machine, report.kernel, report.fitted); !saved)
        runtime.log->Warn("{}", saved.error().message);
    }
    const std::string json = ProfileJson(reports, runtime);
    LedgerEntry entry = ProfileEntry(reports, path, json);
    entry.seed = options_.seed;
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : ProfileTable(reports), html_, ledger_, runtime, std::move(entry)));
    if (reports[0].interrupted) return kExitInterrupted;
    if (!reports[0].failed.empty()) return Error{ErrorCode::kInternal, reports[0].failed + "; the cells before it are in the result"};
    return kExitDone;
  }

  std::vector<std::string> models_, kv_formats_, kv_names_;
  LedgerFlags ledger_;
  ProfileOptions options_;
  std::string html_;
  int places_ = 0;
  uint64_t kv_bytes_ = 0;
  bool no_keep_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeProfileCommand() { return std::make_unique<ProfileCommand>(); }

}  // namespace hone
