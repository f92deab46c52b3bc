// See sensitivity.h.
#include "compress/gguf/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <set>

#include "base/check.h"
#include "compress/gguf/block_quantizers.h"
#include "compress/layerwise/layer_stream.h"
#include "compress/read_matrix.h"
#include "kernels/dequantize/dequantize.h"
#include "tensor/float16.h"

namespace hone {
namespace {

constexpr int kWindowTokens = kSensitivityRows;
constexpr int kPieceRows = 64;  // of logits at a time

struct Probe {
  std::vector<std::string> tensors;  // of the GGUF file
  std::set<int> layers;              // that hold some of them
  bool embedding = false, output = false;
  std::unique_ptr<LayerStream> stream;  // once it differs from the original's
};

int LayerOf(const std::string& name) { return name.starts_with("blk.") ? std::stoi(name.substr(4)) : -1; }

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
      : walk_(walk), text_(text), options_(options), runtime_(runtime) {
    for (const Weight& weight : walk.map().weights()) by_tensor_[weight.gguf_name].push_back(&weight);
  }

  Result<Sensitivity> Run() {
    HONE_CHECK(walk_.max_rows() >= kSensitivityRows);
    Sensitivity measured;
    if (walk_.map().quantized()) return Unsupported(walk_.checkpoint().path() + ": quantised already");
    const uint64_t tokens = Plan();
    if (tokens == 0) return measured;
    const CalibrationText windows = Windows(text_, tokens);
    HONE_TRY(base_, LayerStream::Make(walk_, windows, Stream(nullptr)));
    measured.tokens = base_->tokens();
    for (Probe& probe : probes_) {
      if (!probe.embedding) continue;
      HONE_TRY(const Tensor table, Quantized(*walk_.map().Find("token_embd.weight")));
      const TensorView view = table.view();
      HONE_TRY(probe.stream, LayerStream::Make(walk_, windows, Stream(&view)));
    }
    for (layer_ = 0; layer_ < walk_.config().layers; ++layer_) HONE_RETURN_IF_ERROR(RunLayer(layer_));
    HONE_RETURN_IF_ERROR(Compare());
    for (size_t i = 0; i < probes_.size(); ++i)
      measured.groups.push_back({probes_[i].tensors, sums_[i] / static_cast<double>(measured.tokens)});
    return measured;
  }

 private:
  StreamOptions Stream(const TensorView* embedding) const {
    const uint64_t all = (probes_.size() + 1) * uint64_t{4} * kWindowTokens * static_cast<uint64_t>(walk_.config().width);
    StreamOptions stream{.embedding = embedding};
    // Every window has its share; the file is used as soon as they might not fit.
    const uint64_t windows = std::max<uint64_t>(1, text_.tokens.size() / kWindowTokens);
    if (options_.memory_bytes > 0 && all * std::min<uint64_t>(windows, 8) > options_.memory_bytes / 2)
      stream.file = options_.work_path + ".streams.partial";
    return stream;
  }

  // One probe a tensor, or tensors of a kind in `bands` stretches of layers.
  void MakeProbes(int bands) {
    probes_.clear();
    std::map<std::string, size_t> groups;
    const int layers = walk_.config().layers;
    for (const auto& [name, type] : options_.probes) {
      if (!by_tensor_.contains(name)) continue;
      const int layer = LayerOf(name);
      const std::string kind = layer < 0 ? name : name.substr(name.find('.', 4));
      const std::string key =
          bands == 0 || layer < 0 ? name : fmt::format("{} {}", kind, layer * bands / std::max(1, layers));
      const auto [at, fresh] = groups.emplace(key, probes_.size());
      if (fresh) probes_.emplace_back();
      Probe& probe = probes_[at->second];
      probe.tensors.push_back(name);
      if (layer >= 0) probe.layers.insert(layer);
      probe.embedding |= name == "token_embd.weight";
      probe.output |= name == "output.weight" || (name == "token_embd.weight" && walk_.config().tied_embeddings);
    }
  }

  double Flops(uint64_t tokens) const {
    const ModelConfig& config = walk_.config();
    double layer = 0;
    for (const Weight& weight : walk_.map().weights()) {
      if (LayerOf(weight.name) < 0 || weight.view.shape.rank() < 2) continue;
      const double used = weight.stacked && config.experts > 0
                              ? static_cast<double>(config.experts_per_token) / config.experts : 1;
      layer += used * static_cast<double>(weight.view.shape.elements());
    }
    const double head = static_cast<double>(config.vocab) * config.width;
    return 2.0 * static_cast<double>(tokens) * static_cast<double>(probes_.size() + 1) * (0.55 * layer + head);
  }

  // The finest measurement that the budget allows; its tokens, 0 for none.
  uint64_t Plan() {
    for (const auto& [bands, tokens] : {std::pair{0, 2048}, {0, 1024}, {0, 512}, {4, 1024}, {4, 512}, {1, 512}}) {
      MakeProbes(bands);
      if (Flops(tokens) <= options_.budget_flops) return tokens;
    }
    return 0;
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
    return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
  }

  // One of the streams of a layer.
  Result<void> AdvanceAll(LayerStream& stream) {
    for (size_t c = 0; c < stream.chunks(); ++c) {
      const double done = static_cast<double>(advanced_) / static_cast<double>(probes_.size() + 1);
      HONE_RETURN_IF_ERROR(Tell(0.9 * (layer_ + done) / walk_.config().layers));
      stream.Advance(c);
    }
    ++advanced_;
    return {};
  }

  // Streams with matrices of this layer first, each through its own form of it; then all others and the original.
  Result<void> RunLayer(int layer) {
    advanced_ = 0;
    for (Probe& probe : probes_) {
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
        HONE_TRY(probe.stream, base_->Duplicate());
      }
      HONE_RETURN_IF_ERROR(AdvanceAll(*probe.stream));
    }
    HONE_RETURN_IF_ERROR(walk_.Load(layer, nullptr));
    HONE_RETURN_IF_ERROR(AdvanceAll(*base_));
    for (Probe& probe : probes_) {
      if (probe.stream != nullptr && !probe.layers.contains(layer)) HONE_RETURN_IF_ERROR(AdvanceAll(*probe.stream));
    }
    return {};
  }

  Result<void> Compare() {
    const ModelConfig& config = walk_.config();
    HONE_TRY(const OutputHead head, walk_.LoadOutput({}));
    std::vector<OutputHead> own(probes_.size());
    for (size_t i = 0; i < probes_.size(); ++i) {
      if (!probes_[i].output) continue;
      HONE_TRY(const Tensor quantized, Quantized(*walk_.map().Find(config.tied_embeddings ? "token_embd.weight" : "output.weight")));
      HONE_TRY(own[i], walk_.LoadOutput(quantized.view()));
    }
    sums_.assign(probes_.size(), 0);
    const int64_t vocab = config.vocab, width = config.width;
    std::vector<float> base(static_cast<size_t>(kPieceRows * vocab)), other(base.size());
    for (size_t c = 0; c < base_->chunks(); ++c) {
      const int rows = base_->rows(c);
      const std::vector<float> x = base_->Copy(c);
      std::vector<std::vector<float>> streams(probes_.size());
      for (size_t i = 0; i < probes_.size(); ++i) {
        if (probes_[i].stream != nullptr) streams[i] = probes_[i].stream->Copy(c);
      }
      for (int first = 0; first < rows; first += kPieceRows) {
        const int count = std::min(kPieceRows, rows - first);
        HONE_RETURN_IF_ERROR(Tell(0.9 + 0.1 * static_cast<double>(c) / static_cast<double>(base_->chunks())));
        walk_.Logits(head, x.data() + first * width, count, base.data());
        for (size_t i = 0; i < probes_.size(); ++i) {
          const std::vector<float>& from = probes_[i].stream != nullptr ? streams[i] : x;
          walk_.Logits(probes_[i].output ? own[i] : head, from.data() + first * width, count, other.data());
          std::vector<double> rows_kl(count);
          runtime_.threads->ParallelFor(static_cast<size_t>(count), 1, [&](size_t begin, size_t end) {
            for (size_t r = begin; r < end; ++r)
              rows_kl[r] = LogitDivergence(base.data() + r * vocab, other.data() + r * vocab, vocab);
          });
          for (const double kl : rows_kl) sums_[i] += kl;
          if (!std::isfinite(sums_[i]))
            return BlameWeight(walk_.checkpoint(), walk_.map(),
                               InvalidInput(walk_.checkpoint().path() + ": logits are not finite; the model is damaged or overflows"));
        }
      }
    }
    return {};
  }

  LayerWalk& walk_;
  const CalibrationText& text_;
  const SensitivityOptions& options_;
  const Runtime& runtime_;
  std::map<std::string, std::vector<const Weight*>> by_tensor_;
  std::vector<Probe> probes_;
  int layer_ = 0;
  size_t advanced_ = 0;  // streams of the layer
  std::unique_ptr<LayerStream> base_;
  std::vector<double> sums_;  // of each probe, over all tokens
};

}  // namespace

uint64_t LeastSensitivityMemory(const LayerWalk& walk, size_t probes) {
  const uint64_t vocab = static_cast<uint64_t>(walk.config().vocab), width = static_cast<uint64_t>(walk.config().width);
  const CalibrationText window{.tokens = {}, .chunk_tokens = kWindowTokens};
  return WalkMemory(walk, window, {.file = "file"}) + 3 * vocab * width * 2 + 2 * kPieceRows * vocab * sizeof(float) +
         (probes + 2) * kWindowTokens * width * sizeof(float);
}

double LogitDivergence(const float* base, const float* other, int64_t vocab) {
  const float top_base = *std::max_element(base, base + vocab), top = *std::max_element(other, other + vocab);
  // Those that hardly ever come, e^-20 of the best, are not worth their exponential in the weights.
  double sum_base = 0, sum = 0, product = 0;
  for (int64_t v = 0; v < vocab; ++v) {
    const float b = base[v] - top_base, o = other[v] - top;
    if (b > -20) {
      const float p = std::exp(b);
      sum_base += p;
      product += double{p} * (double{b} - o);
    }
    if (o > -20) sum += std::exp(o);
  }
  return std::max(0.0, product / sum_base + std::log(sum) - std::log(sum_base));
}

Result<Sensitivity> MeasureSensitivity(LayerWalk& walk, const CalibrationText& text, const SensitivityOptions& options,
                                       const Runtime& runtime) {
  return SensitivityJob(walk, text, options, runtime).Run();
}

}  // namespace hone
