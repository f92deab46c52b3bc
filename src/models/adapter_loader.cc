// See adapter_loader.h. Numbers of F32 adapters are rounded to BF16 where the weights that they are added to have no more; with
// `exact`, or on F32 weights, they stay as they are.
#include "models/adapter_loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/dequantize/dequantize.h"
#include "models/convert_rows.h"

namespace hone {
namespace {

// One of the matrices that a weight of a file is: all of it, or the part of a fused one.
struct Part {
  std::string canonical;
  int64_t begin = 0, rows = 0, columns = 0;
  int heads = 0;  // > 0: GGUF has the rows of each head in another order, if the family's q and k are permuted
};

class Maker {
 public:
  Maker(const LoraFile& file, const Model* model, const AdapterTarget& target) : file_(file), target_(target) { info_.model = model; }

  Result<std::shared_ptr<const LowRankAdapter>> Make() {
    HONE_RETURN_IF_ERROR(CheckArchitecture());
    ListParts();
    for (const LoraPair& pair : file_.pairs()) HONE_RETURN_IF_ERROR(AddPair(pair));
    info_.path = file_.path();
    info_.content_id = file_.ContentId();
    info_.matrices = static_cast<int>(updates_.size());
    return std::make_shared<const LowRankAdapter>(std::move(info_), std::move(updates_));
  }

 private:
  Result<void> CheckArchitecture() const {
    if (!file_.is_gguf()) return {};
    const auto& names = target_.family.gguf_names;
    if (std::find(names.begin(), names.end(), file_.architecture()) != names.end()) return {};
    return InvalidInput(fmt::format("{}: is for models of architecture \"{}\"; this one is of the family {}", file_.path(),
                                    file_.architecture(), target_.family.name));
  }

  // Where the weights of all layers are found, by the names of the adapter's kind of file.
  void ListParts() {
    const bool gguf = file_.is_gguf();
    for (int layer = 0; layer < target_.config.layers; ++layer) {
      const std::string below = fmt::format("blk.{}.", layer), hf_below = fmt::format("layers.{}.", layer);
      for (const TensorRule& rule : target_.family.layer_tensors(target_.config, layer)) {
        if (rule.columns == Dim::kNone || rule.name.find('*') != std::string::npos) continue;
        Part part{.canonical = below + rule.name,
                  .rows = DimSize(rule.rows, target_.config),
                  .columns = DimSize(rule.columns, target_.config)};
        for (int i = 0; i < rule.part; ++i) part.begin += DimSize(rule.parts[i], target_.config);
        if (rule.name == "attn_q.weight") part.heads = target_.config.heads;
        if (rule.name == "attn_k.weight") part.heads = target_.config.kv_heads;
        const std::string name = gguf ? below + (rule.gguf.empty() ? rule.name : rule.gguf) : hf_below + rule.hf;
        parts_[name].push_back(std::move(part));
      }
    }
    parts_[gguf ? "output.weight" : "lm_head.weight"] = {
        {.canonical = "output.weight", .rows = target_.config.vocab, .columns = target_.config.width}};
  }

  // Without what stands before the layers in models of several parts.
  std::string NameOf(const std::string& target) const {
    if (file_.is_gguf()) return target;
    for (const std::string_view prefix : {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
      if (target.starts_with(prefix)) return target.substr(prefix.size());
    }
    return target;
  }

  Error Unknown(const std::string& target) const {
    const auto has = [&](const char* word) { return target.find(word) != std::string::npos; };
    if (has("_exps") || has("experts")) {
      return Unsupported(fmt::format("{}: adapts {}; adapters of experts are not supported", file_.path(), target));
    }
    if (has("embed") || has("embd")) {
      return Unsupported(fmt::format("{}: adapts {}; adapters of the embedding are not supported", file_.path(), target));
    }
    return InvalidInput(fmt::format("{}: adapts {}, which a {} model of {} layers does not have; wanted the adapter of this very model",
                                    file_.path(), target, target_.family.name, target_.config.layers));
  }

  Result<void> AddPair(const LoraPair& pair) {
    const auto found = parts_.find(NameOf(pair.target));
    if (found == parts_.end()) return Unknown(pair.target);
    int64_t rows = 0;
    for (const Part& part : found->second) rows = std::max(rows, part.begin + part.rows);
    const int64_t columns = found->second.front().columns;
    if (pair.a.shape[1] != columns || pair.b.shape[0] != rows) {
      return InvalidInput(fmt::format("{}: the pair of {} is for a weight [{}, {}]; this model's is [{}, {}]", file_.path(), pair.target,
                                      pair.b.shape[0], pair.a.shape[1], rows, columns));
    }
    info_.rank = std::max(info_.rank, static_cast<int>(pair.rank()));
    for (const Part& part : found->second) HONE_RETURN_IF_ERROR(AddPart(pair, part));
    return {};
  }

  Result<void> AddPart(const LoraPair& pair, const Part& part) {
    const PackedMatrix* weight = nullptr;
    if (const auto it = target_.matrices.find(part.canonical); it != target_.matrices.end()) weight = it->second;
    if (weight == nullptr) return Unknown(pair.target);
    if (updates_.count(weight) != 0) {
      return InvalidInput(fmt::format("{}: two pairs adapt {}", file_.path(), part.canonical));
    }
    const bool keeps = target_.pack.exact || weight->type() == DType::kF32;
    LowRankUpdate update{.scale = pair.scale};
    HONE_TRY(update.a, Pack(pair, pair.a, 0, pair.a.shape[0], 0, keeps));
    const bool permute = part.heads > 0 && target_.family.gguf_permutes_qk && file_.is_gguf() != target_.from_gguf;
    HONE_TRY(update.b, Pack(pair, pair.b, part.begin, part.rows, permute ? part.heads : 0, keeps));
    info_.bytes += update.a.bytes() + update.b.bytes();
    updates_.emplace(weight, std::move(update));
    return {};
  }

  // Where row `row` of a head of `rows` comes from: GGUF has as pairs what Hugging Face has as halves.
  int64_t SourceRow(int64_t row, int64_t rows) const {
    return target_.from_gguf ? row % 2 * (rows / 2) + row / 2 : row % (rows / 2) * 2 + row / (rows / 2);
  }

  Result<PackedMatrix> Pack(const LoraPair& pair, const TensorView& view, int64_t begin, int64_t rows, int heads, bool keeps) {
    const std::string where = fmt::format("{}: the pair of {}", file_.path(), pair.target);
    if (!CanDequantize(view.type)) {
      return Unsupported(fmt::format("{} is of type {}, which hone cannot compute with", where, Info(view.type).name));
    }
    if (view.shape.back() % Info(view.type).block_elements != 0) {
      return InvalidInput(fmt::format("{} has rows of {}, no multiple of the block of {}", where, view.shape.back(), Info(view.type).name));
    }
    const bool half = view.type == DType::kF16 || view.type == DType::kBF16;
    const DType type = half ? view.type : keeps ? DType::kF32 : DType::kBF16;
    Tensor ordered(type, Shape{rows, view.shape[1]});
    const int64_t head_rows = heads > 0 ? rows / heads : 0;
    std::vector<float> numbers(static_cast<size_t>(view.shape[1]));
    RoundingCount count;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t source = begin + (head_rows > 0 ? row / head_rows * head_rows + SourceRow(row % head_rows, head_rows) : row);
      DequantizeRow(view.type, view.data + source * static_cast<int64_t>(view.row_bytes()), view.shape[1], numbers.data());
      if (!std::all_of(numbers.begin(), numbers.end(), [](float x) { return std::isfinite(x); })) {
        return InvalidInput(where + " holds numbers that are not finite");
      }
      ConvertRows(view, source, 1, false, type, ordered.data() + row * static_cast<int64_t>(ordered.view().row_bytes()), &count);
    }
    if (count.overflowed > 0) return InvalidInput(where + " holds numbers that are too large for BF16");
    PackOptions pack = target_.pack;
    pack.place = {};
    return PackedMatrix::Pack(ordered.view(), pack, threads_).Context(where);
  }

  const LoraFile& file_;
  const AdapterTarget& target_;
  ThreadPool threads_{1};
  std::unordered_map<std::string, std::vector<Part>> parts_;
  std::unordered_map<const PackedMatrix*, LowRankUpdate> updates_;
  AdapterInfo info_;
};

}  // namespace

Result<std::shared_ptr<const LowRankAdapter>> MakeAdapter(const LoraFile& file, const Model* model, const AdapterTarget& target) {
  return Maker(file, model, target).Make();
}

}  // namespace hone
