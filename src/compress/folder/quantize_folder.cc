// See quantize_folder.h. PATH.partial is the weights' file to be (work_file.h): its header says where every tensor will lie before
// one is made, so each goes there once. Lanes of threads take one matrix after the other: some rows are made, taken apart as a reader
// does and compared with the original while all of it lies in the cache; the whole is written, and the file must then hold it.
// Other lanes do the same, and what is kept is copied in between. When all of it is on the disk the folder gets its name
// (name_folder.h).
#include "compress/folder/quantize_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "compress/folder/kept_modules.h"
#include "compress/folder/name_folder.h"
#include "compress/folder/rounded_codes.h"
#include "base/check.h"
#include "compress/gptq/gptq.h"
#include "compress/mapped_reader.h"
#include "compress/numbers/slices.h"
#include "compress/read_matrix.h"
#include "compress/scale/awq.h"
#include "compress/work_file.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "models/family.h"
#include "models/model.h"

namespace hone {
namespace {

constexpr int64_t kWindowBytes = int64_t{1} << 17;
constexpr uint64_t kKeptBytes = uint64_t{8} << 20, kKeptStep = uint64_t{1} << 20;

class FolderJob {
 public:
  FolderJob(const Checkpoint& checkpoint, const LinearFormat& format, const LinearScheme& scheme, const FolderPlan& plan,
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
    if (!run_.resume) HONE_RETURN_IF_ERROR(CheckDisk(plan_.disk_bytes, path_, BytesOnDisk(path_ + ".partial")));
    HONE_RETURN_IF_ERROR(MapWeights());
    HONE_RETURN_IF_ERROR(FoldVectors());
    HONE_TRY(WorkLayout layout, LayOut());
    const uint64_t job = hone::Fingerprint(layout.head, Fingerprint());
    if (run_.resume) HONE_RETURN_IF_ERROR(TakeWeightsBack(path_));
    HONE_TRY(const auto work, WorkFile::Open(path_ + ".partial", job, run_.resume, std::move(layout)));
    report_.resumed_tensors = work->pieces().size();
    Result<void> made = Make(*work);
    if (made) made = work->Sync();
    if (made) made = reader_.CheckUnchanged(checkpoint_);
    if (made) made = Name();
    if (!made && made.error().code == ErrorCode::kInvalidInput) work->Remove();  // no resuming helps
    HONE_RETURN_IF_ERROR(made);
    work->Remove();
    report_.quantize_s = runtime_.clock->Now() - start - report_.verify_s;
    return std::move(report_);
  }

 private:
  static Error Stopped() { return {ErrorCode::kCancelled, "stopped; --resume goes on from here"}; }

  uint64_t Fingerprint() const {
    uint64_t hash =
        hone::Fingerprint(fmt::format("{} {} {} {} {} {} {}", DescribeWeights(checkpoint_.path()), scheme_.method,
                                      scheme_.format, scheme_.bits, scheme_.group, scheme_.symmetric,
                                      static_cast<int>(scheme_.clip)));
    if (run_.gptq != nullptr) {
      const auto& tokens = run_.gptq->text->tokens;
      hash = hone::Fingerprint({reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(tokens[0])}, hash);
      hash = hone::Fingerprint(
          fmt::format("{} {} {} {} {}", scheme_.order, run_.gptq->text->chunk_tokens, run_.gptq->options.damping,
                      run_.gptq->options.matrix_by_matrix, IsaName(runtime_.isa)),
          hash);
    }
    if (run_.scales != nullptr) {
      const auto add = [&hash](const void* numbers, size_t count) {
        hash = hone::Fingerprint({static_cast<const char*>(numbers), count * sizeof(float)}, hash);
      };
      for (const auto& [input, scale] : run_.scales->scales) add(scale.scale.data(), scale.scale.size());
      for (const auto& [name, clip] : run_.scales->clips) add(clip.data(), clip.size());
      for (const auto& [input, largest] : run_.scales->largest_inputs) add(&largest, 1);
    }
    for (const FolderTensor& t : plan_.tensors)
      hash = hone::Fingerprint(fmt::format("{} {} {} {};", t.name, t.rows, t.columns, t.bytes), hash);
    return hash;
  }

  // The rows of a matrix as F32 with its scales in them. What is not finite is read as zeros and told at the end.
  class Rows {
   public:
    Rows(const FolderJob& job, const FolderTensor& tensor)
        : job_(job), tensor_(tensor), view_(tensor.view) {
      static std::atomic<uint64_t> made{0};  // by all jobs: threads keep their windows from one to the next
      id_ = ++made;
      if (job.run_.scales == nullptr) return;
      const auto& scales = job.run_.scales->scales;
      if (const auto scale = scales.find(tensor.input); scale != scales.end()) columns_ = &scale->second.scale;
      job.ForParts(tensor, [&](const Weight& part, int64_t row) {
        const ColumnScale* scale = job.TakenBy(part.name);
        if (scale == nullptr) return;
        divisors_.resize(static_cast<size_t>(tensor.rows), 1.0f);
        std::copy_n(scale->scale.begin(), part.view.shape[0], divisors_.begin() + row);
      });
    }
    void Read(int64_t first, int64_t count, float* w) {
      for (int64_t r = first; r < first + count; ++r, w += tensor_.columns) {
        if (!ReadFiniteRow(job_.slices_, view_.type, Stored(r), tensor_.columns, w)) {
          bad_ = true;
          std::fill_n(w, tensor_.columns, 0.0f);
        }
        for (int64_t i = 0; columns_ != nullptr && i < tensor_.columns; ++i) w[i] *= (*columns_)[i];
        for (int64_t i = 0; !divisors_.empty() && i < tensor_.columns; ++i) w[i] /= divisors_[r];
      }
    }
    // When all rows are read: an error names the first weight that is not finite.
    Result<void> End() const {
      if (!bad_) return {};
      std::vector<float> row(static_cast<size_t>(tensor_.columns));
      for (int64_t r = 0;; ++r) {
        if (ReadFiniteRow(job_.slices_, view_.type, Stored(r), tensor_.columns, row.data())) continue;
        return tensor_.stored != nullptr ? NotFinite(*tensor_.stored, r) : NotFinite(job_.checkpoint_, view_, tensor_.name, r);
      }
    }

   private:
    // A row as the file has it, or as what it means. Rows are asked for in order, so each thread reads a few of them at once, within its L2.
    const std::byte* Stored(int64_t row) const {
      struct Window {
        uint64_t of = 0;
        int64_t first = 0, count = 0;
        std::vector<std::byte> bytes;
      };
      static thread_local Window window;
      const int64_t row_bytes = static_cast<int64_t>(view_.row_bytes());
      if (window.of != id_ || row < window.first || row >= window.first + window.count) {
        window.of = id_, window.first = row;
        window.count = std::min(job_.WindowRows(view_) - row % job_.format_.rows_together(), tensor_.rows - row);
        window.bytes.resize(static_cast<size_t>(window.count * row_bytes));
        if (tensor_.stored != nullptr) {
          tensor_.stored->Decode(row, window.count, reinterpret_cast<float*>(window.bytes.data()));
        } else {
          job_.reader_.Read(view_.data + row * row_bytes, window.bytes.size(), window.bytes.data());
        }
      }
      return window.bytes.data() + (row - window.first) * row_bytes;
    }

    const FolderJob& job_;
    const FolderTensor& tensor_;
    const TensorView& view_;
    uint64_t id_ = 0;
    const std::vector<float>* columns_ = nullptr;
    std::vector<float> divisors_;  // a row
    std::atomic<bool> bad_{false};
  };

  // What is coded together is read together, so that it is still there to be compared.
  int64_t WindowRows(const TensorView& view) const {
    const int64_t together = format_.rows_together();
    return std::max<int64_t>(1, kWindowBytes / static_cast<int64_t>(view.row_bytes()) / together) * together;
  }

  // Threads that go through one matrix after the other by themselves.
  struct Lane {
    explicit Lane(int threads) : pool(threads) {}
    ThreadPool pool;
    std::vector<float> w;  // the matrix at hand, where it is needed whole
    // Of matrices of these sizes: what grows is cleared first, so each keeps its own.
    std::map<std::vector<uint64_t>, std::vector<std::vector<std::byte>>> room;
    std::span<std::vector<std::byte>> outputs;  // of the matrix at hand
    std::vector<Deviation> errors;  // as the matrix's rows, or all in the first
    double verify_s = 0;
  };

  // The whole matrix.
  Result<void> Load(const FolderTensor& tensor, Lane& lane) const {
    lane.w.resize(static_cast<size_t>(tensor.rows * tensor.columns));
    Rows rows(*this, tensor);
    lane.pool.ParallelFor(static_cast<size_t>(tensor.rows), 1, [&](size_t begin, size_t end) {
      rows.Read(static_cast<int64_t>(begin), static_cast<int64_t>(end - begin), &lane.w[begin * tensor.columns]);
    });
    return rows.End();
  }

  // Each canonical weight of the tensor and its first row there.
  void ForParts(const FolderTensor& tensor, const std::function<void(const Weight&, int64_t)>& visit) const {
    int64_t row = 0;
    for (const std::string& part : linears_.at(tensor.name).parts) {
      const Weight* weight = map_.Find(part);
      visit(*weight, row);
      row += weight->view.shape[0];
    }
  }
  // The scales that the rows of a matrix are divided by.
  const ColumnScale* TakenBy(const std::string& canonical) const {
    for (const auto& [input, scale] : run_.scales->scales) {
      if (scale.taker == canonical) return &scale;
    }
    return nullptr;
  }

  // What scales go into, of a family that is known.
  Result<void> MapWeights() {
    if (run_.scales == nullptr) return {};
    HONE_TRY(const Family* family, FindFamily(checkpoint_));
    HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint_));
    HONE_TRY(map_, WeightMap::Make(checkpoint_, *family, config));
    for (LayerUnit& linear : ListLayerUnits(map_, false)) linears_[linear.name] = std::move(linear);
    return {};
  }

  // Norms and biases that scales go into, as the folder will hold them.
  Result<void> FoldVectors() {
    if (run_.scales == nullptr) return {};
    for (const auto& [input, scale] : run_.scales->scales) {
      const Weight* taker = map_.Find(scale.taker);
      HONE_CHECK(taker != nullptr && taker->view.shape[0] == static_cast<int64_t>(scale.scale.size()));
      const bool norm = taker->view.shape.rank() == 1;
      const Weight* vector = norm ? taker : map_.Find(scale.taker.substr(0, scale.taker.rfind('.')) + ".bias");
      if (vector == nullptr) continue;
      const size_t width = BytesFor(vector->view.type, 1);
      std::vector<std::byte>& bytes = folded_[vector->file_name];
      bytes.resize(vector->view.bytes());
      for (size_t i = 0; i < scale.scale.size(); ++i) {
        const float plus = vector->plus_one ? 1.0f : 0.0f;
        const float value = (LoadAs(vector->view.type, vector->view.data + i * width) + plus) / scale.scale[i] - plus;
        StoreAs(vector->view.type, value, bytes.data() + i * width);
        if (!std::isfinite(LoadAs(vector->view.type, bytes.data() + i * width)))
          return InvalidInput(
              fmt::format("{}: {} becomes infinite with its scales", checkpoint_.path(), vector->file_name));
      }
    }
    return {};
  }

  Result<void> FindSharedAmax() {
    for (const FolderTensor& tensor : plan_.tensors) {
      Rows rows(*this, tensor);
      std::vector<float> largest(runtime_.threads->count());
      runtime_.threads->Run([&](int worker) {
        const auto [begin, end] = runtime_.threads->Range(static_cast<size_t>(tensor.rows), 1, worker);
        std::vector<float> row(static_cast<size_t>(tensor.columns));
        for (size_t r = begin; r < end; ++r) {
          rows.Read(static_cast<int64_t>(r), 1, row.data());
          float least, most;
          slices_.range(row.data(), tensor.columns, &least, &most);
          largest[worker] = std::max({largest[worker], std::fabs(least), std::fabs(most)});
        }
      });
      HONE_RETURN_IF_ERROR(rows.End());
      float& amax = amax_[tensor.input];
      for (const float x : largest) amax = std::max(amax, x);
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
      return format_.Outputs(ModuleOf(unit.name), unit.rows(), unit.columns(), unit.view.type);
    }
    const LinearFormat& format_;
    const LinearScheme& scheme_;
    const Runtime& runtime_;
  };

  Result<void> RunGptq(WorkFile& work) {
    HONE_CHECK(run_.gptq != nullptr && format_.takes_codes());
    GptqCodec codec(format_, scheme_, runtime_);
    const std::vector<LayerUnit> units = PlannedUnits(plan_, run_.gptq->walk->map());
    HONE_CHECK(units.size() == plan_.tensors.size());
    auto report =
        QuantizeLayers(*run_.gptq->walk, units, *run_.gptq->text, codec, run_.gptq->options, work, runtime_);
    if (!report && report.error().code == ErrorCode::kInvalidInput) work.Remove();
    if (!report) return report.error();
    report_.layerwise = std::move(*report);
    return {};
  }

  // Where every tensor of the result lies, and what is copied there.
  Result<WorkLayout> LayOut() {
    std::vector<TensorInfo> infos;
    std::map<std::string, const std::byte*> data;  // of what is not made
    std::map<std::string, const NamedTensor*> originals;
    std::set<std::string> quantized;
    for (const FolderTensor& tensor : plan_.tensors) {
      quantized.insert(tensor.tensor);
      for (TensorInfo& info : Outputs(tensor)) infos.push_back(std::move(info));
    }
    for (const NamedTensor& tensor : checkpoint_.tensors()) {
      if (quantized.count(tensor.name) > 0 || plan_.input.tensors.count(tensor.name) > 0) continue;
      const auto folded = folded_.find(tensor.name);
      data[tensor.name] = folded != folded_.end() ? folded->second.data() : tensor.view.data;
      if (folded == folded_.end()) originals[tensor.name] = &tensor;
      infos.push_back({tensor.name, tensor.view.type, tensor.view.shape});
    }
    for (const auto& [name, matrix] : plan_.input.matrices) infos.push_back({name, plan_.input.dtype, Shape{matrix->rows(), matrix->columns()}});
    if (run_.kv != nullptr) {
      for (const KvCacheScales::Scale& scale : run_.kv->tensors) {
        data[scale.name] = reinterpret_cast<const std::byte*>(scale.values.data());
        infos.push_back({scale.name, DType::kF32, scale.shape});
      }
    }
    HONE_TRY(const SafetensorsLayout file, LayOutSafetensors(path_ + "/model.safetensors", std::move(infos), {{"format", "pt"}}));
    std::map<std::string, uint64_t> offsets;
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      const TensorInfo& info = file.tensors[i];
      offsets[info.name] = file.offsets[i];
      const auto kept = data.find(info.name);
      const auto original = originals.find(info.name);
      for (uint64_t at = 0; kept != data.end() && at < info.bytes(); at += kKeptBytes)
        copies_.push_back({kept->second + at, file.offsets[i] + at, std::min(kKeptBytes, info.bytes() - at),
                           original != originals.end() ? original->second : nullptr});
      const auto plain = plan_.input.matrices.find(info.name);
      if (plain == plan_.input.matrices.end()) continue;
      const int64_t row_bytes = static_cast<int64_t>(BytesFor(info.type, info.shape[1])), some = std::max<int64_t>(1, static_cast<int64_t>(kKeptStep) / row_bytes);
      for (int64_t r = 0; r < info.shape[0]; r += some)
        copies_.push_back({.offset = file.offsets[i] + static_cast<uint64_t>(r * row_bytes),
                           .bytes = static_cast<uint64_t>(std::min(some, info.shape[0] - r) * row_bytes),
                           .stored = plain->second.get(), .row = r});
    }
    WorkLayout layout{.head = file.head, .bytes = file.bytes};
    for (const FolderTensor& tensor : plan_.tensors) {
      std::vector<WorkLayout::Part> parts;
      for (const TensorInfo& info : Outputs(tensor)) parts.push_back({offsets.at(info.name), info.bytes()});
      layout.pieces.push_back(std::move(parts));
    }
    return layout;
  }

  // What an earlier job left, whose place this one takes.
  static uint64_t BytesOnDisk(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? static_cast<uint64_t>(status.st_blocks) * 512 : 0;
  }

  // Everything that the file holds.
  Result<void> Make(WorkFile& work) {
    if (format_.needs_shared_amax()) HONE_RETURN_IF_ERROR(FindSharedAmax());
    if (scheme_.method == "gptq") HONE_RETURN_IF_ERROR(RunGptq(work));
    made_before_ = work.pieces().size();
    report_.relative_error.resize(plan_.tensors.size());
    report_.max_error.resize(plan_.tensors.size());
    report_.power.resize(plan_.tensors.size());
    errors_.resize(plan_.tensors.size());
    // Copies go first where they can, so that the disk has its work early: twice as many between two matrices as would do.
    const size_t between = 1 + 2 * copies_.size() / plan_.tensors.size();
    for (size_t i = 0, copy = 0; i < plan_.tensors.size() || copy < copies_.size(); ++i) {
      if (i < plan_.tensors.size()) steps_.push_back({i, true});
      for (size_t j = 0; j < between && copy < copies_.size(); ++j) steps_.push_back({copy++, false});
    }
    const int threads = runtime_.threads->count(), lanes = NeedsWhole() ? 1 : std::min(threads, kFolderLanes);
    std::vector<double> verify_s(lanes);
    runtime_.threads->Run([&](int worker) {
      if (worker >= lanes) return;
      Lane lane((threads + worker) / lanes);
      GoThroughSteps(work, lane);
      verify_s[worker] = lane.verify_s;
    });
    for (const double seconds : verify_s) report_.verify_s += seconds / lanes;
    if (failed_) return *failed_;
    double error = 0, power = 0;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) error += errors_[i], power += report_.power[i];
    report_.overall_error = power > 0 ? std::sqrt(error / power) : 0;
    if (run_.progress && !run_.progress("writing", total_, total_)) return Stopped();
    return {};
  }

  // Takes the next step until there is none, or one has failed. Of several failures that of the first step counts: steps begin
  // in order, so it does not depend on who was faster.
  void GoThroughSteps(WorkFile& work, Lane& lane) {
    for (;;) {
      size_t step;
      {
        const std::lock_guard lock(mutex_);
        if (failed_ || next_step_ == steps_.size()) return;
        step = next_step_++;
        if (steps_[step].made) {
          const uint64_t bytes = plan_.tensors[steps_[step].index].bytes_before;
          if (run_.progress && !run_.progress("quantising", done_, total_)) {
            failed_ = Stopped(), failed_step_ = step;
            return;
          }
          done_ += bytes;
        }
      }
      const size_t index = steps_[step].index;
      const Result<void> done = steps_[step].made ? MakeMatrix(index, work, lane) : Copy(copies_[index], work);
      if (done) continue;
      const std::lock_guard lock(mutex_);
      if (!failed_ || step < failed_step_) failed_ = done.error(), failed_step_ = step;
      return;
    }
  }

  struct Kept {
    const std::byte* from = nullptr;
    uint64_t offset = 0, bytes = 0;  // in the file
    const NamedTensor* original = nullptr;  // nullptr: what hone has made
    const QuantizedMatrix* stored = nullptr;  // or rows of it, as the model's dtype
    int64_t row = 0;
  };
  Result<void> Copy(const Kept& kept, WorkFile& work) const {
    if (kept.stored != nullptr) return PutPlain(kept, work);
    std::vector<std::byte> some(std::min<uint64_t>(kept.bytes, kKeptStep));
    for (uint64_t at = 0; at < kept.bytes; at += some.size()) {
      const size_t count = std::min<uint64_t>(some.size(), kept.bytes - at);
      reader_.Read(kept.from + at, count, some.data());
      if (kept.original != nullptr && !AllFinite(kept.original->view.type, {some.data(), count}))
        return NotFinite(checkpoint_, *kept.original, static_cast<uint64_t>(kept.from + at - kept.original->view.data), {some.data(), count});
      HONE_RETURN_IF_ERROR(work.PutAt(kept.offset + at, {some.data(), count}));
    }
    return {};
  }

  Result<void> PutPlain(const Kept& kept, WorkFile& work) const {
    const DType dtype = plan_.input.dtype;
    const int64_t width = static_cast<int64_t>(BytesFor(dtype, 1)), columns = kept.stored->columns();
    const int64_t count = static_cast<int64_t>(kept.bytes) / width / columns;
    std::vector<float> w(static_cast<size_t>(count * columns));
    std::vector<std::byte> bytes(kept.bytes);
    kept.stored->Decode(kept.row, count, w.data());
    for (int64_t i = 0; i < std::ssize(w); ++i) {
      StoreAs(dtype, w[i], bytes.data() + i * width);
      if (!std::isfinite(LoadAs(dtype, bytes.data() + i * width))) return NotFinite(*kept.stored, kept.row + i / columns);
    }
    if (kept.row + count == kept.stored->rows()) kept.stored->Release(checkpoint_);
    return work.PutAt(kept.offset, bytes);
  }

  Result<void> MakeMatrix(size_t index, WorkFile& work, Lane& lane) {
    const std::vector<TensorInfo> infos = Outputs(plan_.tensors[index]);
    std::vector<uint64_t> sizes;
    for (const TensorInfo& info : infos) sizes.push_back(info.bytes());
    auto& room = lane.room[sizes];
    room.resize(sizes.size());
    lane.outputs = room;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (format_.wants_zeros()) lane.outputs[i].clear();  // or else what is there will be overwritten
      lane.outputs[i].resize(sizes[i]);
    }
    lane.errors.assign(static_cast<size_t>(plan_.tensors[index].rows), {});
    const bool here = index < made_before_;
    if (!here) HONE_RETURN_IF_ERROR(Quantize(plan_.tensors[index], lane));
    const double start = runtime_.clock->Now();
    if (here) HONE_RETURN_IF_ERROR(work.Get(index, lane.outputs));
    if (here || !ComparesAsItGoes()) HONE_RETURN_IF_ERROR(CompareAll(plan_.tensors[index], lane));
    HONE_RETURN_IF_ERROR(TakeErrors(index, lane));
    if (!here) {
      const double compared = runtime_.clock->Now();
      HONE_RETURN_IF_ERROR(work.Put(index, lane.outputs));
      lane.verify_s -= runtime_.clock->Now() - compared;
      HONE_RETURN_IF_ERROR(work.Holds(index, lane.outputs));
    }
    lane.verify_s += runtime_.clock->Now() - start;
    if (const auto& stored = plan_.tensors[index].stored; stored != nullptr) stored->Release(checkpoint_);
    return {};
  }

  std::vector<TensorInfo> Outputs(const FolderTensor& tensor) const {
    return format_.Outputs(ModuleOf(tensor.name), tensor.rows, tensor.columns, tensor.dtype);
  }
  // Ranges that are not simply least to largest are found in whole matrices of codes.
  bool ByCodes() const { return scheme_.method == "awq" || scheme_.clip != Clip::kMinMax; }
  bool NeedsWhole() const { return ByCodes() || !format_.reads_rows(); }
  bool ComparesAsItGoes() const { return !ByCodes() && (format_.tells_rows() || format_.compares()); }

  Result<void> Quantize(const FolderTensor& tensor, Lane& lane) const {
    if (NeedsWhole()) HONE_RETURN_IF_ERROR(Load(tensor, lane));
    if (ByCodes()) {
      const RoundedCodes codes = Round(tensor, lane);
      format_.EncodeCodes(codes.View(tensor.rows, tensor.columns, tensor.dtype), lane.outputs, lane.pool);
      return {};
    }
    Rows rows(*this, tensor);
    LinearWeight weight{NeedsWhole() ? lane.w.data() : nullptr, tensor.rows, tensor.columns, tensor.dtype};
    weight.read = [&rows](int64_t first, int64_t count, float* place) { rows.Read(first, count, place); };
    if (format_.needs_shared_amax()) weight.shared_amax = amax_.at(tensor.input);
    if (scheme_.static_activations) weight.input_amax = run_.scales->largest_inputs.at(tensor.input);
    if (format_.compares()) {
      weight.deviation = &lane.errors.front();
    } else if (ComparesAsItGoes()) {
      weight.made = [&](int64_t first, int64_t count, const float* read) { CompareRows(tensor, lane, rows, first, count, read); };
    }
    format_.Encode(weight, lane.outputs, lane.pool);
    return rows.End();
  }

  // Rounded to nearest within ranges that are not simply least to largest.
  RoundedCodes Round(const FolderTensor& tensor, Lane& lane) const {
    HONE_CHECK(format_.takes_codes());
    GridSpec spec{GridRule::kGptq, scheme_.bits, scheme_.symmetric, scheme_.clip};
    if (scheme_.method == "awq") {
      HONE_CHECK(run_.scales != nullptr);
      spec = AwqGrid(scheme_.bits, scheme_.symmetric);
      ForParts(tensor, [&](const Weight& part, int64_t row) {
        const auto clip = run_.scales->clips.find(part.name);
        if (clip == run_.scales->clips.end()) return;
        ClipWeights(clip->second, part.view.shape[0], tensor.columns, scheme_.group, &lane.w[row * tensor.columns]);
      });
    }
    return RoundToCodes(spec, format_.scale_type(tensor.dtype), lane.w, tensor.rows, tensor.columns, scheme_.group, lane.pool);
  }

  Result<void> Name() const {
    const DType dtype = plan_.tensors.front().dtype;
    std::string quantization = format_.ConfigJson(dtype);
    auto files = format_.Files(dtype);  // each repeats the configuration
    if (!plan_.kept_modules.empty()) {
      quantization = NameKeptModules(std::move(quantization), scheme_.format, plan_.kept_modules, false);
      for (auto& [name, contents] : files) contents = quantization + "\n";
    }
    if (run_.kv != nullptr) {
      constexpr std::string_view kNone = "\"kv_cache_scheme\": null";
      const size_t at = quantization.find(kNone);
      HONE_CHECK(at != std::string::npos, "a format without a cache's scheme");
      quantization.replace(at, kNone.size(), "\"kv_cache_scheme\": " + run_.kv->scheme);
    }
    return NameFolder({path_, checkpoint_.path(), quantization, std::move(files), run_.overwrite},
                      [this](const std::string& folder) { return CheckHeader(folder); });
  }

  // The folder opens, with all tensors.
  Result<void> CheckHeader(const std::string& folder) const {
    HONE_TRY(const auto file, SafetensorsFile::OpenFolder(folder));
    for (const FolderTensor& tensor : plan_.tensors) {
      for (const TensorInfo& info : Outputs(tensor)) {
        const NamedTensor* written = file->FindTensor(info.name);
        if (written == nullptr || written->view.type != info.type || !(written->view.shape == info.shape))
          return Error{ErrorCode::kInternal, fmt::format("{}: {} does not read back", folder, info.name)};
      }
    }
    return {};
  }

  // Rows as a reader of the outputs gets them, against the original: `read` or else read again.
  void CompareRows(const FolderTensor& tensor, Lane& lane, Rows& rows, int64_t first, int64_t count, const float* read) const {
    const auto place = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(read == nullptr ? tensor.columns : 0));
    const std::vector<std::span<const std::byte>> outputs(lane.outputs.begin(), lane.outputs.end());
    format_.DecodeRows(outputs, tensor.rows, tensor.columns, tensor.dtype, first, count, [&](int64_t row, const float* back) {
      const float* w = read;
      if (read == nullptr) {
        rows.Read(row, 1, place.get());
        w = place.get();
      } else {
        read += tensor.columns;
      }
      Deviation& sums = lane.errors[row];
      slices_.compare(back, w, tensor.columns, &sums.error, &sums.power, &sums.largest);
    });
  }
  Result<void> CompareAll(const FolderTensor& tensor, Lane& lane) const {
    Rows rows(*this, tensor);
    const int64_t together = format_.rows_together(), window = WindowRows(tensor.view);
    // The last windows first: they were read last, and some of them are in a cache.
    lane.pool.ParallelFor(static_cast<size_t>(tensor.rows), static_cast<size_t>(window), [&](size_t begin, size_t end) {
      for (size_t last = end, first = end; first > begin; last = first) {
        first = (last - 1) / window * window;
        for (int64_t r = static_cast<int64_t>(first); r < static_cast<int64_t>(last); r += together)
          CompareRows(tensor, lane, rows, r, std::min(together, static_cast<int64_t>(last) - r), nullptr);
      }
    });
    return rows.End();
  }

  // Of all rows, in their order. An error if the format cannot hold the matrix.
  Result<void> TakeErrors(size_t index, const Lane& lane) {
    double error = 0, power = 0, largest = 0;
    for (const Deviation& row : lane.errors) error += row.error, power += row.power, largest = std::max(largest, row.largest);
    if (!std::isfinite(error)) {
      return InvalidInput(fmt::format("{}: {} has weights too large for the format's scales", checkpoint_.path(),
                                      plan_.tensors[index].name));
    }
    report_.relative_error[index] = power > 0 ? std::sqrt(error / power) : std::sqrt(error);
    report_.max_error[index] = largest;
    report_.power[index] = power;
    errors_[index] = error;
    return {};
  }

  const Checkpoint& checkpoint_;
  const LinearFormat& format_;
  const LinearScheme& scheme_;
  const FolderPlan& plan_;
  const std::string path_;
  const FolderRun& run_;
  const Runtime& runtime_;
  const Slices& slices_ = SlicesFor(runtime_.isa);
  FolderReport report_;
  uint64_t total_ = 0;
  WeightMap map_;
  std::map<std::string, LayerUnit> linears_;  // by their name in the file
  std::map<std::string, std::vector<std::byte>> folded_;  // norms and biases with scales in them, by name in the file
  std::map<std::string, float> amax_;
  MappedReader reader_;
  std::vector<Kept> copies_;
  struct Step {
    size_t index;
    bool made;  // a matrix, or else a copy
  };
  std::vector<Step> steps_;
  size_t made_before_ = 0;  // matrices that the file has already
  std::vector<double> errors_;  // sums of squares, as the plan's tensors
  std::mutex mutex_;            // of what follows
  size_t next_step_ = 0, failed_step_ = 0;
  uint64_t done_ = 0;
  std::optional<Error> failed_;
};

}  // namespace

Result<FolderReport> QuantizeFolder(const Checkpoint& checkpoint, const LinearFormat& format,
                                    const LinearScheme& scheme, const FolderPlan& plan, const std::string& path,
                                    const FolderRun& run, const Runtime& runtime) {
  return FolderJob(checkpoint, format, scheme, plan, path, run, runtime).Run();
}

}  // namespace hone
