// hone simulate: the scheduler and the block pool over a trace, with the steps of a profile or of a planned deployment.
// What is simulated: docs/measure.md.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "cli/command.h"
#include "cli/exit_codes.h"
#include "cli/input.h"
#include "measure/plan/read_shape.h"
#include "measure/simulate/simulate.h"

namespace hone {
namespace {

class SimulateCommand : public Command {
 public:
  void AddFlags(Flags& flags) override {
    flags.Add("TRACE", trace_file_, "JSON lines: timestamp (ms) or time_s, input_length, output_length, hash_ids; or poisson")->required();
    const char* trace = "TRACE poisson";
    flags.Add("--rate", rate_, "requests a second (default 1)")->range(1e-9, 1e9)->group(trace);
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
    flags.Add("--kv-tokens", kv_tokens_, "room of the cache in tokens (default: of --card what weights leave; else enough)")
        ->range(32, INT32_MAX)
        ->group(engine);
    flags.Add("--reserve", reserve_, "contiguous: tokens that each sequence reserves (default: --ctx, else the longest request)")
        ->range(1, kMostSimTokens)
        ->group(engine);
    flags.Add("--max-sequences", options_.max_sequences, "sequences running at once (default 16)")->range(1, 4096)->group(engine);
    flags.Add("--step-tokens", options_.step_tokens, "most tokens of a step (default 512)")->range(1, 1 << 16)->group(engine);
    flags.Add("--step-ms", options_.step_ms, "target of a step with running streams (default 100; 0: uncut)")->range(0.0, 1e6)->group(engine);
    flags.AddSwitch("!--no-prefix-cache", options_.prefix_cache, "keep no computed prompts")->group(engine);
  }

  Result<int> Run(const CommonFlags& flags) override {
    std::vector<SimRequest> trace;
    std::string name = trace_file_;
    if (trace_file_ == "poisson") {
      trace = PoissonTrace(rate_, requests_, input_, output_, range_, flags.seed.value_or(1));
      name = fmt::format("{} requests, Poisson at {} a second, {} + {} tokens +- {:.0f} %", requests_, rate_, input_, output_, 100 * range_);
    } else {
      HONE_TRY(const std::string text, ReadText(trace_file_));
      HONE_TRY(trace, ParseSimTrace(trace_file_, text));
      name = fmt::format("{}: {} requests", trace_file_, trace.size());
    }
    HONE_TRY(const CostModel cost, Cost(flags));
    options_.reserve_tokens = reserve_ > 0 ? reserve_ : flags.ctx;
    if (kv_tokens_ > 0) options_.kv_tokens = kv_tokens_;
    std::vector<SimResult> results;
    for (const std::string& policy : policies_) {
      for (const std::string& allocation : allocations_) {
        SimOptions options = options_;
        options.policy = policy;
        options.contiguous = allocation == "contiguous";
        HONE_TRY(SimResult result, Simulate(trace, cost, options));
        results.push_back(std::move(result));
      }
    }
    WriteOut(flags.json ? SimJson(results, cost, name) : SimTable(results, cost, name));
    return kExitDone;
  }

 private:
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
  double rate_ = 1, range_ = 0.5;
  int requests_ = 200, input_ = 512, output_ = 128, count_ = 1, reserve_ = 0;
  int kv_tokens_ = 0;
  SimOptions options_;
};

}  // namespace

std::unique_ptr<Command> MakeSimulateCommand() { return std::make_unique<SimulateCommand>(); }

}  // namespace hone
