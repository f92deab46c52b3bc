// See load_run.h.
#include "measure/load/load_run.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <queue>

#include "measure/json_text.h"

namespace hone {
namespace {

using nlohmann::ordered_json;

constexpr double kTickS = 0.1;  // progress and Ctrl-C are looked at so often

// A task whose next turn is to be sent.
struct Due {
  double at_s = 0;
  int task = 0, turn = 0;
  bool operator>(const Due& other) const { return std::tie(at_s, task) > std::tie(other.at_s, other.task); }
};

struct Flying {
  LoadRecord record;
  double start_s = 0;
};

class Driver {
 public:
  Driver(const RunPlan& plan, const std::vector<LoadTask>& tasks, const RequestShape& shape, LoadTransport& transport,
         const RunCallbacks& callbacks)
      : plan_(plan), tasks_(tasks), shape_(shape), transport_(transport), callbacks_(callbacks) {
    for (const LoadTask& task : tasks) total_ += static_cast<int>(task.turns.size());
    history_.resize(tasks.size());
    if (plan.arrivals.kind == ArrivalKind::kClosed) return;
    if (plan.arrivals.kind == ArrivalKind::kTrace) {
      for (const LoadTask& task : tasks) times_.push_back(task.at_s);
    } else {
      times_ = ArrivalTimes(plan.arrivals, static_cast<int>(tasks.size()), plan.seed);
    }
  }

  Result<LoadRun> Run() {
    run_.seed = plan_.seed;
    const double cpu_s = transport_.CpuSeconds();
    start_s_ = transport_.Now();
    const LoadTransport::Done done = [&](int64_t id, StreamOutcome outcome) { Take(id, std::move(outcome)); };
    while (true) {
      const double now_s = Elapsed();
      if (callbacks_.stop && callbacks_.stop()) {
        run_.interrupted = true;
        break;
      }
      if (!run_.gave_up.empty()) break;
      HONE_RETURN_IF_ERROR(SendDue(now_s));
      if (flying_.empty() && !MoreToSend(now_s)) break;
      transport_.Poll(Wait(), done);
      if (callbacks_.progress && Elapsed() >= next_progress_s_) {
        next_progress_s_ = Elapsed() + kTickS;
        callbacks_.progress(static_cast<int>(run_.records.size()), total_, static_cast<int>(flying_.size()), failed_);
      }
    }
    transport_.CancelAll(done);
    run_.cpu_s = transport_.CpuSeconds() - cpu_s;
    if (run_.duration_s == 0 || run_.interrupted) run_.duration_s = Elapsed();
    run_.unsent = total_ - static_cast<int>(run_.records.size());
    run_.mean_active = run_.duration_s > 0 ? active_integral_ / run_.duration_s : 0;
    return std::move(run_);
  }

 private:
  double Elapsed() { return transport_.Now() - start_s_; }
  bool closed() const { return plan_.arrivals.kind == ArrivalKind::kClosed; }
  bool Full() const { return plan_.concurrency > 0 && static_cast<int>(flying_.size()) >= plan_.concurrency; }
  bool TimeUp(double now_s) const { return plan_.duration_s > 0 && now_s >= plan_.duration_s; }
  bool MoreToSend(double now_s) const { return !TimeUp(now_s) && (next_task_ < tasks_.size() || !turns_.empty()); }

  // The next request that may be sent at `now_s`, and since when it was due.
  bool Pop(double now_s, Due* due) {
    const bool turn = !turns_.empty() && turns_.top().at_s <= now_s;
    if (turn) {
      *due = turns_.top();
      turns_.pop();
      return true;
    }
    if (next_task_ >= tasks_.size()) return false;
    // Closed: a conversation that waits for its next turn still holds its place.
    if (closed() && static_cast<int>(flying_.size() + turns_.size()) >= plan_.concurrency) return false;
    const double at_s = closed() ? freed_s_ : times_[next_task_];
    if (at_s > now_s) return false;
    *due = {at_s, static_cast<int>(next_task_++), 0};
    return true;
  }

  Result<void> SendDue(double now_s) {
    if (TimeUp(now_s)) return {};
    while (true) {
      if (Full()) {
        held_ = true;
        return {};
      }
      Due due;
      if (!Pop(Elapsed(), &due)) {
        held_ = false;
        return {};
      }
      HONE_TRY(const std::string body, RequestBody(shape_, tasks_[due.task], due.turn, history_[due.task]));
      const int64_t id = next_id_++;
      Flying& flying = flying_[id];
      flying.record.task = due.task;
      flying.record.turn = due.turn;
      flying.record.due_s = due.at_s;
      flying.record.held = held_ && !closed();
      CountActive(1);
      transport_.Start(id, body);
    }
  }

  double Wait() {
    double wake_s = Elapsed() + kTickS;
    if (!Full() && !TimeUp(Elapsed())) {
      if (!turns_.empty()) wake_s = std::min(wake_s, turns_.top().at_s);
      if (!closed() && next_task_ < tasks_.size()) wake_s = std::min(wake_s, times_[next_task_]);
    }
    return std::max(0.0, wake_s - Elapsed());
  }

  void CountActive(int change) {
    const double now_s = Elapsed();
    active_integral_ += active_ * (now_s - active_since_s_);
    active_since_s_ = now_s;
    active_ += change;
    run_.most_active = std::max(run_.most_active, active_);
  }

  void Take(int64_t id, StreamOutcome outcome) {
    const auto it = flying_.find(id);
    if (it == flying_.end()) return;
    LoadRecord record = std::move(it->second.record);
    flying_.erase(it);
    CountActive(-1);
    record.sent_s = outcome.sent_s - start_s_;
    if (outcome.first_s > 0) record.first_s = outcome.first_s - start_s_;
    if (outcome.last_s > 0) record.last_s = outcome.last_s - start_s_;
    for (size_t i = 1; i < outcome.chunk_s.size(); ++i) {
      record.gaps_s.push_back(outcome.chunk_s[i] - outcome.chunk_s[i - 1]);
    }
    record.prompt_tokens = outcome.prompt_tokens;
    record.cached_tokens = outcome.cached_tokens;
    record.tokens_counted = outcome.completion_tokens >= 0;
    record.output_tokens =
        record.tokens_counted ? outcome.completion_tokens : static_cast<int64_t>(outcome.chunk_s.size());
    record.finish_reason = std::move(outcome.finish_reason);
    record.error = std::move(outcome.error);
    record.error_text = std::move(outcome.error_text);
    const bool cancelled = record.error == "cancelled";
    if (!cancelled) {
      freed_s_ = Elapsed();
      run_.duration_s = freed_s_;
      failed_ += !record.ok();
      unreached_ = record.error == "connect" ? unreached_ + 1 : 0;
      if (unreached_ >= std::min(kConnectTries, total_) && run_.gave_up.empty()) {
        run_.gave_up = "the server cannot be reached: " + record.error_text;
      }
    }
    const LoadTask& task = tasks_[record.task];
    const int next = record.turn + 1;
    if (record.ok() && next < static_cast<int>(task.turns.size())) {
      history_[record.task].push_back(task.turns[record.turn].text);
      history_[record.task].push_back(std::move(outcome.text));
      turns_.push({Elapsed() + plan_.think_s, record.task, next});
    } else {
      history_[record.task].clear();
    }
    run_.records.push_back(std::move(record));
  }

  const RunPlan& plan_;
  const std::vector<LoadTask>& tasks_;
  const RequestShape& shape_;
  LoadTransport& transport_;
  const RunCallbacks& callbacks_;

  std::vector<double> times_;  // of the tasks; none in a closed loop
  size_t next_task_ = 0;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> turns_;
  std::vector<std::vector<std::string>> history_;
  std::map<int64_t, Flying> flying_;
  int64_t next_id_ = 0;
  double start_s_ = 0, freed_s_ = 0, next_progress_s_ = 0;
  double active_ = 0, active_since_s_ = 0, active_integral_ = 0;
  bool held_ = false;
  int total_ = 0, failed_ = 0, unreached_ = 0;
  LoadRun run_;
};

}  // namespace

Result<std::string> RequestBody(const RequestShape& shape, const LoadTask& task, int turn,
                                const std::vector<std::string>& history) {
  ordered_json body;
  const LoadTurn& now = task.turns[static_cast<size_t>(turn)];
  body["model"] = shape.model;
  if (shape.chat) {
    ordered_json messages = ordered_json::array();
    if (!task.system.empty()) messages.push_back({{"role", "system"}, {"content", task.system}});
    for (size_t i = 0; i < history.size(); ++i) {
      messages.push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", history[i]}});
    }
    messages.push_back({{"role", "user"}, {"content", now.text}});
    body["messages"] = std::move(messages);
  } else {
    std::string prompt = task.system;
    const auto add = [&](const std::string& text) { prompt += (prompt.empty() ? "" : " ") + text; };
    for (const std::string& text : history) add(text);
    add(now.text);
    body["prompt"] = std::move(prompt);
  }
  body["max_tokens"] = now.output_tokens;
  body["temperature"] = shape.temperature;
  if (shape.ignore_eos) body["ignore_eos"] = true;
  body["stream"] = true;
  if (shape.usage) body["stream_options"] = {{"include_usage", true}};
  if (!shape.extra.empty()) {
    const ordered_json extra = ParseJson(shape.extra);
    if (!extra.is_object()) return UsageError("--extra '" + shape.extra + "': wanted a JSON object");
    for (const auto& [key, value] : extra.items()) body[key] = value;
  }
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

Result<LoadRun> RunLoad(const RunPlan& plan, const std::vector<LoadTask>& tasks, const RequestShape& shape,
                        LoadTransport& transport, const RunCallbacks& callbacks) {
  return Driver(plan, tasks, shape, transport, callbacks).Run();
}

}  // namespace hone
