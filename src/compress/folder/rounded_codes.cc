// See rounded_codes.h.
#include "compress/folder/rounded_codes.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace hone {
namespace {

float Half(float x) { return RoundTo(DType::kF16, x); }

// AutoAWQ's pseudo_quantize_tensor on half tensors: every operation rounds.
Grid RoundInHalf(const GridSpec& spec, const float* x, int64_t n, uint8_t* codes) {
  const float top = static_cast<float>(HighestCode(spec));
  const auto [least, most] = std::minmax_element(x, x + n);
  float low = Half(*least), high = Half(*most);
  if (spec.holds_zero) low = std::min(low, 0.0f), high = std::max(high, 0.0f);
  const float scale = Half(std::max(Half(high - low), Half(1e-5f)) / top);
  const Grid grid{scale, std::clamp(-std::nearbyint(Half(low / scale)), 0.0f, top)};
  for (int64_t i = 0; i < n; ++i)
    codes[i] = static_cast<uint8_t>(std::clamp(std::nearbyint(Half(Half(x[i]) / scale)) + grid.zero, 0.0f, top));
  return grid;
}

}  // namespace

RoundedCodes RoundToCodes(const GridSpec& spec, DType scale_type, std::span<const float> w, int64_t rows,
                          int64_t columns, int64_t group, ThreadPool& threads) {
  HONE_CHECK(spec.rule == GridRule::kGptq || spec.rule == GridRule::kAwq);
  const int64_t step = group > 0 ? group : columns, groups = columns / step;
  HONE_CHECK(groups * step == columns && static_cast<int64_t>(w.size()) == rows * columns);
  const float top = static_cast<float>(HighestCode(spec));
  const float smallest = scale_type == DType::kF16 ? 0x1.0p-24f : 0x1.0p-126f;
  const bool in_half = spec.rule == GridRule::kAwq && scale_type == DType::kF16;
  RoundedCodes out;
  out.codes.resize(w.size());
  out.grids.resize(static_cast<size_t>(rows * groups));
  for (int64_t i = 0; i < columns; ++i) out.group_of.push_back(static_cast<int32_t>(i / step));
  threads.ParallelFor(out.grids.size(), 16, [&](size_t begin, size_t end) {
    for (size_t g = begin; g < end; ++g) {
      const float* x = w.data() + static_cast<int64_t>(g) * step;
      uint8_t* codes = out.codes.data() + static_cast<int64_t>(g) * step;
      if (in_half) {
        out.grids[g] = RoundInHalf(spec, x, step, codes);
        continue;
      }
      Grid grid = FindGrid(spec, x, step);
      grid.scale = std::max(RoundTo(scale_type, grid.scale), smallest);
      grid.zero = std::clamp(grid.zero, 0.0f, top);
      out.grids[g] = grid;
      for (int64_t i = 0; i < step; ++i) codes[i] = static_cast<uint8_t>(EncodeUniform(spec, grid, x[i]));
    }
  });
  return out;
}

}  // namespace hone
