// hone bench: prefill and decode of a model, each row beside the roof measured in the same rounds.
//
// What is timed is the model's forward pass as the engine runs it, in steps of at most 512 rows, and the greedy choice;
// not queues, text and HTTP. Before anything is timed the answers are checked (answer_check.h). What each figure means:
// docs/measure.md.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/runtime.h"
#include "formats/checkpoint.h"
#include "kernels/attention/kv_view.h"
#include "measure/roof.h"
#include "measure/rounds.h"
#include "models/model.h"

namespace hone {

struct BenchWork {
  enum class Kind { kPrefill, kDecode } kind = Kind::kPrefill;
  int tokens = 0;            // prefill: of the prompt; decode: steps a round
  int context = 0;           // decode: tokens cached before the first step
  int batch = 1;             // decode: sequences
  std::string Name() const;  // "prefill 512", "decode at 2048, batch 8"
  bool operator==(const BenchWork&) const = default;
};

struct BenchOptions {
  std::vector<int> prefill, context, batch;  // empty: the default lists; {0} for no prefill rows
  int decode = 0;                            // steps a round; 0: 32
  bool no_decode = false;
  int rounds = 0;  // 0: 7, fewer for rows that take long
  KvType kv = KvType::kF16;
  bool exact = false;
};

// The rows that the options ask for, and what was left out of the default lists because the model cannot hold it.
// Errors (usage) for what was asked for by name.
struct BenchPlan {
  std::vector<BenchWork> works;
  std::vector<std::string> skipped;  // "decode at 8192: the model's context is 4096"
  int max_context = 0;               // what a model must be loaded for
};
Result<BenchPlan> PlanBench(const BenchOptions& options, const ModelConfig& config, uint64_t free_bytes);

// A model ready to be timed.
struct BenchModel {
  std::string name;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<Model> model;
  double load_s = 0;
  uint64_t rss_bytes = 0, peak_rss_bytes = 0;  // of the process after loading it
};

struct BenchRow {
  BenchWork work;
  Interval tok_s;               // all sequences together
  double roof_percent = 0;      // median over rounds
  std::string roof_key;         // "read_gbs" or a unit's key
  double roof = 0;              // median over rounds, GB/s or Gop/s
  double bytes = 0, flops = 0;  // of one step (decode, in the middle of the round) or of the whole prompt
  int rounds = 0, retaken = 0;
  bool steady = true;
};

struct CompareRow {
  BenchWork work;
  double tok_s_other = 0;
  Comparison comparison;
};

struct BenchReport {
  std::string model;
  Roof roof;
  std::vector<BenchRow> rows;
  std::vector<std::string> skipped;
  double load_s = 0;
  uint64_t rss_bytes = 0, peak_rss_bytes = 0, weight_bytes = 0;
  std::string kv;
  bool exact = false;
  std::string check;          // what was checked before timing
  std::string compared_with;  // "": with nothing
  std::vector<CompareRow> compared;
  bool interrupted = false;
};

struct BenchCallbacks {
  std::function<void(double share, const std::string& what)> progress;  // may be empty
  std::function<bool()> stop;                                           // may be empty
};

// Runs the plan. `other`, if given, is timed beside `mine` round by round. The report's rows are of `mine`. `roof` goes
// into the report; what rows are held against is measured beside them.
BenchReport RunBench(const BenchModel& mine, const BenchModel* other, const BenchPlan& plan,
                     const BenchOptions& options, Roof roof, const Runtime& runtime, const BenchCallbacks& callbacks);

// Adds to `report` how it compares with an earlier report's JSON. Errors: not a report, no common row.
Result<void> CompareWithReport(const std::string& json, const std::string& name, BenchReport* report);
// The same errors, before anything is timed.
Result<void> CheckReport(const std::string& json, const BenchPlan& plan);

std::string BenchJson(const BenchReport& report, const Runtime& runtime);
std::string BenchTable(const BenchReport& report);

}  // namespace hone
