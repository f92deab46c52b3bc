// See quantize_folder.h. Finished layers lie in PATH.partial (work_file.h); the folder is put together in
// PATH.unverified and renamed.
#include "compress/folder/quantize_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "compress/gptq/gptq.h"
#include "compress/work_file.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "kernels/dequantize/dequantize.h"
#include "models/family.h"
#include "models/model.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// The linear layers of a folder by their names there, in the order of the model.
Result<std::vector<LayerUnit>> FindLinears(const Checkpoint& checkpoint) {
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint));
  HONE_TRY(const WeightMap map, WeightMap::Make(checkpoint, *family, config));
  return ListLayerUnits(map, false);
}

std::string Module(const std::string& name) { return name.substr(0, name.size() - std::string_view(".weight").size()); }

// config.json with one more key at its end.
Result<std::string> ConfigWith(const std::string& path, const std::string& value) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  std::string json = text.str();
  const size_t brace = json.rfind('}');
  if (!in || brace == std::string::npos) return InvalidInput(path + ": no JSON object");
  const size_t last = json.find_last_not_of(" \t\r\n", brace - 1);
  const bool empty = last != std::string::npos && json[last] == '{';
  json = json.substr(0, last + 1) + (empty ? "\n" : ",\n") + "  \"quantization_config\": " + value + "\n}\n";
  HONE_RETURN_IF_ERROR(JsonConfig::Parse(json, path));
  return json;
}

}  // namespace

Result<FolderPlan> PlanFolder(const Checkpoint& checkpoint, const LinearFormat& format) {
  if (!checkpoint.is_folder()) {
    return Unsupported(checkpoint.path() +
                       ": these formats are Hugging Face folders, and so must the input be; --type writes GGUF");
  }
  if (checkpoint.config() != nullptr && checkpoint.config()->Has("quantization_config")) {
    return InvalidInput(checkpoint.path() +
                        ": quantised already (config.json has quantization_config); start from the original");
  }
  HONE_TRY(const std::vector<LayerUnit> linears, FindLinears(checkpoint));
  FolderPlan plan;
  std::string refused;
  uint64_t largest = 0;
  for (const LayerUnit& linear : linears) {
    const TensorView& view = checkpoint.FindTensor(linear.name)->view;
    if (view.type != DType::kF32 && view.type != DType::kF16 && view.type != DType::kBF16) {
      return InvalidInput(fmt::format("{}: {} is {}, wanted F32, F16 or BF16; start from the original",
                                      checkpoint.path(), linear.name, Info(view.type).name));
    }
    if (view.shape.rank() != 2 || !linear.name.ends_with(".weight")) {
      return Unsupported(
          fmt::format("{}: {} {} is no linear layer's matrix", checkpoint.path(), linear.name, view.shape.ToString()));
    }
    FolderTensor tensor{linear.name, view.shape[0], view.shape[1], view.type, view.bytes(), 0};
    if (const Result<void> fits = format.Check(tensor.rows, tensor.columns); !fits) {
      refused += fmt::format("\n  {} {}: {}", linear.name, view.shape.ToString(), fits.error().message);
      continue;
    }
    for (const TensorInfo& info : format.Outputs(Module(linear.name), tensor.rows, tensor.columns, view.type))
      tensor.bytes += info.bytes();
    largest = std::max<uint64_t>(largest, static_cast<uint64_t>(view.shape.elements()));
    plan.bytes += tensor.bytes;
    plan.tensors.push_back(std::move(tensor));
  }
  if (!refused.empty()) return Unsupported(checkpoint.path() + ": these layers do not fit the format:" + refused);
  if (plan.tensors.empty()) return InvalidInput(checkpoint.path() + ": no linear layers to quantise");
  std::set<std::string> quantized;
  for (const FolderTensor& tensor : plan.tensors) quantized.insert(tensor.name);
  uint64_t work = plan.bytes;
  for (const NamedTensor& tensor : checkpoint.tensors()) {
    plan.bytes_before += tensor.view.bytes();
    if (quantized.count(tensor.name) > 0) continue;
    plan.bytes += tensor.view.bytes();
    ++plan.kept;
  }
  plan.disk_bytes = plan.bytes + work + (uint64_t{16} << 20);
  plan.peak_memory_bytes = (uint64_t{64} << 20) + largest * 7;  // F32, codes, the packed tensors
  return plan;
}

namespace {

class Job {
 public:
  Job(const Checkpoint& checkpoint, const LinearFormat& format, const LinearScheme& scheme, const FolderPlan& plan,
      std::string path, const FolderRun& run, const Runtime& runtime)
      : checkpoint_(checkpoint),
        format_(format),
        scheme_(scheme),
        plan_(plan),
        path_(std::move(path)),
        run_(run),
        runtime_(runtime) {
    for (const FolderTensor& tensor : plan.tensors) total_ += tensor.bytes_before;
  }

  Result<FolderReport> Run() {
    const double start = runtime_.clock->Now();
    HONE_RETURN_IF_ERROR(CheckDisk());
    HONE_TRY(const auto work, WorkFile::Open(path_ + ".partial", Fingerprint(), run_.resume));
    report_.resumed_tensors = work->pieces().size();
    if (report_.resumed_tensors > plan_.tensors.size())
      return InvalidInput(path_ + ".partial: does not fit the plan; start again without --resume");
    HONE_RETURN_IF_ERROR(FindInputs());
    HONE_RETURN_IF_ERROR(FoldNorms());
    if (format_.needs_shared_amax()) HONE_RETURN_IF_ERROR(FindSharedAmax());
    if (scheme_.method == "gptq") HONE_RETURN_IF_ERROR(RunGptq(*work));
    uint64_t done = 0;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      if (i >= work->pieces().size()) {
        if (run_.progress && !run_.progress("quantising", done, total_)) return Stopped();
        const Result<void> quantized = Quantize(plan_.tensors[i], *work);
        if (!quantized && quantized.error().code == ErrorCode::kInvalidInput) work->Remove();  // no resuming helps
        HONE_RETURN_IF_ERROR(quantized);
      }
      done += plan_.tensors[i].bytes_before;
    }
    const std::string unverified = path_ + ".unverified";
    std::error_code error, ignored;
    fs::remove_all(unverified, ignored);
    Result<void> written = Assemble(unverified, *work);
    report_.quantize_s = runtime_.clock->Now() - start;
    if (written) written = Verify(unverified);
    if (written && run_.overwrite) fs::remove_all(path_, ignored);
    if (written) fs::rename(unverified, path_, error);
    if (!written || error) fs::remove_all(unverified, ignored);
    if (!written) return written.error();
    if (error) return IoError(path_ + ": " + error.message());
    work->Remove();
    report_.verify_s = runtime_.clock->Now() - start - report_.quantize_s;
    return std::move(report_);
  }

 private:
  static Error Stopped() { return {ErrorCode::kCancelled, "stopped; --resume goes on from here"}; }

  uint64_t Fingerprint() const {
    uint64_t hash =
        hone::Fingerprint(fmt::format("{} {} {} {} {} {}", DescribeWeights(checkpoint_.path()), scheme_.method,
                                      scheme_.format, scheme_.bits, scheme_.group, scheme_.symmetric));
    if (run_.gptq != nullptr) {
      const auto& tokens = run_.gptq->text->tokens;
      hash = hone::Fingerprint({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(tokens[0])}, hash);
      hash = hone::Fingerprint(
          fmt::format("{} {} {} {} {} {}", scheme_.order, run_.gptq->text->chunk_tokens, run_.gptq->options.damping,
                      run_.gptq->options.matrix_by_matrix, run_.gptq->options.moments_bytes, IsaName(runtime_.isa)),
          hash);
    }
    if (run_.scales != nullptr) {
      for (const auto& [input, scale] : run_.scales->scales) {
        hash = hone::Fingerprint(
            {reinterpret_cast<const char*>(scale.scale.data()), scale.scale.size() * sizeof(float)}, hash);
      }
    }
    for (const FolderTensor& t : plan_.tensors)
      hash = hone::Fingerprint(fmt::format("{} {} {} {};", t.name, t.rows, t.columns, t.bytes), hash);
    return hash;
  }

  Result<void> CheckDisk() const {
    const fs::path parent = fs::path(path_).lexically_normal().parent_path();
    std::error_code error;
    const fs::space_info space = fs::space(parent.empty() ? "." : parent, error);
    if (error) return IoError(fmt::format("{}: {}", parent.string(), error.message()));
    if (space.available >= plan_.disk_bytes || run_.resume) return {};
    return IoError(fmt::format(
        "{}: {} MiB are free, this needs {} MiB (the folder and the work in progress); free space or write elsewhere",
        parent.string(), space.available >> 20, plan_.disk_bytes >> 20));
  }

  // The whole matrix as F32; an error names the first weight that is not finite.
  Result<void> Load(const FolderTensor& tensor, std::vector<float>* w) const {
    const TensorView& view = checkpoint_.FindTensor(tensor.name)->view;
    w->resize(static_cast<size_t>(tensor.rows * tensor.columns));
    std::vector<int64_t> bad(runtime_.threads->count(), -1);
    runtime_.threads->Run([&](int worker) {
      const auto [begin, end] = runtime_.threads->Range(static_cast<size_t>(tensor.rows), 1, worker);
      for (size_t r = begin; r < end; ++r) {
        float* row = w->data() + static_cast<int64_t>(r) * tensor.columns;
        DequantizeRow(view.type, view.data + r * view.row_bytes(), tensor.columns, row);
        for (int64_t i = 0; i < tensor.columns; ++i) {
          if (!std::isfinite(row[i]) && bad[worker] < 0) bad[worker] = static_cast<int64_t>(r) * tensor.columns + i;
        }
      }
    });
    checkpoint_.Release(view);
    if (const ColumnScale* scale = ScaleOf(tensor); scale != nullptr) {
      for (size_t i = 0; i < w->size(); ++i) (*w)[i] *= scale->scale[i % static_cast<size_t>(tensor.columns)];
    }
    for (const int64_t at : bad) {
      if (at < 0) continue;
      return InvalidInput(
          fmt::format("{}: {}: row {}, column {} is {}; the model is damaged, nothing can be made of it",
                      checkpoint_.path(), tensor.name, at / tensor.columns, at % tensor.columns, (*w)[at]));
    }
    return {};
  }

  const ColumnScale* ScaleOf(const FolderTensor& tensor) const {
    if (run_.scales == nullptr) return nullptr;
    const auto found = run_.scales->scales.find(groups_.at(tensor.name));
    return found == run_.scales->scales.end() ? nullptr : &found->second;
  }

  Result<void> FindInputs() {
    HONE_TRY(const std::vector<LayerUnit> linears, FindLinears(checkpoint_));
    for (const LayerUnit& linear : linears) groups_[linear.name] = linear.input;
    return {};
  }

  // Norms that scales go into, as the folder will hold them.
  Result<void> FoldNorms() {
    if (run_.scales == nullptr) return {};
    HONE_TRY(const Family* family, FindFamily(checkpoint_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint_));
    HONE_TRY(const WeightMap map, WeightMap::Make(checkpoint_, *family, config));
    for (const auto& [input, scale] : run_.scales->scales) {
      const Weight* norm = map.Find(scale.norm);
      HONE_CHECK(norm != nullptr && norm->view.shape.elements() == static_cast<int64_t>(scale.scale.size()));
      const size_t width = BytesFor(norm->view.type, 1);
      std::vector<std::byte>& bytes = folded_[norm->file_name];
      bytes.resize(norm->view.bytes());
      for (size_t i = 0; i < scale.scale.size(); ++i) {
        const float plus = norm->plus_one ? 1.0f : 0.0f;
        const float value = (LoadAs(norm->view.type, norm->view.data + i * width) + plus) / scale.scale[i] - plus;
        StoreAs(norm->view.type, value, bytes.data() + i * width);
        if (!std::isfinite(LoadAs(norm->view.type, bytes.data() + i * width)))
          return InvalidInput(fmt::format("{}: {} becomes infinite with its scales", checkpoint_.path(), norm->file_name));
      }
    }
    return {};
  }

  Result<void> FindSharedAmax() {
    std::vector<float> w;
    for (const FolderTensor& tensor : plan_.tensors) {
      HONE_RETURN_IF_ERROR(Load(tensor, &w));
      float& amax = amax_[groups_.at(tensor.name)];
      for (const float x : w) amax = std::max(amax, std::fabs(x));
    }
    return {};
  }

  // One piece a tensor, as Quantize makes it.
  class GptqCodec : public UnitCodec {
   public:
    GptqCodec(const LinearFormat& format, const LinearScheme& scheme, const Runtime& runtime)
        : format_(format), scheme_(scheme), runtime_(runtime) {}
    size_t piece_bytes(const LayerUnit& unit) const override {
      size_t bytes = 0;
      for (const TensorInfo& info : Outputs(unit)) bytes += info.bytes();
      return bytes;
    }
    ColumnOrder order(const LayerUnit&) const override {
      if (scheme_.order == "natural") return ColumnOrder::kNatural;
      return scheme_.order == "group" ? ColumnOrder::kGroupAware : ColumnOrder::kActivation;
    }
    int64_t order_group(const LayerUnit&) const override { return scheme_.group; }
    Result<void> Encode(const LayerUnit& unit, std::span<const float> w, const GptqFactor& factor,
                        std::span<std::byte> piece) override {
      GptqOptions options{.grid = {GridRule::kGptq, scheme_.bits, scheme_.symmetric},
                          .group = scheme_.group,
                          .order = order(unit),
                          .static_groups = scheme_.order == "static",
                          .isa = runtime_.isa,
                          .fresh_grids = true,
                          .search_scale = true,
                          .scale_type = format_.scale_type(unit.view.type)};
      const GptqResult result = QuantizeGptq(w, unit.rows(), factor, options, *runtime_.threads);
      std::vector<std::vector<std::byte>> outputs;
      for (const TensorInfo& info : Outputs(unit)) outputs.emplace_back(info.bytes());
      format_.EncodeCodes({unit.rows(), unit.columns(), unit.view.type, result.codes, result.grids, result.group_of},
                          outputs, *runtime_.threads);
      for (const auto& output : outputs) {
        std::memcpy(piece.data(), output.data(), output.size());
        piece = piece.subspan(output.size());
      }
      return {};
    }
    void Decode(const LayerUnit& unit, std::span<const std::byte> piece, std::span<float> w) override {
      std::vector<std::span<const std::byte>> outputs;
      for (const TensorInfo& info : Outputs(unit)) {
        outputs.push_back(piece.subspan(0, info.bytes()));
        piece = piece.subspan(info.bytes());
      }
      runtime_.threads->ParallelFor(static_cast<size_t>(unit.rows()), 1, [&](size_t begin, size_t end) {
        format_.Decode(outputs, unit.rows(), unit.columns(), unit.view.type, static_cast<int64_t>(begin),
                       static_cast<int64_t>(end - begin), w.data() + begin * unit.columns());
      });
    }

   private:
    std::vector<TensorInfo> Outputs(const LayerUnit& unit) const {
      return format_.Outputs(Module(unit.name), unit.rows(), unit.columns(), unit.view.type);
    }
    const LinearFormat& format_;
    const LinearScheme& scheme_;
    const Runtime& runtime_;
  };

  Result<void> RunGptq(WorkFile& work) {
    HONE_CHECK(run_.gptq != nullptr && format_.takes_codes());
    GptqCodec codec(format_, scheme_, runtime_);
    const std::vector<LayerUnit> units = ListLayerUnits(run_.gptq->walk->map(), false);
    HONE_CHECK(units.size() == plan_.tensors.size());
    auto report =
        QuantizeLayers(*run_.gptq->walk, units, *run_.gptq->text, codec, run_.gptq->options, work, runtime_);
    if (!report && report.error().code == ErrorCode::kInvalidInput) work.Remove();
    if (!report) return report.error();
    report_.layerwise = std::move(*report);
    return {};
  }

  Result<void> Quantize(const FolderTensor& tensor, WorkFile& work) {
    HONE_RETURN_IF_ERROR(Load(tensor, &w_));
    std::vector<std::vector<std::byte>> outputs;
    for (const TensorInfo& info : format_.Outputs(Module(tensor.name), tensor.rows, tensor.columns, tensor.dtype))
      outputs.emplace_back(info.bytes());
    if (scheme_.method == "awq") {
      EncodeClipped(tensor, outputs);
      for (const auto& output : outputs) HONE_RETURN_IF_ERROR(work.Append(output));
      return work.EndPiece();
    }
    const float amax = format_.needs_shared_amax() ? amax_.at(groups_.at(tensor.name)) : 0;
    format_.Encode({w_.data(), tensor.rows, tensor.columns, tensor.dtype, amax}, outputs, *runtime_.threads);
    for (const auto& output : outputs) HONE_RETURN_IF_ERROR(work.Append(output));
    return work.EndPiece();
  }

  // Rounded to nearest, ranges clipped where that lowers the error weighted by mean squared inputs. Not those of q and
  // k, whose product would shrink.
  void EncodeClipped(const FolderTensor& tensor, std::vector<std::vector<std::byte>>& outputs) {
    HONE_CHECK(run_.scales != nullptr && format_.takes_codes());
    const InputStats& stats = run_.scales->stats.at(groups_.at(tensor.name));
    const ColumnScale* scale = ScaleOf(tensor);
    GptqFactor factor = NoGptqFactor(tensor.columns);
    for (int64_t i = 0; i < tensor.columns; ++i) {
      const double s = scale != nullptr ? scale->scale[i] : 1.0f;
      const double square = stats.tokens > 0 ? stats.sum2[i] / static_cast<double>(stats.tokens) / (s * s) : 1;
      factor.importance[i] = static_cast<float>(std::clamp(square, 1e-30, 1e30));
    }
    const GptqOptions options{.grid = {GridRule::kGptq, scheme_.bits, scheme_.symmetric},
                              .group = scheme_.group,
                              .isa = runtime_.isa,
                              .fresh_grids = true,
                              .search_scale = !groups_.at(tensor.name).ends_with("qkv"),
                              .scale_type = format_.scale_type(tensor.dtype)};
    const GptqResult result = QuantizeGptq(w_, tensor.rows, factor, options, *runtime_.threads);
    format_.EncodeCodes({tensor.rows, tensor.columns, tensor.dtype, result.codes, result.grids, result.group_of}, outputs,
                        *runtime_.threads);
  }

  Result<void> Assemble(const std::string& folder, WorkFile& work) {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) return IoError(folder + ": cannot make the folder: " + error.message());
    HONE_TRY(const auto pieces, work.Map());
    std::vector<TensorInfo> infos;
    std::map<std::string, const std::byte*> data;
    const std::byte* at = pieces->bytes().data();
    std::set<std::string> quantized;
    for (const FolderTensor& tensor : plan_.tensors) {
      quantized.insert(tensor.name);
      for (TensorInfo& info : format_.Outputs(Module(tensor.name), tensor.rows, tensor.columns, tensor.dtype)) {
        data[info.name] = at;
        at += info.bytes();
        infos.push_back(std::move(info));
      }
    }
    for (const NamedTensor& tensor : checkpoint_.tensors()) {
      if (quantized.count(tensor.name) > 0) continue;
      const auto folded = folded_.find(tensor.name);
      data[tensor.name] = folded != folded_.end() ? folded->second.data() : tensor.view.data;
      infos.push_back({tensor.name, tensor.view.type, tensor.view.shape});
    }
    HONE_TRY(const auto writer, SafetensorsWriter::Create(folder + "/model.safetensors", infos, {{"format", "pt"}}));
    uint64_t done = 0;
    for (const TensorInfo& info : writer->order()) {
      if (run_.progress && !run_.progress("writing", done, plan_.bytes)) return Stopped();
      HONE_RETURN_IF_ERROR(writer->Append({data.at(info.name), info.bytes()}));
      done += info.bytes();
    }
    HONE_RETURN_IF_ERROR(writer->Commit());
    return WriteOtherFiles(folder);
  }

  Result<void> WriteOtherFiles(const std::string& folder) const {
    const DType dtype = plan_.tensors.front().dtype;
    HONE_TRY(const std::string config, ConfigWith(checkpoint_.path() + "/config.json", format_.ConfigJson(dtype)));
    auto files = format_.Files(dtype);
    files.emplace_back("config.json", config);
    std::error_code error;
    for (fs::directory_iterator it(checkpoint_.path(), error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename();
      std::error_code ignored;
      if (!it->is_regular_file(ignored) || name == "config.json" || name.find(".safetensors") != std::string::npos ||
          name.ends_with(".bin") || name.ends_with(".gguf"))
        continue;
      fs::copy_file(it->path(), fs::path(folder) / name, error);
      if (error) break;
    }
    if (error) return IoError(folder + ": " + error.message());
    for (const auto& [name, text] : files) {
      std::ofstream out(fs::path(folder) / name, std::ios::binary);
      out << text;
      if (!out.flush()) return IoError(folder + "/" + name + ": cannot write");
    }
    return {};
  }

  Result<void> Verify(const std::string& folder) {
    HONE_TRY(const auto file, SafetensorsFile::OpenFolder(folder));
    double error = 0, power = 0;
    uint64_t done = 0;
    std::vector<float> back;
    for (const FolderTensor& tensor : plan_.tensors) {
      if (run_.progress && !run_.progress("verifying", done, total_)) return Stopped();
      done += tensor.bytes_before;
      HONE_RETURN_IF_ERROR(Load(tensor, &w_));
      std::vector<std::span<const std::byte>> outputs;
      for (const TensorInfo& info : format_.Outputs(Module(tensor.name), tensor.rows, tensor.columns, tensor.dtype)) {
        const NamedTensor* written = file->FindTensor(info.name);
        if (written == nullptr || written->view.type != info.type || !(written->view.shape == info.shape)) {
          return Error{ErrorCode::kInternal, fmt::format("{}: {} does not read back", folder, info.name)};
        }
        outputs.emplace_back(written->view.data, written->view.bytes());
      }
      back.resize(w_.size());
      runtime_.threads->ParallelFor(static_cast<size_t>(tensor.rows), 1, [&](size_t begin, size_t end) {
        format_.Decode(outputs, tensor.rows, tensor.columns, tensor.dtype, static_cast<int64_t>(begin),
                       static_cast<int64_t>(end - begin), back.data() + static_cast<int64_t>(begin) * tensor.columns);
      });
      double mine = 0, mine_power = 0, max = 0;
      for (size_t i = 0; i < w_.size(); ++i) {
        const double e = double{back[i]} - w_[i];
        mine += e * e;
        mine_power += double{w_[i]} * w_[i];
        max = std::max(max, std::fabs(e));
      }
      if (!std::isfinite(mine))
        return InvalidInput(
            fmt::format("{}: {} has weights too large for the format's scales", checkpoint_.path(), tensor.name));
      report_.relative_error.push_back(mine_power > 0 ? std::sqrt(mine / mine_power) : std::sqrt(mine));
      report_.max_error.push_back(max);
      error += mine;
      power += mine_power;
    }
    report_.overall_error = power > 0 ? std::sqrt(error / power) : 0;
    return {};
  }

  const Checkpoint& checkpoint_;
  const LinearFormat& format_;
  const LinearScheme& scheme_;
  const FolderPlan& plan_;
  const std::string path_;
  const FolderRun& run_;
  const Runtime& runtime_;
  FolderReport report_;
  uint64_t total_ = 0;
  std::map<std::string, std::string> groups_;  // tensor to the input that it reads
  std::map<std::string, std::vector<std::byte>> folded_;  // norms with scales in them, by name in the file
  std::map<std::string, float> amax_;
  std::vector<float> w_;
};

}  // namespace

Result<FolderReport> QuantizeFolder(const Checkpoint& checkpoint, const LinearFormat& format,
                                    const LinearScheme& scheme, const FolderPlan& plan, const std::string& path,
                                    const FolderRun& run, const Runtime& runtime) {
  return Job(checkpoint, format, scheme, plan, path, run, runtime).Run();
}

}  // namespace hone
