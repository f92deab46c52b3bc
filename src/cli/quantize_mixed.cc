// See quantize_mixed.h. What was chosen waits for --resume in OUT.types.partial (a recipe) and OUT.imatrix.partial.
#include "cli/quantize_mixed.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/quantize_report.h"
#include "compress/calibrate/collect.h"
#include "compress/gguf/recipe.h"
#include "compress/gguf/sensitivity.h"
#include "compress/layerwise/layer_stream.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

std::string TypesPath(const std::string& out) { return out + ".types.partial"; }
std::string ImatrixPath(const std::string& out) { return out + ".imatrix.partial"; }

Result<void> Keep(const std::string& out, const MixedTypes& mixed) {
  std::string text;
  for (const auto& [name, type] : mixed.types) text += fmt::format("{} {}\n", name, Info(type).name);
  std::ofstream file(TypesPath(out), std::ios::binary);
  file << text;
  if (!file.flush()) return IoError(TypesPath(out) + ": cannot write");
  if (mixed.imatrix) return WriteImatrix(ImatrixPath(out), *mixed.imatrix);
  return {};
}

}  // namespace

Result<MixedTypes> ChooseMixedTypes(const MixedRequest& request, const TensorSource& source,
                                    const std::shared_ptr<const Checkpoint>& checkpoint, const CommonFlags& flags,
                                    const Runtime& runtime) {
  MixedTypes mixed;
  std::optional<Sensitivity> sensitivity;
  Result<std::unique_ptr<LayerWalk>> walk = Error{ErrorCode::kUnsupported, ""};
  CalibrationText text;
  if (request.measured || request.imatrix == nullptr) {
    const auto config = ReadModelConfig(*checkpoint);
    if (config) {
      HONE_TRY(const auto tokenizer, Tokenizer::FromCheckpoint(*checkpoint, flags.pre));
      HONE_TRY(text, ReadCalibrationText(request.calibration, *tokenizer, *config));
      walk = LayerWalk::Open(checkpoint, runtime, std::max(text.chunk_tokens, kSensitivityRows));
    } else {
      walk = config.error();
    }
    if (!walk) {
      mixed.notes.push_back("types were chosen by errors of weights only, since hone does not run this model: " +
                            walk.error().message);
    }
  }
  const Imatrix* imatrix = request.imatrix;
  ProgressLine progress("choosing types", flags.progress());
  if (walk && imatrix == nullptr) {
    CalibrationReport report;
    const StreamOptions stream = StreamsWithin(**walk, text, request.memory_bytes, request.out + ".streams");
    const uint64_t peak = WalkMemory(**walk, text, stream);
    HONE_RETURN_IF_ERROR(CheckPeak(peak, peak, request.memory_bytes));
    HONE_TRY(mixed.imatrix, CollectImatrix(**walk, text, stream,
                                           [&](uint64_t done, uint64_t total) {
                                             progress.Update(static_cast<double>(done) / static_cast<double>(total),
                                                             "reading inputs");
                                             return !Interrupted();
                                           },
                                           &report));
    imatrix = &*mixed.imatrix;
    mixed.notes.push_back(fmt::format("importance was collected from {} tokens", report.tokens));
    if (!report.warnings.empty()) {
      mixed.notes.push_back(fmt::format("{} matrices saw fewer tokens than they have columns, {} for one; more text would tell more",
                                        report.warnings.size(), report.warnings.front()));
    }
  }
  const std::map<std::string, DType> probes = ProbeTypes(source);
  const bool original = walk && !(*walk)->map().quantized();
  const bool fits = original && LeastSensitivityMemory(**walk, probes.size()) <= request.memory_bytes;
  if (walk && request.measured && !original) {
    mixed.notes.push_back("types were chosen by errors of outputs: the folder is quantised already, so there is no original to measure against");
  } else if (walk && request.measured && !fits) {
    mixed.notes.push_back(fmt::format("types were chosen by errors of outputs: measuring each matrix needs {}, --memory allows {}",
                                      FormatBytes(LeastSensitivityMemory(**walk, probes.size())),
                                      FormatBytes(request.memory_bytes)));
  }
  if (fits && request.measured) {
    SensitivityOptions options{.probes = probes,
                               .imatrix = imatrix,
                               .work_path = request.out,
                               .memory_bytes = request.memory_bytes};
    options.progress = [&](double share) {
      progress.Update(share, "measuring what each matrix matters");
      return !Interrupted();
    };
    HONE_TRY(sensitivity, MeasureSensitivity(**walk, text, options, runtime));
    if (sensitivity->groups.empty()) {
      mixed.notes.push_back("types were chosen by errors of outputs: measuring each matrix would take too long for this model");
    } else {
      mixed.notes.push_back(fmt::format("what matters was measured for {} groups of matrices on {} tokens",
                                        sensitivity->groups.size(), sensitivity->tokens));
    }
  }
  HONE_TRY(const MixedChoice choice,
           ChooseMixed(source, imatrix, sensitivity ? &*sensitivity : nullptr, request.bytes, runtime, request.fixed));
  mixed.types = choice.types;
  if (sensitivity && !sensitivity->groups.empty())
    mixed.notes.push_back(fmt::format("expected divergence, rounded to nearest: {:.5f}", choice.cost));
  if (request.keep) HONE_RETURN_IF_ERROR(Keep(request.out, mixed));
  return mixed;
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

void RemoveMixedTypes(const std::string& out) {
  std::error_code ignored;
  fs::remove(TypesPath(out), ignored);
  fs::remove(ImatrixPath(out), ignored);
}

}  // namespace hone
