// hone bench: how fast a model is here, each figure beside the roof of the machine; --compare with another model or
// run.
#include "measure/bench.h"

#include <sys/stat.h>


#include "base/memory.h"
#include "cache/free_memory.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/ledger_flags.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "engine/limits.h"
#include "measure/answer_check.h"
#include "measure/ledger/entries.h"
#include "measure/roof_cache.h"

namespace hone {
namespace {

// A file that begins with '{' holds an earlier report; everything else is a model.
bool IsReport(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  int c = std::fgetc(file);
  while (c == ' ' || c == '\n' || c == '\r' || c == '\t') c = std::fgetc(file);
  std::fclose(file);
  return c == '{';
}

class BenchCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("--prefill", options_.prefill, "lengths of prompts (default 128,512,2048,8192; 0: none)")
        ->delimiter(',');
    flags.Add("--decode", options_.decode, "steps of decode in a round (default 32)")
        ->range(1, 100000);
    flags.Add("--context", options_.context, "tokens cached before decode (default 0,2048,8192)")->delimiter(',');
    flags.Add("--batch", options_.batch,
                   "sequences decoded at once (default 1,4,8,16,32); with --context every pair")
        ->delimiter(',');
    flags.AddSwitch("--no-decode", options_.no_decode, "prefill rows only");
    flags.Add("--rounds", options_.rounds,
                   "rounds of each row (default 7, fewer for rows that take long; with a model to compare 8)")
        ->range(1, 10000);
    flags.Add("--compare", compare_,
                   "another model, timed round by round beside MODEL, or the --json output of an earlier run");
    AddLedgerFlags(flags, &ledger_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    HONE_TRY(options_.kv, flags.kv_type());
    options_.exact = flags.exact;
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    std::string earlier;
    const bool report_given = !compare_.empty() && IsReport(compare_);
    if (report_given) {
      HONE_TRY(earlier, ReadText(compare_));
    }
    HONE_TRY(const auto checkpoint, OpenModel(model_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    HONE_TRY(const BenchPlan plan, PlanBench(options_, config, FreeMemoryBytes()));
    if (report_given) HONE_RETURN_IF_ERROR(CheckReport(earlier, plan).Context(compare_));
    HONE_TRY(const BenchModel mine, Load(model_, plan, *runtime, flags));
    BenchModel other;
    const bool beside = !compare_.empty() && !report_given;
    if (beside) {
      HONE_TRY(other, Load(compare_, plan, *runtime, flags));
    }
    HONE_TRY(std::string check, Check(mine, *runtime, flags));
    if (beside) HONE_RETURN_IF_ERROR(Check(other, *runtime, flags).Context(compare_));

    ProgressLine roof_progress("measuring the machine", flags.progress());
    Roof roof = CachedRoof(runtime->runtime(), false, [&](double share) { roof_progress.Update(share); });
    roof_progress.Clear();
    ProgressLine progress("benching " + mine.name, flags.progress());
    const BenchCallbacks callbacks{[&](double share, const std::string& what) { progress.Update(share, what); },
                                   [] { return Interrupted(); }};
    BenchReport report =
        RunBench(mine, beside ? &other : nullptr, plan, options_, std::move(roof), runtime->runtime(), callbacks);
    progress.Clear();
    report.check = std::move(check);
    report.kv = flags.kv_name();
    if (report_given) HONE_RETURN_IF_ERROR(CompareWithReport(earlier, compare_, &report).Context(compare_));
    const std::string json = BenchJson(report, runtime->runtime());
    EnterRun(ledger_, runtime->runtime(), BenchEntry(report, mine.checkpoint->path(), json));
    WriteOut(flags.json ? json : BenchTable(report));
    return report.interrupted ? kExitInterrupted : kExitDone;
  }

 private:
  static LoadOptions LoadFor(const BenchPlan& plan, bool exact) {
    LoadOptions load;
    load.max_rows = kDefaultStepTokens;  // as the engine's steps
    for (const BenchWork& work : plan.works) load.max_rows = std::max(load.max_rows, work.batch);
    load.max_context = plan.max_context;
    load.exact = exact;
    return load;
  }

  static Result<BenchModel> Load(const std::string& path, const BenchPlan& plan, const RuntimeOwner& owner,
                                 const CommonFlags& flags) {
    const Runtime& runtime = owner.runtime();
    BenchModel model;
    const size_t before = ResidentBytes();
    const double start_s = runtime.clock->Now();
    HONE_TRY(model.checkpoint, OpenModel(path));
    PrintWarnings("bench", *model.checkpoint);
    model.name = ModelName(path, *model.checkpoint);
    HONE_RETURN_IF_ERROR(CheckMemory(*model.checkpoint, 0));
    ProgressLine progress("loading " + model.name, flags.progress());
    LoadOptions load = LoadFor(plan, flags.exact);
    load.deterministic = flags.deterministic;
    load.packed_cache = flags.packed_cache_folder();
    load.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
    HONE_TRY(model.model, Model::Load(model.checkpoint, runtime, load));
    model.load_s = runtime.clock->Now() - start_s;
    model.rss_bytes = ResidentBytes();
    model.peak_rss_bytes = PeakResidentBytes();
    runtime.log->Debug("{} took {} of memory", model.name,
                       FormatBytes(model.rss_bytes - std::min(before, model.rss_bytes)));
    return model;
  }

  // Against the same weights with 32-bit activations, where there is memory for a second copy.
  static Result<std::string> Check(const BenchModel& model, const RuntimeOwner& owner, const CommonFlags& flags) {
    std::unique_ptr<Model> reference;
    const uint64_t free_bytes = FreeMemoryBytes();
    if (free_bytes == 0 || model.model->weight_bytes() + (uint64_t{1} << 30) < free_bytes) {
      LoadOptions load;
      load.max_rows = 32;
      load.max_context = 64;
      load.exact = true;
      ProgressLine progress("loading an exact copy to check the answers", flags.progress());
      load.progress = [&](uint64_t done, uint64_t total) { progress.Update(done, total); };
      HONE_TRY(reference, Model::Load(model.checkpoint, owner.runtime(), load));
    }
    HONE_TRY(const KvType kv, flags.kv_type());
    return CheckAnswers(*model.model, reference.get(), owner.runtime(), kv);
  }

  LedgerFlags ledger_;
  std::string model_, compare_;
  BenchOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace hone
