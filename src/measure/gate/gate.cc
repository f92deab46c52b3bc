// See gate.h.
#include "measure/gate/gate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"

namespace hone {
namespace {

constexpr size_t kRankPairs = 10;  // from here on signed ranks tell as much as Student's interval where nothing is far off
constexpr double kSlack = 1e-3;  // of confidence: order statistics reach what they reach

// Standard error that an interval of this confidence stands for, in units of its scale; nullopt for a bare number.
std::optional<double> ErrorOf(double low, double high, double confidence) {
  if (confidence >= 1) return 0.0;
  if (!(confidence > 0) || !(high >= low)) return std::nullopt;
  return (high - low) / (2 * NormalQuantile(0.5 + confidence / 2));
}

// mean +- z * error; a bare number without an error.
Interval Normal(double mean, std::optional<double> error, double confidence) {
  if (!error) return {mean, mean, mean, 0};
  if (*error == 0) return {mean, mean, mean, 1};
  const double half = NormalQuantile(0.5 + confidence / 2) * *error;
  return {mean, mean - half, mean + half, confidence};
}

std::optional<double> Together(std::optional<double> a, std::optional<double> b) {
  if (!a || !b) return std::nullopt;
  return std::sqrt(*a * *a + *b * *b);
}

Interval Exponential(const Interval& logs) {
  return {std::exp(logs.value), std::exp(logs.low), std::exp(logs.high), logs.confidence};
}

std::optional<double> LogError(const Interval& i) {
  if (i.confidence >= 1) return 0.0;
  if (!(i.low > 0)) {  // an end at or below 0 has no logarithm: the other end stands for both
    if (!(i.high > i.value)) return std::nullopt;
    return ErrorOf(2 * std::log(i.value) - std::log(i.high), std::log(i.high), i.confidence);
  }
  return ErrorOf(std::log(i.low), std::log(i.high), i.confidence);
}

// Of what pairs differ by. That two runs of the same are as likely to differ one way as the other is all that ranks need.
Interval OfPairs(std::span<const double> differences, double confidence) {
  const bool ranks = differences.size() >= kRankPairs && differences.size() <= kMostSignedRanks;
  return ranks ? SignedRankInterval(differences, confidence) : StudentMean(differences, confidence);
}

GateFinding JudgeBound(const GateRule& rule, const GateBound& bound, const PairedFigure& figure) {
  GateFinding finding;
  finding.rule = rule.figure + " " + bound.Text();
  finding.figure = figure.name;
  const std::optional<Interval>& of = bound.of == GateBound::Of::kValue   ? figure.next
                                      : bound.of == GateBound::Of::kRatio ? figure.ratio
                                                                          : figure.change;
  if (!of || !std::isfinite(of->value)) {
    finding.reason = bound.of == GateBound::Of::kValue ? "was not measured" : "was not measured on both sides";
    return finding;
  }
  finding.interval = *of;
  if (of->confidence < rule.confidence - kSlack) {
    finding.reason =
        of->confidence > 0
            ? fmt::format("its interval has a confidence of {:.3g}, {:.3g} are wanted: more rounds or seeds",
                          of->confidence, rule.confidence)
            : "it has no interval: more rounds or seeds";
    return finding;
  }
  const double nearest = bound.most ? of->low : of->high, farthest = bound.most ? of->high : of->low;
  const auto within = [&](double x) { return bound.most ? x <= bound.bound : x >= bound.bound; };
  if (within(farthest)) {
    finding.verdict = Verdict::kHolds;
  } else if (!within(nearest)) {
    finding.verdict = Verdict::kFails;
    finding.reason = fmt::format("{:.4g} ({:.4g} - {:.4g})", of->value, of->low, of->high);
  } else {
    finding.reason = fmt::format("{:.4g} ({:.4g} - {:.4g}) has the bound inside", of->value, of->low, of->high);
  }
  return finding;
}

// "ttft_ms.p50[cell]" into "ttft_ms", "p50", "[cell]"; false if it is no percentile.
bool SplitPercentile(const std::string& name, std::string* family, std::string* key, std::string* cell) {
  const size_t bracket = std::min(name.find('['), name.size()), dot = name.rfind('.', bracket);
  if (dot == std::string::npos) return false;
  *family = name.substr(0, dot);
  *key = name.substr(dot + 1, bracket - dot - 1);
  *cell = name.substr(bracket);
  return true;
}

// -1 shown worse, 1 shown better, 0 neither.
int Shown(const PairedFigure& figure, double confidence) {
  if (!figure.ratio || figure.better == Direction::kNeither) return 0;
  const Interval& ratio = *figure.ratio;
  if (ratio.confidence < confidence - kSlack) return 0;
  const int higher = ratio.low > 1 ? 1 : ratio.high < 1 ? -1 : 0;
  return figure.better == Direction::kHigher ? higher : -higher;
}

void JudgeTails(const GateRules& rules, std::span<const PairedFigure> figures, std::vector<GateFinding>* findings) {
  std::map<std::string, const PairedFigure*> by_name;
  for (const PairedFigure& figure : figures) by_name[figure.name] = &figure;
  for (const PairedFigure& figure : figures) {
    std::string family, key, cell;
    if (!SplitPercentile(figure.name, &family, &key, &cell) || key != "p50") continue;
    for (const char* tail : {"p95", "p99", "p999"}) {
      const auto it = by_name.find(family + "." + tail + cell);
      if (it == by_name.end() || Shown(figure, rules.confidence) <= 0 || Shown(*it->second, rules.confidence) >= 0)
        continue;
      const Interval& ratio = *it->second->ratio;
      findings->push_back({"no tail gets worse while the median gets better", it->first, Verdict::kFails, ratio,
                           fmt::format("its ratio is {:.4g} ({:.4g} - {:.4g}), that of {} {:.4g}", ratio.value,
                                       ratio.low, ratio.high, figure.name, figure.ratio->value)});
    }
  }
}

}  // namespace

std::string VerdictName(Verdict verdict) {
  return verdict == Verdict::kHolds ? "holds" : verdict == Verdict::kFails ? "fails" : "not enough evidence";
}

Verdict GateReport::verdict() const {
  bool open = findings.empty() || interrupted;
  for (const GateFinding& finding : findings) {
    if (finding.verdict == Verdict::kFails) return Verdict::kFails;
    open |= finding.verdict == Verdict::kOpen;
  }
  return open ? Verdict::kOpen : Verdict::kHolds;
}

PairedFigure PairValues(const std::string& name, Direction better, std::span<const double> base,
                        std::span<const double> next, double confidence) {
  HONE_CHECK(base.size() == next.size() && !base.empty());
  PairedFigure figure{name, better, StudentMean(base, confidence), StudentMean(next, confidence), {}, {}, ""};
  std::vector<double> logs, changes;
  bool positive = true;
  for (size_t i = 0; i < base.size(); ++i) {
    changes.push_back(next[i] - base[i]);
    positive &= base[i] > 0 && next[i] > 0;
    logs.push_back(positive ? std::log(next[i] / base[i]) : 0);
  }
  figure.change = OfPairs(changes, confidence);
  if (positive) figure.ratio = Exponential(OfPairs(logs, confidence));
  figure.how = fmt::format("paired over {} runs", base.size());
  return figure;
}

std::vector<PairedFigure> PairFigures(std::span<const Figure> base, std::span<const Figure> next, double confidence) {
  std::map<std::string, const Figure*> others;
  for (const Figure& figure : base) others[figure.name] = &figure;
  std::vector<PairedFigure> pairs;
  for (const Figure& figure : next) {
    PairedFigure pair{figure.name, figure.better, {}, figure.interval, {}, {}, "independent runs"};
    const auto it = others.find(figure.name);
    if (it != others.end()) {
      const Interval &a = it->second->interval, &b = figure.interval;
      pair.base = a;
      pair.change =
          Normal(b.value - a.value,
                 Together(ErrorOf(a.low, a.high, a.confidence), ErrorOf(b.low, b.high, b.confidence)), confidence);
      if (a.value > 0 && b.value > 0) {
        pair.ratio = Exponential(Normal(std::log(b.value / a.value), Together(LogError(a), LogError(b)), confidence));
      }
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

std::vector<GateFinding> Judge(const GateRules& rules, std::span<const PairedFigure> figures) {
  std::vector<GateFinding> findings;
  for (const GateRule& rule : rules.rules) {
    bool found = false;
    for (const PairedFigure& figure : figures) {
      if (!MatchesFigure(rule.figure, figure.name)) continue;
      found = true;
      for (const GateBound& bound : rule.bounds) findings.push_back(JudgeBound(rule, bound, figure));
    }
    if (!found)
      findings.push_back({rule.figure, rule.figure, Verdict::kOpen, {}, "no figure of this name was measured"});
  }
  if (rules.tails) JudgeTails(rules, figures, &findings);
  return findings;
}

}  // namespace hone
