// hone plan: what a model needs and how fast it can be, on this machine or one that is described, before anything is
// loaded; and which step to take next. What is computed and assumed: docs/plan.md.
#include <filesystem>

#include "cache/free_memory.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/ledger_flags.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/report_page.h"
#include "measure/plan/fitted.h"
#include "measure/plan/plan_report.h"
#include "measure/roof_cache.h"

namespace hone {
namespace {

// Milliseconds or seconds: "40ms", "1.5s", "40" (milliseconds).
Result<double> ParseTime(std::string_view flag, const std::string& text) {
  if (text.empty()) return 0.0;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::string_view unit = end;
  const bool known = unit.empty() || unit == "ms" || unit == "s";
  if (end == text.c_str() || !known || !(value > 0) || value > 1e9)
    return UsageError(std::string(flag) + " '" + text + "': wanted a time, as 40ms or 1.5s");
  return unit == "s" ? value : value / 1e3;
}

class PlanCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("MODEL", model_, "model file or folder, config.json, or a public shape (--list)");
    flags.AddSwitch("--list", list_, "print the public shapes, cards and formats that are known");
    flags.Add("--format", format_, "weights as: bf16, q8_0, q4_k_m, awq-4bit-g128 ... (default: a file's own, else bf16)");
    const char* hardware = "Hardware (default: this machine)";
    flags.Add("--card", card_, "a known card or machine (--list)")->group(hardware);
    flags.Add("--count", count_, "so many of them")->range(1, 4096)->group(hardware);
    flags.Add("--memory", memory_, "memory of one, as 80GB")->group(hardware);
    flags.Add("--bandwidth", bandwidth_, "bytes a second that one reads, as 2TB/s")->group(hardware);
    flags.Add("--compute", compute_, "16-bit operations a second of one, as 312T")->group(hardware);
    flags.Add("--link", link_, "bytes a second between two, one way, as 300GB/s")->group(hardware);
    flags.Add("--split", split_, "how several share a model: tensor or layers (default tensor)")
        ->one_of({"tensor", "layers"})
        ->group(hardware);
    flags.Add("--reserve", reserve_, "share of the memory that stays free (default 0.1)")
        ->range(0.0, 0.9)
        ->group(hardware);
    const char* load = "Load";
    flags.Add("--input", input_, "tokens of a prompt (default 512)")->range(1, 1 << 24)->group(load);
    flags.Add("--output", output_, "tokens of an answer (default 128)")->range(1, 1 << 24)->group(load);
    flags.Add("--concurrency", concurrency_, "requests at once (default 1)")->range(1, 1 << 20)->group(load);
    flags.Add("--shared-input", shared_, "tokens that prompts begin with in common")->range(0, 1 << 24)->group(load);
    flags.Add("--batch", batches_, "predict for so many at once (default 1,8,32)")->delimiter(',')->range(1, 1 << 20)->group(load);
    const char* asked = "What is asked (then --steps plans how to get there)";
    flags.Add("--ttft", ttft_, "longest time to the first token, as 500ms")->group(asked);
    flags.Add("--tpot", tpot_, "longest time a token, as 50ms")->group(asked);
    flags.Add("--gap", gap_, "longest wait of a stream while somebody's prompt is computed")->group(asked);
    flags.Add("--sequences", sequences_, "sequences that must fit at once")->range(1, 1 << 20)->group(asked);
    flags.Add("--quality", kld_, "most KL divergence from the model as it is, as 0.05")->range(0.0, 100.0)->group(asked);
    flags.Add("--most-cards", most_cards_, "cards that may be used")->range(1, 4096)->group(asked);
    flags.AddSwitch("--steps", steps_, "step by step to what is asked: the smallest reversible change first");
    AddLedgerFlags(flags, &ledger_);
    AddPageFlag(flags, &html_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    if (list_) {
      WriteOut(PlanLists(flags.json));
      return kExitDone;
    }
    if (model_.empty()) return UsageError("no MODEL: give a file, a folder, a config.json or a public shape (hone plan --list)");
    PlanReport report;
    HONE_TRY(report.model, Planned());
    report.model_name = model_;
    report.steps = steps_;
    if (!batches_.empty()) report.batches = batches_;
    HONE_TRY(report.asked.ttft_s, ParseTime("--ttft", ttft_));
    HONE_TRY(report.asked.tpot_s, ParseTime("--tpot", tpot_));
    HONE_TRY(report.asked.p99_gap_s, ParseTime("--gap", gap_));
    report.asked.sequences = sequences_;
    report.asked.kld = kld_;
    report.asked.most_cards = most_cards_;
    Deployment& d = report.deployment;
    d.shape = report.model.shape;
    d.format = report.model.format;
    if (!format_.empty()) {
      const WeightFormat* format = FindWeightFormat(format_);
      if (format == nullptr) return UsageError("--format '" + format_ + "' is not known; hone plan --list prints the formats");
      d.format = *format;
    }
    const std::string kv = flags.kv.empty() ? "bf16" : flags.kv;
    const KvFormat* kv_format = FindKvFormat(kv);
    if (kv_format == nullptr) return UsageError("--kv '" + kv + "' is not known; use f32, f16, bf16, fp8, int8, q8_0 or q4_0");
    d.kv = *kv_format;
    d.input = input_, d.output = output_, d.concurrency = concurrency_, d.context = flags.ctx, d.shared_input = shared_;
    d.split = split_ == "layers" ? Split::kLayers : Split::kTensor;
    HONE_RETURN_IF_ERROR(FillHardware(flags, &d));
    d.step_tokens = d.hardware.cpu ? 512 : 2048;
    HONE_RETURN_IF_ERROR(CheckPage(html_, {model_}));
    const std::string json = PlanJson(report);
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : PlanTable(report), html_, ledger_, owner->runtime(), PlanEntry(report, json)));
    return kExitDone;
  }

 private:
  Result<PlannedModel> Planned() const {
    std::error_code error;
    const bool json = model_.ends_with(".json") && std::filesystem::is_regular_file(model_, error);
    if (json || (FindPublicShape(model_) != nullptr && !std::filesystem::exists(model_, error))) return PlannedFromName(model_);
    Result<std::shared_ptr<const Checkpoint>> checkpoint = OpenModel(model_);
    if (checkpoint) return PlannedFromCheckpoint(**checkpoint);
    if (std::filesystem::exists(model_, error)) return checkpoint.error();
    return PlannedFromName(model_);
  }

  Result<void> FillHardware(const CommonFlags& flags, Deployment* d) const {
    Hardware& hardware = d->hardware;
    const bool described = !memory_.empty() || !bandwidth_.empty() || !compute_.empty() || !link_.empty();
    if (!card_.empty()) {
      const Hardware* card = FindCard(card_);
      if (card == nullptr) return UsageError("--card '" + card_ + "' is not known; hone plan --list prints the cards");
      hardware = *card;
    } else if (described) {
      if (memory_.empty() || bandwidth_.empty() || compute_.empty())
        return UsageError("a machine is described by --memory, --bandwidth and --compute together (or --card and what differs)");
      hardware.name = "described";
    } else {
      HONE_RETURN_IF_ERROR(FillThisMachine(flags, d));
    }
    if (!memory_.empty()) {
      HONE_TRY(hardware.memory_bytes, ParseBytes("--memory", memory_));
    }
    if (!bandwidth_.empty()) {
      HONE_TRY(hardware.read_bytes_s, ParseRate("--bandwidth", bandwidth_));
    }
    if (!compute_.empty()) {
      HONE_TRY(hardware.ops_16bit, ParseOps("--compute", compute_));
      hardware.ops_8bit = 0;
    }
    if (!link_.empty()) {
      HONE_TRY(hardware.link_bytes_s, ParseRate("--link", link_));
    }
    hardware.count = count_;
    hardware.free_share = 1 - reserve_;
    if (d->efficiency.source.empty()) d->efficiency = AssumedEfficiency(hardware);
    return {};
  }

  static Result<void> FillThisMachine(const CommonFlags& flags, Deployment* d) {
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    ProgressLine progress("measuring the machine", flags.progress());
    const Roof roof = CachedRoof(owner->runtime(), false, [&](double share) { progress.Update(share); });
    progress.Clear();
    const uint64_t free_bytes = FreeMemoryBytes();
    d->hardware = ThisMachine(roof, d->format, flags.exact,
                              static_cast<double>(free_bytes > 0 ? free_bytes : roof.machine.memory_bytes));
    d->efficiency = AssumedEfficiency(d->hardware);
    LoadFitted(FittedPath(), RoofKey(owner->runtime(), roof.machine), DTypeName(d->format.kernel), &d->efficiency);
    return {};
  }

  static std::string DTypeName(DType type) { return std::string(Info(type).name); }

  std::string model_, format_, card_, memory_, bandwidth_, compute_, link_, split_ = "tensor", ttft_, tpot_, gap_;
  int count_ = 1, input_ = 512, output_ = 128, concurrency_ = 1, shared_ = 0, sequences_ = 0, most_cards_ = 0;
  double reserve_ = 0.1, kld_ = 0;
  std::vector<int> batches_;
  bool list_ = false, steps_ = false;
  LedgerFlags ledger_;
  std::string html_;
};

}  // namespace

std::unique_ptr<Command> MakePlanCommand() { return std::make_unique<PlanCommand>(); }

}  // namespace hone
