// A gate: pass or fail on numbers with their uncertainty. Holds, fails, or cannot tell: a rule holds only when the
// whole interval is within its bound, and fails only when the whole interval is outside. Pure functions: who measures
// is cli/gate.cc. docs/measure.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/gate/rules.h"
#include "measure/ledger/figure.h"

namespace hone {

enum class Verdict { kHolds, kFails, kOpen };  // kOpen: not enough evidence
std::string VerdictName(Verdict verdict);      // "holds", "fails", "not enough evidence"

// A figure of BASE and NEW. An interval whose confidence is 0 is a bare number; 1 means that it is exact.
struct PairedFigure {
  std::string name;
  Direction better = Direction::kNeither;
  std::optional<Interval> base, next;
  std::optional<Interval> ratio, change;  // of next to base; next - base
  std::string how;                        // "paired over 5 seeds", "independent runs"
};

// One bound of one rule on one figure.
struct GateFinding {
  std::string rule;    // "decode_tok_s[*] ratio >= 0.95"
  std::string figure;  // the cell
  Verdict verdict = Verdict::kOpen;
  Interval interval;  // of what is bounded
  std::string reason;
};

struct GateReport {
  std::string base, next;
  std::vector<PairedFigure> figures;
  std::vector<GateFinding> findings;
  std::vector<std::string> notes;  // what differs between the two beside what was changed
  bool interrupted = false;
  Verdict verdict() const;  // fails if one fails, else open if one is, else holds
};

// Values of runs that belong together in pairs (same seed, same moment): the log ratio and the difference with Student's
// intervals of the mean, from 10 pairs on with those of signed ranks, which a few outliers do not widen. No ratio if a value is not
// above 0. REQUIRES: as many values on both sides, at least one.
PairedFigure PairValues(const std::string& name, Direction better, std::span<const double> base,
                        std::span<const double> next, double confidence);

// Figures of two runs that know nothing of each other, by name. The ratio's interval takes each figure's as log-normal
// about its value, the difference's as normal; bare numbers give bare numbers.
std::vector<PairedFigure> PairFigures(std::span<const Figure> base, std::span<const Figure> next, double confidence);

// What `hone bench NEW --compare BASE --json`, `profile NEW BASE --json`, `eval kld NEW --base BASE --json` and `eval tasks
// NEW --compare BASE --json` say, whose comparisons are made on the same rounds, tokens and items. Errors: not such a
// result.
Result<std::vector<PairedFigure>> PairedOfResult(std::string_view json, double confidence);

// Judges every bound of every rule on every figure that it names, and the tails.
std::vector<GateFinding> Judge(const GateRules& rules, std::span<const PairedFigure> figures);

std::string GateJson(const GateReport& report);
std::string GateTable(const GateReport& report);

}  // namespace hone
