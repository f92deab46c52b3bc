// See gptq.h.
#include "compress/gptq/gptq.h"

#include <cmath>

#include "base/check.h"
#include "tensor/float16.h"

namespace hone {
namespace {

// Ranges that a searched scale tries: all of it down to 60 %.
constexpr int kShrinkSteps = 21;
constexpr float kShrinkStep = 0.02f;

float Stored(DType type, float scale) {
  if (type == DType::kF16) return F16ToF32(std::max<uint16_t>(1, F32ToF16(scale)));
  if (type == DType::kBF16) return std::max(Bf16ToF32(F32ToBf16(scale)), 0x1.0p-126f);
  return scale;
}

class GridFinder {
 public:
  GridFinder(const GptqOptions& options) : options_(options) {}

  // weights: what a squared error of each of the n numbers costs.
  Grid Find(const float* x, const float* weights, int64_t n) const {
    Grid grid = options_.search_scale ? Search(x, weights, n) : FindGrid(options_.grid, x, n);
    if (options_.scale_type != DType::kF32) {
      grid.scale = Stored(options_.scale_type, grid.scale);
      grid.zero = std::clamp(grid.zero, 0.0f, static_cast<float>(HighestCode(options_.grid)));
    }
    return grid;
  }

 private:
  Grid Search(const float* x, const float* weights, int64_t n) const {
    const float top = static_cast<float>(HighestCode(options_.grid));
    float low = 0, high = 0;
    for (int64_t i = 0; i < n; ++i) low = std::min(low, x[i]), high = std::max(high, x[i]);
    if (options_.grid.symmetric) {
      high = std::max(-low, high);
      low = -high;
    }
    if (high == low) return {1, options_.grid.symmetric ? (top + 1) / 2 : 0};
    Grid best;
    float least = HUGE_VALF;
    for (int step = 0; step < kShrinkSteps; ++step) {
      const float share = 1 - kShrinkStep * static_cast<float>(step);
      Grid grid{Stored(options_.scale_type, share * (high - low) / top), (top + 1) / 2};
      if (!options_.grid.symmetric)
        grid.zero = std::clamp(std::nearbyint(-share * low / grid.scale), 0.0f, top);
      const float error = Error(grid, x, weights, n, top);
      if (error < least) least = error, best = grid;
    }
    return best;
  }

  static float Error(const Grid& grid, const float* x, const float* weights, int64_t n, float top) {
    constexpr float kNearest = 12582912.0f;  // adding and subtracting it rounds to an integer
    const float inverse = 1 / grid.scale;
    float sums[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      for (int k = 0; k < 8; ++k) {
        const float scaled = x[i + k] * inverse + grid.zero;
        float code = scaled > top ? top : scaled;
        code = ((code < 0 ? 0 : code) + kNearest) - kNearest;
        const float e = scaled - code;
        sums[k] += weights[i + k] * e * e;
      }
    }
    for (; i < n; ++i) {
      const float scaled = x[i] * inverse + grid.zero, e = scaled - std::nearbyint(std::clamp(scaled, 0.0f, top));
      sums[0] += weights[i] * e * e;
    }
    float sum = 0;
    for (const float s : sums) sum += s;
    return sum * grid.scale * grid.scale;
  }

  const GptqOptions& options_;
};

class UniformRounder : public ColumnRounder {
 public:
  UniformRounder(const GptqOptions& options, const GptqFactor& factor, int64_t group, GptqResult* result)
      : options_(options),
        factor_(factor),
        columns_(factor.columns),
        group_(group),
        groups_((columns_ + group - 1) / group),
        finder_(options),
        result_(result) {
    // In processing order, for grids that are found on the way.
    for (int64_t i = 0; i < columns_; ++i) importance_.push_back(factor.importance[factor.order[i]]);
  }

  void Begin(int64_t row, const float* natural, const float* alive) override {
    Grid* grids = &result_->grids[row * groups_];
    if (group_ == columns_) grids[0] = finder_.Find(natural, factor_.importance.data(), columns_);
    if (!options_.static_groups || group_ == columns_) return;
    for (int64_t g = 0; g < groups_; ++g) {
      const int64_t first = g * group_;
      grids[g] = finder_.Find(alive + first, factor_.importance.data() + first, std::min(group_, columns_ - first));
    }
  }

  void Enter(int64_t row, int64_t at, const float* w) override {
    Grid& grid = result_->grids[row * groups_ + result_->group_of[factor_.order[at]]];
    grid = finder_.Find(w, importance_.data() + at, std::min(group_, columns_ - at));
  }

  float Round(int64_t row, int64_t at, float weight) override {
    const int32_t column = factor_.order[at];
    const Grid& grid = result_->grids[row * groups_ + result_->group_of[column]];
    const int code = EncodeUniform(options_.grid, grid, weight);
    result_->codes[row * columns_ + column] = static_cast<uint8_t>(code);
    return grid.Dequantize(code);
  }

 private:
  const GptqOptions& options_;
  const GptqFactor& factor_;
  const int64_t columns_, group_, groups_;
  const GridFinder finder_;
  GptqResult* result_;
  std::vector<float> importance_;
};

}  // namespace

GptqResult QuantizeGptq(std::span<const float> w, int64_t rows, std::span<const float> h, const GptqOptions& options,
                        ThreadPool& threads) {
  const int64_t columns = rows > 0 ? static_cast<int64_t>(w.size()) / rows : 0;
  const GptqFactor factor =
      MakeGptqFactor(h, columns, options.order, options.group, options.damping, threads, options.isa);
  return QuantizeGptq(w, rows, factor, options, threads);
}

GptqResult QuantizeGptq(std::span<const float> w, int64_t rows, const GptqFactor& factor, const GptqOptions& options,
                        ThreadPool& threads) {
  HONE_CHECK(options.grid.rule == GridRule::kGptq);
  const int64_t columns = factor.columns, group = options.group > 0 ? std::min(options.group, columns) : columns;
  GptqResult result;
  result.codes.resize(static_cast<size_t>(rows * columns));
  result.grids.resize(static_cast<size_t>(rows * ((columns + group - 1) / group)));
  result.group_of.resize(columns);
  result.damping = factor.damping;
  result.fallback = factor.fallback;
  result.dead_columns = factor.dead_columns;
  const bool by_place = options.order == ColumnOrder::kActivation && !options.static_groups;
  for (int64_t i = 0; i < columns; ++i)
    result.group_of[factor.order[i]] = static_cast<int32_t>((by_place ? i : factor.order[i]) / group);
  SweepOptions sweep{.isa = options.isa};
  sweep.span = group < columns && !options.static_groups ? group : 0;
  sweep.fresh = options.fresh_grids && sweep.span > 0 && sweep.block % sweep.span == 0;
  result.loss = SweepColumns(w, rows, factor, sweep, threads, [&]() -> std::unique_ptr<ColumnRounder> {
    return std::make_unique<UniformRounder>(options, factor, group, &result);
  });
  return result;
}

}  // namespace hone
