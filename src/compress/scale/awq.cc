// See awq.h. Losses come from running the layer itself with rounded matrices in place (LayerWalk) and looking at what
// goes into attention's output and down, so every family's attention and activation is the one that models/ has.
#include "compress/scale/awq.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>
#include <system_error>

#include "base/memory.h"
#include "compress/layerwise/layer_stream.h"
#include "compress/numbers/slices.h"
#include "compress/numbers/uniform.h"
#include "compress/read_matrix.h"
#include "compress/scale/awq_pieces.h"
#include "compress/work_file.h"
#include "kernels/dense/subtract.h"

namespace hone {
namespace {

constexpr int kScaleSteps = 20, kClipSteps = 10;
constexpr int64_t kClipTokens = 512, kExpertClipTokens = 64, kFewTokens = 16;
constexpr int64_t kRowTile = 64;

// Rows of an input, spread over the text: every n-th, n doubled whenever twice as many as wanted are there.
struct SampledRows {
  std::vector<float> x;
  int64_t wanted = kClipTokens, every = 1, seen = 0;
  void Add(const float* rows, int64_t stride, int64_t count, int64_t columns) {
    for (int64_t r = 0; r < count; ++r, ++seen) {
      if (seen % every != 0) continue;
      if (static_cast<int64_t>(x.size()) == 2 * wanted * columns) {
        for (int64_t i = 1; i < wanted; ++i)
          std::copy_n(x.begin() + 2 * i * columns, columns, x.begin() + i * columns);
        x.resize(wanted * columns);
        every *= 2;
        if (seen % every != 0) continue;
      }
      x.insert(x.end(), rows + r * stride, rows + r * stride + columns);
    }
  }
};

// Q(w s) / s, rows side by side.
void RoundScaled(const GridSpec& spec, const std::vector<float>& w, const std::vector<float>& scale, int64_t group,
                 float* out, const Runtime& runtime) {
  const Slices& slices = SlicesFor(runtime.isa);
  const int64_t columns = static_cast<int64_t>(scale.size()), rows = static_cast<int64_t>(w.size()) / columns;
  runtime.threads->ParallelFor(static_cast<size_t>(rows), 4, [&](size_t begin, size_t end) {
    std::vector<float> scaled(columns);
    std::vector<uint8_t> codes(group);
    for (size_t r = begin; r < end; ++r) {
      const float* row = w.data() + static_cast<int64_t>(r) * columns;
      float* to = out + static_cast<int64_t>(r) * columns;
      for (int64_t i = 0; i < columns; ++i) scaled[i] = row[i] * scale[i];
      for (int64_t g = 0; g < columns; g += group) {
        float least, most;
        slices.range(&scaled[g], group, &least, &most);
        const Grid grid = GridOfRange(spec, least, most);
        slices.round(&scaled[g], group, grid.scale, grid.zero, HighestCode(spec), codes.data());
        slices.dequantize(codes.data(), group, grid.scale, grid.zero, to + g);
      }
      for (int64_t i = 0; i < columns; ++i) to[i] /= scale[i];
    }
  });
}

// sum over rows of a and of b of (a . b)^2.
double SquaredProducts(const std::vector<float>& a, const std::vector<float>& b, int64_t columns,
                       const Runtime& runtime) {
  const int64_t m = static_cast<int64_t>(a.size()) / columns, rows = static_cast<int64_t>(b.size()) / columns;
  std::vector<double> sums(static_cast<size_t>((rows + kRowTile - 1) / kRowTile));
  runtime.threads->ParallelFor(sums.size(), 1, [&](size_t begin, size_t end) {
    std::vector<float> outputs;
    for (size_t tile = begin; tile < end; ++tile) {
      const int64_t first = static_cast<int64_t>(tile) * kRowTile, count = std::min(kRowTile, rows - first);
      outputs.assign(static_cast<size_t>(m * count), 0.0f);
      SubtractProduct(SubtractArgs<float>{.m = m, .n = count, .k = columns,
                                          .a = a.data(), .a_row = columns,
                                          .b = b.data() + first * columns, .b_row = 1, .b_column = columns,
                                          .c = outputs.data(), .c_row = count},
                      runtime.isa);
      for (const float y : outputs) sums[tile] += double{y} * double{y};
    }
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

class Search {
 public:
  Search(LayerWalk& walk, const AwqOptions& options, const Runtime& runtime)
      : walk_(walk),
        options_(options),
        runtime_(runtime),
        spec_(AwqGrid(options.bits, options.symmetric)),
        units_(ListLayerUnits(walk.map(), true)),
        speakers_(InputSpeakers(walk.map())) {}

  Result<AwqChoice> Run(const CalibrationText& text) {
    HONE_TRY(stream_, LayerStream::Make(walk_, text, StreamOptions{.kv = KvType::kF32}));  // errors are small
    const size_t chunks = stream_->chunks();
    const uint64_t few = std::max<uint64_t>(1, options_.loss_tokens / std::max<uint64_t>(1, stream_->tokens() / chunks));
    const size_t every = std::max<size_t>(1, chunks / static_cast<size_t>(few));
    for (size_t c = 0; c < chunks; c += every) loss_chunks_.push_back(c);
    HONE_RETURN_IF_ERROR(OpenWork(text));
    for (layer_ = kept_; layer_ < walk_.config().layers; ++layer_) {
      const Result<void> done = SearchLayer();
      if (!done && done.error().code == ErrorCode::kInvalidInput && work_) work_->Remove();  // no resuming helps
      HONE_RETURN_IF_ERROR(done);
      if (work_ == nullptr) continue;
      const std::string piece = EncodeAwqChoice(choice_, fmt::format("blk.{}.", layer_));
      HONE_RETURN_IF_ERROR(work_->Append(std::as_bytes(std::span(piece))));
      HONE_RETURN_IF_ERROR(work_->EndPiece());
    }
    return std::move(choice_);
  }

 private:
  // Takes over what an earlier search has kept. Streams go through those layers again, unless no layer is left.
  Result<void> OpenWork(const CalibrationText& text) {
    const std::string& path = options_.work_path;
    if (path.empty()) return {};
    uint64_t job = Fingerprint(fmt::format("awq {} {} {} {} {} {} {} {}", DescribeWeights(walk_.checkpoint().path()), options_.bits, options_.group,
                                           options_.symmetric, options_.duo, options_.loss_tokens, text.chunk_tokens, IsaName(runtime_.isa)));
    job = Fingerprint({reinterpret_cast<const char*>(text.tokens.data()), text.tokens.size() * sizeof(text.tokens[0])}, job);
    HONE_TRY(work_, WorkFile::Open(path, job, options_.resume));
    kept_ = static_cast<int>(work_->pieces().size());
    if (kept_ == 0) return {};
    if (kept_ > walk_.config().layers) return InvalidInput(path + ": more layers than the model has; start again without --resume");
    HONE_TRY(const auto file, MappedFile::Open(path));
    size_t at = 0;
    for (const uint64_t length : work_->pieces()) {
      const auto piece = file->bytes().subspan(at, length);
      HONE_RETURN_IF_ERROR(DecodeAwqChoice({reinterpret_cast<const char*>(piece.data()), piece.size()}, &choice_).Context(path));
      at += length;
    }
    if (kept_ == walk_.config().layers) return {};
    for (layer_ = 0; layer_ < kept_; ++layer_) {
      HONE_RETURN_IF_ERROR(walk_.Load(layer_, nullptr));
      for (size_t c = 0; c < stream_->chunks(); ++c) {
        HONE_RETURN_IF_ERROR(Tell(static_cast<double>(c) / static_cast<double>(stream_->chunks()), "searched before"));
        stream_->Advance(c);
      }
    }
    return {};
  }

  Result<void> Tell(double share, const std::string& what) const {
    const int layers = walk_.config().layers;
    const std::string where = fmt::format("layer {} of {}: {}", layer_ + 1, layers, what);
    if (!options_.progress || options_.progress((layer_ + share) / layers, where)) return {};
    return Error{ErrorCode::kCancelled, work_ != nullptr ? "stopped; --resume goes on from here" : "stopped; nothing was written"};
  }

  Result<void> SearchLayer() {
    originals_.clear();
    stats_.clear();
    samples_.clear();
    HONE_RETURN_IF_ERROR(LookAtInputs());
    for (const LayerUnit& unit : units_) {
      if (unit.layer != layer_ || unit.expert) continue;
      HONE_TRY(auto w, ReadUnit(walk_.checkpoint(), unit, *runtime_.threads));
      originals_[unit.name] = std::move(w);
    }
    HONE_RETURN_IF_ERROR(Tell(0.15, "searching scales"));
    trial_ = {};
    HONE_RETURN_IF_ERROR(LoadTrial());
    HONE_TRY(const Seen before, RunTrial());
    for (const auto& [input, stats] : stats_) {
      const std::string taker = Taker(walk_.map(), input);
      if (!taker.empty()) HONE_RETURN_IF_ERROR(SearchScale(input, taker, stats, before));
    }
    trial_ = {};
    return SearchClips();
  }

  // Statistics and samples of what the layer reads as it is in the file; the streams move on.
  Result<void> LookAtInputs() {
    HONE_RETURN_IF_ERROR(walk_.Load(layer_, nullptr));
    std::map<std::string, bool> expert;
    for (const LayerUnit& unit : units_) {
      if (unit.layer == layer_) expert[unit.input] = unit.expert;
    }
    const InputObserver observer = [&](const std::string& weight, const float* x, int64_t stride, int64_t rows,
                                       int64_t columns) {
      const auto found = speakers_.find(weight);
      if (found == speakers_.end()) return;
      InputStats& stats = stats_[found->second];
      stats.columns = columns;
      stats.Add(x, stride, rows);
      SampledRows& sampled = samples_[found->second];
      if (sampled.seen == 0) sampled.wanted = expert.at(found->second) ? kExpertClipTokens : kClipTokens;
      sampled.Add(x, stride, rows, columns);
    };
    // Chunks that losses are of are run again, from where they are now.
    before_.clear();
    for (size_t c = 0; c < stream_->chunks(); ++c) {
      HONE_RETURN_IF_ERROR(
          Tell(0.15 * static_cast<double>(c) / static_cast<double>(stream_->chunks()), "reading inputs"));
      if (std::find(loss_chunks_.begin(), loss_chunks_.end(), c) != loss_chunks_.end()) before_.push_back(stream_->Copy(c));
      stream_->Advance(c, observer);
    }
    if (const Result<void> finite = CheckFinite(stats_); !finite) return BlameWeight(walk_.checkpoint(), walk_.map(), finite.error());
    return {};
  }

  // What goes into attention's output and down, of the chunks that losses are of.
  struct Seen {
    std::vector<float> attention, ffn;
  };
  std::string Name(const char* part) const { return fmt::format("blk.{}.{}.weight", layer_, part); }

  // The layer in F32, but for what is tried.
  Result<void> LoadTrial() {
    return walk_.Load(layer_, [this](const Weight& weight) -> TensorView {
      const auto tried = trial_.find(weight.name);
      const auto original = originals_.find(weight.name);
      if (original == originals_.end()) return {};
      const std::vector<float>& w = tried != trial_.end() ? tried->second : original->second;
      TensorView view = weight.view;
      view.type = DType::kF32;
      view.data = reinterpret_cast<const std::byte*>(w.data());
      return view;
    });
  }

  Result<Seen> RunTrial() {
    Seen seen;
    const std::string output = Name("attn_output"), down = Name("ffn_down");
    const InputObserver observer = [&](const std::string& weight, const float* x, int64_t stride, int64_t rows,
                                       int64_t columns) {
      std::vector<float>* to = weight == output ? &seen.attention : weight == down ? &seen.ffn : nullptr;
      for (int64_t r = 0; to != nullptr && r < rows; ++r) to->insert(to->end(), x + r * stride, x + r * stride + columns);
    };
    for (size_t i = 0; i < loss_chunks_.size(); ++i) stream_->Look(loss_chunks_[i], observer, &before_[i]);
    return seen;
  }

  // The error of what reads the input's matrices, rounded under this scale.
  Result<double> Loss(const std::vector<const LayerUnit*>& members, const std::vector<float>& scale, const Seen& before) {
    const std::string& input = members.front()->input;
    const int64_t columns = members.front()->columns(), group = Group(columns);
    trial_.clear();
    for (const LayerUnit* unit : members) {
      const std::vector<float>& w = originals_.at(unit->name);
      std::vector<float>& rounded = trial_[unit->name];
      rounded.resize(w.size());
      RoundScaled(spec_, w, scale, group, rounded.data(), runtime_);
    }
    const bool attention = input.ends_with(".qkv"), ffn = input.find(".gate_up") != std::string::npos;
    if (attention || ffn) {
      HONE_RETURN_IF_ERROR(LoadTrial());
      HONE_TRY(Seen after, RunTrial());
      std::vector<float>& now = attention ? after.attention : after.ffn;
      const std::vector<float>& was = attention ? before.attention : before.ffn;
      for (size_t i = 0; i < now.size(); ++i) now[i] -= was[i];
      return Mean(now, originals_.at(Name(attention ? "attn_output" : "ffn_down")));
    }
    const std::vector<float>& w = originals_.at(members.front()->name);
    std::vector<float>& error = trial_.at(members.front()->name);
    for (size_t i = 0; i < error.size(); ++i) error[i] -= w[i];
    return Mean(input == Name("attn_output") ? before.attention : before.ffn, error);
  }
  double Mean(const std::vector<float>& x, const std::vector<float>& w) const {
    const int64_t columns = ColumnsOf(x);
    const double outputs = static_cast<double>(x.size()) / static_cast<double>(columns) *
                           (static_cast<double>(w.size()) / static_cast<double>(columns));
    return SquaredProducts(x, w, columns, runtime_) / std::max(1.0, outputs);
  }
  int64_t ColumnsOf(const std::vector<float>& x) const {
    int64_t rows = 0;
    for (const size_t c : loss_chunks_) rows += stream_->rows(c);
    return static_cast<int64_t>(x.size()) / rows;
  }

  int64_t Group(int64_t columns) const { return options_.group > 0 ? options_.group : columns; }

  Result<void> SearchScale(const std::string& input, const std::string& taker, const InputStats& stats,
                           const Seen& before) {
    std::vector<const LayerUnit*> members;
    for (const LayerUnit& unit : units_) {
      if (unit.input == input) members.push_back(&unit);
    }
    const std::vector<double> share = MeanShare(members);
    std::vector<float> best(stats.columns, 1.0f);
    HONE_TRY(const double plain, Loss(members, best, before));
    double least = plain;
    std::vector<double>& losses = choice_.losses[input];
    for (int k = 0; k < kScaleSteps; ++k) {
      HONE_RETURN_IF_ERROR(Tell(0.15 + 0.65 * (static_cast<double>(searched_ % 4) + k / 20.0) / 4, "searching scales"));
      const std::vector<float> scale = Scale(stats, share, k / static_cast<double>(kScaleSteps));
      HONE_TRY(const double loss, Loss(members, scale, before));
      losses.push_back(loss);
      if (loss < least) least = loss, best = scale;
    }
    losses.push_back(plain);
    ++searched_;
    choice_.scales[input] = {best, taker, plain > 0 ? least / plain : 1};
    return {};
  }

  // Of |w| in the largest of its group, a column.
  std::vector<double> MeanShare(const std::vector<const LayerUnit*>& members) const {
    const int64_t columns = members.front()->columns(), group = Group(columns);
    std::vector<double> share(columns);
    int64_t rows = 0;
    for (const LayerUnit* unit : members) {
      const std::vector<float>& w = originals_.at(unit->name);
      rows += unit->rows();
      for (int64_t g = 0; g < static_cast<int64_t>(w.size()); g += group) {
        float largest = 0;
        for (int64_t i = g; i < g + group; ++i) largest = std::max(largest, std::fabs(w[i]));
        for (int64_t i = g; i < g + group; ++i) share[i % columns] += std::fabs(w[i]) / (largest + 1e-6f);
      }
    }
    for (double& s : share) s /= static_cast<double>(rows);
    return share;
  }

  std::vector<float> Scale(const InputStats& stats, const std::vector<double>& share, double ratio) const {
    std::vector<float> scale(stats.columns);
    for (int64_t i = 0; i < stats.columns; ++i) {
      const double x = std::pow(stats.sum[i] / static_cast<double>(std::max<uint64_t>(1, stats.tokens)), ratio);
      const double s = options_.duo ? x / (std::pow(share[i], 1 - ratio) + 1e-4) : x;
      scale[i] = static_cast<float>(std::max(s, 1e-4));
    }
    const auto [low, high] = std::minmax_element(scale.begin(), scale.end());
    const float middle = std::sqrt(*low * *high);
    for (float& s : scale) {
      s /= middle;
      if (!std::isfinite(s) || s <= 0) s = 1;
    }
    return scale;
  }

  // Of the weights with all scales in them, inputs divided by theirs.
  Result<void> SearchClips() {
    for (const LayerUnit& unit : units_) {
      if (unit.layer != layer_ || unit.name == Name("attn_q") || unit.name == Name("attn_k")) continue;
      const auto found = samples_.find(unit.input);
      if (found == samples_.end()) continue;
      const int64_t columns = unit.columns();
      std::vector<float> x = found->second.x, w;
      if (unit.expert && static_cast<int64_t>(x.size()) < kFewTokens * columns) continue;
      HONE_RETURN_IF_ERROR(Tell(0.85, "searching ranges of " + unit.name));
      if (const auto original = originals_.find(unit.name); original != originals_.end()) {
        w = original->second;
      } else {
        HONE_TRY(w, ReadUnit(walk_.checkpoint(), unit, *runtime_.threads));
      }
      if (const auto scale = choice_.scales.find(unit.input); scale != choice_.scales.end()) {
        for (size_t i = 0; i < w.size(); ++i) w[i] *= scale->second.scale[i % columns];
        for (size_t i = 0; i < x.size(); ++i) x[i] /= scale->second.scale[i % columns];
      }
      for (const auto& [input, scale] : choice_.scales) {
        if (scale.taker != unit.name) continue;
        for (size_t i = 0; i < w.size(); ++i) w[i] /= scale.scale[i / columns];
      }
      choice_.clips[unit.name] = ChooseClips(spec_, w, x, columns, Group(columns), runtime_);
    }
    return {};
  }

  LayerWalk& walk_;
  const AwqOptions& options_;
  const Runtime& runtime_;
  const GridSpec spec_;
  const std::vector<LayerUnit> units_;
  const std::map<std::string, std::string> speakers_;
  std::unique_ptr<LayerStream> stream_;
  std::vector<size_t> loss_chunks_;
  std::vector<std::vector<float>> before_;  // the streams of those chunks before the layer
  int layer_ = 0;
  int searched_ = 0;
  int kept_ = 0;  // layers of an earlier search
  std::unique_ptr<WorkFile> work_;
  std::map<std::string, std::vector<float>> originals_, trial_;  // of the layer's matrices but experts, by canonical name
  std::map<std::string, InputStats> stats_;
  std::map<std::string, SampledRows> samples_;
  AwqChoice choice_;
};

}  // namespace

std::vector<float> ChooseClips(const GridSpec& spec, const std::vector<float>& w, const std::vector<float>& x,
                               int64_t columns, int64_t group, const Runtime& runtime) {
  const int64_t groups = columns / group, rows = static_cast<int64_t>(w.size()) / columns, tokens = static_cast<int64_t>(x.size()) / columns;
  std::vector<float> clips(static_cast<size_t>(rows * groups));
  runtime.threads->ParallelFor(static_cast<size_t>(groups), 1, [&](size_t begin, size_t end) {
    std::vector<float> cut(group);
    std::vector<double> moments, inputs(static_cast<size_t>(tokens * group)),
        error(static_cast<size_t>(kRowTile * group)), product(error.size());
    for (size_t g = begin; g < end; ++g) {
      const int64_t first = static_cast<int64_t>(g) * group;
      // -X^T X of the group's columns: the error of the output is then a form in the error of the weights.
      // In double, since steps differ by little.
      for (int64_t t = 0; t < tokens; ++t)
        std::copy_n(x.begin() + t * columns + first, group, inputs.begin() + t * group);
      moments.assign(static_cast<size_t>(group * group), 0.0);
      SubtractProduct(SubtractArgs<double>{.m = group, .n = group, .k = tokens,
                                           .a = inputs.data(), .a_row = 1, .a_column = group,
                                           .b = inputs.data(), .b_row = group,
                                           .c = moments.data(), .c_row = group},
                      runtime.isa);
      for (int64_t row = 0; row < rows; row += kRowTile) {
        const int64_t count = std::min(kRowTile, rows - row);
        float largest[kRowTile];
        double least[kRowTile];
        for (int step = 0; step < kClipSteps; ++step) {
          for (int64_t r = 0; r < count; ++r) {
            const float* from = &w[(row + r) * columns + first];
            if (step == 0) {
              largest[r] = 0;
              for (int64_t i = 0; i < group; ++i) largest[r] = std::max(largest[r], std::fabs(from[i]));
            }
            const float most = largest[r] * static_cast<float>(1 - step / static_cast<double>(kScaleSteps));
            for (int64_t i = 0; i < group; ++i) cut[i] = std::clamp(from[i], -most, most);
            const Grid grid = FindGrid(spec, cut.data(), group);
            for (int64_t i = 0; i < group; ++i)
              error[r * group + i] = double{grid.Dequantize(EncodeUniform(spec, grid, cut[i]))} - from[i];
          }
          std::fill_n(product.begin(), count * group, 0.0);
          SubtractProduct(SubtractArgs<double>{.m = count, .n = group, .k = group,
                                               .a = error.data(), .a_row = group,
                                               .b = moments.data(), .b_row = group,
                                               .c = product.data(), .c_row = group},
                          runtime.isa);
          for (int64_t r = 0; r < count; ++r) {
            double sum = 0;
            for (int64_t i = r * group; i < (r + 1) * group; ++i) sum += product[i] * error[i];
            if (step > 0 && !(sum < least[r])) continue;
            least[r] = sum;
            clips[(row + r) * groups + static_cast<int64_t>(g)] =
                largest[r] * static_cast<float>(1 - step / static_cast<double>(kScaleSteps));
          }
        }
      }
    }
  });
  return clips;
}

GridSpec AwqGrid(int bits, bool symmetric) {
  return {.rule = symmetric ? GridRule::kGptq : GridRule::kAwq, .bits = bits, .symmetric = symmetric, .holds_zero = true};
}

Result<AwqChoice> ChooseAwq(LayerWalk& walk, const CalibrationText& text, const AwqOptions& options,
                            const Runtime& runtime) {
  return Search(walk, options, runtime).Run(text);
}

void RemoveKeptAwq(const std::string& work_path) {
  std::error_code ignored;
  std::filesystem::remove(work_path, ignored);
  std::filesystem::remove(work_path + ".log", ignored);
}

uint64_t AwqMemory(const ModelConfig& config, const WeightMap& map, const CalibrationText& text,
                   const AwqOptions& options) {
  const uint64_t stream = text.tokens.size() * static_cast<uint64_t>(config.width) * 4;
  uint64_t layer = 0, largest = 0, inputs = 0, clips = 0;
  int at = -1;
  std::map<std::string, uint64_t> widths;
  for (const LayerUnit& unit : ListLayerUnits(map, true)) {
    if (unit.layer != at) layer = 0, at = unit.layer, widths.clear();
    const uint64_t weights = static_cast<uint64_t>(unit.rows() * unit.columns());
    const uint64_t group = static_cast<uint64_t>(options.group > 0 ? options.group : unit.columns());
    layer += unit.expert ? unit.view.bytes() : weights * 12;  // as F32: itself, what is tried, what runs
    clips += weights / group * 4;
    // Sampled rows, and those of the chunks that losses are of.
    widths[unit.input] = static_cast<uint64_t>(unit.columns()) * 4 *
                         (unit.expert ? 2 * kExpertClipTokens : 2 * kClipTokens + 2 * options.loss_tokens);
    uint64_t sum = 0;
    for (const auto& [input, bytes] : widths) sum += bytes;
    inputs = std::max(inputs, sum);
    largest = std::max(largest, layer);
  }
  return (uint64_t{64} << 20) + stream + largest + inputs + clips;
}

void ClipWeights(const std::vector<float>& clip, int64_t rows, int64_t columns, int64_t group, float* w) {
  const int64_t step = group > 0 ? group : columns;
  for (int64_t g = 0; g < rows * columns / step; ++g) {
    for (int64_t i = g * step; i < (g + 1) * step; ++i) w[i] = std::clamp(w[i], -clip[g], clip[g]);
  }
}

}  // namespace hone
