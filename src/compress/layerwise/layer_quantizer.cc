// See layer_quantizer.h.
#include "compress/layerwise/layer_quantizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"
#include "compress/layerwise/layer_stream.h"
#include "compress/read_matrix.h"
#include "kernels/dense/subtract.h"
#include "tensor/float16.h"

namespace hone {
namespace {

constexpr int64_t kUnitRows = 64;  // of a unit, for its output error

void StoreRows(DType type, const float* from, int64_t n, std::byte* to) {
  if (type == DType::kF32) return void(std::memcpy(to, from, n * sizeof(float)));
  uint16_t* half = reinterpret_cast<uint16_t*>(to);
  for (int64_t i = 0; i < n; ++i) half[i] = type == DType::kF16 ? F32ToF16(from[i]) : F32ToBf16(from[i]);
}

class LayerJob {
 public:
  LayerJob(LayerWalk& walk, const std::vector<LayerUnit>& units, const CalibrationText& text, UnitCodec& codec,
           const LayerwiseOptions& options, WorkFile& work, const Runtime& runtime)
      : walk_(walk),
        units_(units),
        text_(text),
        codec_(codec),
        options_(options),
        work_(work),
        runtime_(runtime) {}

  Result<LayerwiseReport> Run() {
    HONE_TRY(stream_, LayerStream::Make(walk_, text_, StreamOptions{.embedding = options_.embedding, .file = options_.stream_file}));
    report_.tokens = stream_->tokens();
    report_.chunks = stream_->chunks();
    report_.dropped_tokens = stream_->dropped_tokens();
    report_.units.resize(units_.size());
    resumed_ = work_.pieces().size();
    if (resumed_ > units_.size()) return InvalidInput("the work file holds more than this job; start again");
    size_t begin = 0;
    for (int layer = 0; layer < walk_.config().layers; ++layer) {
      size_t end = begin;
      while (end < units_.size() && units_[end].layer == layer) ++end;
      for (size_t i = begin; i < std::min(end, resumed_); ++i) {
        if (work_.pieces()[i] != codec_.piece_bytes(units_[i]))
          return InvalidInput("the work file does not fit the plan; start again without --resume");
        HONE_TRY(const std::vector<std::byte> piece, work_.Read(i));
        replaced_[i] = Restore(i, piece);
        report_.units[i].resumed = true;
      }
      if (end > resumed_) HONE_RETURN_IF_ERROR(QuantizeLayer(layer, begin, end));
      if (layer + 1 < walk_.config().layers) HONE_RETURN_IF_ERROR(Advance(layer));
      replaced_.clear();
      begin = end;
    }
    HONE_CHECK(begin == units_.size());
    return std::move(report_);
  }

 private:
  static Error Stopped() { return {ErrorCode::kCancelled, "stopped; --resume goes on from here"}; }

  bool Tell(int layer, double share, const std::string& what) const {
    if (!options_.progress) return true;
    const double layers = walk_.config().layers;
    return options_.progress((layer + share) / layers, fmt::format("layer {} of {}: {}", layer + 1, layers, what));
  }

  // What the layer's matrices are now: quantised where that is done.
  TensorView Replacement(const Weight& weight) const {
    for (const auto& [i, tensor] : replaced_) {
      if (i >= replace_below_) continue;
      int64_t row = 0;
      for (const std::string& part : units_[i].parts) {
        const int64_t rows = walk_.map().Find(part)->view.shape[0];
        if (part == weight.name) return tensor.view().Rows(row, rows);
        row += rows;
      }
    }
    return {};
  }

  Result<void> LoadLayer(int layer) {
    return walk_.Load(layer, [this](const Weight& weight) { return Replacement(weight); });
  }

  // All sequences through the layer as it is now.
  Result<void> Advance(int layer) {
    replace_below_ = units_.size();
    HONE_RETURN_IF_ERROR(LoadLayer(layer));
    for (size_t c = 0; c < stream_->chunks(); ++c) {
      if (!Tell(layer, 0.85 + 0.15 * static_cast<double>(c) / static_cast<double>(stream_->chunks()), "running on"))
        return Stopped();
      stream_->Advance(c);
    }
    return {};
  }

  // Inputs that one pass collects: as many as memory allows, one if every matrix shall see those before it quantised.
  std::vector<std::vector<std::string>> Passes(size_t begin, size_t end) const {
    std::vector<std::vector<std::string>> passes;
    uint64_t bytes = 0;
    std::set<std::string> seen;
    for (size_t i = begin; i < end; ++i) {
      if (!seen.insert(units_[i].input).second) continue;
      const uint64_t needed = SecondMoments::BytesFor(units_[i].columns());
      const bool fits = options_.moments_bytes == 0 || bytes + needed <= options_.moments_bytes;
      // Experts of a layer go together: by themselves they would be too many passes.
      const bool apart = options_.matrix_by_matrix && !(units_[i].expert && i > begin && units_[i - 1].expert);
      if (passes.empty() || !fits || apart) {
        passes.emplace_back();
        bytes = 0;
      }
      passes.back().push_back(units_[i].input);
      bytes += needed;
    }
    return passes;
  }

  Result<void> QuantizeLayer(int layer, size_t begin, size_t end) {
    const auto passes = Passes(begin, end);
    double done = 0;
    size_t at = begin;
    for (const auto& inputs : passes) {
      // What a pass sees does not depend on where an earlier run was stopped.
      replace_below_ = options_.matrix_by_matrix ? at : begin;
      while (at < end && std::find(inputs.begin(), inputs.end(), units_[at].input) != inputs.end()) ++at;
      if (at <= resumed_) continue;
      HONE_RETURN_IF_ERROR(LoadLayer(layer));
      HONE_RETURN_IF_ERROR(Collect(layer, begin, end, inputs, done, 0.4 / static_cast<double>(passes.size())));
      done += 0.4 / static_cast<double>(passes.size());
      for (const std::string& input : inputs) {
        for (size_t i = begin; i < end; ++i) {
          if (units_[i].input != input || i < resumed_) continue;
          if (!Tell(layer, done, units_[i].name)) return Stopped();
          HONE_RETURN_IF_ERROR(Quantize(i));
          done += 0.45 / static_cast<double>(end - begin);
        }
        moments_.erase(input);
        factors_.clear();
      }
    }
    return {};
  }

  Result<void> Collect(int layer, size_t begin, size_t end, const std::vector<std::string>& inputs, double done,
                       double share) {
    std::map<std::string, SecondMoments*> by_weight;  // the first of those that share an input speaks for all
    for (const std::string& input : inputs) {
      for (size_t i = begin; i < end; ++i) {
        if (units_[i].input != input) continue;
        const auto [at, fresh] =
            moments_.emplace(input, std::make_unique<SecondMoments>(units_[i].columns(), runtime_));
        by_weight[units_[i].parts.front()] = at->second.get();
        break;
      }
    }
    const InputObserver observer = [&](const std::string& weight, const float* x, int64_t stride, int64_t rows,
                                       int64_t columns) {
      const auto found = by_weight.find(weight);
      if (found == by_weight.end()) return;
      HONE_CHECK(found->second->columns() == columns);
      found->second->Add(x, stride, rows);
    };
    for (size_t c = 0; c < stream_->chunks(); ++c) {
      const double part = static_cast<double>(c) / static_cast<double>(stream_->chunks());
      if (!Tell(layer, done + share * part, "reading inputs")) return Stopped();
      stream_->Look(c, observer);
    }
    for (auto& [input, moments] : moments_) {
      moments->Finish();
      if (!moments->finite()) {
        return BlameWeight(walk_.checkpoint(), walk_.map(),
                           InvalidInput(fmt::format("{}: the input of {} is NaN or infinite; the model is damaged or overflows",
                                                    walk_.checkpoint().path(), input)));
      }
    }
    return {};
  }

  const GptqFactor& Factor(size_t i, const SecondMoments* moments) {
    const LayerUnit& unit = units_[i];
    const ColumnOrder order = codec_.order(unit);
    const int64_t group = codec_.order_group(unit);
    const std::string key = moments == nullptr ? "" : fmt::format("{} {}", static_cast<int>(order), group);
    const auto found = factors_.find(key);
    if (found != factors_.end()) return found->second;
    return factors_[key] = moments == nullptr ? NoGptqFactor(unit.columns())
                                              : MakeGptqFactor(moments->h(), unit.columns(), order, group,
                                                               options_.damping, *runtime_.threads, runtime_.isa);
  }

  Result<void> Quantize(size_t i) {
    const LayerUnit& unit = units_[i];
    UnitReport& report = report_.units[i];
    const SecondMoments& moments = *moments_.at(unit.input);
    report.tokens = moments.tokens();
    const double least = std::max(16.0, options_.least_share * static_cast<double>(report_.tokens));
    const bool few = static_cast<double>(report.tokens) < least && (unit.expert || report.tokens == 0);
    const GptqFactor& factor = Factor(i, few ? nullptr : &moments);
    report.damping = factor.damping;
    report.dead_columns = factor.dead_columns;
    report.fallback = few                                                ? UnitFallback::kFewTokens
                      : factor.fallback == GptqFallback::kRounding       ? UnitFallback::kRounding
                      : factor.fallback == GptqFallback::kMoreDamping    ? UnitFallback::kMoreDamping
                                                                         : UnitFallback::kNone;
    HONE_TRY(const std::vector<float> w, ReadUnit(walk_.checkpoint(), unit, *runtime_.threads));
    std::vector<std::byte> piece(codec_.piece_bytes(unit));
    HONE_RETURN_IF_ERROR(codec_.Encode(unit, w, factor, piece));
    std::vector<float> back(w.size());
    codec_.Decode(unit, piece, back);
    for (const float x : back) {
      if (std::isfinite(x)) continue;
      return InvalidInput(fmt::format("{}: {} has weights too large for the format's scales",
                                      walk_.checkpoint().path(), unit.name));
    }
    if (report.tokens > 0) report.output_error = OutputError(unit, w, back, moments);
    replaced_[i] = Store(unit, back);
    Warn(unit, report);
    HONE_RETURN_IF_ERROR(work_.Append(piece));
    return work_.EndPiece();
  }

  // Of rows spread over the matrix: sqrt(tr(E H E^T) / tr(W H W^T)).
  double OutputError(const LayerUnit& unit, const std::vector<float>& w, const std::vector<float>& back,
                     const SecondMoments& moments) const {
    const int64_t n = unit.columns(), count = std::min(unit.rows(), kUnitRows), step = unit.rows() / count;
    // Both triangles are needed: H = L + L^T - D, and e L e^T = e L^T e^T, so e H e^T = 2 e L e^T - sum d e^2.
    std::vector<float> rows(static_cast<size_t>(2 * count * n)), product(rows.size());
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        rows[r * n + i] = back[r * step * n + i] - w[r * step * n + i];
        rows[(count + r) * n + i] = w[r * step * n + i];
      }
    }
    const float* h = moments.h().data();
    constexpr int64_t kTile = 256;
    runtime_.threads->Run([&](int worker) {
      for (int64_t first = worker * kTile; first < n; first += runtime_.threads->count() * kTile) {
        const int64_t last = std::min(n, first + kTile);
        // Rows of H from `first` on; what stands above its diagonal inside the tile is left out below.
        if (last < n) {
          SubtractProduct(SubtractArgs<float>{.m = 2 * count, .n = last - first, .k = n - last,
                                              .a = rows.data() + last, .a_row = n,
                                              .b = h + last * n + first, .b_row = n,
                                              .c = product.data() + first, .c_row = n},
                          runtime_.isa);
        }
        for (int64_t r = 0; r < 2 * count; ++r) {
          for (int64_t i = first; i < last; ++i) {
            const float x = rows[r * n + i];
            float* to = &product[r * n + first];
            for (int64_t j = first; j <= i; ++j) to[j - first] -= x * h[i * n + j];
          }
        }
      }
    });
    double sums[2] = {};
    for (int64_t r = 0; r < 2 * count; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const double x = rows[r * n + i];
        sums[r / count] += -2 * x * product[r * n + i] - x * x * h[i * n + i];
      }
    }
    return sums[1] > 0 ? std::sqrt(std::max(0.0, sums[0]) / sums[1]) : 0;
  }

  void Warn(const LayerUnit& unit, const UnitReport& report) {
    if (report.fallback == UnitFallback::kFewTokens) {
      report_.warnings.push_back(
          fmt::format("{}: only {} tokens came to it: rounded to nearest", unit.name, report.tokens));
    } else if (report.fallback == UnitFallback::kRounding) {
      report_.warnings.push_back(fmt::format(
          "{}: its inputs' second moments cannot be factored, with any damping: rounded to nearest", unit.name));
    } else if (report.fallback == UnitFallback::kMoreDamping) {
      report_.warnings.push_back(fmt::format("{}: damping raised to {:g} of the mean", unit.name, report.damping));
    }
    if (report.fallback != UnitFallback::kFewTokens && report.tokens < static_cast<uint64_t>(unit.columns())) {
      report_.warnings.push_back(fmt::format("{}: {} tokens for {} columns; more text would tell more", unit.name,
                                             report.tokens, unit.columns()));
    }
  }

  // In the type of the original, for the layer's next run.
  Tensor Store(const LayerUnit& unit, const std::vector<float>& w) const {
    const DType type = unit.view.type == DType::kF32 || unit.view.type == DType::kF16 ? unit.view.type : DType::kBF16;
    Tensor tensor(type, unit.view.shape);
    const int64_t n = unit.columns();
    runtime_.threads->ParallelFor(static_cast<size_t>(unit.rows()), 1, [&](size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r)
        StoreRows(type, w.data() + r * n, n, tensor.data() + r * hone::BytesFor(type, n));
    });
    return tensor;
  }

  Tensor Restore(size_t i, std::span<const std::byte> piece) {
    std::vector<float> back(static_cast<size_t>(units_[i].rows() * units_[i].columns()));
    codec_.Decode(units_[i], piece, back);
    return Store(units_[i], back);
  }

  LayerWalk& walk_;
  const std::vector<LayerUnit>& units_;
  const CalibrationText& text_;
  UnitCodec& codec_;
  const LayerwiseOptions& options_;
  WorkFile& work_;
  const Runtime& runtime_;
  std::unique_ptr<LayerStream> stream_;
  LayerwiseReport report_;
  size_t resumed_ = 0;
  std::map<size_t, Tensor> replaced_;  // quantised units of the layer, as they read back
  size_t replace_below_ = 0;           // the units that the layer is loaded with as quantised
  std::map<std::string, std::unique_ptr<SecondMoments>> moments_;
  std::map<std::string, GptqFactor> factors_;  // of the input at hand
};

}  // namespace

std::string SharedInput(const std::string& canonical) {
  const std::string layer = canonical.substr(0, canonical.find('.', 4) + 1);
  const std::string part = canonical.substr(layer.size());
  if (part.starts_with("attn_q.") || part.starts_with("attn_k.") || part.starts_with("attn_v.")) return layer + "qkv";
  if (part.starts_with("ffn_gate") || part.starts_with("ffn_up")) {  // of one expert
    return layer + "gate_up" + (part.find("shexp") != std::string::npos ? "_shexp" : "") + part.substr(part.find('.'));
  }
  return canonical;
}

std::vector<LayerUnit> ListLayerUnits(const WeightMap& map, bool split) {
  std::vector<LayerUnit> units;
  std::map<std::string, size_t> by_file;
  for (const Weight& weight : map.weights()) {
    const bool matrix =
        weight.name.starts_with("blk.") && weight.name.ends_with(".weight") && weight.view.shape.rank() == 2;
    if (!matrix || weight.name.find("ffn_gate_inp") != std::string::npos) continue;
    if (!split) {
      const auto [at, fresh] = by_file.emplace(weight.file_name, units.size());
      if (!fresh) {
        LayerUnit& unit = units[at->second];
        unit.parts.push_back(weight.name);
        unit.view.shape = Shape{unit.rows() + weight.view.shape[0], unit.columns()};
        continue;
      }
    }
    LayerUnit unit{split ? weight.name : weight.file_name, {weight.name}, SharedInput(weight.name)};
    unit.layer = std::stoi(weight.name.substr(4));
    const std::string part = weight.name.substr(weight.name.find('.', 4) + 1);  // "ffn_up.3.weight"
    unit.expert = std::count(part.begin(), part.end(), '.') > 1;
    unit.view = weight.view;
    unit.quantized = weight.quantized;
    unit.first_row = weight.first_row;
    units.push_back(std::move(unit));
  }
  // Those of an input together, inputs in the order of their first.
  std::map<std::string, size_t> first;
  for (size_t i = 0; i < units.size(); ++i) first.emplace(units[i].input, i);
  std::stable_sort(units.begin(), units.end(), [&](const LayerUnit& a, const LayerUnit& b) {
    return std::pair(a.layer, first.at(a.input)) < std::pair(b.layer, first.at(b.input));
  });
  return units;
}

Result<std::vector<float>> ReadUnit(const Checkpoint& checkpoint, const LayerUnit& unit, ThreadPool& threads) {
  if (unit.quantized == nullptr) return ReadFiniteMatrix(checkpoint, unit.view, unit.name, threads);
  return ReadFiniteMatrix(checkpoint, *unit.quantized, unit.first_row, unit.rows(), threads);
}

uint64_t LayerwiseMemory(const ModelConfig& config, const std::vector<LayerUnit>& units, const CalibrationText& text,
                         const LayerwiseOptions& options) {
  const uint64_t row = static_cast<uint64_t>(config.width) * 4;
  const uint64_t stream = row * (options.stream_file.empty() ? text.tokens.size() : 2 * static_cast<uint64_t>(text.chunk_tokens));
  uint64_t layer = 0, all = 0, one = 0, largest = 0, factor = 0;
  int at = -1;
  std::set<std::string> seen;
  uint64_t layer_bytes = 0, moments = 0;
  for (const LayerUnit& unit : units) {
    if (unit.layer != at) layer_bytes = moments = 0, at = unit.layer, seen.clear();
    layer_bytes += 2 * unit.view.bytes();  // packed, and its replacement
    const uint64_t n = static_cast<uint64_t>(unit.columns()), sums = SecondMoments::BytesFor(unit.columns());
    if (seen.insert(unit.input).second) moments += sums;
    layer = std::max(layer, layer_bytes);
    all = std::max(all, moments);
    one = std::max(one, sums);
    largest = std::max<uint64_t>(largest, static_cast<uint64_t>(unit.rows() * unit.columns()) * 16);
    factor = std::max(factor, n * n * 12);
  }
  if (options.moments_bytes > 0) all = std::min(all, std::max(options.moments_bytes, one));
  return (uint64_t{96} << 20) + stream + layer + all + factor + largest;
}

uint64_t FitLayerwise(const ModelConfig& config, const std::vector<LayerUnit>& units, const CalibrationText& text,
                      uint64_t bytes, const std::string& file, LayerwiseOptions* options) {
  uint64_t peak = LayerwiseMemory(config, units, text, *options);
  if (peak <= bytes) return peak;
  options->stream_file = file;
  peak = LayerwiseMemory(config, units, text, *options);
  if (peak <= bytes) return peak;
  options->moments_bytes = 1;  // one input at a time
  const uint64_t least = LayerwiseMemory(config, units, text, *options);
  if (least >= bytes) return least;
  options->moments_bytes = bytes - least;  // what is left goes to more of them
  return LayerwiseMemory(config, units, text, *options);
}

Result<LayerwiseReport> QuantizeLayers(LayerWalk& walk, const std::vector<LayerUnit>& units,
                                       const CalibrationText& text, UnitCodec& codec, const LayerwiseOptions& options,
                                       WorkFile& work, const Runtime& runtime) {
  return LayerJob(walk, units, text, codec, options, work, runtime).Run();
}

}  // namespace hone
