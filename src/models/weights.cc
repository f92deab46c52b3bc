// See weights.h. Each canonical name has one place to go; a name of the map without a place is our own bug.
#include "models/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/dequantize/dequantize.h"

namespace hone {

std::vector<float> ReadVector(const Weight& weight) {
  std::vector<float> values(weight.view.shape.elements());
  DequantizeRow(weight.view.type, weight.view.data, static_cast<int64_t>(values.size()), values.data());
  if (weight.plus_one) {
    for (float& value : values) value += 1;
  }
  return values;
}

namespace {

// Int8 terms of every input of a low-bit matrix: one term moves a model's perplexity by up to half a percent, and no kind of matrix
// can be left out within a tenth (measured in docs/kernels-matmul.md, "Two input terms").
constexpr int kInputTerms = 2;

// Matrices begin at whole cache lines.
size_t Aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const WeightMap& map, const ModelConfig& config,
         const WeightLoadOptions& options, ThreadPool& threads)
      : checkpoint_(checkpoint), map_(map), config_(config), options_(options), threads_(threads) {
    for (const Weight& weight : map.weights()) total_bytes_ += weight.view.bytes();
  }

  Result<ModelWeights> Load() {
    ModelWeights all;
    const size_t panel_bytes = PanelBytes(map_, config_, options_.pack);
    packed_ = !options_.panels.empty();
    if (packed_) {
      HONE_CHECK(options_.panels.size() == panel_bytes && !options_.replace);
      place_ = {const_cast<std::byte*>(options_.panels.data()), panel_bytes};  // Pack writes nothing there
    } else {
      all.panels = Buffer(panel_bytes);
      place_ = {all.panels.data(), panel_bytes};
    }
    const Weight* embedding = map_.Find("token_embd.weight");
    HONE_CHECK(embedding != nullptr);
    all.embedding = embedding->view;
    // The largest matrix first: while it is packed it is there twice, and nothing else is there yet.
    Linear output;
    HONE_RETURN_IF_ERROR(Matrix(config_.tied_embeddings ? "token_embd" : "output", output));
    all.output = std::move(output.weight);
    all.output_columns = std::move(output.columns);
    Advance(config_.tied_embeddings ? 0 : embedding->view.bytes());
    all.layers.resize(config_.layers);
    for (int i = 0; i < config_.layers; ++i) HONE_RETURN_IF_ERROR(LoadLayer(i, all.layers[i]));
    Vector("output_norm.weight", all.output_norm);
    checkpoint_.Release(embedding->view);
    all.bytes = bytes_;
    return all;
  }

  Result<LayerWeights> LoadOne(int index) {
    LayerWeights layer;
    HONE_RETURN_IF_ERROR(LoadLayer(index, layer));
    return layer;
  }

 private:
  Result<void> LoadLayer(int index, LayerWeights& layer) {
    layer.index = index;
    layer.config = &config_.layer[index];
    prefix_ = fmt::format("blk.{}.", index);
    Vector("attn_norm.weight", layer.attn_norm);
    HONE_RETURN_IF_ERROR(Matrix("attn_q", layer.q));
    HONE_RETURN_IF_ERROR(Matrix("attn_k", layer.k));
    HONE_RETURN_IF_ERROR(Matrix("attn_v", layer.v));
    HONE_RETURN_IF_ERROR(Matrix("attn_output", layer.attn_output));
    Vector("attn_q_norm.weight", layer.q_norm);
    Vector("attn_k_norm.weight", layer.k_norm);
    Vector("post_attention_norm.weight", layer.post_attn_norm);
    Vector("ffn_norm.weight", layer.ffn_norm);
    HONE_RETURN_IF_ERROR(Ffn("ffn_gate", "ffn_up", "ffn_down", layer.ffn));
    // A router stays on its fine path for many rows too: it is small, and two experts may be nearly alike.
    HONE_RETURN_IF_ERROR(Matrix("ffn_gate_inp", layer.router, true));
    if (layer.router.weight) layer.experts.resize(config_.experts);
    for (size_t e = 0; e < layer.experts.size(); ++e) {
      HONE_RETURN_IF_ERROR(Ffn(fmt::format("ffn_gate.{}", e), fmt::format("ffn_up.{}", e),
                               fmt::format("ffn_down.{}", e), layer.experts[e]));
    }
    HONE_RETURN_IF_ERROR(Ffn("ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", layer.shared));
    HONE_RETURN_IF_ERROR(Matrix("ffn_gate_inp_shexp", layer.shared_gate));
    Vector("post_ffw_norm.weight", layer.post_ffn_norm);
    prefix_.clear();
    return {};
  }

  Result<void> Ffn(const std::string& gate, const std::string& up, const std::string& down, FfnWeights& ffn) {
    HONE_RETURN_IF_ERROR(Matrix(gate, ffn.gate));
    HONE_RETURN_IF_ERROR(Matrix(up, ffn.up));
    return Matrix(down, ffn.down);
  }

  // Both leave the place empty where the model has no such weight.
  void Vector(const std::string& name, std::vector<float>& values) {
    const Weight* weight = map_.Find(prefix_ + name);
    if (weight == nullptr) return;
    values = ReadVector(*weight);
    bytes_ += values.size() * sizeof(float);
    Advance(weight->view.bytes());
  }

  Result<void> Matrix(const std::string& name, Linear& linear, bool deterministic = false) {
    const Weight* weight = map_.Find(prefix_ + name + ".weight");
    if (weight == nullptr) return {};
    PackOptions pack = options_.pack;
    pack.input_terms = kInputTerms;
    pack.deterministic = pack.deterministic || deterministic;
    pack.place = place_;
    pack.packed = packed_;
    TensorView source = options_.replace ? options_.replace(*weight) : TensorView();
    Tensor transcoded;  // of one matrix at a time, gone when it is packed
    if (!source && weight->quantized != nullptr) {
      source = {weight->quantized->type(pack.exact), Shape{weight->view.shape[0], weight->quantized->width(pack.exact)}};
      if (!packed_) {
        HONE_TRY(transcoded, weight->quantized->Transcode(weight->first_row, weight->view.shape[0], pack.exact, threads_));
        source = transcoded.view();
      }
      linear.columns = Shared(weight->quantized->order(pack.exact));
    } else if (!source) {
      source = weight->view;
    }
    HONE_TRY(linear.weight, PackedMatrix::Pack(source, pack, threads_)
                                .Context(fmt::format("{}: tensor {}", checkpoint_.path(), weight->file_name)));
    linear.inputs = weight->view.shape[1];
    bytes_ += linear.weight.bytes();
    place_ = place_.subspan(std::min(place_.size(), Aligned(linear.weight.bytes())));
    weight->Release(checkpoint_);
    Advance(weight->view.bytes());
    Vector(name + ".bias", linear.bias);
    return {};
  }

  // Matrices that read the same input have the same order as a rule; then their inputs are put in order once.
  std::shared_ptr<const std::vector<int32_t>> Shared(const std::vector<int32_t>& columns) {
    if (columns.empty()) return nullptr;
    if (last_columns_ == nullptr || *last_columns_ != columns) {
      last_columns_ = std::make_shared<const std::vector<int32_t>>(columns);
    }
    return last_columns_;
  }

  void Advance(uint64_t bytes) {
    done_bytes_ += bytes;
    if (options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  const Checkpoint& checkpoint_;
  const WeightMap& map_;
  const ModelConfig& config_;
  const WeightLoadOptions& options_;
  ThreadPool& threads_;
  std::string prefix_;
  std::span<std::byte> place_;  // for the matrices to come
  bool packed_ = false;         // they are there already
  std::shared_ptr<const std::vector<int32_t>> last_columns_;
  uint64_t bytes_ = 0, done_bytes_ = 0, total_bytes_ = 0;
};

}  // namespace

size_t PanelBytes(const WeightMap& map, const ModelConfig& config, const PackOptions& pack) {
  size_t bytes = 0;
  for (const Weight& weight : map.weights()) {
    const bool packed = weight.view.shape.rank() == 2 && (config.tied_embeddings || weight.name != "token_embd.weight");
    if (!packed) continue;
    const DType type = weight.quantized != nullptr ? weight.quantized->type(pack.exact) : weight.view.type;
    const int64_t width = weight.quantized != nullptr ? weight.quantized->width(pack.exact) : weight.view.shape[1];
    bytes += Aligned(PackedMatrix::BytesOf(type, weight.view.shape[0], width));
  }
  return bytes;
}

Result<ModelWeights> LoadWeights(const Checkpoint& checkpoint, const WeightMap& map, const ModelConfig& config,
                                 const WeightLoadOptions& options, ThreadPool& threads) {
  return Loader(checkpoint, map, config, options, threads).Load();
}

Result<LayerWeights> LoadLayerWeights(const Checkpoint& checkpoint, const WeightMap& map, const ModelConfig& config,
                                      int index, const WeightLoadOptions& options, ThreadPool& threads) {
  return Loader(checkpoint, map, config, options, threads).LoadOne(index);
}

namespace {

// fn(linear, canonical name without ".weight") for all matrices of a layer.
template <typename Fn>
void ForMatrices(const LayerWeights& layer, Fn fn) {
  const std::string prefix = fmt::format("blk.{}.", layer.index);
  const auto each = [&](const Linear& linear, const std::string& name) {
    if (linear.weight) fn(linear, prefix + name);
  };
  const auto each_ffn = [&](const FfnWeights& ffn, const std::string& suffix) {
    each(ffn.gate, "ffn_gate" + suffix), each(ffn.up, "ffn_up" + suffix), each(ffn.down, "ffn_down" + suffix);
  };
  each(layer.q, "attn_q"), each(layer.k, "attn_k"), each(layer.v, "attn_v"), each(layer.attn_output, "attn_output");
  each_ffn(layer.ffn, "");
  each(layer.router, "ffn_gate_inp");
  for (size_t e = 0; e < layer.experts.size(); ++e) each_ffn(layer.experts[e], fmt::format(".{}", e));
  each_ffn(layer.shared, "_shexp");
  each(layer.shared_gate, "ffn_gate_inp_shexp");
}

}  // namespace

void NameMatrices(const LayerWeights& layer, std::unordered_map<const PackedMatrix*, std::string>& names) {
  ForMatrices(layer, [&](const Linear& linear, const std::string& name) { names.emplace(&linear.weight, name + ".weight"); });
}

void CollectInputOrders(const LayerWeights& layer, InputOrders& orders) {
  ForMatrices(layer, [&](const Linear& linear, const std::string&) {
    if (linear.columns != nullptr) orders.emplace(&linear.weight, linear.columns.get());
  });
}

void LinkInReadingOrder(ModelWeights& weights) {
  const size_t layers = weights.layers.size();
  for (size_t i = 0; i < layers; ++i) {
    LayerWeights& layer = weights.layers[i];
    const PackedMatrix* following = i + 1 < layers ? &weights.layers[i + 1].q.weight : &weights.output;
    if (!layer.ffn.gate.weight) continue;  // experts: which comes next is known only then
    layer.attn_output.next = &layer.ffn.gate.weight;
    layer.ffn.down.next = following;
  }
}

}  // namespace hone
