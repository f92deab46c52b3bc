// See quantize_gguf.h.
#include "compress/gguf/quantize_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/random.h"
#include "compress/gguf/block_quantizers.h"
#include "compress/mapped_reader.h"
#include "compress/read_matrix.h"
#include "compress/work_file.h"
#include "formats/gguf_writer.h"
#include "kernels/dequantize/dequantize.h"
#include "tensor/float16.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

// Rows are read, quantised and written in chunks of about this many weights, so memory does not depend on the model.
constexpr int64_t kChunkWeights = int64_t{1} << 22, kSmallChunkWeights = int64_t{1} << 18;
// Of a chunk: F32 before and after, the file's pages under it, what it becomes.
constexpr uint64_t kBytesPerWeight = 4 + 4 + 4 + 4;
constexpr uint64_t kBaseMemoryBytes = uint64_t{64} << 20;  // program, metadata, names
constexpr size_t kCopyBytes = size_t{16} << 20;            // of the work in progress into the file at a time
constexpr uint64_t kMinFreeDisk = uint64_t{16} << 20;

// The first number of a metadata key that is a number or an array of numbers.
int64_t FirstNumber(const std::vector<std::pair<std::string, GgufValue>>& metadata, const std::string& key) {
  for (const auto& [name, value] : metadata) {
    if (name != key) continue;
    if (const auto* u = std::get_if<uint64_t>(&value.value)) return static_cast<int64_t>(*u);
    if (const auto* i = std::get_if<int64_t>(&value.value)) return *i;
    if (const auto* us = std::get_if<std::vector<uint64_t>>(&value.value); us && !us->empty())
      return static_cast<int64_t>(us->front());
    if (const auto* is = std::get_if<std::vector<int64_t>>(&value.value); is && !is->empty()) return is->front();
  }
  return 0;
}

std::string Architecture(const std::vector<std::pair<std::string, GgufValue>>& metadata) {
  for (const auto& [name, value] : metadata) {
    const auto* text = std::get_if<std::string>(&value.value);
    if (name == "general.architecture" && text != nullptr) return *text;
  }
  return "";
}

MixtureOptions Mixture(const TensorSource& source, const QuantizeOptions& options) {
  const auto& metadata = source.metadata();
  MixtureOptions mixture{
      .file_type = options.file_type, .pure = options.pure, .importance = options.imatrix != nullptr};
  mixture.architecture = Architecture(metadata);
  const auto number = [&](const char* key) {
    return static_cast<int>(std::clamp<int64_t>(FirstNumber(metadata, mixture.architecture + key), 0, 1 << 20));
  };
  mixture.layers = number(".block_count");
  mixture.heads = number(".attention.head_count");
  mixture.kv_heads = number(".attention.head_count_kv");
  if (mixture.kv_heads == 0) mixture.kv_heads = mixture.heads;
  mixture.experts = number(".expert_count");
  return mixture;
}

Result<void> CheckInput(const TensorSource& source, const TensorPlan& tensor, const QuantizeOptions& options) {
  if (tensor.from == tensor.to) return {};
  if (!CanDequantize(tensor.from)) {
    return Unsupported(fmt::format("{}: {} is {}, which hone does not read as numbers", source.path(), tensor.name,
                                   Info(tensor.from).name));
  }
  if (IsBlock(tensor.from) && !options.allow_requantize) {
    return InvalidInput(
        fmt::format("{}: {} is {} already; quantising twice loses more than once. Start from the original "
                    "(F32, F16, BF16), or give --allow-requantize",
                    source.path(), tensor.name, Info(tensor.from).name));
  }
  return {};
}

// Whether the importance matrix has this tensor; an error where it is of another model.
Result<bool> FindImportance(const TensorPlan& tensor, const QuantizeOptions& options) {
  if (options.imatrix == nullptr || !UsesImportance(tensor.to)) return false;
  const auto found = options.imatrix->entries.find(tensor.name);
  if (found == options.imatrix->entries.end()) return false;
  const int64_t columns = tensor.shape.back(), matrices = tensor.shape.rank() > 2 ? tensor.shape[0] : 1;
  if (found->second.columns != columns || found->second.matrices() != matrices) {
    return InvalidInput(fmt::format("{}: {} has {} x {} numbers, the tensor needs {} x {}; it is of another model",
                                    options.imatrix_path, tensor.name, found->second.matrices(), found->second.columns,
                                    matrices, columns));
  }
  return true;
}

// Seconds a weight takes on one thread, measured on a made-up row.
double SecondsPerWeight(DType to, bool importance, Isa isa, const Clock& clock) {
  if (!CanQuantize(to)) return 1e-9;
  constexpr int64_t kWeights = 8192;
  Rng rng(1);
  std::vector<float> row(kWeights), weights(kWeights, 1.0f);
  for (float& x : row) x = static_cast<float>(rng.Uniform() - rng.Uniform());
  std::vector<std::byte> out(BytesFor(to, kWeights));
  double best = 1;
  for (int i = 0; i < 3; ++i) {
    const double start = clock.Now();
    QuantizeRow(to, isa, row.data(), kWeights, importance ? weights.data() : nullptr, out.data());
    best = std::min(best, clock.Now() - start);
  }
  return best / kWeights;
}

uint64_t MetadataBytes(const std::vector<std::pair<std::string, GgufValue>>& metadata) {
  uint64_t bytes = 0;
  for (const auto& [name, value] : metadata) {
    bytes += name.size() + 64;
    if (const auto* texts = std::get_if<std::vector<std::string>>(&value.value)) {
      for (const std::string& text : *texts) bytes += text.size() + sizeof(std::string);
    }
  }
  return bytes;
}

void Estimate(const Runtime& runtime, uint64_t memory_bytes, QuantizePlan* plan) {
  std::map<std::pair<DType, bool>, double> rates;
  double weights = 0;
  uint64_t largest_row = 0;
  for (const TensorPlan& tensor : plan->tensors) {
    const double n = static_cast<double>(tensor.shape.elements());
    plan->bytes_before += BytesFor(tensor.from, tensor.shape.elements());
    plan->bytes += tensor.bytes();
    weights += n;
    largest_row = std::max<uint64_t>(largest_row, static_cast<uint64_t>(tensor.shape.back()));
    if (tensor.from == tensor.to) continue;
    const auto [at, fresh] = rates.emplace(std::pair(tensor.to, tensor.importance), 0.0);
    if (fresh) at->second = SecondsPerWeight(tensor.to, tensor.importance, runtime.isa, *runtime.clock);
    // Reading the rows back and comparing them takes about as long as making Q8_0.
    plan->seconds += n * (at->second + 4e-9) / runtime.threads->count();
  }
  // Written twice: once as work in progress, once as the file.
  plan->seconds += 2 * static_cast<double>(plan->bytes) / 1e9;
  plan->disk_bytes = 2 * plan->bytes + kMinFreeDisk;
  // Names and metadata (a tokenizer's, mostly) are there several times over.
  const uint64_t base = kBaseMemoryBytes + 4 * MetadataBytes(plan->metadata);
  const uint64_t least = std::max<uint64_t>(kSmallChunkWeights, largest_row * static_cast<uint64_t>(runtime.threads->count()));
  uint64_t chunk = std::max<uint64_t>(kChunkWeights, least);
  if (memory_bytes > 0 && base + chunk * kBytesPerWeight > memory_bytes)
    chunk = std::max(least, memory_bytes > base ? (memory_bytes - base) / kBytesPerWeight : 0);
  plan->chunk_weights = static_cast<int64_t>(chunk);
  plan->peak_memory_bytes = base + chunk * kBytesPerWeight;
  plan->least_memory_bytes = base + least * kBytesPerWeight;
  if (weights > 0) plan->bits_per_weight = 8 * static_cast<double>(plan->bytes) / weights;
}

void AddMetadata(const QuantizeOptions& options, QuantizePlan* plan) {
  auto& metadata = plan->metadata;
  metadata.emplace_back("general.quantization_version", GgufValue::U32(2));
  metadata.emplace_back("general.file_type", GgufValue::U32(static_cast<uint32_t>(options.file_type->id)));
  if (options.imatrix == nullptr) return;
  metadata.emplace_back("quantize.imatrix.file", GgufValue::String(options.imatrix_path));
  if (!options.imatrix->datasets.empty()) {
    metadata.emplace_back("quantize.imatrix.dataset", GgufValue::String(options.imatrix->datasets.front()));
  }
  metadata.emplace_back("quantize.imatrix.entries_count",
                        GgufValue::U32(static_cast<uint32_t>(options.imatrix->entries.size())));
  if (options.imatrix->chunks > 0)
    metadata.emplace_back("quantize.imatrix.chunks_count", GgufValue::U32(options.imatrix->chunks));
}

}  // namespace

Result<QuantizePlan> PlanQuantize(const TensorSource& source, const QuantizeOptions& options, const Runtime& runtime) {
  QuantizePlan plan;
  const MixtureOptions mixture = Mixture(source, options);
  const std::vector<TensorType> types = ChooseTypes(source.tensors(), mixture);
  size_t without = 0, quantized = 0;
  for (size_t i = 0; i < types.size(); ++i) {
    const TensorInfo& info = source.tensors()[i];
    TensorPlan tensor{info.name, info.shape, info.type, types[i].type, false, types[i].note};
    if (const auto chosen = options.types.find(info.name); chosen != options.types.end()) {
      tensor.to = chosen->second;
      tensor.note.clear();
    }
    HONE_RETURN_IF_ERROR(CheckInput(source, tensor, options));
    HONE_TRY(tensor.importance, FindImportance(tensor, options));
    if (tensor.from != tensor.to) {
      ++quantized;
      const bool wanted = options.imatrix != nullptr && UsesImportance(tensor.to) && tensor.name.starts_with("blk.");
      without += wanted && !tensor.importance;
      const bool needs = options.file_type->id == GgufFileTypeId::kQ2_K_S && tensor.to == DType::kQ2_K &&
                         tensor.name != "token_embd.weight";
      if (needs && !tensor.importance) {
        return UsageError(
            fmt::format("Q2_K_S needs an importance matrix (--imatrix; hone calibrate makes one), and it must hold {}",
                        tensor.name));
      }
    }
    plan.tensors.push_back(std::move(tensor));
  }
  if (plan.tensors.empty()) return InvalidInput(source.path() + ": no tensors to quantise");
  if (quantized == 0)
    return InvalidInput(
        fmt::format("{}: nothing to do: every tensor is {} or stays as it is", source.path(), options.file_type->name));
  if (without > 0)
    plan.warnings.push_back(
        fmt::format("{}: {} matrices of the model are not in it and are quantised without importance",
                    options.imatrix_path, without));
  if (mixture.layers == 0 && !options.pure)
    plan.warnings.push_back(source.path() + ": no block_count; rules by layer do not apply");
  plan.metadata = source.metadata();
  AddMetadata(options, &plan);
  Estimate(runtime, options.memory_bytes, &plan);
  return plan;
}

namespace {

// Where a weight is NaN or infinite, found while its row is quantised.
struct BadWeight {
  int64_t row = -1, column = -1;
  float value = 0;
};

bool FindBad(const float* row, int64_t n, int64_t index, BadWeight* bad) {
  uint32_t worst = 0;
  for (int64_t i = 0; i < n; ++i) worst = std::max(worst, std::bit_cast<uint32_t>(row[i]) & 0x7fffffff);
  if (worst < 0x7f800000) return false;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(row[i])) {
      *bad = {index, i, row[i]};
      break;
    }
  }
  return true;
}

// The first of rows [begin, end) with a number that is not finite, or -1.
int64_t FirstNotFinite(DType type, const std::byte* rows, int64_t row_bytes, size_t begin, size_t end) {
  for (int64_t r = static_cast<int64_t>(begin); r < static_cast<int64_t>(end); ++r) {
    if (!AllFinite(type, {rows + r * row_bytes, static_cast<size_t>(row_bytes)})) return r;
  }
  return -1;
}

class GgufJob {
 public:
  GgufJob(const TensorSource& source, const QuantizePlan& plan, std::string path, const QuantizeOptions& options,
          const QuantizeRun& run, const Runtime& runtime)
      : source_(source), plan_(plan), path_(std::move(path)), options_(options), run_(run), runtime_(runtime) {
    for (const TensorPlan& tensor : plan.tensors) total_ += static_cast<uint64_t>(tensor.shape.elements());
  }

  Result<QuantizeReport> Run() {
    const double start = runtime_.clock->Now();
    HONE_RETURN_IF_ERROR(CheckDisk());
    HONE_TRY(const auto work, WorkFile::Open(WorkPath(), Fingerprint(), run_.resume));
    report_.resumed_tensors = work->pieces().size();
    for (size_t i = 0; i < work->pieces().size(); ++i) {
      if (i >= plan_.tensors.size() || work->pieces()[i] != plan_.tensors[i].bytes())
        return InvalidInput(WorkPath() + ": does not fit the plan; start again without --resume");
      done_ += static_cast<uint64_t>(plan_.tensors[i].shape.elements());
    }
    for (size_t i = work->pieces().size(); i < plan_.tensors.size(); ++i) {
      const Result<void> quantized = Quantize(i, *work);
      if (!quantized && quantized.error().code == ErrorCode::kInvalidInput) work->Remove();  // no resuming helps
      HONE_RETURN_IF_ERROR(quantized);
    }
    HONE_RETURN_IF_ERROR(Assemble(*work));
    report_.quantize_s = runtime_.clock->Now() - start;
    const std::string unverified = path_ + ".unverified";
    Result<void> verified = Verify(unverified);
    if (verified && run_.check) verified = run_.check(unverified);
    if (const Result<void> unchanged = reader_.CheckUnchanged(source_.checkpoint()); !unchanged) verified = unchanged;
    std::error_code error, ignored;
    if (verified) fs::rename(unverified, path_, error);
    if (!verified || error) fs::remove(unverified, ignored);
    if (!verified && verified.error().code == ErrorCode::kInvalidInput) work->Remove();
    if (!verified) return verified.error();
    if (error) return IoError(path_ + ": " + error.message());
    work->Remove();
    report_.verify_s = runtime_.clock->Now() - start - report_.quantize_s;
    return std::move(report_);
  }

 private:
  std::string WorkPath() const { return path_ + ".partial"; }

  // All that decides the bytes of the tensors.
  uint64_t Fingerprint() const {
    uint64_t hash = hone::Fingerprint(fmt::format("{} {}", DescribeWeights(source_.path()), options_.given_fingerprint));
    for (const TensorPlan& t : plan_.tensors) {
      hash = hone::Fingerprint(
          fmt::format("{} {} {} {} {};", t.name, t.shape.ToString(), Info(t.from).name, Info(t.to).name, t.importance),
          hash);
      if (!t.importance) continue;
      const ImatrixEntry& entry = options_.imatrix->entries.at(t.name);
      hash = hone::Fingerprint({reinterpret_cast<const char*>(entry.sums.data()), entry.sums.size() * sizeof(float)},
                               hash);
      hash = hone::Fingerprint(
          {reinterpret_cast<const char*>(entry.counts.data()), entry.counts.size() * sizeof(float)}, hash);
    }
    return hash;
  }

  Result<void> CheckDisk() const {
    std::error_code ignored;
    const uint64_t there = run_.resume ? fs::file_size(WorkPath(), ignored) : 0;
    return hone::CheckDisk(plan_.disk_bytes, path_, run_.there_bytes + (ignored ? 0 : there));
  }

  bool Advance(const char* stage, uint64_t done, uint64_t total) const {
    return !run_.progress || run_.progress(stage, done, total);
  }
  static Error Stopped() { return {ErrorCode::kCancelled, "stopped; --resume goes on from here"}; }

  // fn(first row, rows) over chunks of a tensor.
  template <typename Fn>
  Result<void> ForChunks(const TensorPlan& tensor, Fn fn) const {
    const int64_t rows = tensor.shape.rows(),
                   step = std::max<int64_t>(1, plan_.chunk_weights / std::max<int64_t>(1, tensor.shape.back()));
    for (int64_t first = 0; first < rows; first += step) HONE_RETURN_IF_ERROR(fn(first, std::min(step, rows - first)));
    return {};
  }

  // Rows as the file holds them, in `out`.
  BadWeight QuantizeRows(size_t index, int64_t first, int64_t count, const std::vector<float>& importance,
                         std::byte* out) {
    const TensorPlan& tensor = plan_.tensors[index];
    const int64_t n = tensor.shape.back(), row_bytes = static_cast<int64_t>(BytesFor(tensor.to, n));
    const int64_t matrix_rows = tensor.shape.rank() > 1 ? tensor.shape[tensor.shape.rank() - 2] : 1;
    BadWeight bad;
    std::mutex mutex;
    const auto tell = [&](const BadWeight& found) {
      const std::lock_guard lock(mutex);
      if (bad.row < 0 || found.row < bad.row) bad = found;
    };
    const bool same = tensor.from == tensor.to;
    if (!same && input_.size() < static_cast<size_t>(count * n)) input_.resize(count * n);
    runtime_.threads->ParallelFor(static_cast<size_t>(count), 1, [&](size_t begin, size_t end) {
      if (same) {
        source_.ReadRows(index, first + static_cast<int64_t>(begin), static_cast<int64_t>(end - begin), tensor.from,
                         out + begin * row_bytes);
        if (const int64_t row = FirstNotFinite(tensor.from, out, row_bytes, begin, end); row >= 0) {
          std::vector<float> w(static_cast<size_t>(n));
          source_.ReadRows(index, first + row, 1, DType::kF32, reinterpret_cast<std::byte*>(w.data()));
          BadWeight found;
          if (FindBad(w.data(), n, first + row, &found)) tell(found);
        }
        return;
      }
      for (size_t r = begin; r < end; ++r) {
        float* row = input_.data() + r * n;
        source_.ReadRows(index, first + static_cast<int64_t>(r), 1, DType::kF32, reinterpret_cast<std::byte*>(row));
        BadWeight found;
        if (FindBad(row, n, first + static_cast<int64_t>(r), &found)) return tell(found);
        std::byte* to = out + r * row_bytes;
        const std::byte* given =
            options_.given ? options_.given(tensor.name, first + static_cast<int64_t>(r)) : nullptr;
        if (given != nullptr) {
          std::memcpy(to, given, row_bytes);
        } else if (tensor.to == DType::kF32) {
          std::memcpy(to, row, row_bytes);
        } else if (tensor.to == DType::kBF16) {
          for (int64_t i = 0; i < n; ++i) reinterpret_cast<uint16_t*>(to)[i] = F32ToBf16(row[i]);
        } else if (CanQuantize(tensor.to)) {
          const int64_t matrix = (first + static_cast<int64_t>(r)) / matrix_rows;
          QuantizeRow(tensor.to, runtime_.isa, row, n, importance.empty() ? nullptr : importance.data() + matrix * n,
                      to);
        } else {
          for (int64_t i = 0; i < n; ++i) reinterpret_cast<uint16_t*>(to)[i] = F32ToF16(row[i]);
        }
      }
    });
    return bad;
  }

  Result<void> Quantize(size_t index, WorkFile& work) {
    const TensorPlan& tensor = plan_.tensors[index];
    const std::vector<float> importance =
        tensor.importance ? Imatrix::Importance(options_.imatrix->entries.at(tensor.name)) : std::vector<float>();
    HONE_RETURN_IF_ERROR(ForChunks(tensor, [&](int64_t first, int64_t count) -> Result<void> {
      if (!Advance("quantising", done_, total_)) return Stopped();
      output_.resize(BytesFor(tensor.to, tensor.shape.back()) * count);
      const BadWeight bad = QuantizeRows(index, first, count, importance, output_.data());
      if (bad.row >= 0) {
        return InvalidInput(
            fmt::format("{}: {}: row {}, column {} is {}; the model is damaged, nothing can be made of it",
                        source_.path(), tensor.name, bad.row, bad.column, bad.value));
      }
      done_ += static_cast<uint64_t>(count * tensor.shape.back());
      source_.Release(index);
      return work.Append(output_);
    }));
    return work.EndPiece();
  }

  // What a process that died while it assembled has left. Nobody else writes here: the work file is locked.
  void RemoveLeftovers() const {
    const fs::path unverified(path_ + ".unverified");
    const std::string prefix = "." + unverified.filename().string() + ".partial-";
    std::vector<fs::path> old;
    std::error_code ignored;
    for (fs::directory_iterator it(unverified.has_parent_path() ? unverified.parent_path() : ".", ignored), end;
         !ignored && it != end; it.increment(ignored)) {
      if (it->path().filename().string().starts_with(prefix)) old.push_back(it->path());
    }
    for (const fs::path& file : old) fs::remove(file, ignored);
  }

  Result<void> Assemble(WorkFile& work) {
    RemoveLeftovers();
    std::vector<TensorInfo> infos;
    for (const TensorPlan& tensor : plan_.tensors) infos.push_back({tensor.name, tensor.to, tensor.shape});
    HONE_TRY(const auto writer, GgufWriter::Create(path_ + ".unverified", plan_.metadata, infos));
    HONE_TRY(const auto pieces, work.Map());
    const std::byte* at = pieces->bytes().data();
    for (const TensorPlan& tensor : plan_.tensors) {
      if (!Advance("writing", done_, total_)) return Stopped();
      for (size_t left = tensor.bytes(); left > 0;) {
        const size_t part = std::min(left, kCopyBytes);
        HONE_RETURN_IF_ERROR(writer->Append({at, part}));
        pieces->Release(at, part);
        at += part, left -= part;
      }
    }
    return writer->Commit();
  }

  struct Sums {
    double error = 0, power = 0, max = 0;
    int64_t bad_row = -1;  // not finite once read back
  };

  // Reads the file back and compares every weight with the source.
  Result<void> Verify(const std::string& path) {
    HONE_TRY(const auto file, GgufFile::Open(path));
    if (file->tensors().size() != plan_.tensors.size())
      return Error{ErrorCode::kInternal, path + ": tensors are missing after writing"};
    double error = 0, power = 0;
    uint64_t done = 0;
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const TensorPlan& tensor = plan_.tensors[i];
      const NamedTensor& written = file->tensors()[i];
      if (written.name != tensor.name || written.view.type != tensor.to || !(written.view.shape == tensor.shape)) {
        return Error{ErrorCode::kInternal, fmt::format("{}: {} reads back as {}", path, tensor.name, written.name)};
      }
      Sums sums;
      HONE_RETURN_IF_ERROR(ForChunks(tensor, [&](int64_t first, int64_t count) -> Result<void> {
        if (!Advance("verifying", done, total_)) return Stopped();
        done += static_cast<uint64_t>(count * tensor.shape.back());
        const Result<void> compared = Compare(i, written.view, first, count, &sums);
        file->Release(written.view);
        source_.Release(i);
        return compared;
      }));
      if (sums.bad_row >= 0) {
        return InvalidInput(
            fmt::format("{}: {}: row {} has weights too large for the scales of {}; choose another type",
                        source_.path(), tensor.name, sums.bad_row, Info(tensor.to).name));
      }
      report_.tensors.push_back(
          {sums.power > 0 ? std::sqrt(sums.error / sums.power) : std::sqrt(sums.error), sums.max, sums.power});
      error += sums.error;
      power += sums.power;
    }
    report_.relative_error = power > 0 ? std::sqrt(error / power) : 0;
    return {};
  }

  Result<void> Compare(size_t index, const TensorView& written, int64_t first, int64_t count, Sums* sums) {
    const TensorPlan& tensor = plan_.tensors[index];
    const int64_t n = tensor.shape.back();
    if (tensor.from == tensor.to) {
      output_.resize(written.row_bytes() * count);
      source_.ReadRows(index, first, count, tensor.from, output_.data());
      const bool equal = std::memcmp(output_.data(), written.data + first * written.row_bytes(), output_.size()) == 0;
      return equal ? Result<void>()
                   : Error{ErrorCode::kInternal, fmt::format("{}: {} reads back with other bytes", path_, tensor.name)};
    }
    std::mutex mutex;
    const size_t needed = static_cast<size_t>(runtime_.threads->count()) * 2 * n;
    if (input_.size() < needed) input_.resize(needed);
    std::atomic<int> next{0};
    runtime_.threads->ParallelFor(static_cast<size_t>(count), 1, [&](size_t begin, size_t end) {
      float* before = input_.data() + next.fetch_add(1) * 2 * n;
      float* after = before + n;
      Sums mine;
      for (size_t r = begin; r < end; ++r) {
        const int64_t row = first + static_cast<int64_t>(r);
        source_.ReadRows(index, row, 1, DType::kF32, reinterpret_cast<std::byte*>(before));
        DequantizeRow(tensor.to, written.data + row * written.row_bytes(), n, after);
        double error = 0, power = 0;
        float max = 0;
        for (int64_t i = 0; i < n; ++i) {
          const float e = after[i] - before[i], a = std::fabs(e);
          error += double{e} * double{e};
          power += double{before[i]} * double{before[i]};
          max = a > max ? a : max;
        }
        if (!std::isfinite(error) && mine.bad_row < 0) mine.bad_row = row;
        mine.error += error;
        mine.power += power;
        mine.max = std::max<double>(mine.max, max);
      }
      const std::lock_guard lock(mutex);
      sums->error += mine.error;
      sums->power += mine.power;
      sums->max = std::max(sums->max, mine.max);
      if (mine.bad_row >= 0 && (sums->bad_row < 0 || mine.bad_row < sums->bad_row)) sums->bad_row = mine.bad_row;
    });
    return {};
  }

  const TensorSource& source_;
  const QuantizePlan& plan_;
  const std::string path_;
  const QuantizeOptions& options_;
  const QuantizeRun& run_;
  const Runtime& runtime_;
  const MappedReader reader_;
  QuantizeReport report_;
  uint64_t total_ = 0, done_ = 0;  // weights
  std::vector<float> input_;
  std::vector<std::byte> output_;
};

}  // namespace

Result<QuantizeReport> QuantizeToGguf(const TensorSource& source, const QuantizePlan& plan, const std::string& path,
                                      const QuantizeOptions& options, const QuantizeRun& run, const Runtime& runtime) {
  return GgufJob(source, plan, path, options, run, runtime).Run();
}

}  // namespace hone
