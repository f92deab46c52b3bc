// See sweep.h. Chunks of rows are swept side by side. Inside a block of columns a row goes by itself; what a block's
// errors do to the columns after it is one product (kernels/dense) over all rows of the chunk.
#include "compress/gptq/sweep.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "compress/gptq/cholesky.h"
#include "kernels/dense/subtract.h"

namespace hone {
namespace {

// Rows that share a pass over the factor.
constexpr int64_t kRowsTogether = 256;
constexpr double kDampingSteps[] = {1, 2, 5, 10, 20, 50, 100};

std::vector<int32_t> MakeOrder(ColumnOrder kind, int64_t group, const std::vector<double>& diagonal) {
  const int64_t columns = static_cast<int64_t>(diagonal.size());
  std::vector<int32_t> order(columns);
  std::iota(order.begin(), order.end(), 0);
  const auto larger = [&](int32_t a, int32_t b) { return diagonal[a] > diagonal[b]; };
  if (kind == ColumnOrder::kActivation) {
    std::stable_sort(order.begin(), order.end(), larger);
  } else if (kind == ColumnOrder::kGroupAware) {
    if (group <= 0) group = columns;
    HONE_CHECK(columns % group == 0);
    std::vector<std::vector<int32_t>> groups;
    for (int64_t first = 0; first < columns; first += group) {
      groups.emplace_back(order.begin() + first, order.begin() + first + group);
      std::stable_sort(groups.back().begin(), groups.back().end(), larger);
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [&](const auto& a, const auto& b) { return diagonal[a[0]] > diagonal[b[0]]; });
    order.clear();
    for (const auto& g : groups) order.insert(order.end(), g.begin(), g.end());
  }
  return order;
}

class Sweep {
 public:
  Sweep(std::span<const float> w, int64_t rows, const GptqFactor& factor, const SweepOptions& options)
      : w_(w), columns_(factor.columns), factor_(factor), options_(options), u_(factor.u.as<float>()), chain_(u_ != nullptr) {
    HONE_CHECK(static_cast<int64_t>(w.size()) == rows * columns_);
    HONE_CHECK(!options.fresh || options.span == 0 || options.block % options.span == 0);
  }

  // Rows [first, first + count); returns their loss.
  double Rows(int64_t first, int64_t count, ColumnRounder& rounder) {
    std::vector<float> w(static_cast<size_t>(count * columns_)), errors(static_cast<size_t>(count * options_.block));
    std::vector<float> alive(columns_), block(options_.block);
    for (int64_t r = 0; r < count; ++r) {
      const float* row = w_.data() + (first + r) * columns_;
      for (int64_t i = 0; i < columns_; ++i) alive[i] = factor_.dead[i] ? 0 : row[i];
      rounder.Begin(first + r, row, alive.data());
      for (int64_t i = 0; i < columns_; ++i) w[r * columns_ + i] = alive[factor_.order[i]];
    }
    double loss = 0;
    for (int64_t begin = 0; begin < columns_; begin += options_.block) {
      const int64_t n = std::min(options_.block, columns_ - begin);
      for (int64_t r = 0; r < count; ++r)
        loss += Block(first + r, begin, n, &w[r * columns_], block.data(), &errors[r * options_.block], rounder);
      if (!chain_ || begin + n == columns_) continue;
      SubtractProduct(SubtractArgs<float>{.m = count,
                                          .n = columns_ - begin - n,
                                          .k = n,
                                          .a = errors.data(),
                                          .a_row = options_.block,
                                          .b = &u_[begin * columns_ + begin + n],
                                          .b_row = columns_,
                                          .c = &w[begin + n],
                                          .c_row = columns_},
                      options_.isa);
    }
    return loss;
  }

 private:
  // Columns [begin, begin + n) of one row in processing order. `w` holds the updates of earlier blocks.
  double Block(int64_t row, int64_t begin, int64_t n, const float* w, float* block, float* errors,
               ColumnRounder& rounder) const {
    std::copy(w + begin, w + begin + n, block);
    double loss = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = begin + i;
      if (options_.span > 0 && at % options_.span == 0) rounder.Enter(row, at, options_.fresh ? block + i : w + at);
      const float e = block[i] - rounder.Round(row, at, block[i]);
      if (!chain_) {
        loss += static_cast<double>(e) * e / 2;
        continue;
      }
      const float* factor = &u_[at * columns_ + begin];
      const float d = factor[i];
      loss += static_cast<double>(e) * e / (static_cast<double>(d) * d) / 2;
      const float error = e / d;
      errors[i] = error;
      // From a whole vector on: below its diagonal the factor is zero, and what was rounded is not read again.
      const int64_t from = i / 16 * 16;
      SubtractScaled(error, factor + from, n - from, block + from, options_.isa);
    }
    return loss;
  }

  const std::span<const float> w_;
  const int64_t columns_;
  const GptqFactor& factor_;
  const SweepOptions& options_;
  const float* const u_;
  const bool chain_;  // errors are passed on
};

}  // namespace

GptqFactor NoGptqFactor(int64_t columns) {
  GptqFactor factor;
  factor.columns = columns;
  factor.order.resize(columns);
  std::iota(factor.order.begin(), factor.order.end(), 0);
  factor.dead.assign(columns, false);
  factor.importance.assign(columns, 1.0f);
  return factor;
}

GptqFactor MakeGptqFactor(std::span<const float> h, int64_t columns, ColumnOrder order, int64_t group, double damping,
                          ThreadPool& threads, Isa isa) {
  HONE_CHECK(static_cast<int64_t>(h.size()) == columns * columns);
  GptqFactor factor = NoGptqFactor(columns);
  std::vector<double> diagonal(columns);
  for (int64_t i = 0; i < columns; ++i) {
    diagonal[i] = h[i * columns + i];
    factor.dead[i] = diagonal[i] == 0;
    if (factor.dead[i]) diagonal[i] = 1, ++factor.dead_columns;
  }
  factor.order = MakeOrder(order, group, diagonal);
  const double mean = std::accumulate(diagonal.begin(), diagonal.end(), 0.0) / static_cast<double>(columns);
  Buffer memory(static_cast<size_t>(columns * columns) * sizeof(double));
  const std::span<double> u{memory.as<double>(), static_cast<size_t>(columns * columns)};
  for (const double step : kDampingSteps) {
    factor.damping = damping * step;
    threads.ParallelFor(static_cast<size_t>(columns), 16, [&](size_t begin, size_t end) {
      for (int64_t i = static_cast<int64_t>(begin); i < static_cast<int64_t>(end); ++i) {
        const int64_t a = factor.order[i];
        for (int64_t j = 0; j <= i; ++j) {
          const int64_t b = factor.order[j];
          u[i * columns + j] = h[std::max(a, b) * columns + std::min(a, b)];
        }
        u[i * columns + i] = diagonal[a] + factor.damping * mean;
      }
    });
    if (!InverseFactor(u, columns, threads, isa)) continue;
    factor.u = Buffer(u.size() * sizeof(float));
    threads.ParallelFor(u.size(), 4096, [&](size_t begin, size_t end) {
      std::copy(u.begin() + begin, u.begin() + end, factor.u.as<float>() + begin);
    });
    factor.fallback = step == 1 ? GptqFallback::kNone : GptqFallback::kMoreDamping;
    for (int64_t i = 0; i < columns; ++i) {
      const double d = u[i * columns + i];
      factor.importance[factor.order[i]] = static_cast<float>(1 / (d * d));
    }
    return factor;
  }
  factor.fallback = GptqFallback::kRounding;
  return factor;
}

double SweepColumns(std::span<const float> w, int64_t rows, const GptqFactor& factor, const SweepOptions& options,
                    ThreadPool& threads, const std::function<std::unique_ptr<ColumnRounder>()>& make_rounder) {
  Sweep sweep(w, rows, factor, options);
  const int64_t fair = (rows + threads.count() - 1) / threads.count();
  const int64_t together = std::clamp<int64_t>(fair, 1, kRowsTogether);
  const int64_t chunks = (rows + together - 1) / together;
  std::vector<double> losses(static_cast<size_t>(rows));
  threads.Run([&](int worker) {
    for (int64_t i = worker; i < chunks; i += threads.count()) {
      const int64_t first = i * together;
      const auto rounder = make_rounder();
      losses[i] = sweep.Rows(first, std::min(together, rows - first), *rounder);
    }
  });
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

}  // namespace hone
