// See quantize_to_folder.h.
#include "cli/quantize_to_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/memory.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "cli/unused_tensors.h"
#include "compress/folder/bcq_report.h"
#include "compress/folder/folder_linears.h"
#include "compress/folder/folder_time.h"
#include "compress/folder/kept_modules.h"
#include "compress/folder/quantize_folder.h"
#include "compress/layerwise/layerwise_time.h"
#include "compress/scale/awq.h"
#include "compress/work_file.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// Without a slash at its end, so that names can be made from it.
std::string CleanPath(const std::string& path) {
  std::string clean = fs::path(path).lexically_normal().string();
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();
  return clean;
}

std::string AwqWorkPath(const std::string& out) { return out + ".scales.partial"; }

Result<void> CheckPaths(const FolderRequest& request, const std::string& out) {
  std::error_code ignored;
  if (out.empty() || out.ends_with(".gguf"))
    return UsageError("OUT '" + out + "': these formats are folders; wanted the name of a new one");
  if (fs::equivalent(request.in, out, ignored)) return UsageError("IN and OUT are the same");
  // What is there is replaced as a whole.
  const fs::path in = fs::canonical(request.in, ignored);
  for (fs::path above = in.parent_path(); !in.empty() && above.has_relative_path(); above = above.parent_path()) {
    if (fs::equivalent(above, out, ignored)) return UsageError("IN " + request.in + " lies in OUT " + out + ", which would be replaced");
  }
  if (fs::is_symlink(out, ignored) && !fs::exists(out, ignored)) return UsageError(out + " is a link to nothing; wanted the name of a new folder");
  if (request.plan_only) return {};
  const std::string work = WorkFile::Exists(AwqWorkPath(out)) ? AwqWorkPath(out) : out + ".partial";
  // A job that is killed after its last step leaves both; then there is little left to do.
  const bool goes_on = request.resume && WorkFile::Exists(work);
  if (fs::exists(out, ignored) && !request.force && !goes_on) return UsageError(out + " exists; --force replaces it");
  if (fs::exists(out, ignored) && !fs::exists(out + "/config.json", ignored)) {
    return UsageError(out + " is no model folder (it has no config.json); --force does not replace it");
  }
  if (request.resume && !goes_on)
    return UsageError(work + " is not there: nothing to resume; start without --resume");
  if (!request.resume && !request.force && WorkFile::Exists(work)) {
    return UsageError(work + " is there, from a job that did not end; --resume goes on with it, --force starts again");
  }
  return {};
}

std::string Totals(const FolderPlan& plan) {
  double weights = 0, bits = 0;
  for (const FolderTensor& t : plan.tensors) {
    weights += static_cast<double>(t.rows * t.columns);
    bits += 8.0 * static_cast<double>(t.bytes);
  }
  return fmt::format("{} to {}; {} layers at {:.2f} bits per weight, {} tensors kept", FormatBytes(plan.bytes_before),
                     FormatBytes(plan.bytes), plan.tensors.size(), bits / weights, plan.copied.size());
}

const char* FallbackName(UnitFallback fallback) {
  switch (fallback) {
    case UnitFallback::kNone:
      return "none";
    case UnitFallback::kMoreDamping:
      return "more damping";
    case UnitFallback::kRounding:
      return "rounded: no factor";
    case UnitFallback::kFewTokens:
      return "rounded: few tokens";
  }
  return "";
}

// Of a model that hone does not run: what was done instead.
std::string ByNamesText(const FolderPlan& plan) {
  if (plan.not_run.empty()) return "";
  std::string text = fmt::format("hone cannot run this model ({}). Its {} linear layers were found by the names and shapes of tensors; "
                                 "--recipe with lines 'PATTERN keep' leaves more of them as they are. Quality cannot be measured\n",
                                 plan.not_run, plan.tensors.size());
  std::map<std::string, std::vector<std::string>> kept;
  for (const auto& [name, why] : plan.passed_over) kept[why].push_back(name);
  for (const auto& [why, names] : kept)
    text += fmt::format("  kept, {}: {}{}\n", why, names.front(), names.size() > 1 ? fmt::format(" and {} more", names.size() - 1) : "");
  return text;
}

// What a matrix was.
std::string FromText(const FolderTensor& tensor) {
  return tensor.stored != nullptr ? tensor.stored->stored() : std::string(Info(tensor.dtype).name);
}

std::string Table(const FolderRequest& request, const FolderPlan& plan, double seconds) {
  std::string text;
  std::map<std::string, std::string> reasons(plan.passed_over.begin(), plan.passed_over.end());
  for (const std::string& name : plan.kept_matrices) reasons[name] = "the recipe";
  for (const TensorInfo& t : plan.copied) {
    const auto reason = reasons.extract(t.name);
    text += fmt::format("{:<50} {}  {} kept{} {:>12}\n", t.name, t.shape.ToString(), Info(t.type).name,
                        reason ? ": " + reason.mapped() : "", FormatBytes(t.bytes()));
  }
  for (const auto& [name, why] : reasons) text += fmt::format("{:<50} kept: {}\n", name, why);  // of stacked experts
  for (const FolderTensor& t : plan.tensors) {
    text += fmt::format("{:<50} [{}, {}]  {} -> {:.2f} bits {:>12}\n", t.name, t.rows, t.columns, FromText(t),
                        t.bits_per_weight(), FormatBytes(t.bytes));
  }
  text += fmt::format("{} in {}: {}\ndisk while working {}", request.scheme.method, request.scheme.format, Totals(plan),
                      FormatBytes(plan.disk_bytes));
  return text + fmt::format(", about {:.0f} s\n", std::ceil(seconds)) + ByNamesText(plan);
}

double BitsPerWeight(const FolderPlan& plan) { return plan.weights > 0 ? 8 * static_cast<double>(plan.bytes) / plan.weights : 0; }

// What a matrix becomes: "4 bits, group 128, symmetric", or the method's name where that says it.
std::string FormText(const LinearScheme& scheme) {
  if (scheme.method == "rtn" || scheme.method == "gptq" || scheme.method == "awq" || scheme.method == "hqq") {
    return fmt::format("{} bits, group {}, {}", scheme.bits, scheme.group > 0 ? std::to_string(scheme.group) : "row",
                       scheme.symmetric ? "symmetric" : "with zero points");
  }
  const bool int8 = scheme.method == "w8a8" || scheme.method == "smoothquant" || scheme.method == "llm-int8";
  return (int8 ? "int8" : scheme.e5m2 ? "fp8 e5m2" : scheme.method) + (scheme.per_tensor ? ", a scale a matrix" : "");
}

// "gptq, 4 bits, group 128, symmetric, compressed-tensors"
std::string RecipeText(const LinearScheme& scheme) {
  const std::string form = FormText(scheme);
  return (form.starts_with(scheme.method) ? form : scheme.method + (form.find(' ') != std::string::npos ? ", " + form : "")) + ", " + scheme.format;
}

void Fill(const FolderPlan& plan, const FolderReport& report, QuantizeOutcome* outcome) {
  outcome->relative_error = report.overall_error;
  outcome->layerwise = report.layerwise;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    TensorLoss loss{plan.tensors[i].name, "", report.relative_error[i], report.max_error[i], report.power[i]};
    if (!report.layerwise.units.empty() && !report.layerwise.units[i].resumed)
      loss.output_error = report.layerwise.units[i].output_error;
    outcome->tensors.push_back(std::move(loss));
  }
}

// What awq and smoothquant read of the text, cut as LayerStream does.
void CountCalibration(const CalibrationText& text, const ModelConfig& config, LayerwiseReport* report) {
  const uint64_t total = text.tokens.size(), size = static_cast<uint64_t>(text.chunk_tokens);
  report->chunks = std::max<uint64_t>(1, total / size);
  report->tokens = std::min(total, report->chunks * size);
  report->dropped_tokens = total - report->tokens;
  if (report->tokens < static_cast<uint64_t>(config.width))
    report->warnings.push_back(fmt::format("{} tokens for inputs of {} columns; more text is better", report->tokens, config.width));
}

std::string FolderJson(const FolderRequest& request, const FolderPlan& plan,
                       const std::vector<std::string>& warnings, double seconds, const FolderReport* report,
                       const QuantizeOutcome& outcome) {
  nlohmann::ordered_json json = {
      {"out", request.out}, {"method", request.scheme.method}, {"format", request.scheme.format}};
  if (request.scheme.method == "rtn" || request.scheme.method == "gptq" || request.scheme.method == "awq" ||
      request.scheme.method == "hqq") {
    json["bits"] = request.scheme.bits;
    json["group"] = request.scheme.group;
    json["symmetric"] = request.scheme.symmetric;
  }
  if (request.scheme.per_tensor) json["per_tensor"] = true;
  if (request.scheme.method == "fp8") json["fp8_type"] = request.scheme.e5m2 ? "e5m2" : "e4m3";
  if (!request.kv_scheme.empty()) json["kv_scheme"] = request.kv_scheme;
  json["bytes_before"] = plan.bytes_before;
  json["bytes"] = plan.bytes;
  json["bits_per_weight"] = BitsPerWeight(plan);
  json["disk_bytes"] = plan.disk_bytes;
  json["peak_memory_bytes"] = plan.peak_memory_bytes;
  json["memory_bytes"] = request.memory_bytes;
  if (report == nullptr) json["estimated_s"] = seconds;
  json["warnings"] = warnings;
  if (!request.recipe.empty()) json["kept_matrices"] = plan.kept_matrices;
  if (!plan.not_run.empty()) {
    json["not_run"] = plan.not_run;
    json["passed_over"] = nlohmann::ordered_json::array();
    for (const auto& [name, why] : plan.passed_over) json["passed_over"].push_back({{"name", name}, {"why", why}});
  }
  if (report != nullptr) {
    json["quantize_s"] = report->quantize_s;
    json["verify_s"] = report->verify_s;
    json["resumed_tensors"] = report->resumed_tensors;
    AddOutcome(outcome, &json);
  }
  json["tensors"] = nlohmann::ordered_json::array();
  const std::string form = FormText(request.scheme);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const FolderTensor& t = plan.tensors[i];
    nlohmann::ordered_json tensor = {{"name", t.name},
                                     {"shape", {t.rows, t.columns}},
                                     {"from", FromText(t)},
                                     {"to", form},
                                     {"bytes", t.bytes},
                                     {"bits_per_weight", t.bits_per_weight()}};
    if (report != nullptr) {
      tensor["relative_error"] = report->relative_error[i];
      tensor["max_error"] = report->max_error[i];
      if (!report->layerwise.units.empty()) {
        const UnitReport& unit = report->layerwise.units[i];
        if (!unit.resumed) {
          tensor["tokens"] = unit.tokens;
          tensor["output_error"] = unit.output_error;
          tensor["damping"] = unit.damping;
          tensor["dead_columns"] = unit.dead_columns;
          tensor["fallback"] = FallbackName(unit.fallback);
        }
      }
    }
    json["tensors"].push_back(std::move(tensor));
  }
  json["copied"] = nlohmann::ordered_json::array();
  for (const TensorInfo& t : plan.copied) {
    nlohmann::ordered_json shape = nlohmann::ordered_json::array();
    for (int i = 0; i < t.shape.rank(); ++i) shape.push_back(t.shape[i]);
    json["copied"].push_back({{"name", t.name}, {"shape", shape}, {"type", Info(t.type).name}, {"bytes", t.bytes()}});
  }
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

namespace {

AwqOptions AwqOptionsOf(const FolderRequest& request) {
  return {request.scheme.bits, request.scheme.group, request.scheme.symmetric};
}

// Seconds of what a method does with the text, for plans.
double EstimateCalibration(const FolderRequest& request, const std::vector<LayerUnit>& units, const CalibrationText& text, bool kv,
                           const Runtime& runtime) {
  const uint64_t tokens = text.tokens.size();
  double seconds = 0;
  if (request.scheme.method == "gptq") seconds += EstimateLayerwiseSeconds(units, tokens, runtime);
  if (request.scheme.method == "awq" || request.scheme.method == "smoothquant") seconds += EstimateForwardSeconds(units, tokens, runtime);
  // AWQ: 42 runs of each layer in F32, a quarter as fast, on the tokens that losses are of.
  if (request.scheme.method == "awq")
    seconds += 42 * 4 * EstimateForwardSeconds(units, std::min(tokens, AwqOptionsOf(request).loss_tokens), runtime);
  if (kv && request.kv_ranges.empty()) seconds += EstimateForwardSeconds(units, tokens, runtime);
  return seconds;
}

// `few`: experts that saw too few tokens to have their ranges searched for are named there.
Result<FolderScales> FindScales(const FolderRequest& request, LayerWalk& walk, const CalibrationText& text,
                                const Runtime& runtime, ProgressLine& progress, std::vector<std::string>* few) {
  FolderScales found;
  if (request.scheme.method == "awq") {
    AwqOptions options = AwqOptionsOf(request);
    options.work_path = AwqWorkPath(CleanPath(request.out));
    options.resume = request.resume && WorkFile::Exists(options.work_path);
    options.progress = [&](double share, const std::string& what) {
      progress.Update(share, what);
      return !Interrupted();
    };
    HONE_TRY(AwqChoice choice, ChooseAwq(walk, text, options, runtime));
    for (const LayerUnit& unit : ListLayerUnits(walk.map(), true)) {
      if (unit.expert && choice.clips.count(unit.name) == 0)
        few->push_back(walk.map().Find(unit.name)->file_name + ": few tokens came to it: rounded to nearest");
    }
    found.scales = std::move(choice.scales);
    found.clips = std::move(choice.clips);
    return found;
  }
  HONE_TRY(const auto stats, CollectInputStats(walk, text, [&](double share) {
             progress.Update(share, "reading inputs");
             return !Interrupted();
           }));
  HONE_TRY(found.scales, SmoothQuantScales(walk, stats, request.smoothing, runtime));
  found.largest_inputs = LargestInputs(stats, found.scales);
  return found;
}

}  // namespace

namespace {

// Scales of the cache, from the file of ranges or from the calibration text.
Result<KvCacheScales> FindKvScales(const FolderRequest& request, LayerWalk& walk, const CalibrationText& text,
                                   const StreamOptions& stream, ProgressLine& progress) {
  KvRanges ranges;
  if (!request.kv_ranges.empty()) {
    HONE_TRY(ranges, ReadKvRanges(request.kv_ranges, walk.config().layers, walk.config().kv_heads));
  } else {
    HONE_TRY(ranges, CollectKvRanges(walk, text, stream, [&](uint64_t done, uint64_t total) {
               progress.Update(static_cast<double>(done) / static_cast<double>(total), "reading keys and values");
               return !Interrupted();
             }));
  }
  return MakeKvCacheScales(ranges, request.kv_scheme == "fp8" ? KvScheme::kFp8 : KvScheme::kInt8, request.kv_per_head);
}

}  // namespace

Result<int> QuantizeToFolder(const FolderRequest& request, const CommonFlags& flags, const Runtime& runtime,
                             QuantizeOutcome* outcome) {
  const std::string out = CleanPath(request.out);
  HONE_TRY(const auto format, MakeLinearFormat(request.scheme, runtime.isa));
  HONE_RETURN_IF_ERROR(CheckPaths(request, out));
  HONE_TRY(const auto checkpoint, OpenModel(request.in));
  const bool scaled = request.scheme.method == "awq" || request.scheme.method == "smoothquant", kv = !request.kv_scheme.empty();
  const bool walks = scaled || kv || request.scheme.method == "gptq";  // runs the model
  if (walks && checkpoint->is_folder())
    HONE_RETURN_IF_ERROR(NeedsARun(*checkpoint, kv ? "--kv-scheme" : "--method " + request.scheme.method));
  std::set<std::string> keep;
  if (!request.recipe.empty()) {
    if (scaled)
      return UsageError("--recipe does not go with --method " + request.scheme.method + ", whose scales go through all matrices of an input");
    HONE_TRY(const std::string lines, ReadText(request.recipe));
    HONE_TRY(keep, ReadKeptMatrices(lines, request.recipe, *checkpoint));
  }
  HONE_TRY(FolderPlan plan, PlanFolder(*checkpoint, *format, keep, request.allow_requantize));
  const std::vector<std::string> warnings = WarningsAndUnused(*checkpoint, "copied as they are");
  for (const std::string& warning : warnings) {
    if (!flags.quiet) std::fprintf(stderr, "hone quantize: %s\n", warning.c_str());
  }
  // What calibrated methods read.
  CalibrationText text;
  std::unique_ptr<LayerWalk> walk;
  FolderGptq gptq{.options = request.layerwise};
  const std::string streams_path = out + ".streams";
  double seconds = request.plan_only ? EstimateFolderSeconds(plan, *format, request.scheme, runtime) : 0;
  if (kv && request.scheme.format != "compressed-tensors")
    return UsageError("--kv-scheme goes with --format compressed-tensors, the only one that has a place for it");
  if (walks) {
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    HONE_TRY(text, ReadCalibrationText(request.calibration, *tokenizer, config));
    HONE_TRY(walk, LayerWalk::Open(checkpoint, runtime, text.chunk_tokens));
    gptq.walk = walk.get();
    gptq.text = &text;
    uint64_t peak = 0;
    if (scaled) peak = AwqMemory(config, walk->map(), text, AwqOptionsOf(request));
    if (request.scheme.method == "gptq")
      peak = FitLayerwise(config, PlannedUnits(plan, walk->map()), text, request.memory_bytes, streams_path, &gptq.options);
    if (request.plan_only) seconds += EstimateCalibration(request, PlannedUnits(plan, walk->map()), text, kv, runtime);
    if (kv) peak = std::max(peak, WalkMemory(*walk, text, StreamsWithin(*walk, text, request.memory_bytes, streams_path)));
    plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, peak);
    if (!gptq.options.stream_file.empty()) plan.disk_bytes += text.tokens.size() * config.width * sizeof(float);
  }
  if (request.plan_only) {
    WriteOut(flags.json ? FolderJson(request, plan, warnings, seconds, nullptr, *outcome)
                        : Table(request, plan, seconds) + MemoryText(plan.peak_memory_bytes, request.memory_bytes));
  }
  HONE_RETURN_IF_ERROR(CheckPeak(plan.peak_memory_bytes, plan.peak_memory_bytes, request.memory_bytes));
  if (request.plan_only) {
    if (!request.resume) HONE_RETURN_IF_ERROR(CheckDisk(plan.disk_bytes, out, 0));
    return kExitDone;
  }
  outcome->in = checkpoint->path(), outcome->out = out;
  outcome->recipe = RecipeText(request.scheme) + (keep.empty() ? "" : ", recipe " + request.recipe) + (kv ? ", cache in " + request.kv_scheme : "") +
                    (plan.tensors.front().stored != nullptr ? ", from " + plan.tensors.front().stored->stored() : "");
  outcome->calibration = text.tokens.empty() ? "" : request.calibration.file.empty() ? "hone's sample" : request.calibration.file;
  outcome->bytes_before = plan.bytes_before, outcome->bytes = plan.bytes;
  outcome->bits_per_weight = BitsPerWeight(plan);
  outcome->started = true;
  ProgressLine progress("quantising", flags.progress());
  FolderRun run{.resume = request.resume, .overwrite = request.force || request.resume};
  run.progress = [&](const char* stage, uint64_t done, uint64_t total) {
    progress.Update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0, stage);
    return !Interrupted();
  };
  FolderScales scales;
  std::vector<std::string> few;
  if (scaled) {
    HONE_TRY(scales, FindScales(request, *walk, text, runtime, progress, &few));
    run.scales = &scales;
  }
  KvCacheScales kv_scales;
  if (kv) {
    HONE_TRY(kv_scales, FindKvScales(request, *walk, text, StreamsWithin(*walk, text, request.memory_bytes, streams_path),
                                     progress));
    run.kv = &kv_scales;
  }
  if (request.scheme.method == "gptq") {
    run.gptq = &gptq;
    gptq.options.progress = [&](double share, const std::string& what) {
      progress.Update(share, what);
      return !Interrupted();
    };
  }
  Result<FolderReport> written = QuantizeFolder(*checkpoint, *format, request.scheme, plan, out, run, runtime);
  if (written || written.error().code == ErrorCode::kInvalidInput) RemoveKeptAwq(AwqWorkPath(out));  // or no resuming helps
  HONE_TRY(const FolderReport report, std::move(written));
  progress.Clear();
  Fill(plan, report, outcome);
  if (scaled) CountCalibration(text, walk->config(), &outcome->layerwise);
  outcome->layerwise.warnings.insert(outcome->layerwise.warnings.end(), few.begin(), few.end());
  outcome->peak_rss_bytes = PeakResidentBytes();
  walk.reset();  // the layer that it holds
  if (!plan.not_run.empty()) {
    outcome->quality.skipped = "hone cannot run this model";
    outcome->measured = request.measure;
  } else if (request.measure && !Interrupted()) {
    QualityRequest wanted = request.quality;
    wanted.original = request.in, wanted.result = out, wanted.memory_bytes = request.memory_bytes;
    HONE_TRY(outcome->quality, MeasureQuality(wanted, flags, runtime));
    outcome->measured = true;
  }
  if (!flags.quiet) std::fputs((OutcomeText(*outcome) + ByNamesText(plan)).c_str(), stderr);
  outcome->json = FolderJson(request, plan, warnings, 0, &report, *outcome);
  if (flags.json) WriteOut(outcome->json);
  return kExitDone;
}

Result<int> ReportBcq(const std::string& in, const LinearScheme& scheme, bool plan_only, const CommonFlags& flags,
                      const Runtime& runtime) {
  HONE_TRY(const auto checkpoint, OpenModel(in));
  ProgressLine progress("binary codes", flags.progress());
  HONE_TRY(const BcqReport report, CompareBcq(*checkpoint, scheme.bits, scheme.group, [&](double share) {
             progress.Update(share, "coding sampled rows");
             return !Interrupted();
           }, runtime));
  progress.Clear();
  if (flags.json) {
    nlohmann::ordered_json json = {{"method", "bcq"}, {"bits", scheme.bits}, {"group", scheme.group},
                                   {"bits_per_weight", report.bcq_bits}, {"rtn_bits_per_weight", report.rtn_bits},
                                   {"ns_per_weight", report.bcq_ns}, {"packed_ns_per_weight", report.packed_ns},
                                   {"packed_kernel", report.packed_kernel}, {"tensors", nlohmann::ordered_json::array()}};
    for (const BcqLine& line : report.lines) {
      json["tensors"].push_back({{"name", line.name}, {"shape", {line.rows, line.columns}},
                                 {"relative_error", line.bcq_error}, {"rtn_relative_error", line.rtn_error}});
    }
    WriteOut(json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  } else {
    WriteOut(BcqText(report, scheme.bits, scheme.group));
  }
  if (plan_only) return kExitDone;
  return Unsupported("--method bcq only reports: no format that other engines read holds binary codes, and on this machine "
                     "hone's packed kernels are what would run; take --method gptq at the same bits (--plan: the report "
                     "without this error)");
}

}  // namespace hone
