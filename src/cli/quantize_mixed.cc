// See quantize_mixed.h. What was collected, measured and chosen waits for --resume in OUT.imatrix.partial,
// OUT.sensitivities.partial and OUT.types.partial (a recipe), made in this order.
#include "cli/quantize_mixed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/quantize_report.h"
#include "compress/calibrate/collect.h"
#include "compress/gguf/recipe.h"
#include "compress/gguf/sensitivity.h"
#include "compress/gguf/sensitivity_log.h"
#include "compress/layerwise/layer_stream.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

std::string TypesPath(const std::string& out) { return out + ".types.partial"; }
std::string ImatrixPath(const std::string& out) { return out + ".imatrix.partial"; }

class Chooser {
 public:
  Chooser(const MixedRequest& request, const TensorSource& source, const Runtime& runtime, bool shown)
      : request_(request), source_(source), runtime_(runtime), progress_("choosing types", shown), imatrix_(request.imatrix) {}

  Result<MixedTypes> Run(const std::shared_ptr<const Checkpoint>& checkpoint, const CommonFlags& flags) {
    if (request_.measured || imatrix_ == nullptr) HONE_RETURN_IF_ERROR(OpenWalk(checkpoint, flags));
    if (walk_ != nullptr && imatrix_ == nullptr) HONE_RETURN_IF_ERROR(Collect());
    if (walk_ != nullptr && request_.measured && CanMeasure()) HONE_RETURN_IF_ERROR(Measure());
    HONE_TRY(const MixedChoice choice, ChooseMixed(source_, imatrix_, sensitivity_ ? &*sensitivity_ : nullptr, request_.bytes,
                                                   runtime_, request_.fixed));
    mixed_.types = choice.types;
    if (sensitivity_) Note(fmt::format("expected divergence, rounded to nearest: {:.5f}", choice.cost));
    if (!request_.plan) HONE_RETURN_IF_ERROR(Keep());
    return std::move(mixed_);
  }

 private:
  void Note(std::string note) { mixed_.notes.push_back(std::move(note)); }

  Result<void> OpenWalk(const std::shared_ptr<const Checkpoint>& checkpoint, const CommonFlags& flags) {
    const auto config = ReadModelConfig(*checkpoint);
    Result<std::unique_ptr<LayerWalk>> walk = Error{ErrorCode::kUnsupported, ""};
    if (config) {
      HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
      HONE_TRY(text_, ReadCalibrationText(request_.calibration, *tokenizer, *config));
      walk = LayerWalk::Open(checkpoint, runtime_, std::max(text_.chunk_tokens, kSensitivityRows));
    } else {
      walk = config.error();
    }
    if (walk) {
      walk_ = std::move(*walk);
    } else {
      Note("types were chosen by errors of weights only, since hone does not run this model: " + walk.error().message);
    }
    return {};
  }

  std::string LogPath() const { return request_.sensitivities.empty() ? KeptSensitivities(request_.out) : request_.sensitivities; }

  // The importance matrix.
  Result<void> Collect() {
    std::error_code ignored;
    // The file of what was measured says which model, text and importance it goes with.
    if (request_.resume && fs::exists(LogPath(), ignored) && fs::exists(ImatrixPath(request_.out), ignored)) {
      HONE_TRY(mixed_.imatrix, ReadImatrix(ImatrixPath(request_.out)));
      imatrix_ = &*mixed_.imatrix;
      return {};
    }
    const StreamOptions stream = StreamsWithin(*walk_, text_, request_.memory_bytes, request_.out + ".streams");
    const uint64_t peak = WalkMemory(*walk_, text_, stream);
    HONE_RETURN_IF_ERROR(CheckPeak(peak, peak, request_.memory_bytes));
    if (request_.plan) {
      Note(fmt::format("importance will be collected from {} tokens", text_.tokens.size()));
      return {};
    }
    CalibrationReport report;
    HONE_TRY(mixed_.imatrix, CollectImatrix(*walk_, text_, stream,
                                            [&](uint64_t done, uint64_t total) {
                                              progress_.Update(static_cast<double>(done) / static_cast<double>(total), "reading inputs");
                                              return !Interrupted();
                                            },
                                            &report));
    imatrix_ = &*mixed_.imatrix;
    if (request_.measured) HONE_RETURN_IF_ERROR(WriteImatrix(ImatrixPath(request_.out), *imatrix_));
    Note(fmt::format("importance was collected from {} tokens", report.tokens));
    if (!report.warnings.empty()) {
      Note(fmt::format("{} matrices saw fewer tokens than they have columns, {} for one; more text would tell more",
                       report.warnings.size(), report.warnings.front()));
    }
    return {};
  }

  bool CanMeasure() {
    const uint64_t least = LeastSensitivityMemory(*walk_, ProbeTypes(source_).size());
    if (walk_->map().quantized()) {
      Note("types were chosen by errors of outputs: the folder is quantised already, so there is no original to measure against");
    } else if (least > request_.memory_bytes) {
      Note(fmt::format("types were chosen by errors of outputs: measuring each matrix needs {}, --memory allows {}", FormatBytes(least),
                       FormatBytes(request_.memory_bytes)));
    } else {
      return true;
    }
    return false;
  }

  Result<void> Measure() {
    SensitivityOptions options{.probes = ProbeTypes(source_),
                               .imatrix = imatrix_,
                               .work_path = request_.out,
                               .memory_bytes = request_.memory_bytes};
    options.progress = [&](double share) {
      progress_.Update(share, "measuring what each matrix matters");
      return !Interrupted();
    };
    const SensitivityPlan plan = PlanSensitivity(*walk_, text_, options);
    if (plan.groups.empty()) {
      Note("types were chosen by errors of outputs: measuring each matrix would take too long for this model");
      return {};
    }
    auto opened = OpenLog(options);
    if (!opened && !request_.resume && !request_.plan) RemoveMixedTypes(request_.out);  // nothing is measured that could go on
    HONE_TRY(const auto log, std::move(opened));
    options.log = log.get();
    const size_t known = log != nullptr ? log->groups() : 0;
    if (request_.plan && known < plan.groups.size()) {
      HONE_TRY(mixed_.seconds, EstimateSensitivitySeconds(*walk_, text_, options, runtime_));
      Note(fmt::format("{} of {} groups of matrices are measured; measuring the others on {} tokens will take about {:.0f} s, and decides "
                       "the types: those here are by errors of outputs",
                       known, plan.groups.size(), plan.tokens, std::ceil(mixed_.seconds)));
      return {};
    }
    auto measured = MeasureSensitivity(*walk_, text_, options, runtime_);
    if (!measured && measured.error().code == ErrorCode::kInvalidInput) RemoveMixedTypes(request_.out);  // no resuming helps
    HONE_TRY(sensitivity_, std::move(measured));
    Note(fmt::format("what matters was measured for {} groups of matrices on {} tokens{}", sensitivity_->groups.size(), sensitivity_->tokens,
                     known > 0 ? fmt::format(", {} of them before ({})", known, LogPath()) : ""));
    return {};
  }

  // nullptr in a plan that finds none, or would have to collect the importance before it can tell what a file is of.
  Result<std::unique_ptr<SensitivityLog>> OpenLog(const SensitivityOptions& options) const {
    std::error_code ignored;
    const std::string path = LogPath();
    const bool own = request_.sensitivities.empty();
    if (own && !request_.resume && !request_.plan) fs::remove(path, ignored);
    if (request_.plan && (!fs::exists(path, ignored) || (own && !request_.resume) || imatrix_ == nullptr)) return std::unique_ptr<SensitivityLog>();
    HONE_TRY(const SensitivityKey key, MakeSensitivityKey(*walk_, text_, options));
    auto log = request_.plan ? SensitivityLog::Read(path, key) : SensitivityLog::Open(path, key);
    if (!log && own && log.error().code != ErrorCode::kIo)
      return UsageError(fmt::format("{}; or start again without --resume, with --force", log.error().message));
    return log;
  }

  Result<void> Keep() const {
    std::string text;
    for (const auto& [name, type] : mixed_.types) text += fmt::format("{} {}\n", name, Info(type).name);
    // In one step: types that a killed job has written half of would be another choice.
    const std::string path = TypesPath(request_.out), fresh = path + ".new";
    if (mixed_.imatrix) HONE_RETURN_IF_ERROR(WriteImatrix(ImatrixPath(request_.out), *mixed_.imatrix));
    HONE_RETURN_IF_ERROR(WriteFile(fresh, text));
    std::error_code error;
    fs::rename(fresh, path, error);
    if (error) return IoError(path + ": " + error.message());
    return {};
  }

  const MixedRequest& request_;
  const TensorSource& source_;
  const Runtime& runtime_;
  ProgressLine progress_;
  const Imatrix* imatrix_;
  CalibrationText text_;
  std::unique_ptr<LayerWalk> walk_;  // nullptr: hone does not run the model, or nothing is to be run
  std::optional<Sensitivity> sensitivity_;
  MixedTypes mixed_;
};

}  // namespace

Result<MixedTypes> ChooseMixedTypes(const MixedRequest& request, const TensorSource& source,
                                    const std::shared_ptr<const Checkpoint>& checkpoint, const CommonFlags& flags,
                                    const Runtime& runtime) {
  return Chooser(request, source, runtime, flags.progress()).Run(checkpoint, flags);
}

Result<std::optional<MixedTypes>> ReadMixedTypes(const std::string& out, const TensorSource& source) {
  std::error_code ignored;
  if (!fs::exists(TypesPath(out), ignored)) return std::optional<MixedTypes>();
  MixedTypes mixed;
  HONE_TRY(const std::string text, ReadText(TypesPath(out)));
  HONE_TRY(const std::vector<RecipeLine> lines, ParseRecipe(text, TypesPath(out)));
  HONE_TRY(mixed.types, ApplyRecipe(lines, source, TypesPath(out)));
  if (fs::exists(ImatrixPath(out), ignored)) {
    HONE_TRY(mixed.imatrix, ReadImatrix(ImatrixPath(out)));
  }
  mixed.notes.push_back("types were chosen by the earlier run");
  return std::optional<MixedTypes>(std::move(mixed));
}

bool HasMixedTypes(const std::string& out) {
  std::error_code ignored;
  return fs::exists(TypesPath(out), ignored);
}

std::string KeptSensitivities(const std::string& out) { return out + ".sensitivities.partial"; }

void RemoveMixedTypes(const std::string& out) {
  std::error_code ignored;
  fs::remove(KeptSensitivities(out), ignored);
  fs::remove(TypesPath(out), ignored);
  fs::remove(ImatrixPath(out), ignored);
}

}  // namespace hone
