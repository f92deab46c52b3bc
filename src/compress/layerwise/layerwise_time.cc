// See layerwise_time.h.
#include "compress/layerwise/layerwise_time.h"

#include <algorithm>
#include <set>

#include "base/random.h"
#include "compress/gptq/gptq.h"

namespace hone {

LayerwiseWork CountLayerwiseWork(const std::vector<LayerUnit>& units, uint64_t tokens) {
  LayerwiseWork work;
  std::set<std::string> seen;
  const double t = static_cast<double>(tokens);
  for (const LayerUnit& unit : units) {
    const double rows = static_cast<double>(unit.rows()), n = static_cast<double>(unit.columns());
    // Experts see their share; that it is a small one is not counted, nor that there are many of them.
    if (!unit.expert) work.products += 2 * t * rows * n;  // as it is, and as quantised
    work.sweeps += rows * n * n / 2;
    if (!seen.insert(unit.input).second) continue;
    if (!unit.expert) work.products += t * n * n / 2;
    work.factors += n * n * n;
  }
  return work;
}

double EstimateLayerwiseSeconds(const std::vector<LayerUnit>& units, uint64_t tokens, const Runtime& runtime) {
  constexpr int64_t kColumns = 512, kRows = 128, kTokens = SecondMoments::kTokensTogether;
  Rng rng(1);
  std::vector<float> x(static_cast<size_t>(kTokens * kColumns)), w(static_cast<size_t>(kRows * kColumns));
  for (float& value : x) value = static_cast<float>(rng.Uniform() - 0.5);
  for (float& value : w) value = static_cast<float>(rng.Uniform() - 0.5);
  const Clock& clock = *runtime.clock;
  double products = 1e9, factors = 1e9, sweeps = 1e9;  // seconds of the sample, the better of two
  for (int round = 0; round < 2; ++round) {
    const double start = clock.Now();
    SecondMoments moments(kColumns, runtime);
    moments.Add(x.data(), kColumns, kTokens);
    moments.Finish();
    const double summed = clock.Now();
    const GptqFactor factor =
        MakeGptqFactor(moments.h(), kColumns, ColumnOrder::kNatural, 0, 0.01, *runtime.threads, runtime.isa);
    const double factored = clock.Now();
    const GptqOptions options{.grid = {GridRule::kGptq, 4, true}, .group = 64, .isa = runtime.isa, .search_scale = true};
    QuantizeGptq(w, kRows, factor, options, *runtime.threads);
    products = std::min(products, summed - start);
    factors = std::min(factors, factored - summed);
    sweeps = std::min(sweeps, clock.Now() - factored);
  }
  const LayerwiseWork work = CountLayerwiseWork(units, tokens);
  constexpr double kN = kColumns;
  return work.products * products / (kTokens * kN * kN / 2) + work.factors * factors / (kN * kN * kN) +
         work.sweeps * sweeps / (kRows * kN * kN / 2);
}

}  // namespace hone
