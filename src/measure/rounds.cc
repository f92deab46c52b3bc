// See rounds.h.
#include "measure/rounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace hone {
namespace {

// How far roofs of a round lie apart, as a share of the highest.
double Disagreement(const std::vector<double>& roofs) {
  const auto [low, high] = std::minmax_element(roofs.begin(), roofs.end());
  return *high <= 0 ? 0 : (*high - *low) / *high;
}

struct Round {
  std::vector<double> seconds, roofs;
  double disagreement = 0;
};

std::string VerdictOnRatio(const Interval& ratio) {
  if (ratio.low > 1) return "faster";
  if (ratio.high < 1) return "slower";
  return "no difference";
}

}  // namespace

Rounds TakeRounds(std::span<const std::function<double()>> works, const std::function<double()>& roof,
                  const RoundRules& rules, const std::function<bool()>& stop) {
  HONE_CHECK(!works.empty() && rules.rounds >= 1);
  std::vector<Round> good, bad;
  Rounds result;
  double used_s = 0, last = roof();
  const int most = rules.rounds * (1 + kRetakes);
  for (int attempt = 0; attempt < most && static_cast<int>(good.size()) < rules.rounds; ++attempt) {
    if (stop && stop()) {
      result.stopped = true;
      break;
    }
    const int taken = static_cast<int>(good.size() + bad.size());
    if (rules.budget_s > 0 && used_s > rules.budget_s && taken >= std::min(rules.least_rounds, rules.rounds)) break;
    Round round;
    round.seconds.resize(works.size());
    round.roofs.resize(works.size());
    std::vector<double> roofs = {last};
    for (size_t i = 0; i < works.size(); ++i) {
      const size_t which = attempt % 2 == 0 ? i : works.size() - 1 - i;
      round.seconds[which] = works[which]();
      const double before = last;
      last = roof();
      round.roofs[which] = (before + last) / 2;
      roofs.push_back(last);
      used_s += round.seconds[which];
    }
    round.disagreement = Disagreement(roofs);
    (round.disagreement <= kRoofAgreement ? good : bad).push_back(std::move(round));
  }
  result.retaken = static_cast<int>(bad.size());
  // Too few agree: the figures are kept, with the mark, rather than nothing.
  const size_t wanted = std::min<size_t>(rules.rounds, std::max<size_t>(rules.least_rounds, 1));
  if (good.size() < wanted && !bad.empty()) {
    result.steady = false;
    std::sort(bad.begin(), bad.end(), [](const Round& a, const Round& b) { return a.disagreement < b.disagreement; });
    for (size_t i = 0; i < bad.size() && good.size() < static_cast<size_t>(rules.rounds); ++i)
      good.push_back(std::move(bad[i]));
  }
  result.seconds.resize(works.size());
  result.roofs.resize(works.size());
  for (const Round& round : good) {
    for (size_t i = 0; i < works.size(); ++i) {
      result.seconds[i].push_back(round.seconds[i]);
      result.roofs[i].push_back(round.roofs[i]);
    }
  }
  return result;
}

Comparison ComparePaired(std::span<const double> seconds_a, std::span<const double> seconds_b) {
  HONE_CHECK(seconds_a.size() == seconds_b.size());
  if (seconds_a.empty()) return {{}, "not enough rounds"};
  std::vector<double> ratios;
  for (size_t i = 0; i < seconds_a.size(); ++i) ratios.push_back(seconds_b[i] / std::max(1e-12, seconds_a[i]));
  Comparison comparison{MedianInterval(ratios, kCompareConfidence), ""};
  comparison.verdict =
      comparison.ratio.confidence < kCompareConfidence ? "not enough rounds" : VerdictOnRatio(comparison.ratio);
  return comparison;
}

Comparison CompareApart(const Interval& a, double roof_a, const Interval& b, double roof_b) {
  Comparison comparison;
  comparison.ratio.value = b.value > 0 ? a.value / b.value : 0;
  comparison.ratio.low = b.high > 0 ? a.low / b.high : 0;
  comparison.ratio.high = b.low > 0 ? a.high / b.low : 0;
  // Both intervals hold their medians with this much at least (Bonferroni).
  comparison.ratio.confidence = std::max(0.0, a.confidence + b.confidence - 1);
  comparison.verdict = Disagreement({roof_a, roof_b}) > kRoofAgreement ? "roofs differ" : VerdictOnRatio(comparison.ratio);
  return comparison;
}

}  // namespace hone
