// See sensitivity.h.
#include "compress/gguf/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "base/check.h"
#include "base/digest.h"
#include "compress/gguf/block_quantizers.h"
#include "compress/layerwise/layer_stream.h"
#include "compress/read_matrix.h"
#include "kernels/dequantize/dequantize.h"
#include "kernels/elementwise/elementwise.h"
#include "tensor/float16.h"

namespace hone {
namespace {

constexpr int kWindowTokens = kSensitivityRows;
constexpr int kPieceRows = 64;  // of logits at a time

// Streams that go through the layers side by side: what is measured is kept after so many.
constexpr size_t kTogether = 8;

struct Probe {
  std::vector<std::string> tensors;  // of the GGUF file
  std::set<int> layers;              // that hold some of them
  bool embedding = false, output = false;
  std::unique_ptr<LayerStream> stream;  // once it differs from the original's
};

int LayerOf(const std::string& name) { return name.starts_with("blk.") ? std::stoi(name.substr(4)) : -1; }

Error Stopped() { return {ErrorCode::kCancelled, "stopped; --resume goes on from here"}; }

using WeightsByTensor = std::map<std::string, std::vector<const Weight*>>;

WeightsByTensor ByTensor(const LayerWalk& walk) {
  WeightsByTensor weights;
  for (const Weight& weight : walk.map().weights()) weights[weight.gguf_name].push_back(&weight);
  return weights;
}

// One probe a tensor (bands 0), or tensors of a kind in `bands` stretches of layers.
std::vector<Probe> MakeProbes(const LayerWalk& walk, const WeightsByTensor& weights, const std::map<std::string, DType>& types, int bands) {
  std::vector<Probe> probes;
  std::map<std::string, size_t> groups;
  const int layers = walk.config().layers;
  for (const auto& [name, type] : types) {
    if (!weights.contains(name)) continue;
    const int layer = LayerOf(name);
    const std::string kind = layer < 0 ? name : name.substr(name.find('.', 4));
    const std::string key = bands == 0 || layer < 0 ? name : fmt::format("{} {}", kind, layer * bands / std::max(1, layers));
    const auto [at, fresh] = groups.emplace(key, probes.size());
    if (fresh) probes.emplace_back();
    Probe& probe = probes[at->second];
    probe.tensors.push_back(name);
    if (layer >= 0) probe.layers.insert(layer);
    probe.embedding |= name == "token_embd.weight";
    probe.output |= name == "output.weight" || (name == "token_embd.weight" && walk.config().tied_embeddings);
  }
  return probes;
}

// Weights that a token is multiplied by: in all layers (half of which a probe goes through on average), and in the output.
double LayerSize(const LayerWalk& walk) {
  const ModelConfig& config = walk.config();
  double weights = 0;
  for (const Weight& weight : walk.map().weights()) {
    if (LayerOf(weight.name) < 0 || weight.view.shape.rank() < 2) continue;
    const double used = weight.stacked && config.experts > 0 ? static_cast<double>(config.experts_per_token) / config.experts : 1;
    weights += used * static_cast<double>(weight.view.shape.elements());
  }
  return weights;
}
double OutputSize(const LayerWalk& walk) { return static_cast<double>(walk.config().vocab) * walk.config().width; }

struct Grouping {
  std::vector<Probe> probes;
  uint64_t tokens = 0;  // 0: the budget allows nothing
};

// The finest measurement that the budget allows.
Grouping GroupTensors(const LayerWalk& walk, const WeightsByTensor& weights, const SensitivityOptions& options) {
  const double token = 2.0 * (0.55 * LayerSize(walk) + OutputSize(walk));
  for (const auto& [bands, tokens] : {std::pair{0, 2048}, {0, 1024}, {0, 512}, {4, 1024}, {4, 512}, {1, 512}}) {
    Grouping grouping{MakeProbes(walk, weights, options.probes, bands), static_cast<uint64_t>(tokens)};
    if (token * tokens * static_cast<double>(grouping.probes.size() + 1) <= options.budget_flops) return grouping;
  }
  return {};
}

// Windows spread evenly over the text.
CalibrationText Windows(const CalibrationText& text, uint64_t tokens) {
  CalibrationText windows{.tokens = {}, .chunk_tokens = kWindowTokens, .bos = text.bos};
  const uint64_t size = kWindowTokens, there = text.tokens.size() / size, wanted = std::min(tokens / size, there);
  if (wanted == 0) {
    windows.tokens = text.tokens;
    return windows;
  }
  for (uint64_t w = 0; w < wanted; ++w) {
    const auto first = text.tokens.begin() + static_cast<int64_t>(w * there / wanted * size);
    windows.tokens.insert(windows.tokens.end(), first, first + static_cast<int64_t>(size));
  }
  return windows;
}

class SensitivityJob {
 public:
  SensitivityJob(LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options, const Runtime& runtime)
      : walk_(walk), text_(text), options_(options), runtime_(runtime), by_tensor_(ByTensor(walk)) {}

  Result<Sensitivity> Run() {
    HONE_RETURN_IF_ERROR(Begin());
    Sensitivity measured;
    if (tokens_ == 0) return measured;
    if (!order_.empty()) HONE_RETURN_IF_ERROR(Measure());
    measured.tokens = tokens_;
    measured.measured = order_.size();
    for (size_t i = 0; i < probes_.size(); ++i) measured.groups.push_back({probes_[i].tensors, *divergence_[i]});
    return measured;
  }

  // A window goes through the first layer and the output; all else is as many times that.
  Result<double> Estimate() {
    HONE_RETURN_IF_ERROR(Begin());
    if (tokens_ == 0 || order_.empty()) return 0.0;
    CalibrationText window = windows_;
    window.tokens.resize(std::min<size_t>(window.tokens.size(), kWindowTokens));
    HONE_TRY(const auto stream, LayerStream::Make(walk_, window, Stream(nullptr)));
    HONE_RETURN_IF_ERROR(walk_.Load(0, nullptr));
    HONE_TRY(const OutputHead head, walk_.LoadOutput({}));
    const int64_t vocab = walk_.config().vocab;
    const int count = std::min(kPieceRows, stream->rows(0));
    const std::vector<float> x = stream->Copy(0);
    std::vector<float> logits(static_cast<size_t>(count * vocab));
    double layer = HUGE_VAL, output = HUGE_VAL;
    for (int round = 0; round < 2; ++round) {  // the better of two
      const double start = runtime_.clock->Now();
      stream->Advance(0);
      const double middle = runtime_.clock->Now();
      walk_.Logits(head, x.data(), count, logits.data());
      Divergences(logits, logits, count);
      layer = std::min(layer, middle - start);
      output = std::min(output, runtime_.clock->Now() - middle);
    }
    const double tokens = static_cast<double>(tokens_);
    return layer * tokens / stream->rows(0) * LayersToRun() + output * tokens / count * OutputsToRun();
  }

 private:
  // What there is to do, and what is done already.
  Result<void> Begin() {
    HONE_CHECK(walk_.max_rows() >= kSensitivityRows);
    if (walk_.map().quantized()) return Unsupported(walk_.checkpoint().path() + ": quantised already");
    Grouping grouping = GroupTensors(walk_, by_tensor_, options_);
    probes_ = std::move(grouping.probes);
    if (grouping.tokens == 0) return {};
    windows_ = Windows(text_, grouping.tokens);
    tokens_ = windows_.tokens.size();
    divergence_.resize(probes_.size());
    for (size_t i = 0; i < probes_.size(); ++i) {
      if (options_.log != nullptr) divergence_[i] = options_.log->Find(probes_[i].tensors);
      if (!divergence_[i]) order_.push_back(i);
    }
    std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return FirstLayer(a) < FirstLayer(b); });
    return {};
  }

  // The first that differs from the original; all layers where only the output does.
  int FirstLayer(size_t probe) const {
    if (probes_[probe].embedding) return 0;
    return probes_[probe].layers.empty() ? walk_.config().layers : *probes_[probe].layers.begin();
  }

  size_t Batches() const { return (order_.size() + kTogether - 1) / kTogether; }

  // Of each token: layers (the original goes twice: to its end, and up to where the next probe begins), and outputs.
  double LayersToRun() const {
    double layers = 2.0 * walk_.config().layers;
    for (const size_t i : order_) layers += walk_.config().layers - FirstLayer(i);
    return layers;
  }
  double OutputsToRun() const { return static_cast<double>(order_.size() + Batches()); }

  StreamOptions Stream(const TensorView* embedding) const {
    const uint64_t all = (std::min(probes_.size(), kTogether) + 2) * uint64_t{4} * kWindowTokens * static_cast<uint64_t>(walk_.config().width);
    StreamOptions stream{.embedding = embedding};
    // Every window has its share; the file is used as soon as they might not fit.
    const uint64_t windows = std::max<uint64_t>(1, text_.tokens.size() / kWindowTokens);
    if (options_.memory_bytes > 0 && all * std::min<uint64_t>(windows, 8) > options_.memory_bytes / 2)
      stream.file = options_.work_path + ".streams.partial";
    return stream;
  }

  // The original to its end; then probes that begin at nearby layers together, from where they do.
  Result<void> Measure() {
    const double output = OutputSize(walk_) / std::max(1.0, LayerSize(walk_) / walk_.config().layers);  // in layers
    output_share_ = output / (LayersToRun() + output * OutputsToRun());
    layer_share_ = 1 / (LayersToRun() + output * OutputsToRun());
    HONE_TRY(base_, LayerStream::Make(walk_, windows_, Stream(nullptr)));
    HONE_CHECK(base_->tokens() == tokens_);
    HONE_TRY(front_, base_->Duplicate());
    for (int layer = 0; layer < walk_.config().layers; ++layer) {
      HONE_RETURN_IF_ERROR(walk_.Load(layer, nullptr));
      HONE_RETURN_IF_ERROR(Advance(*base_));
    }
    HONE_TRY(head_, walk_.LoadOutput({}));
    for (size_t b = 0; b < Batches(); ++b) {
      const size_t first = b * order_.size() / Batches(), end = (b + 1) * order_.size() / Batches();
      HONE_RETURN_IF_ERROR(MeasureBatch(std::span(order_).subspan(first, end - first), end));
    }
    return {};
  }

  // `next`: the place in order_ of the first probe after these.
  Result<void> MeasureBatch(std::span<const size_t> batch, size_t next) {
    for (const size_t i : batch) {
      if (!probes_[i].embedding) continue;
      HONE_TRY(const Tensor table, Quantized(*walk_.map().Find("token_embd.weight")));
      const TensorView view = table.view();
      HONE_TRY(probes_[i].stream, LayerStream::Make(walk_, windows_, Stream(&view)));
    }
    const int next_layer = next < order_.size() ? FirstLayer(order_[next]) : 0;
    for (int layer = std::min(front_layer_, FirstLayer(batch.front())); layer < walk_.config().layers; ++layer)
      HONE_RETURN_IF_ERROR(RunLayer(layer, batch, std::max(next_layer, FirstLayer(batch.back()))));
    HONE_RETURN_IF_ERROR(Compare(batch));
    for (const size_t i : batch) {
      probes_[i].stream.reset();
      if (options_.log != nullptr) HONE_RETURN_IF_ERROR(options_.log->Add(probes_[i].tensors, *divergence_[i]));
    }
    return {};
  }

  // A matrix as its probe's type stores it, in BF16.
  Result<Tensor> Quantized(const Weight& weight) const {
    const DType type = options_.probes.at(weight.gguf_name);
    const TensorView& view = weight.view;
    const int64_t n = view.shape.back(), rows = view.shape.rows();
    std::vector<float> importance;
    if (options_.imatrix != nullptr) {
      const auto found = options_.imatrix->entries.find(weight.gguf_name);
      if (found != options_.imatrix->entries.end() && found->second.columns == n) {
        const std::vector<float> all = Imatrix::Importance(found->second);
        const auto& parts = by_tensor_.at(weight.gguf_name);
        const size_t part = weight.stacked ? std::find(parts.begin(), parts.end(), &weight) - parts.begin() : 0;
        if ((part + 1) * n <= all.size()) importance.assign(all.begin() + part * n, all.begin() + (part + 1) * n);
      }
    }
    Tensor tensor(DType::kBF16, view.shape);
    runtime_.threads->ParallelFor(static_cast<size_t>(rows), 1, [&](size_t begin, size_t end) {
      std::vector<float> row(n);
      std::vector<std::byte> bytes(BytesFor(type, n));
      for (size_t r = begin; r < end; ++r) {
        DequantizeRow(view.type, view.data + r * view.row_bytes(), n, row.data());
        QuantizeRow(type, runtime_.isa, row.data(), n, importance.empty() ? nullptr : importance.data(), bytes.data());
        DequantizeRow(type, bytes.data(), n, row.data());
        uint16_t* to = reinterpret_cast<uint16_t*>(tensor.data()) + static_cast<int64_t>(r) * n;
        for (int64_t i = 0; i < n; ++i) to[i] = F32ToBf16(row[i]);
      }
    });
    walk_.checkpoint().Release(view);
    return tensor;
  }

  Result<void> Tell(double share) const {
    if (!options_.progress || options_.progress(share)) return {};
    return Stopped();
  }

  // Through the loaded layer.
  Result<void> Advance(LayerStream& stream) {
    for (size_t c = 0; c < stream.chunks(); ++c) {
      HONE_RETURN_IF_ERROR(Tell(done_));
      stream.Advance(c);
      done_ += layer_share_ / static_cast<double>(stream.chunks());
    }
    return stream.status();
  }

  // Streams with matrices of this layer first, each through its own form of it; then the others, and the original up to where the
  // last of them begins.
  Result<void> RunLayer(int layer, std::span<const size_t> batch, int front_end) {
    for (const size_t i : batch) {
      Probe& probe = probes_[i];
      if (!probe.layers.contains(layer)) continue;
      std::map<std::string, Tensor> replaced;
      for (const std::string& name : probe.tensors) {
        if (LayerOf(name) != layer) continue;
        for (const Weight* weight : by_tensor_.at(name)) {
          HONE_TRY(Tensor quantized, Quantized(*weight));
          replaced.emplace(weight->name, std::move(quantized));
        }
      }
      HONE_RETURN_IF_ERROR(walk_.Load(layer, [&](const Weight& weight) {
        const auto found = replaced.find(weight.name);
        return found == replaced.end() ? TensorView() : found->second.view();
      }));
      if (probe.stream == nullptr) {
        HONE_CHECK(front_layer_ == layer);
        HONE_TRY(probe.stream, front_->Duplicate());
      }
      HONE_RETURN_IF_ERROR(Advance(*probe.stream));
    }
    std::vector<LayerStream*> others;
    for (const size_t i : batch) {
      if (probes_[i].stream != nullptr && !probes_[i].layers.contains(layer)) others.push_back(probes_[i].stream.get());
    }
    if (front_layer_ == layer && layer < front_end) {
      others.push_back(front_.get());
      ++front_layer_;
    }
    if (!others.empty()) HONE_RETURN_IF_ERROR(walk_.Load(layer, nullptr));
    for (LayerStream* stream : others) HONE_RETURN_IF_ERROR(Advance(*stream));
    return {};
  }

  // Of each of `count` rows of logits.
  std::vector<double> Divergences(const std::vector<float>& base, const std::vector<float>& other, int count) const {
    const int64_t vocab = walk_.config().vocab;
    std::vector<double> rows(static_cast<size_t>(count));
    runtime_.threads->ParallelFor(rows.size(), 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) rows[r] = Divergence(base.data() + r * vocab, other.data() + r * vocab, vocab, runtime_.isa);
    });
    return rows;
  }

  Result<void> Compare(std::span<const size_t> batch) {
    const ModelConfig& config = walk_.config();
    std::map<size_t, OutputHead> own;
    for (const size_t i : batch) {
      if (!probes_[i].output) continue;
      HONE_TRY(const Tensor quantized, Quantized(*walk_.map().Find(config.tied_embeddings ? "token_embd.weight" : "output.weight")));
      HONE_TRY(own[i], walk_.LoadOutput(quantized.view()));
    }
    std::vector<double> sums(batch.size());
    const int64_t vocab = config.vocab, width = config.width;
    std::vector<float> base(static_cast<size_t>(kPieceRows * vocab)), other(base.size());
    for (size_t c = 0; c < base_->chunks(); ++c) {
      const int rows = base_->rows(c);
      const std::vector<float> x = base_->Copy(c);
      std::vector<std::vector<float>> streams(batch.size());
      for (size_t b = 0; b < batch.size(); ++b) {
        if (probes_[batch[b]].stream != nullptr) streams[b] = probes_[batch[b]].stream->Copy(c);
      }
      for (int first = 0; first < rows; first += kPieceRows) {
        const int count = std::min(kPieceRows, rows - first);
        const double share = output_share_ * count / static_cast<double>(tokens_);
        walk_.Logits(head_, x.data() + first * width, count, base.data());
        done_ += share;
        for (size_t b = 0; b < batch.size(); ++b) {
          HONE_RETURN_IF_ERROR(Tell(done_));
          const std::vector<float>& from = streams[b].empty() ? x : streams[b];
          const auto output = own.find(batch[b]);
          walk_.Logits(output == own.end() ? head_ : output->second, from.data() + first * width, count, other.data());
          for (const double kl : Divergences(base, other, count)) sums[b] += kl;
          if (!std::isfinite(sums[b]))
            return BlameWeight(walk_.checkpoint(), walk_.map(),
                               InvalidInput(walk_.checkpoint().path() + ": logits are not finite; the model is damaged or overflows"));
          done_ += share;
        }
      }
    }
    for (size_t b = 0; b < batch.size(); ++b) divergence_[batch[b]] = sums[b] / static_cast<double>(tokens_);
    return {};
  }

  LayerWalk& walk_;
  const CalibrationText& text_;
  const SensitivityOptions& options_;
  const Runtime& runtime_;
  const WeightsByTensor by_tensor_;
  std::vector<Probe> probes_;
  std::vector<std::optional<double>> divergence_;  // of each, once it is known
  std::vector<size_t> order_;                      // probes that are to be measured, by their first layer
  CalibrationText windows_;
  uint64_t tokens_ = 0;
  std::unique_ptr<LayerStream> base_, front_;  // the original at its end, and before front_layer_
  int front_layer_ = 0;
  OutputHead head_;
  double done_ = 0, layer_share_ = 0, output_share_ = 0;  // of the work; of a stream through a layer, through the output
};

}  // namespace

uint64_t LeastSensitivityMemory(const LayerWalk& walk, size_t probes) {
  const uint64_t vocab = static_cast<uint64_t>(walk.config().vocab), width = static_cast<uint64_t>(walk.config().width);
  const CalibrationText window{.tokens = {}, .chunk_tokens = kWindowTokens};
  return WalkMemory(walk, window, {.file = "file"}) + 3 * vocab * width * 2 + 2 * kPieceRows * vocab * sizeof(float) +
         (std::min(probes, kTogether) + 4) * kWindowTokens * width * sizeof(float);
}

SensitivityPlan PlanSensitivity(const LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options) {
  const Grouping grouping = GroupTensors(walk, ByTensor(walk), options);
  SensitivityPlan plan;
  if (grouping.tokens == 0) return plan;
  for (const Probe& probe : grouping.probes) plan.groups.push_back(probe.tensors);
  plan.tokens = Windows(text, grouping.tokens).tokens.size();
  return plan;
}

Result<SensitivityKey> MakeSensitivityKey(const LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options) {
  Digest128 model, tokens, protocol;
  model.Text(walk.checkpoint().Digest());  // the configuration, and where tensors are
  for (const Weight& weight : walk.map().weights()) {
    if (options.progress && !options.progress(0)) return Stopped();
    model.Text(weight.name);
    model.Bytes(weight.view.data, weight.view.bytes());
    walk.checkpoint().Release(weight.view);
  }
  tokens.Number(static_cast<uint64_t>(text.chunk_tokens));
  tokens.Number(static_cast<uint64_t>(text.bos));
  tokens.Bytes(text.tokens.data(), text.tokens.size() * sizeof(int32_t));
  std::string importance = "none";
  if (options.imatrix != nullptr) {
    Digest128 entries;
    for (const auto& [name, entry] : options.imatrix->entries) {
      entries.Text(name);
      for (const std::vector<float>* numbers : {&entry.sums, &entry.counts}) {
        entries.Number(numbers->size());
        entries.Bytes(numbers->data(), numbers->size() * sizeof(float));
      }
    }
    importance = entries.Hex();
  }
  const SensitivityPlan plan = PlanSensitivity(walk, text, options);
  protocol.Number(plan.tokens);
  for (const std::vector<std::string>& group : plan.groups) {
    protocol.Number(group.size());
    for (const std::string& name : group) {
      protocol.Text(name);
      protocol.Text(Info(options.probes.at(name)).name);
    }
  }
  return SensitivityKey{model.Hex(), tokens.Hex(), importance, protocol.Hex()};
}

Result<double> EstimateSensitivitySeconds(LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options,
                                          const Runtime& runtime) {
  return SensitivityJob(walk, text, options, runtime).Estimate();
}

Result<Sensitivity> MeasureSensitivity(LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options,
                                       const Runtime& runtime) {
  return SensitivityJob(walk, text, options, runtime).Run();
}

}  // namespace hone
