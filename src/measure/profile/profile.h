// hone profile: a model under the engine, over input length x output length x requests at once: time to the first token,
// time a token, throughput, memory, energy; where the time goes, phase by phase and op by op, beside the roof; the
// bottleneck of each cell by name; and what hone plan had predicted. Several models, or one with several formats of its
// cache, are variants: every round of a cell runs each of them, the order turning around. How: docs/measure.md.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "engine/engine.h"
#include "formats/checkpoint.h"
#include "measure/ledger/ledger.h"
#include "measure/plan/deployment.h"
#include "measure/plan/fitted.h"
#include "measure/profile/bottleneck.h"
#include "measure/roof.h"
#include "measure/statistics.h"
#include "models/op_times.h"

namespace hone {

struct ProfileOptions {
  std::vector<int> input, output, concurrency;  // empty: the four corners, one at a time
  int rounds = 0;         // 0: 5, fewer for cells that take long
  double cell_s = 20;     // after so much time a cell of default rounds may end; at least 3 rounds
  uint64_t seed = 1;      // of the prompts
};

struct ProfileCell {
  int input = 0, output = 0, concurrency = 1;
  std::string Name() const;  // "512 + 64 tokens, 4 at once"
};
// The cells that the options ask for, every combination; those that `context` cannot hold are left out of the default
// grid and an error (usage) where they were asked for.
Result<std::vector<ProfileCell>> PlanProfile(const ProfileOptions& options, int context);

// Time of one phase of a cell, all rounds together.
struct PhaseTimes {
  PhaseFacts facts;
  std::array<double, kOps> op_s{};  // kOther: what steps took beyond the ops: scheduling, events
};

// A figure of a cell, a value a round: "ttft_ms.p50". Round i of all variants ran side by side.
struct RoundFigure {
  std::string name;
  Direction better = Direction::kLower;
  std::vector<double> values;
};

struct CellResult {
  ProfileCell cell;
  std::vector<RoundFigure> by_round;
  int rounds = 0, requests = 0, errors = 0;
  std::string first_error;
  Interval ttft_s, tpot_s, total_s;  // medians over requests of a round; the interval is over rounds
  Interval tok_s;                    // output tokens of all requests over the round
  Interval prompt_tok_s;
  double queue_s = 0, median_gap_s = 0, p99_gap_s = 0, tokenize_s = 0;
  double kv_bytes = 0;               // at most in use
  uint64_t peak_rss_bytes = 0;
  std::optional<double> joules_a_token;  // output tokens
  PhaseTimes prefill, decode;
  CellFacts facts;
  BottleneckVerdict verdict;
  std::optional<Proposal> next;  // the smallest step of the guide against it
  // What hone plan says with the constants that were there before, and with those fitted to this run.
  double predicted_ttft_s = 0, predicted_tpot_s = 0, fitted_ttft_s = 0, fitted_tpot_s = 0;
};

struct ProfileReport {
  std::string model, kv, kernel;  // kernel: the type of most weights, which the constants belong to
  std::vector<CellResult> cells;
  Roof roof;
  double load_s = 0;
  uint64_t weight_bytes = 0, rss_bytes = 0;
  std::string prefix_cache;   // what prompts could find
  std::string energy;         // "" if it was read, else why not
  Efficiency before, fitted;
  std::vector<std::array<double, 5>> steps;  // decodes, prompt tokens, positions, cached tokens read, seconds: of each step
  bool interrupted = false;
  std::string failed;  // why it ended early; the cells are those measured until then
};

struct ProfileModel {
  std::string name;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<Model> model;
  std::shared_ptr<const Tokenizer> tokenizer;
  Engine* engine = nullptr;  // idle, not started, without a prefix cache
  double load_s = 0;
  std::string kv;      // the cache's format as the user names it
  Efficiency before;   // the constants that predictions are made with
};

struct ProfileCallbacks {
  std::function<void(double share, const std::string& what)> progress;  // may be empty
  std::function<bool()> stop;                                           // may be empty
};

// Runs the cells; a report a variant. Trouble on the way ends the run early and is in the reports (`failed`), with what
// was measured until then. REQUIRES: at least one variant.
std::vector<ProfileReport> RunProfile(std::span<const ProfileModel> variants, const std::vector<ProfileCell>& cells,
                                      const ProfileOptions& options, const Roof& roof, const Runtime& runtime,
                                      const ProfileCallbacks& callbacks);

// The median with a percentile bootstrap interval: seeded draws. Of few values the bootstrap alone holds the median less
// often than it says, so the ends are at least those of MedianInterval, and `confidence` is what these have. REQUIRES: not
// empty.
Interval BootstrapMedian(std::span<const double> values, double confidence, int resamples, uint64_t seed);

// One variant: its report. Several: {"variants": [...]}.
std::string ProfileTable(std::span<const ProfileReport> reports);
std::string ProfileJson(std::span<const ProfileReport> reports, const Runtime& runtime);
// `model_path`: of the first variant. Figures of several have the model and the cache's format in their cells.
LedgerEntry ProfileEntry(std::span<const ProfileReport> reports, const std::string& model_path, const std::string& json);

}  // namespace hone
