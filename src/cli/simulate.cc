// hone simulate: the scheduler and the block pool over a trace, with the steps of a profile or of a planned deployment.
// What is simulated: docs/measure.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "cli/ledger_flags.h"
#include "cli/report_page.h"
#include "measure/plan/read_shape.h"
#include "measure/sha256.h"
#include "measure/simulate/simulate.h"

namespace hone {
namespace {

class SimulateCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("TRACE", trace_file_, "JSON lines: timestamp (ms) or time_s, input_length, output_length, hash_ids; or poisson")->required();
    const char* trace = "TRACE poisson";
    flags.Add("--rate", rates_, "requests a second, one or several to compare (default 1)")->delimiter(',')->range(1e-9, 1e9)->group(trace);
    flags.Add("--requests", requests_, "how many (default 200)")->range(1, kMostSimRequests)->group(trace);
    flags.Add("--input", input_, "tokens of prompts (default 512)")->range(1, kMostSimTokens)->group(trace);
    flags.Add("--output", output_, "tokens of answers (default 128)")->range(1, kMostSimTokens)->group(trace);
    flags.Add("--range", range_, "lengths vary by this share either way (default 0.5)")->range(0.0, 1.0)->group(trace);
    const char* cost = "What steps cost (one of the two)";
    flags.Add("--profile", profile_, "the output of hone profile --json")->group(cost);
    flags.Add("--shape", shape_, "a public shape or config.json, on --card")->group(cost);
    flags.Add("--card", card_, "a known card (hone plan --list)")->group(cost);
    flags.Add("--count", count_, "so many cards, matrices split over them")->range(1, 64)->group(cost);
    flags.Add("--format", format_, "weights as (default bf16)")->group(cost);
    const char* engine = "The engine";
    flags.Add("--policy", policies_, "policies to compare (default fcfs)")->delimiter(',')->group(engine);
    flags.Add("--allocation", allocations_, "paged, contiguous or both (default paged)")
        ->delimiter(',')
        ->one_of({"paged", "contiguous"})
        ->group(engine);
    flags.Add("--kv-tokens", kv_tokens_, "room of the cache in tokens, one or several (default: of --card what weights leave; else enough)")
        ->delimiter(',')
        ->range(32, INT32_MAX)
        ->group(engine);
    flags.Add("--block", blocks_, "tokens of a block of the cache, one or several (default 32, as hone's own)")->delimiter(',')->range(1, 4096)->group(engine);
    flags.Add("--reserve", reserve_, "contiguous: tokens that each sequence reserves (default: --ctx, else the longest request)")
        ->range(1, kMostSimTokens)
        ->group(engine);
    flags.Add("--max-sequences", options_.max_sequences, "sequences running at once (default 16)")->range(1, 4096)->group(engine);
    flags.Add("--step-tokens", options_.step_tokens, "most tokens of a step (default 512)")->range(1, 1 << 16)->group(engine);
    flags.Add("--step-ms", options_.step_ms, "target of a step with running streams (default 100; 0: uncut)")->range(0.0, 1e6)->group(engine);
    flags.AddSwitch("!--no-prefix-cache", options_.prefix_cache, "keep no computed prompts")->group(engine);
    AddLedgerFlags(flags, &ledger_);
    AddPageFlag(flags, &html_);
  }

  Result<int> Run(const CommonFlags& flags) override {
    HONE_RETURN_IF_ERROR(CheckPage(html_, {trace_file_ == "poisson" ? "" : trace_file_, profile_}));
    std::vector<std::vector<SimRequest>> traces;
    std::string name = trace_file_, digest;
    if (trace_file_ == "poisson") {
      for (const double rate : rates_) traces.push_back(PoissonTrace(rate, requests_, input_, output_, range_, flags.seed.value_or(1)));
      name = fmt::format("{} requests, Poisson at {} a second, {} + {} tokens +- {:.0f} %", requests_, fmt::join(rates_, ", "), input_, output_, 100 * range_);
    } else {
      HONE_TRY(const std::string text, ReadText(trace_file_));
      HONE_TRY(auto trace, ParseSimTrace(trace_file_, text));
      name = fmt::format("{}: {} requests", trace_file_, trace.size());
      digest = Sha256Hex(text);
      traces.push_back(std::move(trace));
    }
    HONE_TRY(const CostModel cost, Cost(flags));
    options_.reserve_tokens = reserve_ > 0 ? reserve_ : flags.ctx;
    HONE_TRY(const std::vector<SimResult> results, RunAll(traces, cost));
    HONE_TRY(const auto owner, RuntimeOwner::Create(flags));
    const std::string json = SimJson(results, cost, name);
    LedgerEntry entry = SimEntry(results, cost, name, json);
    entry.model = profile_.empty() ? shape_ : profile_;
    entry.dataset_digest = digest;
    entry.seed = flags.seed.value_or(1);
    HONE_RETURN_IF_ERROR(Deliver(flags.json ? json : SimTable(results, cost, name), html_, ledger_, owner->runtime(), std::move(entry)));
    return kExitDone;
  }

 private:
  // Every combination of the lists. A list that was not given has what options_ says.
  Result<std::vector<SimResult>> RunAll(const std::vector<std::vector<SimRequest>>& traces, const CostModel& cost) const {
    std::vector<SimOptions> options;
    for (const std::string& policy : policies_) {
      for (const std::string& allocation : allocations_) {
        for (const int block : blocks_) {
          for (const int64_t room : kv_tokens_.empty() ? std::vector<int64_t>{options_.kv_tokens} : std::vector<int64_t>(kv_tokens_.begin(), kv_tokens_.end())) {
            options.push_back(options_);
            options.back().policy = policy, options.back().contiguous = allocation == "contiguous";
            options.back().block_tokens = block, options.back().kv_tokens = room;
          }
        }
      }
    }
    std::vector<SimResult> results;
    for (const SimOptions& one : options) {
      for (const std::vector<SimRequest>& trace : traces) {
        HONE_TRY(SimResult result, Simulate(trace, cost, one));
        results.push_back(std::move(result));
      }
    }
    return results;
  }

  Result<CostModel> Cost(const CommonFlags& flags) {
    if (profile_.empty() == shape_.empty()) return UsageError("give --profile FILE (from hone profile --json), or --shape and --card");
    if (!profile_.empty()) {
      HONE_TRY(const std::string text, ReadText(profile_));
      return CostFromProfile(profile_, text);
    }
    Deployment d;
    HONE_TRY(const PlannedModel planned, PlannedFromName(shape_));
    d.shape = planned.shape, d.format = planned.format;
    if (!format_.empty()) {
      const WeightFormat* format = FindWeightFormat(format_);
      if (format == nullptr) return UsageError("--format '" + format_ + "' is not known; hone plan --list prints the formats");
      d.format = *format;
    }
    const KvFormat* kv = FindKvFormat(flags.kv.empty() ? "bf16" : flags.kv);
    if (kv == nullptr) return UsageError("--kv '" + flags.kv + "' is not known; use f32, f16, bf16, fp8, int8, q8_0 or q4_0");
    d.kv = *kv;
    const Hardware* card = FindCard(card_);
    if (card == nullptr) return UsageError(card_.empty() ? "--shape needs --card" : "--card '" + card_ + "' is not known; hone plan --list prints the cards");
    d.hardware = *card;
    d.hardware.count = count_;
    d.efficiency = AssumedEfficiency(d.hardware);
    d.step_tokens = options_.step_tokens;
    const MemoryAccount account = AccountMemory(d);
    const double left = account.usable_bytes - account.weights.total() - account.activation_bytes * count_;
    if (left <= 0) return UsageError(fmt::format("{} of weights do not fit into {}; hone plan {} says how many cards do", SayBytes(account.weights.total()), SayBytes(account.usable_bytes), shape_));
    if (account.kv_token_bytes > 0) options_.kv_tokens = static_cast<int64_t>(std::min(left / account.kv_token_bytes, 2e9)) / 32 * 32;
    return CostFromDeployment(d);
  }

  std::string trace_file_, profile_, shape_, card_, format_;
  std::vector<std::string> policies_ = {"fcfs"}, allocations_ = {"paged"};
  std::vector<double> rates_ = {1};
  std::vector<int> blocks_ = {32}, kv_tokens_;
  double range_ = 0.5;
  int requests_ = 200, input_ = 512, output_ = 128, count_ = 1, reserve_ = 0;
  SimOptions options_;
  LedgerFlags ledger_;
  std::string html_;
};

}  // namespace

std::unique_ptr<Command> MakeSimulateCommand() { return std::make_unique<SimulateCommand>(); }

}  // namespace hone
