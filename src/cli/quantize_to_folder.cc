// See quantize_to_folder.h.
#include "cli/quantize_to_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/loaded_model.h"
#include "cli/model_path.h"
#include "cli/progress.h"
#include "compress/folder/quantize_folder.h"
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

Result<void> CheckPaths(const FolderRequest& request, const std::string& out) {
  std::error_code ignored;
  if (out.empty() || out.ends_with(".gguf"))
    return UsageError("OUT '" + out + "': these formats are folders; wanted the name of a new one");
  if (fs::equivalent(request.in, out, ignored)) return UsageError("IN and OUT are the same");
  if (request.plan_only) return {};
  if (fs::exists(out, ignored) && !request.force) return UsageError(out + " exists; --force replaces it");
  if (fs::exists(out, ignored) && !fs::exists(out + "/config.json", ignored)) {
    return UsageError(out + " is no model folder (it has no config.json); --force does not replace it");
  }
  const std::string work = out + ".partial";
  if (request.resume && !WorkFile::Exists(work))
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
                     FormatBytes(plan.bytes), plan.tensors.size(), bits / weights, plan.kept);
}

std::vector<size_t> Worst(const FolderReport& report) {
  std::vector<size_t> order(report.relative_error.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return report.relative_error[a] > report.relative_error[b]; });
  order.resize(std::min<size_t>(order.size(), 5));
  return order;
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

std::string Table(const FolderRequest& request, const FolderPlan& plan) {
  std::string text;
  for (const FolderTensor& t : plan.tensors) {
    text += fmt::format("{:<50} [{}, {}]  {} -> {:.2f} bits {:>12}\n", t.name, t.rows, t.columns, Info(t.dtype).name,
                        t.bits_per_weight(), FormatBytes(t.bytes));
  }
  return text + fmt::format("{} in {}: {}\ndisk while working {}, peak memory about {} and the file's cached pages\n",
                            request.scheme.method, request.scheme.format, Totals(plan), FormatBytes(plan.disk_bytes),
                            FormatBytes(plan.peak_memory_bytes));
}

std::string Json(const FolderRequest& request, const FolderPlan& plan, const FolderReport* report,
                 const Quality* quality = nullptr) {
  nlohmann::ordered_json json = {
      {"out", request.out}, {"method", request.scheme.method}, {"format", request.scheme.format}};
  if (request.scheme.method == "rtn" || request.scheme.method == "gptq" ||
      request.scheme.method == "awq") {
    json["bits"] = request.scheme.bits;
    json["group"] = request.scheme.group;
    json["symmetric"] = request.scheme.symmetric;
  }
  json["bytes_before"] = plan.bytes_before;
  json["bytes"] = plan.bytes;
  json["disk_bytes"] = plan.disk_bytes;
  json["peak_memory_bytes"] = plan.peak_memory_bytes;
  if (report != nullptr) {
    json["relative_error"] = report->overall_error;
    json["quantize_s"] = report->quantize_s;
    json["verify_s"] = report->verify_s;
    json["resumed_tensors"] = report->resumed_tensors;
    if (!report->layerwise.units.empty()) {
      json["calibration"] = {{"tokens", report->layerwise.tokens},
                             {"chunks", report->layerwise.chunks},
                             {"dropped_tokens", report->layerwise.dropped_tokens}};
      json["warnings"] = report->layerwise.warnings;
    }
    json["worst"] = nlohmann::ordered_json::array();
    for (const size_t i : Worst(*report)) json["worst"].push_back(plan.tensors[i].name);
  }
  if (quality != nullptr && request.measure) json["quality"] = nlohmann::ordered_json::parse(QualityJson(*quality));
  json["tensors"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const FolderTensor& t = plan.tensors[i];
    nlohmann::ordered_json tensor = {{"name", t.name},
                                     {"shape", {t.rows, t.columns}},
                                     {"from", Info(t.dtype).name},
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
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string LayerwiseText(const LayerwiseReport& report) {
  if (report.units.empty()) return "";
  std::string text = fmt::format("  calibration: {} tokens in {} chunks; {} at the end of the text were left out\n",
                                 report.tokens, report.chunks, report.dropped_tokens);
  constexpr size_t kShown = 10;
  for (size_t i = 0; i < std::min(report.warnings.size(), kShown); ++i) text += "  " + report.warnings[i] + "\n";
  if (report.warnings.size() > kShown)
    text += fmt::format("  and {} more such lines (--json has all)\n", report.warnings.size() - kShown);
  return text;
}

namespace {

Result<FolderScales> FindScales(const FolderRequest& request, const std::shared_ptr<const Checkpoint>& checkpoint,
                                const CommonFlags& flags, const Runtime& runtime, ProgressLine& progress) {
  FolderScales found;
  HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
  HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
  HONE_TRY(const CalibrationText text, ReadCalibrationText(request.calibration, *tokenizer, config));
  HONE_TRY(const auto walk, LayerWalk::Open(checkpoint, runtime, text.chunk_tokens));
  HONE_RETURN_IF_ERROR(CheckMemory(*checkpoint, 0));
  const bool awq = request.scheme.method == "awq";
  {
    HONE_TRY(const auto model,
             Model::Load(checkpoint, runtime, {.max_rows = text.chunk_tokens, .max_context = text.chunk_tokens}));
    HONE_TRY(found.stats, CollectInputStats(*model, walk->map(), text, awq ? 256 : 1, [&](double share) {
               progress.Update(share, "reading inputs");
               return !Interrupted();
             }));
  }
  const std::vector<LayerUnit> units = ListLayerUnits(walk->map(), false);
  if (awq) {
    HONE_TRY(found.scales, AwqScales(walk->map(), units, found.stats, request.scheme.bits, request.scheme.group,
                                     [&](double share) {
                                       progress.Update(share, "searching scales");
                                       return !Interrupted();
                                     },
                                     runtime));
  } else {
    HONE_TRY(found.scales, SmoothQuantScales(walk->map(), units, found.stats, request.smoothing, runtime));
  }
  return found;
}

}  // namespace

Result<int> QuantizeToFolder(const FolderRequest& request, const CommonFlags& flags) {
  const std::string out = CleanPath(request.out);
  HONE_TRY(const auto format, MakeLinearFormat(request.scheme));
  HONE_RETURN_IF_ERROR(CheckPaths(request, out));
  HONE_TRY(const auto runtime, RuntimeOwner::Create(flags));
  HONE_TRY(const auto checkpoint, OpenModel(request.in));
  HONE_TRY(FolderPlan plan, PlanFolder(*checkpoint, *format));
  // What GPTQ reads.
  CalibrationText text;
  std::unique_ptr<LayerWalk> walk;
  FolderGptq gptq{.options = request.layerwise};
  if (request.scheme.method == "gptq") {
    HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
    HONE_TRY(const ModelConfig config, ReadModelConfig(*checkpoint));
    HONE_TRY(text, ReadCalibrationText(request.calibration, *tokenizer, config));
    HONE_TRY(walk, LayerWalk::Open(checkpoint, runtime->runtime(), text.chunk_tokens));
    gptq.walk = walk.get();
    gptq.text = &text;
    plan.peak_memory_bytes = std::max(
        plan.peak_memory_bytes, LayerwiseMemory(config, ListLayerUnits(walk->map(), false), text, request.layerwise));
  }
  const bool scaled = request.scheme.method == "awq" || request.scheme.method == "smoothquant";
  if (scaled) plan.peak_memory_bytes += plan.bytes_before;  // the model runs as a whole
  if (request.plan_only) {
    WriteOut(flags.json ? Json(request, plan, nullptr) : Table(request, plan));
    return kExitDone;
  }
  ProgressLine progress("quantising", flags.progress());
  FolderRun run{.resume = request.resume, .overwrite = request.force};
  run.progress = [&](const char* stage, uint64_t done, uint64_t total) {
    progress.Update(total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0, stage);
    return !Interrupted();
  };
  FolderScales scales;
  if (scaled) {
    HONE_TRY(scales, FindScales(request, checkpoint, flags, runtime->runtime(), progress));
    run.scales = &scales;
  }
  if (walk != nullptr) {
    run.gptq = &gptq;
    gptq.options.progress = [&](double share, const std::string& what) {
      progress.Update(share, what);
      return !Interrupted();
    };
  }
  HONE_TRY(const FolderReport report,
           QuantizeFolder(*checkpoint, *format, request.scheme, plan, out, run, runtime->runtime()));
  progress.Clear();
  Quality quality;
  if (request.measure && !Interrupted()) {
    QualityRequest wanted = request.quality;
    wanted.original = request.in, wanted.result = out;
    HONE_TRY(quality, MeasureQuality(wanted, flags, runtime->runtime()));
  }
  if (!flags.quiet) {
    std::string summary =
        fmt::format("{}: {} in {}, {}; relative error of the weights {:.4f}; {:.1f} s and {:.1f} s to verify\n", out,
                    request.scheme.method, request.scheme.format, Totals(plan), report.overall_error, report.quantize_s,
                    report.verify_s);
    for (const size_t i : Worst(report)) {
      summary += fmt::format("  {:<50} error {:.4f}, at most {:.3g}\n", plan.tensors[i].name, report.relative_error[i],
                          report.max_error[i]);
    }
    summary += LayerwiseText(report.layerwise) + (request.measure ? QualityText(quality) : "");
    std::fputs(summary.c_str(), stderr);
  }
  if (flags.json) WriteOut(Json(request, plan, &report, &quality));
  return kExitDone;
}

}  // namespace hone
