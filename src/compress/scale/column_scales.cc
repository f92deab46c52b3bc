// See column_scales.h.
#include "compress/scale/column_scales.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compress/numbers/uniform.h"
#include "kernels/dense/subtract.h"
#include "kernels/dequantize/dequantize.h"

namespace hone {
namespace {

constexpr int kGridSteps = 20;

std::vector<float> ReadMatrix(const LayerUnit& unit, ThreadPool& threads) {
  std::vector<float> w(static_cast<size_t>(unit.rows() * unit.columns()));
  threads.ParallelFor(static_cast<size_t>(unit.rows()), 1, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r)
      DequantizeRow(unit.view.type, unit.view.data + r * unit.view.row_bytes(), unit.columns(),
                    w.data() + r * unit.columns());
  });
  return w;
}

Error Stopped() { return {ErrorCode::kCancelled, "stopped; nothing was written"}; }

// Units of an input whose scales have a norm to go into.
std::map<std::string, std::vector<const LayerUnit*>> Scalable(const WeightMap& map,
                                                              const std::vector<LayerUnit>& units) {
  std::map<std::string, std::vector<const LayerUnit*>> groups;
  for (const LayerUnit& unit : units) {
    if (!NormOf(map, unit.input).empty()) groups[unit.input].push_back(&unit);
  }
  return groups;
}

// sum over samples and rows of (x (Q(w s) / s - w))^2.
double OutputLoss(const std::vector<float>& w, int64_t columns, const std::vector<float>& scale,
                  const InputStats& stats, int bits, int64_t group, const Runtime& runtime) {
  const GridSpec spec{.rule = GridRule::kAwq, .bits = bits, .symmetric = false};
  const int64_t rows = static_cast<int64_t>(w.size()) / columns;
  const int64_t samples = static_cast<int64_t>(stats.samples.size()) / columns;
  constexpr int64_t kTile = 64;
  std::vector<double> sums(static_cast<size_t>((rows + kTile - 1) / kTile));
  runtime.threads->ParallelFor(sums.size(), 1, [&](size_t begin, size_t end) {
    std::vector<float> error(static_cast<size_t>(kTile * columns)), outputs, scaled(columns);
    for (size_t tile = begin; tile < end; ++tile) {
      const int64_t first = static_cast<int64_t>(tile) * kTile, count = std::min(kTile, rows - first);
      for (int64_t r = 0; r < count; ++r) {
        const float* row = &w[(first + r) * columns];
        for (int64_t i = 0; i < columns; ++i) scaled[i] = row[i] * scale[i];
        for (int64_t g = 0; g < columns; g += group) {
          const int64_t n = std::min(group, columns - g);
          const Grid grid = FindGrid(spec, &scaled[g], n);
          for (int64_t i = g; i < g + n; ++i)
            error[r * columns + i] = grid.Dequantize(EncodeUniform(spec, grid, scaled[i])) / scale[i] - row[i];
        }
      }
      outputs.assign(static_cast<size_t>(samples * count), 0.0f);
      SubtractProduct(SubtractArgs<float>{.m = samples, .n = count, .k = columns,
                                          .a = stats.samples.data(), .a_row = columns,
                                          .b = error.data(), .b_row = 1, .b_column = columns,
                                          .c = outputs.data(), .c_row = count},
                      runtime.isa);
      for (const float y : outputs) sums[tile] += double{y} * double{y};
    }
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

}  // namespace

Result<std::map<std::string, InputStats>> CollectInputStats(Model& model, const WeightMap& map,
                                                            const CalibrationText& text, int64_t samples,
                                                            const std::function<bool(double)>& progress) {
  std::map<std::string, InputStats> all;
  std::map<std::string, std::string> speaker;  // the one weight of an input that is listened to, to its input
  for (const LayerUnit& unit : ListLayerUnits(map, true)) {
    if (all.emplace(unit.input, InputStats{.columns = unit.columns()}).second) speaker[unit.name] = unit.input;
  }
  for (auto& [input, stats] : all) {
    stats.max.resize(stats.columns);
    stats.sum.resize(stats.columns);
    stats.sum2.resize(stats.columns);
  }
  const uint64_t size = static_cast<uint64_t>(text.chunk_tokens), total = text.tokens.size();
  const uint64_t chunks = total == 0 ? 0 : std::max<uint64_t>(1, total / size);
  if (chunks == 0) return InvalidInput("the calibration text holds no tokens");
  const uint64_t every = std::max<uint64_t>(1, chunks * size / static_cast<uint64_t>(std::max<int64_t>(1, samples)));
  ChunkRunner runner(model, text.chunk_tokens);
  model.ObserveInputs([&](const std::string& weight, const float* x, int64_t stride, int64_t rows, int64_t columns) {
    const auto found = speaker.find(weight);
    if (found == speaker.end()) return;
    InputStats& stats = all.at(found->second);
    for (int64_t r = 0; r < rows; ++r, ++stats.tokens) {
      const float* row = x + r * stride;
      for (int64_t i = 0; i < columns; ++i) {
        const float magnitude = std::fabs(row[i]);
        stats.max[i] = std::max(stats.max[i], magnitude);
        stats.sum[i] += magnitude;
        stats.sum2[i] += double{row[i]} * double{row[i]};
      }
      if (stats.tokens % every == 0 && static_cast<int64_t>(stats.samples.size()) < samples * columns)
        stats.samples.insert(stats.samples.end(), row, row + columns);
    }
  });
  Result<void> state;
  for (uint64_t c = 0; c < chunks && state; ++c) {
    std::vector<int32_t> chunk(text.tokens.begin() + c * size, text.tokens.begin() + std::min(total, (c + 1) * size));
    if (c > 0 && text.bos >= 0) chunk[0] = text.bos;
    runner.Run(chunk);
    if (progress && !progress(static_cast<double>(c + 1) / static_cast<double>(chunks))) state = Stopped();
  }
  model.ObserveInputs(nullptr);
  HONE_RETURN_IF_ERROR(state);
  for (const auto& [input, stats] : all) {
    for (int64_t i = 0; i < stats.columns; ++i) {
      if (!std::isfinite(stats.sum2[i]))
        return InvalidInput(fmt::format("the input of {} is NaN or infinite in column {}; the model is damaged or "
                                        "overflows",
                                        input, i));
    }
  }
  return all;
}

std::string NormOf(const WeightMap& map, const std::string& input) {
  const std::string layer = input.substr(0, input.find('.', 4) + 1);
  std::string norm;
  if (input == layer + "qkv") norm = layer + "attn_norm.weight";
  if (input == layer + "gate_up.weight" && map.Find(layer + "ffn_gate_inp.weight") == nullptr)
    norm = layer + "ffn_norm.weight";
  return norm.empty() || map.Find(norm) == nullptr ? "" : norm;
}

Result<ColumnScales> SmoothQuantScales(const WeightMap& map, const std::vector<LayerUnit>& units,
                                       const std::map<std::string, InputStats>& stats, double alpha,
                                       const Runtime& runtime) {
  ColumnScales scales;
  for (const auto& [input, group] : Scalable(map, units)) {
    const InputStats& inputs = stats.at(input);
    std::vector<float> largest(inputs.columns);
    for (const LayerUnit* unit : group) {
      const std::vector<float> w = ReadMatrix(*unit, *runtime.threads);
      for (size_t i = 0; i < w.size(); ++i) {
        float& at = largest[i % inputs.columns];
        at = std::max(at, std::fabs(w[i]));
      }
    }
    ColumnScale& scale = scales[input];
    scale.norm = NormOf(map, input);
    for (int64_t i = 0; i < inputs.columns; ++i) {
      const double s = std::pow(std::max(inputs.max[i], 1e-5f), alpha) / std::pow(std::max(largest[i], 1e-5f), 1 - alpha);
      scale.scale.push_back(static_cast<float>(std::isfinite(s) ? std::max(s, 1e-5) : 1.0));
    }
  }
  return scales;
}

Result<ColumnScales> AwqScales(const WeightMap& map, const std::vector<LayerUnit>& units,
                               const std::map<std::string, InputStats>& stats, int bits, int64_t group,
                               const std::function<bool(double)>& progress, const Runtime& runtime) {
  ColumnScales scales;
  const auto groups = Scalable(map, units);
  size_t done = 0;
  for (const auto& [input, members] : groups) {
    const InputStats& inputs = stats.at(input);
    const int64_t columns = inputs.columns, step = group > 0 ? group : columns;
    // All matrices of the input one below the other.
    std::vector<float> w;
    for (const LayerUnit* unit : members) {
      const std::vector<float> part = ReadMatrix(*unit, *runtime.threads);
      w.insert(w.end(), part.begin(), part.end());
    }
    const int64_t rows = static_cast<int64_t>(w.size()) / columns;
    std::vector<double> share(columns);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t g = 0; g < columns; g += step) {
        const int64_t end = std::min(columns, g + step);
        float largest = 0;
        for (int64_t i = g; i < end; ++i) largest = std::max(largest, std::fabs(w[r * columns + i]));
        for (int64_t i = g; i < end; ++i) share[i] += std::fabs(w[r * columns + i]) / (largest + 1e-6f);
      }
    }
    std::vector<float> best(columns, 1.0f);
    const double plain = OutputLoss(w, columns, best, inputs, bits, step, runtime);
    double least = plain;
    for (int k = 0; k < kGridSteps; ++k) {
      if (progress && !progress((static_cast<double>(done) + k / static_cast<double>(kGridSteps)) /
                                static_cast<double>(groups.size())))
        return Stopped();
      const double ratio = k / static_cast<double>(kGridSteps);
      std::vector<float> scale(columns);
      for (int64_t i = 0; i < columns; ++i) {
        const double x = inputs.sum[i] / static_cast<double>(std::max<uint64_t>(1, inputs.tokens));
        const double s = std::pow(x, ratio) / (std::pow(share[i] / static_cast<double>(rows), 1 - ratio) + 1e-4);
        scale[i] = static_cast<float>(std::max(s, 1e-4));
      }
      const auto [low, high] = std::minmax_element(scale.begin(), scale.end());
      const float middle = std::sqrt(*low * *high);
      for (float& s : scale) {
        s /= middle;
        if (!std::isfinite(s) || s <= 0) s = 1;
      }
      const double loss = OutputLoss(w, columns, scale, inputs, bits, step, runtime);
      if (loss < least) least = loss, best = scale;
    }
    scales[input] = {best, NormOf(map, input), plain > 0 ? least / plain : 1};
    ++done;
  }
  return scales;
}

}  // namespace hone
