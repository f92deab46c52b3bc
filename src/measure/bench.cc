// See bench.h.
#include "measure/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "engine/limits.h"
#include "measure/model_cost.h"
#include "measure/model_runner.h"
#include "measure/roof_json.h"

namespace hone {
namespace {

constexpr int kDefaultDecode = 32;
constexpr int kRowRounds = 7;
constexpr int kLeastRowRounds = 3;
constexpr double kRowBudget_s = 25;  // after this much work a row of the default rounds may end
constexpr int kMostBatch = 256;
constexpr int kMostTokens = 1 << 20;
constexpr int kComputeProbes = 5, kReadProbes = 3;
constexpr int kSeedTokens = 256;  // a context is filled with copies of so many computed tokens

const std::vector<int> kDefaultPrefill = {128, 512, 2048, 8192};
const std::vector<int> kDefaultContext = {0, 2048, 8192};
const std::vector<int> kDefaultBatch = {1, 4, 8, 16, 32};

using Kind = BenchWork::Kind;

// Ids that mean nothing and do not repeat soon.
std::vector<int32_t> Tokens(int count, int vocab, int salt) {
  std::vector<int32_t> ids(count);
  for (int i = 0; i < count; ++i)
    ids[i] = static_cast<int32_t>((uint64_t(i) * 2654435761u + uint64_t(salt) * 40503u + 17) % uint64_t(vocab));
  return ids;
}

// Why a model cannot do a row; "" if it can.
std::string WhyNotWork(const BenchWork& work, const BenchOptions& options, const ModelConfig& config,
                       uint64_t free_bytes) {
  const int longest = work.kind == Kind::kPrefill ? work.tokens : work.context;
  if (longest > config.context) return fmt::format("the model's context is {}", config.context);
  const int length = work.kind == Kind::kPrefill ? work.tokens : work.context + work.tokens;
  const uint64_t kv_bytes = ModelRunner::KvBytes(config, options.kv, work.batch, length);
  if (free_bytes > 0 && kv_bytes > free_bytes / 2) {
    return fmt::format("its KV cache of {:.1f} GiB is more than half of the free memory",
                       static_cast<double>(kv_bytes) / (1 << 30));
  }
  return "";
}

// One model with one row's state.
class Prepared {
 public:
  Prepared(const BenchModel& model, const BenchWork& work, KvType kv, const Runtime& runtime)
      : work_(work),
        runtime_(runtime),
        runner_(*model.model, runtime, kv, work.batch,
                work.kind == Kind::kPrefill ? work.tokens : work.context + work.tokens, work.batch),
        vocab_(model.model->config().vocab) {
    if (work.kind == Kind::kPrefill) {
      prompt_ = Tokens(work.tokens, vocab_, 0);
      runner_.Prefill(0, std::span(prompt_).first(std::min(work.tokens, model.model->options().max_rows)));  // warm-up
      return;
    }
    const int seed = std::min(work.context, kSeedTokens);
    if (seed > 0) {
      runner_.Prefill(0, Tokens(seed, vocab_, 1));
      for (int sequence = work.batch - 1; sequence >= 0; --sequence) runner_.FillByCopy(sequence, work.context, seed);
    }
    Decode(std::min(work.tokens, 4));  // warm-up
  }

  double Run() {
    const double start_s = runtime_.clock->Now();
    if (work_.kind == Kind::kPrefill) {
      runner_.Prefill(0, prompt_);
      runner_.Greedy(1);
    } else {
      Decode(work_.tokens);
    }
    return runtime_.clock->Now() - start_s;
  }

 private:
  void Decode(int steps) {
    std::vector<int32_t> next = Tokens(work_.batch, vocab_, 2);
    std::vector<ModelRunner::Rows> rows(work_.batch);
    for (int step = 0; step < steps; ++step) {
      for (int i = 0; i < work_.batch; ++i) {
        rows[i] = {.sequence = i, .first_position = work_.context + step, .tokens = {&next[i], 1}};
      }
      runner_.Forward(rows);
      const std::vector<int32_t> chosen = runner_.Greedy(work_.batch);
      for (int i = 0; i < work_.batch; ++i) next[i] = std::max(0, chosen[i]);
    }
  }

  const BenchWork work_;
  const Runtime runtime_;
  ModelRunner runner_;
  const int vocab_;
  std::vector<int32_t> prompt_;
};

ModelCost::Step CostOf(const ModelCost& cost, const BenchWork& work, int max_rows) {
  if (work.kind == Kind::kDecode) return cost.Forward(work.batch, 1, work.context + work.tokens / 2);
  ModelCost::Step total;
  for (int first = 0; first < work.tokens; first += max_rows)
    total += cost.Forward(1, std::min(max_rows, work.tokens - first), first);
  return total;
}

double TokensOf(const BenchWork& work) {
  return static_cast<double>(work.tokens) * (work.kind == Kind::kDecode ? work.batch : 1);
}

}  // namespace

std::string BenchWork::Name() const {
  if (kind == Kind::kPrefill) return fmt::format("prefill {}", tokens);
  return fmt::format("decode at {}{}", context, batch > 1 ? fmt::format(", batch {}", batch) : "");
}

Result<BenchPlan> PlanBench(const BenchOptions& options, const ModelConfig& config, uint64_t free_bytes) {
  const auto check = [](const std::vector<int>& list, const char* flag, int least, int most) -> Result<void> {
    for (const int value : list) {
      if (value < least || value > most) {
        return UsageError(fmt::format("{} {}: wanted numbers from {} to {}", flag, value, least, most));
      }
    }
    return {};
  };
  HONE_RETURN_IF_ERROR(check(options.prefill, "--prefill", 0, kMostTokens));
  HONE_RETURN_IF_ERROR(check(options.context, "--context", 0, kMostTokens));
  HONE_RETURN_IF_ERROR(check(options.batch, "--batch", 1, kMostBatch));
  BenchPlan plan;
  const auto add = [&](const BenchWork& work, bool asked) -> Result<void> {
    const std::string why = WhyNotWork(work, options, config, free_bytes);
    if (!why.empty() && asked) return UsageError(work.Name() + ": " + why);
    if (!why.empty()) {
      plan.skipped.push_back(work.Name() + ": " + why);
    } else if (std::find(plan.works.begin(), plan.works.end(), work) == plan.works.end()) {
      plan.works.push_back(work);
    }
    return {};
  };
  for (const int tokens : options.prefill.empty() ? kDefaultPrefill : options.prefill) {
    if (tokens == 0) continue;
    HONE_RETURN_IF_ERROR(add({.kind = Kind::kPrefill, .tokens = tokens}, !options.prefill.empty()));
  }
  if (!options.no_decode) {
    const int steps = options.decode > 0 ? options.decode : kDefaultDecode;
    const auto decode = [&](int context, int batch, bool asked) {
      return add({.kind = Kind::kDecode, .tokens = steps, .context = context, .batch = batch}, asked);
    };
    if (options.context.empty() && options.batch.empty()) {  // the two axes, not their product
      for (const int context : kDefaultContext) HONE_RETURN_IF_ERROR(decode(context, 1, false));
      for (const int batch : kDefaultBatch) HONE_RETURN_IF_ERROR(decode(0, batch, false));
    } else {
      for (const int context : options.context.empty() ? std::vector<int>{0} : options.context) {
        for (const int batch : options.batch.empty() ? std::vector<int>{1} : options.batch) {
          HONE_RETURN_IF_ERROR(decode(context, batch, true));
        }
      }
    }
  }
  if (plan.works.empty())
    return UsageError("nothing to time: --prefill 0 and --no-decode together, or nothing fits this model");
  for (const BenchWork& work : plan.works) {
    plan.max_context =
        std::max(plan.max_context, work.kind == Kind::kPrefill ? work.tokens : work.context + work.tokens);
  }
  return plan;
}

BenchReport RunBench(const BenchModel& mine, const BenchModel* other, const BenchPlan& plan,
                     const BenchOptions& options, Roof roof, const Runtime& runtime, const BenchCallbacks& callbacks) {
  BenchReport report;
  report.model = mine.name;
  report.load_s = mine.load_s, report.rss_bytes = mine.rss_bytes, report.peak_rss_bytes = mine.peak_rss_bytes;
  report.weight_bytes = mine.model->weight_bytes();
  report.exact = options.exact;
  report.skipped = plan.skipped;
  const auto progress = [&](double share, const std::string& what) {
    if (callbacks.progress) callbacks.progress(share, what);
  };
  report.roof = std::move(roof);
  RoofProbe probe(runtime);
  const ModelCost cost(*mine.checkpoint, mine.model->config(), options.kv);
  const int max_rows = mine.model->options().max_rows;
  const bool has_compute = runtime.isa != Isa::kScalar;
  const ComputeUnit unit = cost.PrefillUnit(std::max(runtime.isa, Isa::kAvx2), options.exact);

  // Expected seconds of a round, for the ETA: half of the roof.
  std::vector<double> expected;
  for (const BenchWork& work : plan.works) {
    const ModelCost::Step step = CostOf(cost, work, max_rows);
    const double once = std::max(step.bytes / std::max(1.0, report.roof.read_all_gbs() * 1e9),
                                 step.flops / (report.roof.Gops(unit).value_or(100) * 1e9)) *
                        2;
    const double round = (work.kind == Kind::kDecode ? once * work.tokens : once) * (other != nullptr ? 2 : 1);
    const double rounds = options.rounds > 0
                              ? options.rounds
                              : std::clamp(kRowBudget_s / round, double{kLeastRowRounds}, double{kRowRounds});
    expected.push_back(round * (rounds + 0.5) + 0.1 * rounds);
  }
  const double all = std::accumulate(expected.begin(), expected.end(), 1e-9);

  double done = 0;
  for (size_t i = 0; i < plan.works.size(); ++i) {
    const BenchWork& work = plan.works[i];
    progress(done / all, work.Name());
    const bool prefill = work.kind == Kind::kPrefill && has_compute;
    Prepared first(mine, work, options.kv, runtime);
    std::optional<Prepared> second;
    std::vector<std::function<double()>> works = {[&] { return first.Run(); }};
    if (other != nullptr) {
      second.emplace(*other, work, options.kv, runtime);
      works.push_back([&] { return second->Run(); });
    }
    const auto measure_roof = [&] {
      std::vector<double> rates;
      for (int k = 0; k < (prefill ? kComputeProbes : kReadProbes); ++k)
        rates.push_back(prefill ? probe.Gops(unit) : probe.ReadGbs());
      return Median(rates);
    };
    RoundRules rules{.rounds = options.rounds > 0 ? options.rounds
                               : other != nullptr ? kCompareRounds
                                                  : kRowRounds,
                     .least_rounds = other != nullptr ? kCompareRounds : kLeastRowRounds,
                     .budget_s = options.rounds > 0 ? 0 : kRowBudget_s};
    const Rounds rounds = TakeRounds(works, measure_roof, rules, callbacks.stop);
    done += expected[i];
    report.interrupted = rounds.stopped;
    if (rounds.rounds() == 0) break;

    const ModelCost::Step step = CostOf(cost, work, max_rows);
    BenchRow row{.work = work,
                 .roof_key = prefill ? UnitKey(unit) : "read_gbs",
                 .bytes = step.bytes,
                 .flops = step.flops,
                 .rounds = rounds.rounds(),
                 .retaken = rounds.retaken,
                 .steady = rounds.steady};
    const double work_of_round = prefill ? step.flops : step.bytes * (work.kind == Kind::kDecode ? work.tokens : 1);
    std::vector<double> rates, shares;
    for (int r = 0; r < rounds.rounds(); ++r) {
      rates.push_back(TokensOf(work) / rounds.seconds[0][r]);
      shares.push_back(100 * work_of_round / rounds.seconds[0][r] / (rounds.roofs[0][r] * 1e9));
    }
    row.tok_s = MedianInterval(rates, 0.95);
    row.roof_percent = Median(shares);
    row.roof = Median(rounds.roofs[0]);
    report.rows.push_back(row);
    if (other != nullptr) {
      CompareRow compared{.work = work, .comparison = ComparePaired(rounds.seconds[0], rounds.seconds[1])};
      compared.tok_s_other = TokensOf(work) / Median(rounds.seconds[1]);
      report.compared.push_back(std::move(compared));
    }
    if (rounds.stopped) break;
  }
  if (other != nullptr) report.compared_with = other->name;
  return report;
}

}  // namespace hone
