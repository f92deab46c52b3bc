// ServedModel: one set of weights that answers requests. ModelSet: which set answers the next one.
//
// There is one stable model, and at most one canary beside it that gets a share of the new requests. A request holds
// the model it was given until its answer ends, so a change of the set never touches it. A model that is left is
// destroyed by the set's own thread when its last request is done. Loading is done on that thread too.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/random.h"
#include "base/result.h"
#include "engine/engine.h"
#include "serve/adapters.h"
#include "serve/metrics.h"
#include "text/chat_template.h"

namespace hone {

// What a loader makes. `engine` may own whatever it needs (threads, weights) behind the pointer.
struct LoadedWeights {
  std::shared_ptr<Engine> engine;            // not started
  std::shared_ptr<const ChatTemplate> chat;  // may be null
  std::string root;                          // where the weights came from
  uint64_t parameters = 0;                   // of the weights; 0: not known
};
using WeightsLoader = std::function<Result<LoadedWeights>(const std::string& model)>;

struct ServedModel {
  std::shared_ptr<Engine> engine;
  std::shared_ptr<const ChatTemplate> chat;  // may be null
  std::string root;
  uint64_t parameters = 0;  // 0: not known
  AdapterNames adapters;
  bool owned = true;        // false: the engine is the caller's of the server, who stops it
  int number = 1;           // 1 for the first weights of the server, 2 for the next ...
  std::string fingerprint;  // system_fingerprint of answers
  ModelMetrics metrics;

  const Tokenizer& tokenizer() const { return engine->tokenizer(); }
  int context() const { return engine->options().context; }
};

// When a canary is left or taken without a command. Latencies are compared as ratios of means over the same time.
struct CanaryRule {
  int requests = 100;         // choices that the canary must have ended; earlier only errors can end it
  double more_errors = 0.01;  // roll back if its error rate is above the stable one's by more than this
  double slower =
      1.25;  // roll back if its time to first token or between tokens is above the stable one's by this factor
  bool promote = false;  // take it when `requests` are through and nothing speaks against it; false: wait for a command
  bool roll_back = true;  // leave it by itself; false: only say so
};

// Counts since the canary began, of one side.
struct CanarySide {
  uint64_t ended = 0, errors = 0, ttft_count = 0, tpot_count = 0;
  double ttft_s = 0, tpot_s = 0;  // sums
  double error_rate() const { return ended == 0 ? 0 : static_cast<double>(errors) / static_cast<double>(ended); }
  double mean_ttft_s() const { return ttft_count == 0 ? 0 : ttft_s / static_cast<double>(ttft_count); }
  double mean_tpot_s() const { return tpot_count == 0 ? 0 : tpot_s / static_cast<double>(tpot_count); }
};

enum class CanaryVerdict { kWait, kGood, kBad };
// What the rule says of these counts, and why.
CanaryVerdict JudgeCanary(const CanaryRule& rule, const CanarySide& stable, const CanarySide& canary, std::string* why);

// What GET /admin/models shows.
struct CanaryState {
  enum class Phase { kNone, kLoading, kRunning, kPromoted, kRolledBack, kFailed };
  Phase phase = Phase::kNone;
  std::string model, why;  // of the last phase
  double share = 0;
  CanaryRule rule;
  int number = 0;
  CanarySide stable_side, canary_side;
  CanaryVerdict verdict = CanaryVerdict::kWait;
};
std::string_view PhaseText(CanaryState::Phase phase);

class ModelSet {
 public:
  // `loader` may be empty: then nothing can be loaded. `log` may be null.
  ModelSet(std::shared_ptr<ServedModel> first, WeightsLoader loader, Log* log);
  ~ModelSet();  // Stop()
  ModelSet(const ModelSet&) = delete;

  // The model for a new request; never null. Any thread.
  std::shared_ptr<ServedModel> Pick();
  std::shared_ptr<ServedModel> stable() const;
  std::shared_ptr<ServedModel> canary() const;  // may be null
  // The models in memory: the stable one first; also those that only finish their requests.
  std::vector<std::shared_ptr<ServedModel>> all() const;

  // An adapter for the stable weights and for the canary's, under a name that CheckAdapterName takes; new requests find it when
  // this returns. All or nothing. A canary that is loaded later gets it too, from the same path, or fails. Errors: a name that is
  // there already and not to be replaced (kUsage), too many adapters (kLimit), what Engine::LoadAdapter says. Any thread; takes
  // as long as reading the file.
  Result<void> LoadAdapter(const std::string& name, const std::string& path, bool in_place);
  // False: there is none of that name. Requests that use it go on.
  bool UnloadAdapter(const std::string& name);

  // Begins to load; returns at once. Errors: no loader, a canary that loads or runs already (kUsage).
  Result<void> BeginCanary(const std::string& model, double share, const CanaryRule& rule);
  Result<void> SetShare(double share);
  // By command. Errors: there is no running canary (kUsage). Roll back also gives up one that loads.
  Result<void> Promote(const std::string& why);
  Result<void> RollBack(const std::string& why);
  // Looks at the rule; called when a request has ended. Any thread.
  void Judge();
  CanaryState state() const;

  // Ends the engines that the set owns, when no request comes any more.
  void Stop();

 private:
  CanarySide Side(const ServedModel& model, const CanarySide& start) const;
  void Retire(std::shared_ptr<ServedModel> model);
  void Loop();
  void Load(const std::string& name, int number);
  Result<void> LoadAdaptersFor(ServedModel& model);

  const WeightsLoader loader_;
  Log* const log_;
  std::mutex adapters_;  // names and what they stand for change one at a time; taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::shared_ptr<ServedModel> stable_, canary_;
  std::vector<std::shared_ptr<ServedModel>> retired_;
  CanaryState state_;
  CanarySide stable_start_;  // the stable model's counts when the canary began
  std::optional<std::pair<std::string, int>> to_load_;
  int next_number_ = 2;
  Rng rng_;
  bool stop_ = false;
  std::thread thread_;
};

// What is wrong with an adapter's name; `model`: the server's.
std::optional<std::string> CheckAdapterName(const std::string& name, const std::string& model);

// "hone-VERSION-wNUMBER-DIGEST": which weights of this server, and what they are.
std::string WeightsFingerprint(int number, const std::string& digest);

// Begins a short generation, so that the first request does not pay for what is made at first use. The flag becomes
// true when it has ended. Errors: as Engine::Submit.
Result<std::shared_ptr<std::atomic<bool>>> WarmUp(Engine& engine);

}  // namespace hone
