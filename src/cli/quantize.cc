// hone quantize: a model into a smaller one: --type writes GGUF (here), --method a Hugging Face folder
// (cli/quantize_to_folder.cc). --plan says what would be done; the report says what was.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/folder_vocabulary.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/quantize_to_folder.h"
#include "compress/gguf/gptq_gguf.h"
#include "compress/gguf/quantize_gguf.h"
#include "compress/gguf/recipe.h"
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
                             "a folder, by this method: rtn, gptq, awq, smoothquant, w8a8, fp8, mxfp4, nvfp4, nf4, fp4 "
                             "or llm-int8; with --type only gptq");
    flags.Add("--format", scheme_.format,
                   "with --method: compressed-tensors, gptq, awq or bitsandbytes (default: what the method goes with)")
        ->needs(method);
    bits_flag_ = flags.Add("--bits", bits_,
                           "with --method rtn or gptq: bits of a weight (4); alone: a GGUF file of so many bits per "
                           "weight, 4.25 for example, types chosen by what each costs each tensor")
                     ->range(1.0, 16.0);
    size_flag_ = flags.Add("--size", size_, "a GGUF file whose tensors take at most this: 3GiB")->bytes()->excludes(type);
    flags.Add("--recipe", recipe_, "for GGUF: lines 'PATTERN TYPE' that give tensors other types");
    group_flag_ =
        flags.Add("--group", scheme_.group, "with --method rtn or gptq: columns that share a scale; 0: a whole row (128)")
            ->needs(method)
            ->range(0, 1 << 20);
    sym_flag_ = flags.AddSwitch("--sym", sym_, "with --method rtn or gptq: no zero points (the default where the format can)")
                    ->needs(method);
    asym_flag_ = flags.AddSwitch("--asym", asym_, "with --method rtn or gptq: zero points")->needs(method)->excludes(sym_flag_);
    const char* gptq = "Calibrated methods (gptq, awq, smoothquant)";
    calibration_flags_ = {
        flags.Add("--calibration", calibration_.file,
                  "text to calibrate on; - is standard input (default: a sample that comes with hone)"),
        flags.Add("--chunk", calibration_.chunk, "tokens of a chunk, a sequence of its own (512)")->range(16, 1 << 16),
        flags.Add("--chunks", calibration_.chunks, "use at most this many chunks (128)")->range(1, 1 << 24),
        flags.Add("--order", scheme_.order,
                  "in which columns are rounded: group (groups stay whole; the default), static, activation, natural")
            ->one_of({"group", "static", "activation", "natural"}),
        flags.Add("--damping", layerwise_.damping, "added to the inputs' second moments, of their mean (0.01)")
            ->range(1e-6, 1.0),
        flags.AddSwitch("--true-sequential", layerwise_.matrix_by_matrix,
                        "each matrix of a layer sees those before it quantised: about twice as long")};
    for (Flag* flag : calibration_flags_) flag->needs(method)->group(gptq);
    smoothing_flag_ = flags.Add("--smoothing", smoothing_, "smoothquant: how much of the inputs' range goes into weights "
                                                           "(0.5; 0.8 to 0.9 for recent models)")
                          ->range(0.0, 1.0);
    smoothing_flag_->group(gptq);
    flags.AddSwitch("--no-measure", no_measure_, "do not compare the result with the original on held-out text");
    flags.Add("--measure-text", quality_.text, "the held-out text (default: one that comes with hone)");
    flags.Add("--measure-windows", quality_.windows, "windows of 512 tokens of it to use (8)")->range(1, 1 << 20);
    flags.AddSwitch("--plan", plan_only_, "print what would be done, and do nothing");
    flags.AddSwitch("--resume", resume_, "go on with a job that was stopped or killed");
    flags.AddSwitch("--allow-requantize", allow_requantize_, "with --type: take a model that is quantised already")
        ->needs(type);
    flags.AddSwitch("--force", force_, "overwrite OUT");
  }

  Result<int> Run(const CommonFlags& flags) override {
    CatchInterrupts();
    if (in_ == "builtin" || in_ == "builtin-draft") {  // their world is small: text of that world
      HONE_TRY(const std::string assets, AssetsFolder());
      if (calibration_.file.empty()) calibration_.file = assets + "/builtin/tasks/calibration.txt";
      if (quality_.text.empty()) quality_.text = assets + "/builtin/tasks/held-out.txt";
    }
    const bool mixed = type_.empty() && (size_flag_->given() || (bits_flag_->given() && out_.ends_with(".gguf")));
    if (!scheme_.method.empty() && type_.empty() && !mixed) return RunFolder(flags);
    if (type_.empty() && !mixed)
      return UsageError("give --type, --bits or --size (a GGUF file) or --method (a Hugging Face folder)");
    if (size_flag_->given() && bits_flag_->given()) return UsageError("--size and --bits both set a budget; give one");
    if (!scheme_.method.empty() && scheme_.method != "gptq")
      return UsageError("--type with --method takes gptq, not " + scheme_.method);
    for (const Flag* flag : {bits_flag_, group_flag_, sym_flag_, asym_flag_}) {
      if (flag->given() && !(mixed && flag == bits_flag_))
        return UsageError(flag->name() + " does not go with --type, which says it already");
    }
    HONE_TRY(options_.file_type, FindGgufFileType(mixed ? "Q4_K_S" : type_));
    HONE_RETURN_IF_ERROR(CheckPaths());
    HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
    HONE_TRY(checkpoint_, OpenModel(in_));
    if (checkpoint_->tensors().empty()) return InvalidInput(checkpoint_->path() + ": no weights to quantise");
    HONE_TRY(const auto source, OpenSource());
    std::optional<Imatrix> imatrix;
    if (!imatrix_.empty()) {
      HONE_TRY(imatrix, ReadImatrix(imatrix_));
      options_.imatrix = &*imatrix;
      options_.imatrix_path = imatrix_;
    }
    options_.pure = pure_;
    options_.allow_requantize = allow_requantize_;
    HONE_RETURN_IF_ERROR(ChooseTypesOf(*source, mixed, runtime->runtime()));
    HONE_TRY(QuantizePlan plan, PlanQuantize(*source, options_, runtime->runtime()));
    CalibrationText text;
    std::unique_ptr<LayerWalk> walk;
    std::unique_ptr<GptqGguf> gptq;
    if (scheme_.method == "gptq") {
      HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint_));
      HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint_, flags.pre));
      HONE_TRY(text, ReadCalibrationText(calibration_, *tokenizer, config));
      HONE_TRY(walk, LayerWalk::Open(checkpoint_, runtime->runtime(), text.chunk_tokens));
      HONE_TRY(gptq, GptqGguf::Make(*walk, plan, out_));
      plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, gptq->peak_memory_bytes(text, layerwise_));
      plan.disk_bytes += plan.bytes;
    }
    for (const std::string& warning : plan.warnings) {
      if (!flags.quiet) std::fprintf(stderr, "hone quantize: %s\n", warning.c_str());
    }
    if (plan_only_) {
      WriteOut(flags.json ? Json(plan, nullptr) : Table(plan));
      return kExitDone;
    }

    ProgressLine progress("quantising", flags.progress());
    QuantizeRun run{.resume = resume_};
    run.progress = [&](const char* stage, uint64_t done, uint64_t total) {
      progress.Update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0, stage);
      return !Interrupted();
    };
    run.check = [&](const std::string& path) { return CheckModel(path); };
    LayerwiseReport layerwise;
    if (gptq != nullptr) {
      layerwise_.progress = [&](double share, const std::string& what) {
        progress.Update(share, what);
        return !Interrupted();
      };
      HONE_TRY(layerwise, gptq->Run(text, layerwise_, resume_, runtime->runtime()));
      options_.given = [&](const std::string& tensor, int64_t row) { return gptq->Row(tensor, row); };
      options_.given_fingerprint = gptq->fingerprint();
      run.resume = resume_ && WorkFile::Exists(out_ + ".partial");
    }
    HONE_TRY(const QuantizeReport report, QuantizeToGguf(*source, plan, out_, options_, run, runtime->runtime()));
    if (gptq != nullptr) gptq->Remove();
    progress.Clear();
    Quality quality;
    if (!no_measure_ && !Interrupted()) {
      QualityRequest wanted = quality_;
      wanted.original = in_, wanted.result = out_;
      HONE_TRY(quality, MeasureQuality(wanted, flags, runtime->runtime()));
    }
    if (!flags.quiet) {
      const std::string measured = no_measure_ ? "" : QualityText(quality);
      std::fputs((Summary(plan, report) + LayerwiseText(layerwise) + measured).c_str(), stderr);
    }
    if (flags.json) WriteOut(Json(plan, &report, no_measure_ ? nullptr : &quality));
    return kExitDone;
  }

 private:
  Result<int> RunFolder(const CommonFlags& flags) {
    scheme_.bits = static_cast<int>(bits_);
    if (scheme_.bits != bits_ || scheme_.bits < 2 || scheme_.bits > 8)
      return UsageError(fmt::format("--bits {}: with --method wanted 2 to 8, whole", bits_));
    if (!recipe_.empty()) return UsageError("--recipe is for GGUF files");
    if (scheme_.format == "gguf")
      return UsageError("--format gguf: --type writes GGUF files (--type Q4_0 --pure rounds every matrix to nearest)");
    const bool scaled = scheme_.method == "awq" || scheme_.method == "smoothquant";
    for (size_t i = 0; i < calibration_flags_.size() && scheme_.method != "gptq"; ++i) {
      const Flag* flag = calibration_flags_[i];
      if (flag->given() && !(scaled && i < 3))  // the first three are of the text
        return UsageError(flag->name() + " goes with --method gptq" + (i < 3 ? ", awq or smoothquant" : ""));
    }
    if (smoothing_flag_->given() && scheme_.method != "smoothquant")
      return UsageError("--smoothing goes with --method smoothquant");
    if (scheme_.method != "rtn" && scheme_.method != "gptq" && scheme_.method != "awq") {
      for (const Flag* flag : {bits_flag_, group_flag_, sym_flag_, asym_flag_}) {
        if (flag->given())
          return UsageError(flag->name() + " goes with --method rtn, gptq or awq; " + scheme_.method + " has only one form");
      }
    }
    if (scheme_.format.empty()) {
      const bool bitsandbytes = scheme_.method == "nf4" || scheme_.method == "fp4" || scheme_.method == "llm-int8";
      scheme_.format = bitsandbytes ? "bitsandbytes" : scheme_.method == "awq" ? "awq" : "compressed-tensors";
    }
    scheme_.symmetric = !asym_ && (sym_ || scheme_.format != "awq");
    return QuantizeToFolder({in_, out_, scheme_, calibration_, layerwise_, smoothing_, quality_, !no_measure_,
                             plan_only_, resume_, force_},
                            flags);
  }

  // What a budget or a recipe says about types.
  Result<void> ChooseTypesOf(const TensorSource& source, bool mixed, const Runtime& runtime) {
    if (mixed) {
      int64_t weights = 0;
      for (const TensorInfo& tensor : source.tensors()) weights += tensor.shape.elements();
      const uint64_t budget = size_flag_->given() ? size_ : static_cast<uint64_t>(bits_ / 8 * static_cast<double>(weights));
      HONE_TRY(const MixedChoice choice, ChooseMixed(source, options_.imatrix, budget, runtime));
      options_.types = choice.types;
      options_.file_type = MostlyOf(source, choice.types);
    }
    if (recipe_.empty()) return {};
    HONE_TRY(const std::string text, ReadText(recipe_));
    HONE_TRY(const std::vector<RecipeLine> lines, ParseRecipe(text, recipe_));
    HONE_TRY(const auto types, ApplyRecipe(lines, source, recipe_));
    for (const auto& [name, to] : types) options_.types[name] = to;
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
    if (plan_only_) return {};
    if (fs::exists(out_, ignored) && !force_) return UsageError(out_ + " exists; --force overwrites it");
    const std::string made = GptqGguf::WorkPath(out_);
    const std::string work = WorkFile::Exists(made) ? made : out_ + ".partial";
    if (resume_ && !WorkFile::Exists(work))
      return UsageError(work + " is not there: nothing to resume; start without --resume");
    if (!resume_ && !force_ && WorkFile::Exists(work)) {
      return UsageError(work +
                        " is there, from a job that did not end; --resume goes on with it, --force starts again");
    }
    return {};
  }

  Result<std::unique_ptr<TensorSource>> OpenSource() {
    if (!checkpoint_->is_folder()) return SourceFromGguf(checkpoint_);
    HONE_TRY(const bool quantized, IsQuantizedFolder(*checkpoint_));
    if (quantized && !allow_requantize_) {
      return Unsupported(checkpoint_->path() +
                         ": quantised already, and quantising again loses twice; take the original, or give --allow-requantize");
    }
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
               "{}: {}\ndisk while working {}, peak memory about {} and the file's cached pages, about {:.0f} s\n",
               options_.file_type->name, Totals(plan), FormatBytes(plan.disk_bytes),
               FormatBytes(plan.peak_memory_bytes), std::ceil(plan.seconds));
  }

  // Tensors that lost most, worst first.
  static std::vector<size_t> Worst(const QuantizePlan& plan, const QuantizeReport& report) {
    std::vector<size_t> order;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      if (plan.tensors[i].from != plan.tensors[i].to) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return report.tensors[a].relative_error > report.tensors[b].relative_error;
    });
    order.resize(std::min<size_t>(order.size(), 5));
    return order;
  }

  std::string Summary(const QuantizePlan& plan, const QuantizeReport& report) const {
    std::string text =
        fmt::format("{}: {}, {}; relative error of the weights {:.4f}; {:.1f} s and {:.1f} s to verify\n", out_,
                    options_.file_type->name, Totals(plan), report.relative_error, report.quantize_s, report.verify_s);
    if (report.resumed_tensors > 0)
      text += fmt::format("  {} of {} tensors were there from the earlier run\n", report.resumed_tensors,
                          plan.tensors.size());
    for (const size_t i : Worst(plan, report)) {
      text += fmt::format("  {:<40} {:<7} error {:.4f}, at most {:.3g}\n", plan.tensors[i].name,
                          Info(plan.tensors[i].to).name, report.tensors[i].relative_error, report.tensors[i].max_error);
    }
    for (const TensorPlan& t : plan.tensors) {
      if (!t.note.empty()) text += fmt::format("  {}: {} ({})\n", t.name, Info(t.to).name, t.note);
    }
    return text;
  }

  std::string Json(const QuantizePlan& plan, const QuantizeReport* report, const Quality* quality = nullptr) const {
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
    json["estimated_s"] = plan.seconds;
    json["warnings"] = plan.warnings;
    if (report != nullptr) {
      json["relative_error"] = report->relative_error;
      json["quantize_s"] = report->quantize_s;
      json["verify_s"] = report->verify_s;
      json["resumed_tensors"] = report->resumed_tensors;
      json["worst"] = nlohmann::ordered_json::array();
      for (const size_t i : Worst(plan, *report)) json["worst"].push_back(plan.tensors[i].name);
    }
    if (quality != nullptr) json["quality"] = nlohmann::ordered_json::parse(QualityJson(*quality));
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
  LinearScheme scheme_;  // method "": GGUF
  double bits_ = 4, smoothing_ = 0.5;
  uint64_t size_ = 0;
  std::string recipe_;
  Flag *size_flag_ = nullptr, *smoothing_flag_ = nullptr;
  CalibrationFlags calibration_{.chunks = 128};
  LayerwiseOptions layerwise_;
  QualityRequest quality_;
  bool no_measure_ = false;
  std::vector<Flag*> calibration_flags_;
  Flag *bits_flag_ = nullptr, *group_flag_ = nullptr, *sym_flag_ = nullptr, *asym_flag_ = nullptr;
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
