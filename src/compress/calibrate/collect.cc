// See collect.h. Sums are kept in double: millions of tokens of F32 squares would stop adding up.
#include "compress/calibrate/collect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "cache/block_pool.h"
#include "cache/kv_cache.h"
#include "compress/layerwise/layer_stream.h"
#include "compress/read_matrix.h"
#include "engine/cache_layers.h"
#include "models/family.h"
#include "models/weight_map.h"

namespace hone {
namespace {

// Where a matrix's sums go: one entry of the file, for stacked experts one of its rows.
struct Place {
  std::string entry;
  int64_t matrix = 0;
};

// The GGUF names of a model's matrices by canonical name. Parts of a fused tensor have the same input: only the first
// gives its sums.
std::map<std::string, Place> Places(const WeightMap& map) {
  std::map<std::string, Place> places;
  std::map<std::string, int64_t> seen;
  for (const Weight& weight : map.weights()) {
    if (weight.view.shape.rank() < 2 || !weight.gguf_name.starts_with("blk.")) continue;
    const int64_t before = seen[weight.gguf_name]++;
    if (before == 0 || weight.stacked) places[weight.name] = {weight.gguf_name, before};
  }
  return places;
}

struct Sums {
  int64_t columns = 0;
  std::vector<double> squares;   // [matrices][columns]
  std::vector<uint64_t> counts;  // [matrices]
};

class Collector {
 public:
  explicit Collector(const WeightMap& map) : places_(Places(map)) {
    for (const auto& [name, place] : places_) {
      Sums& sums = sums_[place.entry];
      sums.columns = map.Find(name)->view.shape.back();
      sums.counts.resize(std::max<size_t>(sums.counts.size(), place.matrix + 1));
    }
    for (auto& [name, sums] : sums_) sums.squares.resize(sums.counts.size() * sums.columns);
  }

  void Add(const std::string& weight, const float* x, int64_t x_stride, int64_t rows, int64_t columns) {
    const auto place = places_.find(weight);
    if (place == places_.end()) return;
    Sums& sums = sums_.at(place->second.entry);
    HONE_CHECK(sums.columns == columns);
    double* squares = sums.squares.data() + place->second.matrix * columns;
    sums.counts[place->second.matrix] += static_cast<uint64_t>(rows);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < columns; ++i) {
        const double value = x[r * x_stride + i];
        squares[i] += value * value;
      }
    }
  }

  // The first input that is not finite, as "entry, column", or "".
  std::string FindBad() const {
    for (const auto& [name, sums] : sums_) {
      for (size_t i = 0; i < sums.squares.size(); ++i) {
        if (!std::isfinite(sums.squares[i])) return fmt::format("{}, column {}", name, i % sums.columns);
      }
    }
    return "";
  }

  Imatrix Finish(CalibrationReport* report) const {
    Imatrix imatrix;
    for (const auto& [name, sums] : sums_) {
      ImatrixEntry entry{sums.columns, {}, {}};
      for (const double square : sums.squares) entry.sums.push_back(static_cast<float>(square));
      for (const uint64_t count : sums.counts) entry.counts.push_back(static_cast<float>(count));
      Warn(name, sums, report);
      imatrix.entries.emplace(name, std::move(entry));
    }
    return imatrix;
  }

 private:
  static void Warn(const std::string& name, const Sums& sums, CalibrationReport* report) {
    const uint64_t few = static_cast<uint64_t>(sums.columns);
    std::string experts;
    for (size_t m = 0; m < sums.counts.size(); ++m) {
      if (sums.counts[m] < few && sums.counts.size() > 1)
        experts += fmt::format("{}{} ({})", experts.empty() ? "" : ", ", m, sums.counts[m]);
    }
    if (!experts.empty()) {
      report->warnings.push_back(
          fmt::format("{}: experts that saw fewer tokens than the {} columns: {}", name, few, experts));
    } else if (sums.counts.size() == 1 && sums.counts[0] < few) {
      report->warnings.push_back(
          fmt::format("{}: {} tokens for {} columns; more text would tell more", name, sums.counts[0], few));
    }
  }

  std::map<std::string, Place> places_;
  std::map<std::string, Sums> sums_;
};

}  // namespace

struct ChunkRunner::State {
  State(Model& m, const KvCacheShape& shape) : model(m), cache(shape), layers(cache), table(shape.blocks) {
    std::iota(table.begin(), table.end(), 0);
  }
  Model& model;
  KvCache cache;
  CacheLayers layers;
  std::vector<int32_t> table;
};

ChunkRunner::ChunkRunner(Model& model, int chunk_tokens) {
  const ModelConfig& config = model.config();
  const int blocks = BlockPool::BlocksFor(chunk_tokens);
  state_ = std::make_unique<State>(
      model, KvCacheShape{KvType::kF32, config.layers, config.kv_heads, config.head_width, blocks});
}
ChunkRunner::~ChunkRunner() = default;

void ChunkRunner::Run(std::span<const int32_t> tokens) {
  const int rows = static_cast<int>(tokens.size());
  const SequenceRows sequence{
      .first_row = 0, .rows = rows, .first_position = 0, .final_length = rows, .blocks = state_->table.data()};
  float unused = 0;
  state_->model.Forward({.tokens = tokens, .sequences = {&sequence, 1}, .logit_rows = {}}, state_->layers, &unused);
}

Result<Imatrix> CollectImatrix(Model& model, const Checkpoint& checkpoint, const CalibrationText& text,
                               const std::function<bool(uint64_t, uint64_t)>& progress, CalibrationReport* report) {
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  HONE_TRY(const WeightMap map, WeightMap::Make(checkpoint, *family, model.config()));
  const uint64_t size = static_cast<uint64_t>(text.chunk_tokens), total = text.tokens.size();
  const uint64_t chunks = total == 0 ? 0 : std::max<uint64_t>(1, total / size);
  if (chunks == 0) return InvalidInput("the calibration text holds no tokens");
  Collector collector(map);
  ChunkRunner runner(model, text.chunk_tokens);
  model.ObserveInputs([&](const std::string& weight, const float* x, int64_t x_stride, int64_t rows, int64_t columns) {
    collector.Add(weight, x, x_stride, rows, columns);
  });
  Result<void> state;
  for (uint64_t c = 0; c < chunks && state; ++c) {
    std::vector<int32_t> chunk(text.tokens.begin() + c * size, text.tokens.begin() + std::min(total, (c + 1) * size));
    if (c > 0 && text.bos >= 0) chunk[0] = text.bos;
    runner.Run(chunk);
    report->tokens += chunk.size();
    if (const std::string bad = collector.FindBad(); !bad.empty()) {
      state = BlameWeight(
          checkpoint, map,
          InvalidInput(fmt::format("{}: the input of {} is NaN or infinite after {} tokens; the model is damaged or overflows",
                                   checkpoint.path(), bad, report->tokens)));
    } else if (progress && !progress(report->tokens, chunks * size)) {
      state = Error{ErrorCode::kCancelled, "stopped; nothing was written"};
    }
  }
  model.ObserveInputs(nullptr);
  if (!state) return state.error();
  report->chunks = chunks;
  report->dropped_tokens = total - report->tokens;
  Imatrix imatrix = collector.Finish(report);
  imatrix.chunks = static_cast<uint32_t>(chunks);
  imatrix.chunk_tokens = static_cast<uint32_t>(std::min(size, total));
  return imatrix;
}

StreamOptions StreamsWithin(const LayerWalk& walk, const CalibrationText& text, uint64_t memory_bytes,
                            const std::string& path) {
  const uint64_t bytes = text.tokens.size() * static_cast<uint64_t>(walk.config().width) * sizeof(float);
  StreamOptions options;
  if (bytes > memory_bytes / 4) options.file = path;
  return options;
}

uint64_t WalkMemory(const LayerWalk& walk, const CalibrationText& text, const StreamOptions& stream) {
  std::map<std::string, uint64_t> layers;
  uint64_t largest = 0;
  for (const Weight& weight : walk.map().weights()) {
    if (!weight.name.starts_with("blk.")) continue;
    uint64_t& bytes = layers[weight.name.substr(0, weight.name.find('.', 4))];
    bytes += weight.view.bytes();
    largest = std::max(largest, bytes);
  }
  const uint64_t row = static_cast<uint64_t>(walk.config().width) * sizeof(float);
  const uint64_t rows = stream.file.empty() ? text.tokens.size() : 2 * static_cast<uint64_t>(text.chunk_tokens);
  // The layer as packed and its pages in the file; inputs of the widest matrices and the program.
  return (uint64_t{96} << 20) + 2 * largest + rows * row + 32 * static_cast<uint64_t>(text.chunk_tokens) * row;
}

Result<Imatrix> CollectImatrix(LayerWalk& walk, const CalibrationText& text, const StreamOptions& options,
                               const std::function<bool(uint64_t, uint64_t)>& progress, CalibrationReport* report) {
  HONE_TRY(const auto stream, LayerStream::Make(walk, text, options));
  Collector collector(walk.map());
  const InputObserver observer = [&](const std::string& weight, const float* x, int64_t x_stride, int64_t rows,
                                     int64_t columns) { collector.Add(weight, x, x_stride, rows, columns); };
  const int layers = walk.config().layers;
  for (int layer = 0; layer < layers; ++layer) {
    HONE_RETURN_IF_ERROR(walk.Load(layer, nullptr));
    for (size_t c = 0; c < stream->chunks(); ++c) {
      if (progress && !progress(layer * stream->chunks() + c, layers * stream->chunks()))
        return Error{ErrorCode::kCancelled, "stopped; nothing was written"};
      stream->Advance(c, observer);
    }
    HONE_RETURN_IF_ERROR(stream->status());
    if (const std::string bad = collector.FindBad(); !bad.empty()) {
      return BlameWeight(walk.checkpoint(), walk.map(),
                         InvalidInput(fmt::format("{}: the input of {} is NaN or infinite; the model is damaged or overflows",
                                                  walk.checkpoint().path(), bad)));
    }
  }
  report->tokens = stream->tokens();
  report->chunks = stream->chunks();
  report->dropped_tokens = stream->dropped_tokens();
  Imatrix imatrix = collector.Finish(report);
  imatrix.chunks = static_cast<uint32_t>(report->chunks);
  imatrix.chunk_tokens = static_cast<uint32_t>(stream->rows(0));
  return imatrix;
}

}  // namespace hone
