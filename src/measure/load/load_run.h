// One run of a load: tasks sent over a transport by an arrival process, one record a request. The driver knows neither
// HTTP nor the wall clock, so its schedule can be tested with a made-up server. What is computed from records:
// load_stats.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "measure/load/arrivals.h"
#include "measure/load/dataset.h"
#include "measure/load/transport.h"

namespace hone {

struct RequestShape {
  bool chat = false;  // /v1/chat/completions; else /v1/completions
  std::string model;
  double temperature = 0;
  bool ignore_eos = true;  // answers have the length that was asked for
  bool usage = true;       // stream_options.include_usage
  std::string extra;       // a JSON object whose members are added; "" for none
};

// What one request asks and, once it is over, what came back.
struct LoadRecord {
  int task = 0, turn = 0;
  double due_s = 0;  // from the start of the run: when it should be sent
  double sent_s = 0;
  double first_s = 0, last_s = 0;  // from the start of the run; 0 if it did not happen
  std::vector<double> gaps_s;      // between chunks with content
  int64_t prompt_tokens = -1;
  int64_t output_tokens = 0;  // of usage; else the chunks
  int64_t cached_tokens = -1;
  bool tokens_counted = false;  // by the server
  bool held = false;            // waited for --concurrency: its lateness is not the client's
  std::string finish_reason, error, error_text;

  bool ok() const { return error.empty(); }
  double ttft_s() const { return first_s - sent_s; }
  double e2e_s() const { return last_s - sent_s; }
  double tpot_s() const {  // REQUIRES: output_tokens > 1
    return (e2e_s() - ttft_s()) / static_cast<double>(output_tokens - 1);
  }
};

struct LoadRun {
  uint64_t seed = 0;
  std::vector<LoadRecord> records;  // in the order in which they ended
  double duration_s = 0;            // from the start to the last end
  double cpu_s = 0;                 // of the client's thread
  double most_active = 0, mean_active = 0;
  int unsent = 0;  // requests that were never sent
  bool interrupted = false;
  std::string gave_up;  // why it ended early; "" if it did not
};

struct RunPlan {
  ArrivalSpec arrivals;
  int concurrency = 0;    // closed: requests at once; else at most so many (0: no limit)
  double duration_s = 0;  // nothing is sent after it; 0: no limit
  double think_s = 0;     // multi-turn: from an answer to the next turn
  uint64_t seed = 0;
};

struct RunCallbacks {
  std::function<void(int done, int of, int active, int failed)> progress;  // may be empty
  std::function<bool()> stop;                                              // may be empty
};

// The JSON body of a turn. `history`: the earlier turns' texts and answers, alternating.
Result<std::string> RequestBody(const RequestShape& shape, const LoadTask& task, int turn,
                                const std::vector<std::string>& history);

// Sends every turn of every task. The server is given up, and what was measured kept, when kConnectTries requests in a
// row found nobody there. Errors: a shape whose `extra` is no JSON object.
inline constexpr int kConnectTries = 10;
Result<LoadRun> RunLoad(const RunPlan& plan, const std::vector<LoadTask>& tasks, const RequestShape& shape,
                        LoadTransport& transport, const RunCallbacks& callbacks);

}  // namespace hone
