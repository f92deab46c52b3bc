// Needles: a sentence with a number, hidden at a depth of a long text; is the number told when the model is asked for
// it? A grid of lengths by depths, greedy answers, right if the number stands in the answer.
//
// The text is made of plain sentences (or taken from a file), the same for all depths of a length, so that a prefix
// cache computes it once up to the needle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/ledger/ledger.h"
#include "measure/statistics.h"
#include "measure/tasks.h"

namespace hone {

struct NeedleOptions {
  std::vector<int> lengths;    // of prompts, in tokens; empty: 256, 512 ... up to the context
  std::vector<double> depths;  // 0: at the beginning, 1: at the end; empty: 0, 0.25, 0.5, 0.75, 1
  int trials = 3;              // needles a cell
  uint64_t seed = 1;
  int max_tokens = 24;         // of an answer
};

struct NeedleCell {
  int length = 0;
  double depth = 0;
  int right = 0, of = 0;
  double tokens = 0;  // of the prompts, mean
};

struct NeedleReport {
  std::vector<int> lengths;
  std::vector<double> depths;
  std::vector<NeedleCell> cells;  // [lengths][depths]
  bool interrupted = false;       // cells count what was done: `of` is 0 where nothing was
  std::string failed;             // why it ended early, if it did; the same of its cells
  Interval accuracy() const;      // of all cells, Wilson 95 %
};

// The options with their defaults for a model of this context. Errors (usage): a length that the context cannot hold
// with its answer, a depth outside of [0, 1].
Result<NeedleOptions> ResolveNeedles(NeedleOptions options, int context);

// The items of one length: [depths][trials]. Each prompt has at most `length` tokens, less by no more than a sentence
// where `haystack` ("" for sentences of hone's own) is long enough; a file that is too short is repeated.
TaskSet MakeNeedles(const NeedleOptions& options, int length, const std::string& haystack, const Tokenizer& tokenizer,
                    bool chat, std::vector<int>* tokens);

Result<NeedleReport> RunNeedles(const NeedleOptions& options, const std::string& haystack, const TaskModel& model,
                                const Runtime& runtime, KvType kv,
                                const std::function<void(double share, int right, int done)>& progress,
                                const std::function<bool()>& stop);

std::string NeedleJson(const NeedleReport& report, const std::string& model, const std::string& kv);
std::string NeedleTable(const NeedleReport& report, const std::string& model, const std::string& kv);

LedgerEntry NeedleEntry(const NeedleReport& report, const std::string& model, const std::string& model_path, const std::string& json);

}  // namespace hone
