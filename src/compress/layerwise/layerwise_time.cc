// See layerwise_time.h.
#include "compress/layerwise/layerwise_time.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/random.h"
#include "compress/gptq/gptq.h"
#include "compress/layerwise/moments.h"
#include "kernels/matmul/matmul.h"

namespace hone {

LayerwiseWork CountLayerwiseWork(const std::vector<LayerUnit>& units, uint64_t tokens) {
  LayerwiseWork work;
  std::set<std::string> seen;
  const double t = static_cast<double>(tokens);
  for (const LayerUnit& unit : units) {
    const double rows = static_cast<double>(unit.rows()), n = static_cast<double>(unit.columns());
    // As quantised, and before as it is, but for what no other matrix of the layer reads. Experts see their share; that it is a
    // small one is not counted, nor that there are many of them.
    const bool last = unit.parts.front().find(".ffn_down") != std::string::npos;
    if (!unit.expert) work.forward += (last ? 1 : 2) * t * rows * n;
    work.rounded += rows * n;
    work.sweeps += rows * n * n / 2;
    if (!seen.insert(unit.input).second) continue;
    if (!unit.expert) work.moments += t * n * n / 2;
    work.factors += n * n * n;
  }
  return work;
}

double EstimateLayerwiseSeconds(const std::vector<LayerUnit>& units, uint64_t tokens, const Runtime& runtime) {
  // Small factors are bound by other things than large ones, so the sample is not small; sweeps of few and of many columns tell
  // apart what a weight costs and what a column costs it.
  constexpr int64_t kColumns = 1536, kFew = 256, kRows = 64, kTokens = 512;
  Rng rng(1);
  std::vector<float> x(static_cast<size_t>(kTokens * kColumns)), y(x.size());
  std::vector<uint16_t> matrix(static_cast<size_t>(kColumns * kColumns), 0x3c00);
  for (float& value : x) value = static_cast<float>(rng.Uniform() - 0.5);
  const Clock& clock = *runtime.clock;
  const auto packed = PackedMatrix::Pack({DType::kBF16, Shape{kColumns, kColumns}, reinterpret_cast<const std::byte*>(matrix.data())},
                                         {.isa = runtime.isa}, *runtime.threads);
  HONE_CHECK(packed.has_value());
  MatmulScratch scratch(kTokens, kColumns);
  const MatmulJob job{.weight = &*packed, .x = x.data(), .x_stride = kColumns, .y = y.data(), .y_stride = kColumns, .m = kTokens};
  const GptqOptions options{.grid = {GridRule::kGptq, 4, true}, .group = 64, .isa = runtime.isa, .search_scale = true};
  double forward = HUGE_VAL, summing = HUGE_VAL, factoring = HUGE_VAL, narrow = HUGE_VAL, wide = HUGE_VAL;  // the better of two
  for (int round = 0; round < 2; ++round) {
    double at = clock.Now();
    const auto lap = [&](double* best) {
      const double now = clock.Now();
      *best = std::min(*best, now - at);
      at = now;
    };
    Matmul({&job, 1}, scratch, *runtime.threads);
    lap(&forward);
    SecondMoments moments(kColumns, runtime);
    at = clock.Now();
    moments.Add(x.data(), kColumns, kTokens);
    moments.Finish();
    lap(&summing);
    const GptqFactor factor =
        MakeGptqFactor(moments.h(), kColumns, ColumnOrder::kNatural, 0, 0.01, *runtime.threads, runtime.isa);
    lap(&factoring);
    const std::span<const float> w = std::span(x).first(kRows * kColumns);
    QuantizeGptq(w, kRows, factor, options, *runtime.threads);
    lap(&wide);
    QuantizeGptq(w.first(kRows * kFew), kRows, NoGptqFactor(kFew), options, *runtime.threads);
    lap(&narrow);
  }
  const LayerwiseWork work = CountLayerwiseWork(units, tokens);
  constexpr double kN = kColumns;
  const double weight = narrow / (kRows * kFew);
  const double column = std::max(0.0, wide - weight * kRows * kN) / (kRows * kN * kN / 2);
  return work.forward * forward / (kTokens * kN * kN) + work.moments * summing / (kTokens * kN * kN / 2) +
         work.factors * factoring / (kN * kN * kN) + work.rounded * weight + work.sweeps * column;
}

double EstimateForwardSeconds(const std::vector<LayerUnit>& units, uint64_t tokens, const Runtime& runtime) {
  constexpr int64_t kColumns = 1536, kTokens = 512;
  const std::vector<uint16_t> matrix(static_cast<size_t>(kColumns * kColumns), 0x3c00);
  const std::vector<float> x(static_cast<size_t>(kTokens * kColumns), 0.5f);
  std::vector<float> y(x.size());
  const auto packed = PackedMatrix::Pack({DType::kBF16, Shape{kColumns, kColumns}, reinterpret_cast<const std::byte*>(matrix.data())},
                                         {.isa = runtime.isa}, *runtime.threads);
  HONE_CHECK(packed.has_value());
  MatmulScratch scratch(kTokens, kColumns);
  const MatmulJob job{.weight = &*packed, .x = x.data(), .x_stride = kColumns, .y = y.data(), .y_stride = kColumns, .m = kTokens};
  double best = HUGE_VAL;
  for (int round = 0; round < 2; ++round) {
    const double start = runtime.clock->Now();
    Matmul({&job, 1}, scratch, *runtime.threads);
    best = std::min(best, runtime.clock->Now() - start);
  }
  double weights = 0;
  for (const LayerUnit& unit : units) {
    if (!unit.expert) weights += static_cast<double>(unit.rows()) * static_cast<double>(unit.columns());
  }
  return weights * static_cast<double>(tokens) * best / (static_cast<double>(kTokens) * kColumns * kColumns);
}

}  // namespace hone
