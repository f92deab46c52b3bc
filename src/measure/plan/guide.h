// The selection guide as code: from what bounds a deployment and what is asked of it, the smallest step that can be
// taken back, with the gain that the roof allows, what could go wrong, and the command that tests it. Pure: the same
// deployment gives the same steps. One line a step in guide.inc; the rules in words: docs/plan.md.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "measure/plan/deployment.h"

namespace hone {

enum class Bottleneck {
  kCompute,
  kWeightBandwidth,
  kKvBandwidth,
  kCapacity,   // weights or cache do not fit
  kQueueing,   // requests wait for a place
  kTokenizer,  // text to ids
  kLongTail,   // some tokens come much later than others
  kLink,       // exchange between cards
  kOverhead,   // what a step costs whatever it does
};
std::string_view BottleneckName(Bottleneck bottleneck);  // "compute", "weight bandwidth", "KV bandwidth", "capacity" ...

// What is asked. 0: not asked.
struct Constraints {
  double ttft_s = 0, tpot_s = 0;
  double p99_gap_s = 0;    // of the gap between two tokens of a stream while prompts come in
  int sequences = 0;       // that must fit at once
  double kld = 0;          // most divergence from the model as it is
  int most_cards = 0;      // 0: as many as it takes
};

// What a step is meant to improve.
enum class Target { kMemory, kTtft, kTpot, kGap };

// What stands in the way of what.
struct Finding {
  Target target = Target::kTpot;
  Bottleneck bottleneck = Bottleneck::kCompute;
  std::string reason;  // the numbers that say so
};
// nullopt: nothing that was asked.
std::optional<Finding> FindBottleneck(const Deployment& deployment, const Constraints& asked);
// What bounds it most where nothing is asked: the larger of prefill and decode in a request's time.
Finding BoundOf(const Deployment& deployment);

struct Proposal {
  std::string move;   // "kv-int8"
  std::string what;   // one line, as an instruction
  std::string gain;   // expected, with its reasoning
  std::string risk;   // what could go wrong
  std::string test;   // the command that tests it
  std::string undo;
  Deployment after;
};

// The steps that help against it, the smallest (easiest to take back) first. `model`: how commands name it.
std::vector<Proposal> Propose(const Deployment& deployment, const Finding& finding, const Constraints& asked,
                              const std::string& model);

// A plan: the first proposal is taken, the rest judged again, until all that is asked holds or nothing helps.
struct PlanStep {
  Finding finding;
  Proposal proposal;
};
struct StepPlan {
  std::vector<PlanStep> steps;
  Deployment end;
  std::optional<Finding> open;  // what still does not hold
};
StepPlan MakeStepPlan(const Deployment& deployment, const Constraints& asked, const std::string& model);

// "7.1 ms", "1.25 s"
std::string SaySeconds(double seconds);

}  // namespace hone
