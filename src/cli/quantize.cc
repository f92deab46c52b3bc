// hone quantize: a model into a smaller one: --type writes GGUF (here), --method a Hugging Face folder
// (cli/quantize_to_folder.cc). --plan says what would be done; the report says what was.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/memory.h"
#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/folder_vocabulary.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/quantize_mixed.h"
#include "cli/quantize_report.h"
#include "cli/quantize_to_folder.h"
#include "cli/unused_tensors.h"
#include "compress/folder/folder_linears.h"
#include "compress/gguf/gptq_gguf.h"
#include "compress/gguf/quantize_gguf.h"
#include "compress/gguf/recipe.h"
#include "compress/gguf/sensitivity_log.h"
#include "compress/layerwise/layerwise_time.h"
#include "compress/work_file.h"
#include "models/model.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class QuantizeCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("IN", in_, "GGUF file, Hugging Face folder, builtin or builtin-draft")->required();
    flags.Add("OUT", out_, "a new file (*.gguf) or folder; what is there is not overwritten without --force")
        ->required();
    Flag* type = flags.Add("--type", type_, "a GGUF file of this type: Q4_K_M, Q6_K, IQ4_XS ...");
    flags.AddSwitch("--pure", pure_,
                 "with --type: every matrix gets the type itself, without the exceptions that the name stands for")
        ->needs(type);
    flags.Add("--imatrix", imatrix_,
              "for GGUF: an importance matrix (hone calibrate, or llama.cpp's, GGUF or .dat)");
    Flag* method = flags.Add("--method", scheme_.method,
                             "a folder, by this method: rtn, gptq, awq, smoothquant, w8a8, fp8, mxfp8, mxfp4, nvfp4, nf4, "
                             "fp4, llm-int8 or hqq; bcq only reports; a GGUF file: rtn or gptq");
    flags.Add("--format", scheme_.format,
                   "with --method: compressed-tensors, gptq, awq, bitsandbytes, fp8, hqq or gguf (default: what the method goes "
                   "with)")
        ->needs(method);
    bits_flag_ = flags.Add("--bits", bits_,
                           "with --method rtn, gptq, awq or hqq: bits of a weight (4; --format gguf: 2, 3, 4, 5, 6, 8 are Q2_K, Q3_K_M, "
                           "Q4_K_M, Q5_K_M, Q6_K, Q8_0); alone: a GGUF file of so many bits per weight, 4.25 for example, "
                           "types chosen by what each costs each tensor")
                     ->range(1.0, 16.0);
    size_flag_ = flags.Add("--size", size_, "a GGUF file whose tensors take at most this: 3GiB")->bytes()->excludes(type);
    sensitivity_flag_ =
        flags.Add("--sensitivity", sensitivity_,
                  "with --bits or --size: measured (what quantising each matrix does to the model's output; the default) or "
                  "inputs (errors weighted by inputs: quick)")
            ->one_of({"measured", "inputs"});
    sensitivities_flag_ = flags.Add("--sensitivities", sensitivities_,
                                    "with --bits or --size: keep what was measured in this file, and measure nothing that it holds "
                                    "already: for further budgets of the same model");
    flags.Add("--recipe", recipe_, "lines 'PATTERN TYPE' that give tensors of a GGUF file other types; for folders: 'PATTERN keep'");
    group_flag_ =
        flags.Add("--group", scheme_.group, "with --method rtn, gptq, awq or hqq: columns that share a scale; 0: a whole row (128; hqq: 64)")
            ->needs(method)
            ->range(0, 1 << 20);
    sym_flag_ = flags.AddSwitch("--sym", sym_, "with --method rtn, gptq or awq: no zero points (the default where the format can)")
                    ->needs(method);
    asym_flag_ = flags.AddSwitch("--asym", asym_, "with --method rtn, gptq or awq: zero points")->needs(method)->excludes(sym_flag_);
    clip_flag_ = flags.Add("--clip", clip_,
                           "with --method rtn: ranges of groups: minmax (the default), percentile (the 99.9th), mse (shrunk "
                           "to the least sum of |error|^2.4)")
                     ->one_of({"minmax", "percentile", "mse"})
                     ->needs(method);
    per_tensor_flag_ = flags.AddSwitch("--per-tensor", scheme_.per_tensor,
                                       "with --method w8a8 or fp8: one scale a matrix, shared where engines fuse several, not one a row")
                           ->needs(method);
    fp8_type_flag_ = flags.Add("--fp8-type", fp8_type_,
                               "with --method fp8: e4m3 (the default) or e5m2, a wider range in coarser steps, which only "
                               "--format fp8 holds")
                         ->one_of({"e4m3", "e5m2"})
                         ->needs(method);
    const char* gptq = "Calibrated methods (gptq, awq, smoothquant)";
    calibration_flags_ = {
        flags.Add("--calibration", calibration_.file,
                  "text to calibrate on; - is standard input (default: a sample that comes with hone)"),
        flags.Add("--chunk", calibration_.chunk, "tokens of a chunk, a sequence of its own (512)")->range(16, 1 << 16),
        flags.Add("--chunks", calibration_.chunks, "use at most this many chunks (128)")->range(1, 1 << 24),
        flags.Add("--order", scheme_.order,
                  "gptq, folders: in which columns are rounded: group (groups stay whole; the default), static, activation, natural")
            ->one_of({"group", "static", "activation", "natural"}),
        flags.Add("--damping", layerwise_.damping, "gptq: added to the inputs' second moments, of their mean (0.01)")
            ->range(1e-6, 1.0),
        flags.AddSwitch("--true-sequential", layerwise_.matrix_by_matrix,
                        "gptq: each matrix of a layer sees those before it quantised: about twice as long")};
    for (size_t i = 0; i < calibration_flags_.size(); ++i) {
      calibration_flags_[i]->group(gptq);
      if (i >= kTextFlags) calibration_flags_[i]->needs(method);
    }
    smoothing_flag_ = flags.Add("--smoothing", smoothing_, "smoothquant: how much of the inputs' range goes into weights "
                                                           "(0.5; 0.8 to 0.9 for recent models)")
                          ->range(0.0, 1.0);
    smoothing_flag_->group(gptq);
    activations_flag_ = flags.Add("--activations", activations_,
                                  "smoothquant: dynamic (engines round a token at a time; the default) or static (a scale a "
                                  "layer, in the file)")
                            ->one_of({"dynamic", "static"});
    activations_flag_->group(gptq);
    kv_flags_ = {flags.Add("--kv-scheme", kv_scheme_,
                           "with --format compressed-tensors: scales for a cache of keys and values in this type, which engines "
                           "that read the folder then use: fp8 or int8")
                     ->one_of({"fp8", "int8"}),
                 flags.Add("--kv-scales", kv_ranges_,
                           "with --kv-scheme: what hone calibrate --kv-scales wrote (default: collected from the calibration text)"),
                 flags.AddSwitch("--kv-per-head", kv_per_head_, "with --kv-scheme: a scale a head, not a layer")};
    for (size_t i = 1; i < kv_flags_.size(); ++i) kv_flags_[i]->needs(kv_flags_[0]);
    flags.AddSwitch("--no-measure", no_measure_, "do not compare the result with the original on held-out text");
    flags.Add("--measure-text", quality_.text, "the held-out text (default: one that comes with hone)");
    flags.Add("--measure-windows", quality_.windows, "windows of 512 tokens, or of the model's context, of it to use (8)")->range(1, 1 << 20);
    flags.Add("--memory", memory_, "most memory for the job: 4GiB (default: half of what is free); what cannot fit is refused")
        ->bytes();
    flags.AddSwitch("--plan", plan_only_, "print what would be done, and do nothing");
    flags.AddSwitch("--resume", resume_, "go on with a job that was stopped or killed");
    flags.AddSwitch("--allow-requantize", allow_requantize_, "take a model that is quantised already, as what its matrices mean");
    flags.AddSwitch("--force", force_, "overwrite OUT");
    AddLedgerFlags(flags, &ledger_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    if (in_ == "builtin" || in_ == "builtin-draft") {  // their world is small: text of that world
      HONE_TRY(const std::string assets, AssetsFolder());
      if (calibration_.file.empty()) calibration_.file = assets + "/builtin/tasks/calibration.txt";
      if (quality_.text.empty()) quality_.text = assets + "/builtin/tasks/held-out.txt";
    }
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    memory_ = AllowedMemory(memory_);
    HONE_RETURN_IF_ERROR(NameGgufType());
    const bool mixed = type_.empty() && (size_flag_->given() || (bits_flag_->given() && out_.ends_with(".gguf")));
    const bool folder = !scheme_.method.empty() && type_.empty() && !mixed;
    QuantizeOutcome outcome;
    const Result<int> done = folder ? RunFolder(flags, runtime->runtime(), &outcome)
                                    : RunGguf(mixed, flags, runtime->runtime(), &outcome);
    if (outcome.started && done) EnterQuantize(ledger_, runtime->runtime(), outcome);
    if (outcome.started && !done) EnterFailedQuantize(ledger_, runtime->runtime(), outcome, done.error());
    return done;
  }

 private:
  static constexpr size_t kTextFlags = 3, kOrderFlag = 3;  // the first of calibration_flags_ are of the text

  // A method of rounding into a GGUF file is --type of its bits. What remains of it is whether GPTQ does it.
  Result<void> NameGgufType() {
    const bool asked = scheme_.format == "gguf";
    if (!asked && (scheme_.method.empty() || !out_.ends_with(".gguf"))) return {};
    if (!asked && !scheme_.format.empty())
      return UsageError("OUT '" + out_ + "' is a GGUF file, --format " + scheme_.format + " a folder");
    if (scheme_.method != "rtn" && scheme_.method != "gptq") {
      return UsageError(fmt::format("--method {} with a GGUF file: its types are made by rtn and gptq{}", scheme_.method,
                                    scheme_.method == "mxfp4" ? "; --type MXFP4_MOE is rounded to MXFP4" : ""));
    }
    // Without --format a budget is a budget, which GPTQ may fill.
    const bool budget = size_flag_->given() || (bits_flag_->given() && !asked && (scheme_.method == "gptq" || bits_ != std::floor(bits_)));
    if (type_.empty() && !budget) {
      const std::map<double, const char*> types = {{2, "Q2_K"}, {3, "Q3_K_M"}, {4, "Q4_K_M"}, {5, "Q5_K_M"}, {6, "Q6_K"}, {8, "Q8_0"}};
      const auto type = types.find(bits_);
      if (type == types.end()) {
        return UsageError(fmt::format("--bits {}: with --format gguf wanted 2, 3, 4, 5, 6 or 8; --bits without --method is a budget",
                                      bits_));
      }
      type_ = type->second, named_by_bits_ = true;
    }
    scheme_.format.clear();
    if (scheme_.method == "rtn") scheme_.method.clear();
    return {};
  }

  Result<void> CheckGgufFlags(bool mixed) const {
    if (type_.empty() && !mixed)
      return UsageError("give --type, --bits or --size (a GGUF file) or --method (a Hugging Face folder)");
    if (size_flag_->given() && bits_flag_->given()) return UsageError("--size and --bits both set a budget; give one");
    if (!scheme_.method.empty() && scheme_.method != "gptq")
      return UsageError("--type with --method takes rtn or gptq, not " + scheme_.method);
    if (!scheme_.format.empty()) return UsageError("--type writes GGUF files, not --format " + scheme_.format);
    for (const Flag* flag : {bits_flag_, group_flag_, sym_flag_, asym_flag_}) {
      if (flag->given() && !((mixed || named_by_bits_) && flag == bits_flag_))
        return UsageError(flag->name() + " does not go with a GGUF file, whose types say it already");
    }
    for (const Flag* flag : {clip_flag_, per_tensor_flag_, fp8_type_flag_, calibration_flags_[kOrderFlag], smoothing_flag_, activations_flag_}) {
      if (flag->given()) return UsageError(flag->name() + " goes with folders (--method without --type); blocks of a GGUF file have one form");
    }
    if (kv_flags_[0]->given()) return UsageError("--kv-scheme goes with --method; a GGUF file has no place for it");
    for (const Flag* flag : {sensitivity_flag_, sensitivities_flag_}) {
      if (flag->given() && !mixed) return UsageError(flag->name() + " goes with --bits or --size");
    }
    if (sensitivities_flag_->given() && sensitivity_ == "inputs") return UsageError("--sensitivity inputs measures nothing for --sensitivities");
    for (size_t i = 0; i < kTextFlags; ++i) {
      if (calibration_flags_[i]->given() && scheme_.method.empty() && !mixed)
        return UsageError(calibration_flags_[i]->name() + " goes with --method, --bits or --size");
    }
    return CheckPaths();
  }

  // What a GGUF job reads beside the model.
  struct GgufJob {
    std::unique_ptr<TensorSource> source;
    std::optional<Imatrix> imatrix;
    CalibrationText text;
    std::unique_ptr<LayerWalk> walk;
    std::unique_ptr<GptqGguf> gptq;
    QuantizePlan plan;
  };

  Result<void> Prepare(bool mixed, const CommonFlags& flags, const Runtime& runtime, GgufJob* job) {
    HONE_TRY(checkpoint_, OpenModel(in_));
    if (checkpoint_->tensors().empty()) return InvalidInput(checkpoint_->path() + ": no weights to quantise");
    HONE_TRY(job->source, OpenSource());
    if (!imatrix_.empty()) {
      HONE_TRY(job->imatrix, ReadImatrix(imatrix_));
      options_.imatrix = &*job->imatrix;
      options_.imatrix_path = imatrix_;
    }
    options_.pure = pure_;
    options_.allow_requantize = allow_requantize_;
    options_.memory_bytes = memory_;
    HONE_RETURN_IF_ERROR(ApplyRecipeFile(*job->source));
    if (mixed) HONE_RETURN_IF_ERROR(ChooseMixed(flags, runtime, job));
    HONE_TRY(job->plan, PlanQuantize(*job->source, options_, runtime));
    QuantizePlan& plan = job->plan;
    plan.seconds += choosing_s_;
    for (std::string& warning : WarningsAndUnused(*checkpoint_, "left out")) plan.warnings.push_back(std::move(warning));
    if (scheme_.method != "gptq") return {};
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint_));
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint_, flags.pre));
    HONE_TRY(job->text, ReadCalibrationText(calibration_, *tokenizer, config));
    HONE_TRY(job->walk, LayerWalk::Open(checkpoint_, runtime, job->text.chunk_tokens));
    HONE_TRY(job->gptq, GptqGguf::Make(*job->walk, plan, out_));
    const uint64_t peak = job->gptq->Fit(job->text, memory_, &layerwise_);
    plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, peak);
    plan.least_memory_bytes = std::max(plan.least_memory_bytes, peak);
    plan.disk_bytes += plan.bytes;
    if (plan_only_) plan.seconds += EstimateLayerwiseSeconds(job->gptq->units(), job->text.tokens.size(), runtime);
    if (!layerwise_.stream_file.empty()) plan.disk_bytes += job->text.tokens.size() * config.width * sizeof(float);
    return {};
  }

  Result<int> RunGguf(bool mixed, const CommonFlags& flags, const Runtime& runtime, QuantizeOutcome* outcome) {
    HONE_TRY(options_.file_type, FindGgufFileType(mixed || type_.empty() ? "Q4_K_S" : type_));
    HONE_RETURN_IF_ERROR(CheckGgufFlags(mixed));
    GgufJob job;
    HONE_RETURN_IF_ERROR(Prepare(mixed, flags, runtime, &job));
    for (const std::string& warning : job.plan.warnings) {
      if (!flags.quiet) std::fprintf(stderr, "hone quantize: %s\n", warning.c_str());
    }
    if (plan_only_) {
      WriteOut(flags.json ? Json(job.plan, nullptr, *outcome)
                          : Table(job.plan) + MemoryText(job.plan.peak_memory_bytes, memory_));
    }
    HONE_RETURN_IF_ERROR(CheckPeak(job.plan.peak_memory_bytes, job.plan.least_memory_bytes, memory_));
    if (plan_only_) {
      if (!resume_) HONE_RETURN_IF_ERROR(CheckDisk(job.plan.disk_bytes, out_, 0));
      return kExitDone;
    }
    Describe(mixed, job, outcome);
    const Result<QuantizeReport> worked = Work(job, flags, runtime, outcome);
    if (worked || worked.error().code == ErrorCode::kInvalidInput) RemoveMixedTypes(out_);  // or no resuming helps
    HONE_TRY(const QuantizeReport report, worked);
    outcome->peak_rss_bytes = PeakResidentBytes();
    if (!no_measure_ && !Interrupted()) {
      job.walk.reset();  // the layer that it holds
      QualityRequest wanted = quality_;
      wanted.original = in_, wanted.result = out_, wanted.memory_bytes = memory_;
      HONE_TRY(outcome->quality, MeasureQuality(wanted, flags, runtime));
      outcome->measured = true;
    }
    if (!flags.quiet) std::fputs((OutcomeText(*outcome) + Notes(job.plan, report)).c_str(), stderr);
    outcome->json = Json(job.plan, &report, *outcome);
    if (flags.json) WriteOut(outcome->json);
    return kExitDone;
  }

  void Describe(bool mixed, const GgufJob& job, QuantizeOutcome* outcome) const {
    outcome->in = checkpoint_->path(), outcome->out = out_;
    outcome->recipe = mixed ? fmt::format("mixed, {:.2f} bits", job.plan.bits_per_weight) : options_.file_type->name;
    if (pure_) outcome->recipe += ", pure";
    if (options_.imatrix != nullptr) outcome->recipe += ", importance";
    if (!recipe_.empty()) outcome->recipe += ", recipe " + recipe_;
    if (!scheme_.method.empty()) outcome->recipe += ", " + scheme_.method;
    if (mixed || !scheme_.method.empty()) outcome->calibration = calibration_.file.empty() ? "hone's sample" : calibration_.file;
    outcome->bytes_before = job.plan.bytes_before, outcome->bytes = job.plan.bytes;
    outcome->bits_per_weight = job.plan.bits_per_weight;
    outcome->started = true;
  }

  Result<QuantizeReport> Work(GgufJob& job, const CommonFlags& flags, const Runtime& runtime, QuantizeOutcome* outcome) {
    ProgressLine progress("quantising", flags.progress());
    QuantizeRun run{.resume = resume_ && WorkFile::Exists(out_ + ".partial")};
    run.progress = [&](const char* stage, uint64_t done, uint64_t total) {
      progress.Update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0, stage);
      return !Interrupted();
    };
    run.check = [&](const std::string& path) { return CheckModel(path); };
    if (job.gptq != nullptr) {
      layerwise_.progress = [&](double share, const std::string& what) {
        progress.Update(share, what);
        return !Interrupted();
      };
      std::error_code ignored;
      const uintmax_t there = resume_ ? fs::file_size(out_ + ".gptq.partial", ignored) : 0;
      if (!run.resume) HONE_RETURN_IF_ERROR(CheckDisk(job.plan.disk_bytes, out_, ignored ? 0 : there));
      HONE_TRY(outcome->layerwise, job.gptq->Run(job.text, layerwise_, resume_, runtime));
      run.there_bytes = job.plan.bytes;
      options_.given = [&job](const std::string& tensor, int64_t row) { return job.gptq->Row(tensor, row); };
      options_.given_fingerprint = job.gptq->fingerprint();
    }
    HONE_TRY(QuantizeReport report, QuantizeToGguf(*job.source, job.plan, out_, options_, run, runtime));
    if (job.gptq != nullptr) job.gptq->Remove();
    Fill(job, report, outcome);
    return report;
  }

  static void Fill(const GgufJob& job, const QuantizeReport& report, QuantizeOutcome* outcome) {
    std::map<std::string, double> outputs;
    for (size_t i = 0; i < outcome->layerwise.units.size(); ++i) {
      const UnitReport& unit = outcome->layerwise.units[i];
      if (!unit.resumed) outputs[job.gptq->units()[i].name] = unit.output_error;
    }
    for (size_t i = 0; i < job.plan.tensors.size(); ++i) {
      const TensorPlan& tensor = job.plan.tensors[i];
      if (tensor.from == tensor.to) continue;
      TensorLoss loss{tensor.name, std::string(Info(tensor.to).name), report.tensors[i].relative_error,
                      report.tensors[i].max_error, report.tensors[i].power};
      if (const auto output = outputs.find(tensor.name); output != outputs.end()) loss.output_error = output->second;
      outcome->tensors.push_back(std::move(loss));
    }
    outcome->relative_error = report.relative_error;
  }

  Result<int> RunFolder(const CommonFlags& flags, const Runtime& runtime, QuantizeOutcome* outcome) {
    scheme_.bits = static_cast<int>(bits_);
    if (scheme_.bits != bits_ || scheme_.bits < (scheme_.method == "bcq" ? 1 : 2) || scheme_.bits > 8)
      return UsageError(fmt::format("--bits {}: with --method wanted 2 to 8, whole", bits_));
    for (const Flag* flag : {sensitivity_flag_, sensitivities_flag_}) {
      if (flag->given()) return UsageError(flag->name() + " goes with --bits or --size, which write GGUF files");
    }
    if (!imatrix_.empty()) return UsageError("--imatrix is for GGUF files");
    const bool scaled = scheme_.method == "awq" || scheme_.method == "smoothquant";
    for (size_t i = 0; i < calibration_flags_.size() && scheme_.method != "gptq"; ++i) {
      const Flag* flag = calibration_flags_[i];
      if (flag->given() && !((scaled || kv_flags_[0]->given()) && i < kTextFlags))
        return UsageError(flag->name() + " goes with --method gptq" +
                          (i < kTextFlags ? ", awq or smoothquant, or with --kv-scheme" : ""));
    }
    if (smoothing_flag_->given() && scheme_.method != "smoothquant")
      return UsageError("--smoothing goes with --method smoothquant");
    if (activations_flag_->given() && scheme_.method != "smoothquant")
      return UsageError("--activations goes with --method smoothquant");
    if (clip_flag_->given() && scheme_.method != "rtn") return UsageError("--clip goes with --method rtn");
    if (scheme_.per_tensor && scheme_.method != "w8a8" && scheme_.method != "fp8")
      return UsageError("--per-tensor goes with --method w8a8 or fp8; others have --group");
    if (fp8_type_flag_->given() && scheme_.method != "fp8") return UsageError("--fp8-type goes with --method fp8");
    scheme_.e5m2 = fp8_type_ == "e5m2";
    scheme_.static_activations = activations_ == "static";
    scheme_.clip = clip_ == "mse" ? Clip::kSearch : clip_ == "percentile" ? Clip::kPercentile : Clip::kMinMax;
    const bool floating = scheme_.method == "hqq" || scheme_.method == "bcq";  // no grid of whole zeros
    if (floating && !group_flag_->given()) scheme_.group = 64;
    if (scheme_.method == "bcq" && !scheme_.format.empty()) return UsageError("--method bcq only reports; it has no --format");
    if (scheme_.method == "bcq") return ReportBcq(in_, scheme_, plan_only_, flags, runtime);
    if (scheme_.method != "rtn" && scheme_.method != "gptq" && scheme_.method != "awq") {
      for (const Flag* flag : {bits_flag_, group_flag_, sym_flag_, asym_flag_}) {
        if (flag->given() && !(floating && (flag == bits_flag_ || flag == group_flag_)))
          return UsageError(flag->name() + " goes with --method rtn, gptq or awq; " + scheme_.method + " has only one form");
      }
    }
    if (scheme_.format.empty()) {
      const bool bitsandbytes = scheme_.method == "nf4" || scheme_.method == "fp4" || scheme_.method == "llm-int8";
      const bool own = scheme_.method == "awq" || scheme_.method == "hqq";
      scheme_.format = bitsandbytes ? "bitsandbytes" : own || scheme_.e5m2 ? scheme_.method : "compressed-tensors";
    }
    scheme_.symmetric = !asym_ && !floating && (sym_ || scheme_.format != "awq");
    return QuantizeToFolder({in_, out_, scheme_, recipe_, calibration_, layerwise_, smoothing_, quality_, !no_measure_,
                             plan_only_, resume_, force_, memory_, kv_scheme_, kv_ranges_, kv_per_head_, allow_requantize_},
                            flags, runtime, outcome);
  }

  // Types under the budget.
  Result<void> ChooseMixed(const CommonFlags& flags, const Runtime& runtime, GgufJob* job) {
    const TensorSource& source = *job->source;
    std::optional<MixedTypes> mixed;
    if (resume_) {
      HONE_TRY(mixed, ReadMixedTypes(out_, source));
    }
    if (!mixed) {
      int64_t weights = 0;
      for (const TensorInfo& tensor : source.tensors()) weights += tensor.shape.elements();
      const uint64_t budget = size_flag_->given() ? size_ : static_cast<uint64_t>(bits_ / 8 * static_cast<double>(weights));
      uint64_t largest = 0;  // of what can come of it
      for (const TensorInfo& tensor : source.tensors()) largest += tensor.bytes();
      if (!plan_only_) HONE_RETURN_IF_ERROR(CheckDisk(2 * std::min(budget, largest), out_, 0));  // before minutes of measuring
      const MixedRequest request{.bytes = budget,
                                 .calibration = calibration_,
                                 .measured = sensitivity_ != "inputs",
                                 .imatrix = options_.imatrix,
                                 .out = out_,
                                 .sensitivities = sensitivities_,
                                 .plan = plan_only_,
                                 .resume = resume_,
                                 .memory_bytes = memory_,
                                 .fixed = options_.types};
      HONE_TRY(mixed, ChooseMixedTypes(request, source, checkpoint_, flags, runtime));
    }
    if (mixed->imatrix) {
      job->imatrix = std::move(mixed->imatrix);
      options_.imatrix = &*job->imatrix;
      options_.imatrix_path = calibration_.file.empty() ? "hone's sample" : calibration_.file;
    }
    choosing_s_ = mixed->seconds;
    for (const std::string& note : mixed->notes) {
      if (!flags.quiet) std::fprintf(stderr, "hone quantize: %s\n", note.c_str());
    }
    options_.types.insert(mixed->types.begin(), mixed->types.end());  // a recipe's stand
    options_.file_type = MostlyOf(source, options_.types);
    return {};
  }

  Result<void> ApplyRecipeFile(const TensorSource& source) {
    if (recipe_.empty()) return {};
    HONE_TRY(const std::string text, ReadText(recipe_));
    HONE_TRY(const std::vector<RecipeLine> lines, ParseRecipe(text, recipe_));
    HONE_TRY(const auto types, ApplyRecipe(lines, source, recipe_));
    options_.types = types;
    return {};
  }

  // The file type of the type that most weights have: what the file calls itself.
  static const GgufFileType* MostlyOf(const TensorSource& source, const std::map<std::string, DType>& types) {
    std::map<DType, int64_t> weights;
    for (const TensorInfo& tensor : source.tensors()) {
      if (const auto type = types.find(tensor.name); type != types.end())
        weights[type->second] += tensor.shape.elements();
    }
    const auto most = std::max_element(weights.begin(), weights.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const GgufFileType* found = &GgufFileTypes().front();
    for (const GgufFileType& type : GgufFileTypes()) {
      if (most != weights.end() && type.type == most->first) {
        found = &type;
        break;
      }
    }
    return found;
  }

  Result<void> CheckPaths() const {
    std::error_code ignored;
    if (!out_.ends_with(".gguf"))
      return UsageError("OUT '" + out_ + "': wanted the name of a new file that ends in .gguf");
    if (fs::equivalent(in_, out_, ignored)) return UsageError("IN and OUT are the same");
    if (fs::is_directory(out_, ignored)) return UsageError(out_ + " is a folder; wanted the name of a new file");
    if (!sensitivities_.empty()) HONE_RETURN_IF_ERROR(CheckSensitivities());
    if (plan_only_) return {};
    const std::string made = GptqGguf::WorkPath(out_), measured = KeptSensitivities(out_);
    const bool choosing = fs::exists(measured, ignored);
    const std::string work = WorkFile::Exists(made) ? made : choosing ? measured : out_ + ".partial";
    const bool there = choosing || WorkFile::Exists(work);
    // A job that is killed after its last step leaves both; then there is little left to do.
    const bool goes_on = resume_ && (there || HasMixedTypes(out_));
    if (fs::exists(out_, ignored) && !force_ && !goes_on) return UsageError(out_ + " exists; --force overwrites it");
    if (resume_ && !goes_on && !fs::exists(sensitivities_, ignored))
      return UsageError(work + " is not there: nothing to resume; start without --resume");
    if (!resume_ && !force_ && there) {
      return UsageError(work +
                        " is there, from a job that did not end; --resume goes on with it, --force starts again");
    }
    return {};
  }

  // The file stays when OUT is there and its work files are gone.
  Result<void> CheckSensitivities() const {
    std::error_code ignored;
    if (fs::is_symlink(sensitivities_, ignored) && !fs::exists(sensitivities_, ignored))
      return UsageError("--sensitivities " + sensitivities_ + " is a link to nothing; wanted the name of a file");
    const auto whole = [&](const std::string& path) { return fs::weakly_canonical(fs::absolute(path), ignored).string(); };
    const std::string file = whole(sensitivities_), out = whole(out_);
    if (file == out || (file.starts_with(out + ".") && file.find(".partial", out.size()) != std::string::npos))
      return UsageError("--sensitivities " + sensitivities_ + " is OUT or a work file of it; wanted a file that stays beside it");
    if (const fs::path parent = fs::path(file).parent_path(); !fs::is_directory(parent, ignored))
      return UsageError("--sensitivities " + sensitivities_ + ": there is no folder " + parent.string());
    return SensitivityLog::Check(sensitivities_);
  }

  Result<std::unique_ptr<TensorSource>> OpenSource() {
    if (!checkpoint_->is_folder()) return SourceFromGguf(checkpoint_);
    HONE_TRY(const bool quantized, IsQuantizedFolder(*checkpoint_));
    if (quantized && !allow_requantize_) {
      return Unsupported(checkpoint_->path() +
                         ": quantised already, and quantising again loses twice; take the original, or give --allow-requantize");
    }
    HONE_RETURN_IF_ERROR(NeedsARun(*checkpoint_, "a GGUF file"));
    HONE_TRY(tokenizer_, Tokenizer::FromCheckpoint(*checkpoint_));
    HONE_TRY(config_, ReadModelConfig(*checkpoint_));
    HONE_TRY(const GgufMetadata vocabulary, FolderVocabulary(*checkpoint_, *tokenizer_, config_->vocab, "quantize"));
    return SourceFromFolder(checkpoint_, vocabulary);
  }

  Result<void> CheckModel(const std::string& path) const {
    if (config_) return CheckSameAsFolder(path, *config_, *tokenizer_);
    const auto before = ReadModelConfig(*checkpoint_);
    if (!before) return {};  // an architecture that hone does not run is quantised all the same
    HONE_TRY(const auto back, Checkpoint::Open(path));
    HONE_TRY(const ModelConfig after, ReadModelConfig(*back));
    return CheckSameModel(*before, after);
  }

  std::string Totals(const QuantizePlan& plan) const {
    return fmt::format("{} to {} ({:.2f} bits per weight)", FormatBytes(plan.bytes_before), FormatBytes(plan.bytes),
                       plan.bits_per_weight);
  }

  std::string Table(const QuantizePlan& plan) const {
    std::string text;
    for (const TensorPlan& t : plan.tensors) {
      text += fmt::format("{:<40} {:>20}  {:>5} -> {:<7} {:>6.2f} bits {:>12}{}{}\n", t.name, t.shape.ToString(),
                          Info(t.from).name, t.from == t.to ? "same" : std::string(Info(t.to).name),
                          t.bits_per_weight(), FormatBytes(t.bytes()), t.importance ? "  importance" : "",
                          t.note.empty() ? "" : "  (" + t.note + ")");
    }
    return text +
           fmt::format(
               "{}: {}\ndisk while working {}, about {:.0f} s\n", type_.empty() ? "mixed" : options_.file_type->name, Totals(plan),
               FormatBytes(plan.disk_bytes), std::ceil(plan.seconds));
  }

  // What the summary says of this format alone.
  std::string Notes(const QuantizePlan& plan, const QuantizeReport& report) const {
    std::string text = fmt::format("  {:.1f} s, and {:.1f} s to verify\n", report.quantize_s, report.verify_s);
    if (report.resumed_tensors > 0)
      text += fmt::format("  {} of {} tensors were there from the earlier run\n", report.resumed_tensors,
                          plan.tensors.size());
    for (const TensorPlan& t : plan.tensors) {
      if (!t.note.empty()) text += fmt::format("  {}: {} ({})\n", t.name, Info(t.to).name, t.note);
    }
    return text;
  }

  std::string Json(const QuantizePlan& plan, const QuantizeReport* report, const QuantizeOutcome& outcome) const {
    nlohmann::ordered_json json = {{"out", out_},
                                   {"type", type_.empty() ? "mixed" : options_.file_type->name},
                                   {"method", scheme_.method.empty() ? "rtn" : scheme_.method},
                                   {"pure", pure_}};
    json["imatrix"] = imatrix_.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(imatrix_);
    json["bytes_before"] = plan.bytes_before;
    json["bytes"] = plan.bytes;
    json["bits_per_weight"] = plan.bits_per_weight;
    json["disk_bytes"] = plan.disk_bytes;
    json["peak_memory_bytes"] = plan.peak_memory_bytes;
    json["memory_bytes"] = memory_;
    json["estimated_s"] = plan.seconds;
    json["warnings"] = plan.warnings;
    if (report != nullptr) {
      json["quantize_s"] = report->quantize_s;
      json["verify_s"] = report->verify_s;
      json["resumed_tensors"] = report->resumed_tensors;
      AddOutcome(outcome, &json);
    }
    json["tensors"] = nlohmann::ordered_json::array();
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const TensorPlan& t = plan.tensors[i];
      std::vector<int64_t> shape;
      for (int d = 0; d < t.shape.rank(); ++d) shape.push_back(t.shape[d]);
      nlohmann::ordered_json tensor = {{"name", t.name},
                                       {"shape", shape},
                                       {"from", Info(t.from).name},
                                       {"to", Info(t.to).name},
                                       {"bytes", t.bytes()},
                                       {"bits_per_weight", t.bits_per_weight()},
                                       {"importance", t.importance}};
      if (!t.note.empty()) tensor["note"] = t.note;
      if (report != nullptr) {
        tensor["relative_error"] = report->tensors[i].relative_error;
        tensor["max_error"] = report->tensors[i].max_error;
      }
      json["tensors"].push_back(std::move(tensor));
    }
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  std::string in_, out_, type_, imatrix_;
  bool named_by_bits_ = false;  // type_, by --method and --bits
  LinearScheme scheme_;  // method "": GGUF
  double bits_ = 4, smoothing_ = 0.5;
  uint64_t size_ = 0;
  uint64_t memory_ = 0;
  std::string recipe_, sensitivity_, sensitivities_;
  double choosing_s_ = 0;  // of a plan
  LedgerFlags ledger_;
  Flag *size_flag_ = nullptr, *smoothing_flag_ = nullptr, *sensitivity_flag_ = nullptr, *sensitivities_flag_ = nullptr;
  CalibrationFlags calibration_{.chunks = 128};
  LayerwiseOptions layerwise_;
  QualityRequest quality_;
  bool no_measure_ = false;
  std::vector<Flag*> calibration_flags_, kv_flags_;
  std::string kv_scheme_, kv_ranges_;
  bool kv_per_head_ = false;
  Flag *bits_flag_ = nullptr, *group_flag_ = nullptr, *sym_flag_ = nullptr, *asym_flag_ = nullptr;
  Flag *clip_flag_ = nullptr, *per_tensor_flag_ = nullptr, *fp8_type_flag_ = nullptr, *activations_flag_ = nullptr;
  std::string clip_ = "minmax", activations_ = "dynamic", fp8_type_;
  bool sym_ = false, asym_ = false;
  bool pure_ = false, plan_only_ = false, resume_ = false, allow_requantize_ = false, force_ = false;
  QuantizeOptions options_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::shared_ptr<const Tokenizer> tokenizer_;  // of a folder
  std::optional<ModelConfig> config_;           // of a folder
};

}  // namespace

std::unique_ptr<Command> MakeQuantizeCommand() { return std::make_unique<QuantizeCommand>(); }

}  // namespace hone
