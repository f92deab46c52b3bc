// See uniform.h.
#include "compress/numbers/uniform.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hone {
namespace {

struct Range {
  float low, high;
};

// Linear between neighbours, computed in double.
float Percentile(std::vector<double>& sorted, double percent) {
  const double at = percent / 100 * static_cast<double>(sorted.size() - 1);
  const size_t i = static_cast<size_t>(at), next = std::min(i + 1, sorted.size() - 1);
  return static_cast<float>(sorted[i] + (sorted[next] - sorted[i]) * (at - static_cast<double>(i)));
}

Range FindRange(const GridSpec& spec, const float* x, int64_t n) {
  if (spec.clip == Clip::kPercentile) {
    std::vector<double> values(x, x + n);
    if (spec.symmetric) {
      for (double& v : values) v = std::fabs(v);
    }
    std::sort(values.begin(), values.end());
    if (spec.symmetric) {
      const float high = Percentile(values, spec.percentile);
      return {-high, high};
    }
    return {Percentile(values, 100 - spec.percentile), Percentile(values, spec.percentile)};
  }
  const auto [low, high] = std::minmax_element(x, x + n);
  return {*low, *high};
}

Grid GptqGrid(const GridSpec& spec, Range range) {
  const float top = static_cast<float>(HighestCode(spec));
  Grid grid{(range.high - range.low) / top, (top + 1) / 2};
  if (!spec.symmetric) grid.zero = std::nearbyint(-range.low / grid.scale);
  return grid;
}

// The range shrunk by i %, where that makes the sum of |error|^norm smallest; the first of equals.
Grid SearchGrid(const GridSpec& spec, Range range, const float* x, int64_t n) {
  Grid best;
  double least = HUGE_VAL;
  for (int i = 0; i < 80; ++i) {
    const float p = static_cast<float>(1 - i / 100.0);
    const Grid grid = GptqGrid(spec, {p * range.low, p * range.high});
    double error = 0;
    for (int64_t j = 0; j < n && error < least; ++j) {  // it only grows
      error +=
          std::pow(std::fabs(static_cast<double>(grid.Dequantize(EncodeUniform(spec, grid, x[j])) - x[j])), spec.norm);
    }
    if (error < least) least = error, best = grid;
  }
  return best;
}

Range GptqRange(const GridSpec& spec, Range range) {
  range.low = std::min(range.low, 0.0f);
  range.high = std::max(range.high, 0.0f);
  if (spec.symmetric) {
    range.high = std::max(-range.low, range.high);
    if (range.low < 0) range.low = -range.high;  // a slice without negatives keeps 0: its upper half clips
  }
  return range.low == 0 && range.high == 0 ? Range{-1, 1} : range;
}

Grid CompressedTensorsGrid(const GridSpec& spec, Range range) {
  range.low = std::min(range.low, 0.0f);
  range.high = std::max(range.high, 0.0f);
  const float bottom = static_cast<float>(LowestCode(spec)), top = static_cast<float>(HighestCode(spec));
  Grid grid;
  if (spec.symmetric) {
    grid.scale = std::max(-range.low, range.high) / ((top - bottom) / 2);
  } else {
    grid.scale = (range.high - range.low) / (top - bottom);
    // The library's 0 / 0, cast to a byte, is 0.
    if (grid.scale != 0) grid.zero = std::clamp(std::nearbyint(bottom - range.low / grid.scale), bottom, top);
  }
  if (grid.scale == 0) grid.scale = 0x1.0p-23f;
  return grid;
}

Grid AwqGridOf(const GridSpec& spec, Range range) {
  if (spec.holds_zero) range = {std::min(range.low, 0.0f), std::max(range.high, 0.0f)};
  const float top = static_cast<float>(HighestCode(spec));
  const float scale = std::max(range.high - range.low, 1e-5f) / top;
  return {scale, std::clamp(-std::nearbyint(range.low / scale), 0.0f, top)};
}

Grid AbsmaxGrid(const GridSpec& spec, Range range) {
  return {std::max(std::fabs(range.low), std::fabs(range.high)) / static_cast<float>(HighestCode(spec)), 0};
}

}  // namespace

int LowestCode(const GridSpec& spec) {
  switch (spec.rule) {
    case GridRule::kCompressedTensors:
      return -(1 << (spec.bits - 1));
    case GridRule::kAbsmax:
      return -((1 << (spec.bits - 1)) - 1);
    default:
      return 0;
  }
}

int HighestCode(const GridSpec& spec) {
  const bool is_signed = spec.rule == GridRule::kCompressedTensors || spec.rule == GridRule::kAbsmax;
  return (1 << (is_signed ? spec.bits - 1 : spec.bits)) - 1;
}

Grid FindGrid(const GridSpec& spec, const float* x, int64_t n) {
  HONE_CHECK(n >= 1);
  HONE_CHECK(spec.clip == Clip::kMinMax || spec.rule == GridRule::kGptq);
  const Range range = FindRange(spec, x, n);
  if (spec.clip == Clip::kSearch) return SearchGrid(spec, GptqRange(spec, range), x, n);
  return GridOfRange(spec, range.low, range.high);
}

Grid GridOfRange(const GridSpec& spec, float least, float most) {
  HONE_CHECK(spec.bits >= 2 && spec.bits <= 8);
  const Range range{least, most};
  switch (spec.rule) {
    case GridRule::kGptq:
      return GptqGrid(spec, GptqRange(spec, range));
    case GridRule::kCompressedTensors:
      return CompressedTensorsGrid(spec, range);
    case GridRule::kAwq:
      return AwqGridOf(spec, range);
    case GridRule::kAbsmax:
      return AbsmaxGrid(spec, range);
  }
  return {};
}

int EncodeUniform(const GridSpec& spec, const Grid& grid, float x) {
  const float low = static_cast<float>(LowestCode(spec)), high = static_cast<float>(HighestCode(spec));
  float code = 0;
  switch (spec.rule) {
    case GridRule::kGptq:
    case GridRule::kAwq:
      code = std::nearbyint(x / grid.scale) + grid.zero;
      break;
    case GridRule::kCompressedTensors:
      code = std::nearbyint(x / grid.scale + grid.zero);
      break;
    case GridRule::kAbsmax: {
      const float absmax = grid.scale * high;
      code = grid.scale == 0 ? 0 : std::nearbyint(x * (high / absmax));
      break;
    }
  }
  return static_cast<int>(std::clamp(code, low, high));
}

UniformMatrix QuantizeUniform(const GridSpec& spec, const float* x, int64_t rows, int64_t columns, int64_t group,
                              bool per_tensor) {
  UniformMatrix out;
  out.codes.resize(static_cast<size_t>(rows * columns));
  if (per_tensor) out.grids.push_back(FindGrid(spec, x, rows * columns));
  const int64_t step = per_tensor || group <= 0 ? columns : group;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t first = 0; first < columns; first += step) {
      const int64_t n = std::min(step, columns - first), at = r * columns + first;
      if (!per_tensor) out.grids.push_back(FindGrid(spec, x + at, n));
      for (int64_t i = 0; i < n; ++i)
        out.codes[at + i] = static_cast<int16_t>(EncodeUniform(spec, out.grids.back(), x[at + i]));
    }
  }
  return out;
}

}  // namespace hone
