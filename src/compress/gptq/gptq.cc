// See gptq.h.
#include "compress/gptq/gptq.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "compress/gptq/cholesky.h"

namespace hone {
namespace {

constexpr int64_t kBlockColumns = 128;
// Rows that share a pass over the factor.
constexpr int64_t kRowsTogether = 16;
constexpr double kDampingSteps[] = {1, 2, 5, 10, 20, 50, 100};

std::vector<int32_t> MakeOrder(const GptqOptions& options, const std::vector<double>& diagonal) {
  const int64_t columns = static_cast<int64_t>(diagonal.size());
  std::vector<int32_t> order(columns);
  std::iota(order.begin(), order.end(), 0);
  const auto larger = [&](int32_t a, int32_t b) { return diagonal[a] > diagonal[b]; };
  if (options.order == ColumnOrder::kActivation) {
    std::stable_sort(order.begin(), order.end(), larger);
  } else if (options.order == ColumnOrder::kGroupAware) {
    const int64_t group = options.group > 0 ? options.group : columns;
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

class Job {
 public:
  Job(std::span<const float> w, int64_t rows, std::span<const float> h, const GptqOptions& options, ThreadPool& threads)
      : options_(options),
        threads_(threads),
        rows_(rows),
        columns_(rows > 0 ? static_cast<int64_t>(w.size()) / rows : 0),
        group_(options.group > 0 ? std::min(options.group, columns_) : columns_),
        source_(w),
        h_(h) {}

  GptqResult Run() {
    HONE_CHECK(static_cast<int64_t>(h_.size()) == columns_ * columns_ && options_.grid.rule == GridRule::kGptq);
    HONE_CHECK(options_.order != ColumnOrder::kGroupAware || columns_ % group_ == 0);
    Prepare();
    result_.codes.resize(static_cast<size_t>(rows_ * columns_));
    result_.grids.resize(static_cast<size_t>(rows_ * group_count()));
    std::vector<double> losses(static_cast<size_t>((rows_ + kRowsTogether - 1) / kRowsTogether));
    threads_.ParallelFor(losses.size(), 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        const int64_t first = static_cast<int64_t>(i) * kRowsTogether;
        losses[i] = Rows(first, std::min(kRowsTogether, rows_ - first));
      }
    });
    for (const double loss : losses) result_.loss += loss;
    return std::move(result_);
  }

 private:
  int64_t group_count() const { return (columns_ + group_ - 1) / group_; }

  void Prepare() {
    std::vector<double> diagonal(columns_);
    dead_.assign(columns_, false);
    for (int64_t i = 0; i < columns_; ++i) {
      diagonal[i] = h_[i * columns_ + i];
      dead_[i] = diagonal[i] == 0;
      if (dead_[i]) diagonal[i] = 1, ++result_.dead_columns;
    }
    order_ = MakeOrder(options_, diagonal);
    result_.group_of.resize(columns_);
    const bool by_place = options_.order == ColumnOrder::kActivation && !options_.static_groups;
    for (int64_t i = 0; i < columns_; ++i)
      result_.group_of[order_[i]] = static_cast<int32_t>((by_place ? i : order_[i]) / group_);
    const double mean = std::accumulate(diagonal.begin(), diagonal.end(), 0.0) / static_cast<double>(columns_);
    std::vector<double> h(static_cast<size_t>(columns_ * columns_)), u;
    for (const double step : kDampingSteps) {
      result_.damping = options_.damping * step;
      for (int64_t i = 0; i < columns_; ++i) {
        for (int64_t j = 0; j <= i; ++j) h[i * columns_ + j] = h_[int64_t{order_[i]} * columns_ + order_[j]];
        h[i * columns_ + i] = diagonal[order_[i]] + result_.damping * mean;
      }
      if (InverseFactor(h, columns_, &u, threads_)) {
        factor_.assign(u.begin(), u.end());
        result_.fallback = step == 1 ? GptqFallback::kNone : GptqFallback::kMoreDamping;
        return;
      }
    }
    // No errors are passed on: every column is rounded to nearest.
    result_.fallback = GptqFallback::kRounding;
    factor_.assign(static_cast<size_t>(columns_ * columns_), 0.0f);
    for (int64_t i = 0; i < columns_; ++i) factor_[i * columns_ + i] = 1;
  }

  // Rows [first, first + count); returns their loss.
  double Rows(int64_t first, int64_t count) {
    std::vector<float> w(static_cast<size_t>(count * columns_)), block(count * kBlockColumns),
        errors(count * kBlockColumns);
    std::vector<float> natural(columns_);
    for (int64_t r = 0; r < count; ++r) {
      const float* row = source_.data() + (first + r) * columns_;
      Grid* grids = &result_.grids[(first + r) * group_count()];
      if (group_ == columns_) grids[0] = FindGrid(options_.grid, row, columns_);
      for (int64_t i = 0; i < columns_; ++i) natural[i] = dead_[i] ? 0 : row[i];
      if (options_.static_groups && group_ < columns_) {
        for (int64_t g = 0; g < group_count(); ++g) {
          grids[g] = FindGrid(options_.grid, natural.data() + g * group_, std::min(group_, columns_ - g * group_));
        }
      }
      for (int64_t i = 0; i < columns_; ++i) w[r * columns_ + i] = natural[order_[i]];
    }
    double loss = 0;
    for (int64_t begin = 0; begin < columns_; begin += kBlockColumns) {
      const int64_t n = std::min(kBlockColumns, columns_ - begin);
      for (int64_t r = 0; r < count; ++r) {
        loss += Block(first + r, begin, n, &w[r * columns_], &block[r * kBlockColumns], &errors[r * kBlockColumns]);
      }
      for (int64_t k = 0; k < n; ++k) {
        const float* factor = &factor_[(begin + k) * columns_];
        for (int64_t r = 0; r < count; ++r) {
          const float error = errors[r * kBlockColumns + k];
          float* row = &w[r * columns_];
          for (int64_t j = begin + n; j < columns_; ++j) row[j] -= error * factor[j];
        }
      }
    }
    return loss;
  }

  // Columns [begin, begin + n) of one row in processing order. `w` holds the updates of earlier blocks.
  double Block(int64_t row, int64_t begin, int64_t n, const float* w, float* block, float* errors) {
    Grid* grids = &result_.grids[row * group_count()];
    std::copy(w + begin, w + begin + n, block);
    double loss = 0;
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = begin + i;
      const int32_t column = order_[at];
      const int32_t group = result_.group_of[column];
      if (group_ < columns_ && !options_.static_groups && at % group_ == 0) {
        grids[group] = FindGrid(options_.grid, w + at, std::min(group_, columns_ - at));
      }
      const float* factor = &factor_[at * columns_ + begin];
      const int code = EncodeUniform(options_.grid, grids[group], block[i]);
      const float e = block[i] - grids[group].Dequantize(code), d = factor[i];
      result_.codes[row * columns_ + column] = static_cast<uint8_t>(code);
      loss += static_cast<double>(e) * e / (static_cast<double>(d) * d) / 2;
      errors[i] = e / d;
      for (int64_t j = i; j < n; ++j) block[j] -= errors[i] * factor[j];
    }
    return loss;
  }

  const GptqOptions& options_;
  ThreadPool& threads_;
  const int64_t rows_, columns_, group_;
  const std::span<const float> source_, h_;
  std::vector<bool> dead_;
  std::vector<int32_t> order_;
  std::vector<float> factor_;
  GptqResult result_;
};

}  // namespace

GptqResult QuantizeGptq(std::span<const float> w, int64_t rows, std::span<const float> h, const GptqOptions& options,
                        ThreadPool& threads) {
  return Job(w, rows, h, options, threads).Run();
}

std::vector<int> QuantizeObqRow(const GridSpec& spec, const Grid& grid, std::span<const float> row,
                                std::span<const double> h, std::vector<int>* order, double* loss) {
  const int n = static_cast<int>(row.size());
  // H^-1 = U^T U.
  ThreadPool alone(1);
  std::vector<double> u;
  HONE_CHECK(InverseFactor({h.begin(), h.end()}, n, &u, alone), "H is not positive definite");
  std::vector<double> inverse(static_cast<size_t>(n) * n);
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      for (int k = 0; k <= std::min(i, j); ++k) inverse[i * n + j] += u[k * n + i] * u[k * n + j];
    }
  }
  std::vector<double> w(row.begin(), row.end());
  std::vector<int> codes(n);
  std::vector<bool> done(n, false);
  const double low = LowestCode(spec), high = HighestCode(spec);
  const auto code_of = [&](double x) { return std::clamp(std::nearbyint(x / grid.scale) + grid.zero, low, high); };
  const auto take = [&](int j) {
    const double pivot = inverse[j * n + j];
    std::vector<double> line(inverse.begin() + j * n, inverse.begin() + (j + 1) * n);
    for (int a = 0; a < n; ++a) {
      for (int b = 0; b < n; ++b) inverse[a * n + b] -= line[a] * line[b] / pivot;
    }
    done[j] = true;
    order->push_back(j);
    return line;
  };
  *loss = 0;
  for (int j = 0; j < n; ++j) {
    codes[j] = static_cast<int>(code_of(w[j]));
    if (w[j] == 0) take(j);
  }
  while (static_cast<int>(order->size()) < n) {
    int best = -1, outlier = -1;
    double least = std::numeric_limits<double>::infinity(), largest = 0.25 * grid.scale * grid.scale;
    for (int j = 0; j < n; ++j) {
      if (done[j]) continue;
      const double e = w[j] - grid.scale * (code_of(w[j]) - grid.zero), cost = e * e / inverse[j * n + j];
      if (best < 0 || cost < least) least = cost, best = j;
      if (e * e > largest) largest = e * e, outlier = j;  // beyond half a step: clipped, and getting worse
    }
    if (outlier >= 0 && w[best] != 0) best = outlier;
    codes[best] = static_cast<int>(code_of(w[best]));
    const double e = w[best] - grid.scale * (codes[best] - static_cast<double>(grid.zero)),
                 pivot = inverse[best * n + best];
    *loss += e * e / pivot / 2;
    const std::vector<double> line = take(best);
    for (int j = 0; j < n; ++j) {
      if (!done[j]) w[j] -= line[j] * e / pivot;
    }
  }
  return codes;
}

}  // namespace hone
