// See gptq_gguf.h.
#include "compress/gguf/gptq_gguf.h"

#include <fmt/format.h>

#include <cstring>
#include <map>

#include "base/check.h"
#include "compress/gguf/block_quantizers.h"
#include "compress/gguf/block_rounder.h"
#include "kernels/dequantize/dequantize.h"
#include "tensor/float16.h"

namespace hone {
namespace {

class BlockCodec : public UnitCodec {
 public:
  BlockCodec(const std::map<std::string, DType>& types, const Runtime& runtime) : types_(types), runtime_(runtime) {}

  DType type(const LayerUnit& unit) const { return types_.at(unit.name); }
  size_t piece_bytes(const LayerUnit& unit) const override {
    return static_cast<size_t>(unit.rows()) * BytesFor(type(unit), unit.columns());
  }
  ColumnOrder order(const LayerUnit& unit) const override {
    return CanSweep(type(unit)) ? ColumnOrder::kGroupAware : ColumnOrder::kNatural;
  }
  int64_t order_group(const LayerUnit& unit) const override {
    return CanSweep(type(unit)) ? Info(type(unit)).block_elements : 0;
  }

  Result<void> Encode(const LayerUnit& unit, std::span<const float> w, const GptqFactor& factor,
                      std::span<std::byte> piece) override {
    const DType to = type(unit);
    if (CanSweep(to)) {
      SweepColumns(w, unit.rows(), factor, BlockSweep(to, runtime_.isa), *runtime_.threads,
                   [&] { return MakeBlockRounder(to, runtime_.isa, factor, piece); });
      return {};
    }
    const int64_t n = unit.columns(), row_bytes = static_cast<int64_t>(BytesFor(to, n));
    runtime_.threads->ParallelFor(static_cast<size_t>(unit.rows()), 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) {
        const float* row = w.data() + r * n;
        std::byte* out = piece.data() + r * row_bytes;
        if (CanQuantize(to)) {
          QuantizeRow(to, runtime_.isa, row, n, nullptr, out);
        } else if (to == DType::kF32) {
          std::memcpy(out, row, row_bytes);
        } else {
          for (int64_t i = 0; i < n; ++i)
            reinterpret_cast<uint16_t*>(out)[i] = to == DType::kBF16 ? F32ToBf16(row[i]) : F32ToF16(row[i]);
        }
      }
    });
    return {};
  }

  void Decode(const LayerUnit& unit, std::span<const std::byte> piece, std::span<float> w) override {
    const int64_t n = unit.columns();
    const size_t row_bytes = BytesFor(type(unit), n);
    runtime_.threads->ParallelFor(static_cast<size_t>(unit.rows()), 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r)
        DequantizeRow(type(unit), piece.data() + r * row_bytes, n, w.data() + r * n);
    });
  }

 private:
  const std::map<std::string, DType>& types_;
  const Runtime& runtime_;
};

// Which row of a head of `rows` GGUF's row i is, where it pairs neighbours that the folder keeps in halves.
int64_t SourceRow(int64_t i, int64_t rows) { return i % 2 * (rows / 2) + i / 2; }

// Where a unit's rows go.
struct Part {
  size_t unit = 0;
  int64_t first = 0, rows = 0;  // of the tensor
  int64_t head_rows = 0;        // > 0: rows of each head go from halves to pairs
};

class Impl final : public GptqGguf {
 public:
  Impl(LayerWalk& walk, const std::string& path) : walk_(walk), path_(WorkPath(path)) {}

  Result<void> Prepare(const QuantizePlan& plan) {
    if (walk_.map().quantized()) {
      return Unsupported(walk_.checkpoint().path() + ": quantised already; --method gptq starts from the original model");
    }
    std::map<std::string, const TensorPlan*> planned;
    for (const TensorPlan& tensor : plan.tensors) planned[tensor.name] = &tensor;
    units_ = ListLayerUnits(walk_.map(), true);
    std::map<std::string, size_t> index;
    for (size_t i = 0; i < units_.size(); ++i) index[units_[i].name] = i;
    HONE_TRY(const Family* family, FindFamily(walk_.checkpoint()));
    const bool permutes = walk_.checkpoint().is_folder() && family->gguf_permutes_qk;
    for (const Weight& weight : walk_.map().weights()) {  // parts of a tensor in the order of its rows
      const auto unit = index.find(weight.name);
      if (unit == index.end()) continue;
      const auto tensor = planned.find(weight.gguf_name);
      if (tensor == planned.end())
        return Error{ErrorCode::kInternal, weight.gguf_name + " is not in the plan of the file"};
      types_[weight.name] = tensor->second->to;
      std::vector<Part>& parts = parts_[weight.gguf_name];
      Part part{unit->second, parts.empty() ? 0 : parts.back().first + parts.back().rows, weight.view.shape[0]};
      const bool query = weight.name.find(".attn_q.") != std::string::npos,
                 key = weight.name.find(".attn_k.") != std::string::npos;
      if (permutes && (query || key))
        part.head_rows = part.rows / (query ? walk_.config().heads : walk_.config().kv_heads);
      parts.push_back(part);
    }
    const TensorPlan* embedding = planned.count("token_embd.weight") > 0 ? planned["token_embd.weight"] : nullptr;
    if (embedding != nullptr) embedding_type_ = embedding->to;
    return {};
  }

  uint64_t Fit(const CalibrationText& text, uint64_t bytes, LayerwiseOptions* options) const override {
    const TensorView& table = walk_.map().Find("token_embd.weight")->view;
    const uint64_t embedding =
        embedding_type_ && CanQuantize(*embedding_type_) ? BytesFor(*embedding_type_, table.shape.elements()) : 0;
    const std::string file = path_ + ".streams";
    return embedding + FitLayerwise(walk_.config(), units_, text, bytes > embedding ? bytes - embedding : 0, file, options);
  }
  const std::vector<LayerUnit>& units() const override { return units_; }

  Result<LayerwiseReport> Run(const CalibrationText& text, const LayerwiseOptions& given, bool resume,
                              const Runtime& runtime) override {
    fingerprint_ = Fingerprint(DescribeWeights(walk_.checkpoint().path()));
    for (const LayerUnit& unit : units_)
      fingerprint_ = Fingerprint(unit.name + " " + std::string(Info(types_.at(unit.name)).name), fingerprint_);
    fingerprint_ = Fingerprint(
        {reinterpret_cast<const char*>(text.tokens.data()), text.tokens.size() * sizeof(text.tokens[0])}, fingerprint_);
    fingerprint_ = Fingerprint(fmt::format("{} {} {} {}", text.chunk_tokens, given.damping, given.matrix_by_matrix,
                                           IsaName(runtime.isa)),
                               fingerprint_);
    HONE_TRY(work_, WorkFile::Open(path_, fingerprint_, resume && WorkFile::Exists(path_)));
    LayerwiseOptions options = given;
    HONE_TRY(const Tensor embedding, QuantizeEmbedding(runtime));
    const TensorView table = embedding.view();
    if (table) options.embedding = &table;
    BlockCodec codec(types_, runtime);
    auto report = QuantizeLayers(walk_, units_, text, codec, options, *work_, runtime);
    if (!report && report.error().code == ErrorCode::kInvalidInput) work_->Remove();
    if (!report) return report.error();
    HONE_TRY(rows_, work_->Map());
    uint64_t offset = 0;
    for (const uint64_t bytes : work_->pieces()) offsets_.push_back(offset), offset += bytes;
    return report;
  }

  const std::byte* Row(const std::string& tensor, int64_t row) const override {
    const auto found = parts_.find(tensor);
    if (found == parts_.end()) return nullptr;
    for (const Part& part : found->second) {
      if (row >= part.first + part.rows) continue;
      int64_t r = row - part.first;
      if (part.head_rows > 0) r = r / part.head_rows * part.head_rows + SourceRow(r % part.head_rows, part.head_rows);
      const LayerUnit& unit = units_[part.unit];
      return rows_->bytes().data() + offsets_[part.unit] + r * BytesFor(types_.at(unit.name), unit.columns());
    }
    return nullptr;
  }
  uint64_t fingerprint() const override { return fingerprint_; }
  void Remove() override { work_->Remove(); }

 private:
  // The embedding as the file will hold it: what the layers see.
  Result<Tensor> QuantizeEmbedding(const Runtime& runtime) const {
    const TensorView& view = walk_.map().Find("token_embd.weight")->view;
    if (!embedding_type_ || !CanQuantize(*embedding_type_) || IsBlock(view.type)) return Tensor();
    Tensor tensor(*embedding_type_, view.shape);
    const int64_t n = view.shape.back();
    runtime.threads->ParallelFor(static_cast<size_t>(view.shape[0]), 1, [&](size_t begin, size_t end) {
      std::vector<float> row(n);
      for (size_t r = begin; r < end; ++r) {
        DequantizeRow(view.type, view.data + r * view.row_bytes(), n, row.data());
        QuantizeRow(*embedding_type_, runtime.isa, row.data(), n, nullptr, tensor.data() + r * BytesFor(*embedding_type_, n));
      }
    });
    walk_.checkpoint().Release(view);
    return tensor;
  }

  LayerWalk& walk_;
  const std::string path_;
  std::vector<LayerUnit> units_;
  std::map<std::string, DType> types_;              // by unit
  std::map<std::string, std::vector<Part>> parts_;  // by tensor of the file
  std::optional<DType> embedding_type_;
  uint64_t fingerprint_ = 0;
  std::unique_ptr<WorkFile> work_;
  std::shared_ptr<const MappedFile> rows_;
  std::vector<uint64_t> offsets_;  // of the units' pieces
};

}  // namespace

Result<std::unique_ptr<GptqGguf>> GptqGguf::Make(LayerWalk& walk, const QuantizePlan& plan, const std::string& path) {
  auto made = std::make_unique<Impl>(walk, path);
  HONE_RETURN_IF_ERROR(made->Prepare(plan));
  return std::unique_ptr<GptqGguf>(std::move(made));
}

}  // namespace hone
