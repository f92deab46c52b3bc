// See simulate.h.
#include "measure/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "engine/scheduler.h"
#include "engine/step_controller.h"
#include "measure/statistics.h"

namespace hone {
namespace {

constexpr int kMostBlockTokens = 4096;

struct Live {
  const SimRequest* request = nullptr;
  double first_s = 0, last_s = 0;
  int output = 0, computed = 0;
  bool running = false;   // has blocks
  bool admitted = false;  // had blocks once
};

SimLatency LatencyOf(const std::vector<double>& values) {
  if (values.empty()) return {};
  return {Mean(values), Quantile(values, 0.5), Quantile(values, 0.9), Quantile(values, 0.99), *std::max_element(values.begin(), values.end())};
}

// Ids of a prompt: blocks of the trace have the same ids wherever they stand, the rest is like no other prompt.
std::vector<int32_t> PromptIds(const SimRequest& request, uint64_t number) {
  std::vector<int32_t> ids(request.input);
  for (int i = 0; i < request.input; ++i) {
    const size_t block = static_cast<size_t>(i / kTraceBlockTokens);
    uint64_t hash = block < request.prefix.size() ? request.prefix[block] * 0x9e3779b97f4a7c15 + 1 : (number + 1) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 29)) * 0x94d049bb133111eb + static_cast<uint64_t>(i);
    ids[i] = static_cast<int32_t>((hash ^ (hash >> 31)) & 0x3fffffff);
  }
  return ids;
}

class SimulatedRun {
 public:
  SimulatedRun(std::span<const SimRequest> trace, const CostModel& cost, const SimOptions& options, const Policy* policy)
      : trace_(trace), cost_(cost), pool_(static_cast<int>(options.kv_tokens / options.block_tokens), options.block_tokens),
        scheduler_({.step_tokens = options.step_tokens, .max_sequences = options.max_sequences, .policy = policy,
                    .keep = options.prefix_cache && !options.contiguous, .secret = 1},
                   &pool_),
        controller_(options.step_ms, options.step_tokens) {
    result_.options = options;
  }

  SimResult Run() {
    now_ = trace_.empty() ? 0 : trace_[0].at_s;
    const double start_s = now_;
    while (next_ < trace_.size() || !gate_.empty() || !live_.empty()) {
      Arrive();
      const StepBatch& batch = scheduler_.Schedule(controller_.Budget(scheduler_.demand()));
      if (batch.sequences.empty()) {
        if (next_ >= trace_.size()) break;  // only refused ones were left
        now_ = std::max(now_, trace_[next_].at_s);
        continue;
      }
      Step(batch);
    }
    result_.seconds = now_ - start_s;
    Finish();
    return std::move(result_);
  }

 private:
  void Arrive() {
    for (; next_ < trace_.size() && trace_[next_].at_s <= now_; ++next_) gate_.push_back(next_);
    while (!gate_.empty()) {
      const SimRequest& request = trace_[gate_.front()];
      const int64_t room = result_.options.contiguous ? result_.options.reserve_tokens : 0;
      if (result_.options.contiguous && room > result_.options.kv_tokens) {
        ++result_.refused;
        gate_.pop_front();
        continue;
      }
      if (result_.options.contiguous && (reserved_ + room > result_.options.kv_tokens || static_cast<int>(live_.size()) >= result_.options.max_sequences)) return;
      const uint64_t id = gate_.front() + 1;
      gate_.pop_front();
      const std::vector<int32_t> ids = PromptIds(request, id);
      const bool added = scheduler_.Add({.id = id, .tokens = ids, .final_length = request.input + request.output, .priority = request.priority,
                                         .root = result_.options.prefix_cache && !result_.options.contiguous ? "trace" : ""});
      if (!added) {
        ++result_.refused;
        continue;
      }
      reserved_ += room;
      live_[id].request = &request;
    }
  }

  void Step(const StepBatch& batch) {
    for (const Admission& admission : batch.admitted) {
      Live& live = live_.at(admission.id);
      if (!live.admitted) result_.cached_tokens += admission.cached;
      live.computed = admission.cached;
      live.running = live.admitted = true;
    }
    for (const uint64_t id : batch.preempted) live_.at(id).computed = 0, live_.at(id).running = false;
    StepLoad load;
    StepCost seen;
    for (const StepSequence& step : batch.sequences) {
      if (step.rows == 1 && step.samples) {
        ++load.decodes;
        load.cached += step.first_position;
      } else {
        load.prompt_tokens += step.rows;
        load.positions += step.rows * (step.first_position + 0.5 * step.rows);
      }
      live_.at(step.id).computed = step.first_position + step.rows;
    }
    const double took_s = cost_.seconds(load);
    now_ += took_s;
    busy_s_ += took_s;
    ++result_.steps;
    seen = {load.decodes, load.prompt_tokens, load.positions, 1e3 * took_s};
    controller_.Observe(seen);
    result_.most_running = std::max(result_.most_running, scheduler_.running());
    running_s_ += took_s * scheduler_.running();
    CountWaste(took_s);
    const std::vector<StepSequence> sequences = batch.sequences;
    scheduler_.Commit();
    for (const StepSequence& step : sequences) {
      if (step.samples) Token(step.id);
    }
  }

  void CountWaste(double took_s) {
    double used = 0, paged = 0;
    for (const auto& [id, live] : live_) {
      if (!live.running) continue;
      const std::span<const int32_t> blocks = scheduler_.blocks(id);
      used += live.computed;
      paged += static_cast<double>(blocks.size()) * pool_.block_tokens();
    }
    const double reserved = result_.options.contiguous ? static_cast<double>(reserved_) : paged;
    if (reserved > 0) wasted_s_ += took_s * (1 - used / reserved), held_s_ += took_s;
  }

  void Token(uint64_t id) {
    Live& live = live_.at(id);
    const bool counts = id > static_cast<uint64_t>(result_.options.warm_requests);
    if (live.output == 0) live.first_s = now_;
    if (counts && live.output == 0) ttft_.push_back(now_ - live.request->at_s);
    if (counts && live.output > 0) gaps_.push_back(now_ - live.last_s);
    live.last_s = now_;
    ++live.output;
    if (live.output < live.request->output) {
      scheduler_.Append(id, static_cast<int32_t>((id * 2654435761u + static_cast<uint64_t>(live.output)) & 0x3fffffff));
      return;
    }
    if (counts) total_.push_back(now_ - live.request->at_s);
    if (counts && live.output > 1) tpot_.push_back((now_ - live.first_s) / (live.output - 1));
    ++result_.requests;
    result_.prompt_tokens += live.request->input;
    result_.output_tokens += live.output;
    if (result_.options.contiguous) reserved_ -= result_.options.reserve_tokens;
    scheduler_.Remove(id);
    live_.erase(id);
  }

  void Finish() {
    result_.ttft_s = LatencyOf(ttft_), result_.tpot_s = LatencyOf(tpot_);
    result_.gap_s = LatencyOf(gaps_), result_.total_s = LatencyOf(total_);
    result_.preemptions = scheduler_.preemptions();
    result_.evicted = scheduler_.evicted();
    const double seconds = std::max(1e-12, result_.seconds);
    result_.tok_s = static_cast<double>(result_.output_tokens) / seconds;
    result_.request_s = result_.requests / seconds;
    result_.busy_share = busy_s_ / seconds;
    result_.mean_running = busy_s_ > 0 ? running_s_ / busy_s_ : 0;
    result_.waste = held_s_ > 0 ? wasted_s_ / held_s_ : 0;
    const double span_s = trace_.empty() ? 0 : trace_.back().at_s - trace_.front().at_s;
    result_.arrivals_a_s = span_s > 0 ? static_cast<double>(trace_.size() - 1) / span_s : 0;
  }

  const std::span<const SimRequest> trace_;
  const CostModel& cost_;
  BlockPool pool_;
  Scheduler scheduler_;
  StepController controller_;
  SimResult result_;
  std::unordered_map<uint64_t, Live> live_;
  std::deque<size_t> gate_;  // arrived, not yet given to the scheduler
  size_t next_ = 0;
  int64_t reserved_ = 0;
  double now_ = 0, busy_s_ = 0, running_s_ = 0, wasted_s_ = 0, held_s_ = 0;
  std::vector<double> ttft_, tpot_, gaps_, total_;
};

}  // namespace

Result<SimResult> Simulate(std::span<const SimRequest> trace, const CostModel& cost, const SimOptions& asked) {
  SimOptions options = asked;
  const Policy* policy = FindPolicy(options.policy);
  if (policy == nullptr) {
    std::string known;
    for (const Policy* one : Policies()) known += (known.empty() ? "" : ", ") + std::string(one->name);
    return UsageError(fmt::format("policy '{}' is not known; known: {}", options.policy, known));
  }
  if (options.max_sequences < 1 || options.step_tokens < options.max_sequences)
    return UsageError(fmt::format("{} sequences in steps of {} tokens: wanted at least one token for each", options.max_sequences, options.step_tokens));
  int64_t longest = 1;
  for (const SimRequest& request : trace) longest = std::max<int64_t>(longest, int64_t{request.input} + request.output);
  if (options.reserve_tokens == 0) options.reserve_tokens = static_cast<int>(longest);
  if (options.contiguous && options.reserve_tokens < longest)
    return UsageError(fmt::format("a reservation of {} tokens, but a request becomes {} long", options.reserve_tokens, longest));
  const int64_t block = options.block_tokens;
  if (block < 1 || block > kMostBlockTokens) return UsageError(fmt::format("blocks of {} tokens: wanted 1 to {}", block, kMostBlockTokens));
  const auto blocks = [block](int64_t tokens) { return (tokens + block - 1) / block * block; };
  if (options.kv_tokens == 0) options.kv_tokens = options.max_sequences * blocks(longest);
  options.reserve_tokens = static_cast<int>(blocks(options.reserve_tokens));
  if (options.kv_tokens / block > 1 << 26) return UsageError(fmt::format("a cache of {} tokens: wanted at most 2^26 blocks of {}", options.kv_tokens, block));
  return SimulatedRun(trace, cost, options, policy).Run();
}

}  // namespace hone
