// See profile.h. Engines are stepped on the calling thread, so each step can be timed and told apart: a step with
// prompt tokens is prefill (decoding streams that ride along are counted with it), one without is decode.
#include "measure/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "base/memory.h"
#include "base/random.h"
#include "cache/free_memory.h"
#include "engine/step_controller.h"
#include "measure/model_cost.h"
#include "measure/plan/read_shape.h"
#include "measure/profile/energy.h"
#include "measure/simulate/simulate.h"

namespace hone {
namespace {

constexpr int kCellRounds = 5, kLeastCellRounds = 3;
constexpr int kResamples = 2000;
constexpr double kCellConfidence = 0.95;
constexpr int kWarmOutput = 4;  // tokens of the round that warms up
const std::vector<int> kDefaultInput = {128, 1024}, kDefaultOutput = {32, 128}, kDefaultConcurrency = {1};

constexpr char kText[] =
    "The harbour was quiet when the boats came back. Twelve of them had gone out before sunrise, and by noon eleven lay "
    "at the wall; the last, painted green, brought 3,450 kg of herring and a story that nobody believed until 1987. ";

// Everything about one request while it runs.
struct Request {
  double submitted_s = 0, first_s = 0, last_s = 0, queue_s = 0;
  int output = 0, cached = 0, preemptions = 0, length = 0;
  std::vector<double> gaps;
  bool done = false;
  std::string error;
};

struct Round {
  std::vector<Request> requests;
  double seconds = 0;
  int most_running = 0;
  double most_blocks = 0;
  std::optional<double> joules;
};

class Profiler {
 public:
  Profiler(const ProfileModel& model, const Runtime& runtime, const ProfileOptions& options)
      : model_(model), runtime_(runtime), rng_(options.seed),
        cost_(*model.checkpoint, model.model->config(), model.engine->options().kv) {
    times_.clock = runtime.clock;
  }

  // One round of a cell: all requests at once, stepped to the end.
  Result<Round> Run(const ProfileCell& cell, CellResult* result, bool timed, const std::function<bool()>& stop) {
    Round round;
    round.requests.resize(cell.concurrency);
    input_ = cell.input, prompt_done_ = 0;
    std::vector<SequenceId> ids;
    for (int i = 0; i < cell.concurrency; ++i) {
      HONE_TRY(const SequenceId id, Submit(cell, &round.requests[i]));
      ids.push_back(id);
    }
    if (timed) model_.model->TimeOps(&times_);
    energy_.Joules();
    const double start_s = Now();
    bool more = true;
    while (more && !(stop && stop())) {
      const double before_s = Now();
      const auto ops = times_.seconds;
      Lengths before;
      for (const Request& request : round.requests) before.push_back({request.length, request.done});
      more = model_.engine->Step();
      if (timed) Account(before, round.requests, ops, Now() - before_s, result);
      const EngineStats stats = model_.engine->stats();
      round.most_running = std::max(round.most_running, stats.running);
      round.most_blocks = std::max(round.most_blocks, static_cast<double>(stats.blocks_used));
    }
    if (more) {  // stopped: the engine lives longer than the requests that its events go to
      for (const SequenceId id : ids) model_.engine->Cancel(id);
      while (model_.engine->Step()) {
      }
    }
    round.seconds = Now() - start_s;
    round.joules = energy_.Joules();
    model_.model->TimeOps(nullptr);
    return round;
  }

  // Seconds to tokenise a text of about so many tokens: the median of a few times.
  double TokenizeSeconds(int tokens) {
    std::string text;
    const size_t a_piece = std::max<size_t>(1, model_.tokenizer->Encode(kText, {}).size());
    while (text.size() < (static_cast<size_t>(tokens) / a_piece + 1) * sizeof(kText)) text += kText;
    const size_t all = std::max<size_t>(1, model_.tokenizer->Encode(text, {}).size());
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i) {
      const double start_s = Now();
      model_.tokenizer->Encode(text, {});
      seconds.push_back((Now() - start_s) * tokens / static_cast<double>(all));
    }
    return Median(seconds);
  }

  const EnergyMeter& energy() const { return energy_; }
  std::vector<MeasuredStep> measured;  // every timed step
  std::vector<std::array<double, 5>> steps;

 private:
  using Lengths = std::vector<std::pair<int, bool>>;  // known tokens before a step; whether the request was done
  double Now() const { return runtime_.clock->Now(); }

  Result<SequenceId> Submit(const ProfileCell& cell, Request* request) {
    SequenceRequest asked;
    const auto vocab = static_cast<uint64_t>(model_.model->config().vocab);
    for (int i = 0; i < cell.input; ++i) asked.prompt.push_back(static_cast<int32_t>(rng_.Below(vocab)));
    asked.max_tokens = cell.output;
    asked.ignore_end = true;
    asked.sampling.temperature = 0;
    request->length = cell.input;
    request->submitted_s = Now();
    return model_.engine->Submit(std::move(asked), [this, request](const SequenceEvent& event) {
      const double now = Now();
      const int tokens = static_cast<int>(event.tokens.size());
      if (tokens > 0 && request->output == 0) request->first_s = now;
      if (tokens > 0 && request->output > 0) request->gaps.push_back((now - request->last_s) / tokens);
      if (tokens > 0) request->last_s = now;
      request->output += tokens;
      request->length += tokens;
      if (event.finish == FinishReason::kNone) return;
      request->done = true;
      request->queue_s = event.queue_s;
      request->cached = event.cached_tokens;
      request->preemptions = event.preemptions;
      if (event.finish == FinishReason::kError) request->error = event.error;
    });
  }

  // Adds a step to its phase. What it did comes from the engine's record; how long the contexts are, from the requests.
  void Account(const Lengths& before, const std::vector<Request>& requests, const std::array<double, kOps>& ops,
               double seconds, CellResult* result) {
    const std::vector<StepRecord> records = model_.engine->StepsAfter(last_step_);
    if (records.empty()) return;
    const StepRecord& record = records.back();
    last_step_ = record.number;
    const bool prefill = record.prompt_tokens > 0;
    PhaseTimes& phase = prefill ? result->prefill : result->decode;
    double cached = 0;  // tokens that decoding sequences read
    int decoding = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      if (before[i].second || requests[i].first_s == 0 || requests[i].length == before[i].first) continue;
      if (requests[i].output <= 1) continue;  // its prompt ended in this step
      cached += before[i].first, ++decoding;
    }
    ModelCost::Step all, weights;
    double positions = 0;
    if (prefill) {
      for (int rows = record.prompt_tokens; rows > 0;) {  // prompts are computed one after the other
        const int first = static_cast<int>(prompt_done_ % input_), part = std::min(rows, input_ - first);
        const ModelCost::Step piece = cost_.Forward(1, part, first);
        all.bytes += piece.bytes - (rows == record.prompt_tokens ? 0 : cost_.Forward(1, part, 0).bytes);
        all.flops += piece.flops;
        positions += part * (first + 0.5 * part);
        prompt_done_ += part, rows -= part;
      }
      if (record.decode_tokens > 0) {  // riders: their cache and their arithmetic; weights are read once
        const ModelCost::Step riders = cost_.Forward(record.decode_tokens, 1, decoding > 0 ? static_cast<int64_t>(cached / decoding) : 0);
        all.bytes += riders.bytes - cost_.Forward(record.decode_tokens, 1, 0).bytes;
        all.flops += riders.flops;
      }
      weights = cost_.Forward(1, record.prompt_tokens, 0);
    } else {
      const int64_t mean = record.decode_tokens > 0 ? static_cast<int64_t>(cached / std::max(1, decoding)) : 0;
      all = cost_.Forward(std::max(1, record.decode_tokens), 1, mean);
      weights = cost_.Forward(std::max(1, record.decode_tokens), 1, 0);
    }
    const double weight_bytes = std::min(all.bytes, std::min(weights.bytes, cost_.weight_bytes()));
    phase.facts.seconds += seconds;
    phase.facts.weight_bytes += weight_bytes;
    phase.facts.kv_bytes += all.bytes - weight_bytes;
    phase.facts.flops += all.flops;
    ++phase.facts.steps;
    double known = 0;
    for (int op = 0; op < kOps; ++op) {
      const double spent = times_.seconds[op] - ops[op];
      phase.op_s[op] += spent;
      known += spent;
    }
    phase.op_s[static_cast<int>(Op::kOther)] += std::max(0.0, seconds - known);
    measured.push_back({all.bytes, all.flops, prefill, seconds, std::max(1, record.decode_tokens), all.bytes - weight_bytes});
    steps.push_back({static_cast<double>(record.decode_tokens), static_cast<double>(record.prompt_tokens), positions, cached, seconds});
  }

  const ProfileModel& model_;
  const Runtime runtime_;
  Rng rng_;
  const ModelCost cost_;
  OpTimes times_;
  EnergyMeter energy_;
  uint64_t last_step_ = 0;
  int input_ = 1;             // tokens of a prompt of the round
  int64_t prompt_done_ = 0;   // prompt tokens computed in the round
};

Interval Over(const std::vector<double>& rounds) {
  if (rounds.empty()) return {};
  return BootstrapMedian(rounds, kCellConfidence, kResamples, 1);
}

// Figures of a round, kept by name in the order in which they came first.
struct RoundFigures {
  std::vector<RoundFigure> all;

  void Add(const std::string& name, double value, Direction better) {
    auto it = std::find_if(all.begin(), all.end(), [&](const RoundFigure& figure) { return figure.name == name; });
    if (it == all.end()) it = all.insert(all.end(), {name, better, {}});
    it->values.push_back(value);
  }
  // Median and 99th percentile, in milliseconds; of one value the two are the same and only the first is kept.
  void AddSpread(const std::string& name, const std::vector<double>& seconds) {
    if (seconds.empty()) return;
    Add(name + ".p50", 1e3 * Median(seconds), Direction::kLower);
    if (seconds.size() > 1) Add(name + ".p99", 1e3 * Quantile(seconds, 0.99), Direction::kLower);
  }
};

void Summarise(const ProfileCell& cell, const std::vector<Round>& rounds, double block_bytes, CellResult* result) {
  std::vector<double> ttft, tpot, total, tok_s, prompt_tok_s, gaps, queue;
  RoundFigures figures;
  double joules = 0, tokens = 0;
  bool has_joules = true;
  for (const Round& round : rounds) {
    std::vector<double> firsts, tpots, totals, round_gaps;
    double first_last_s = 0;
    int output = 0;
    for (const Request& request : round.requests) {
      ++result->requests;
      if (!request.error.empty() || !request.done) {
        ++result->errors;
        if (result->first_error.empty()) result->first_error = request.error.empty() ? "did not end" : request.error;
        continue;
      }
      firsts.push_back(request.first_s - request.submitted_s);
      totals.push_back(request.last_s - request.submitted_s);
      if (request.output > 1) tpots.push_back((request.last_s - request.first_s) / (request.output - 1));
      first_last_s = std::max(first_last_s, firsts.back());
      output += request.output;
      queue.push_back(request.queue_s);
      round_gaps.insert(round_gaps.end(), request.gaps.begin(), request.gaps.end());
      result->facts.preemptions += request.preemptions;
    }
    result->facts.most_running = std::max(result->facts.most_running, round.most_running);
    result->kv_bytes = std::max(result->kv_bytes, round.most_blocks * block_bytes);
    has_joules = has_joules && round.joules.has_value();
    joules += round.joules.value_or(0), tokens += output;
    gaps.insert(gaps.end(), round_gaps.begin(), round_gaps.end());
    if (firsts.empty()) continue;
    figures.AddSpread("ttft_ms", firsts);
    figures.AddSpread("tpot_ms", tpots);
    figures.AddSpread("itl_ms", round_gaps);
    figures.AddSpread("e2e_ms", totals);
    figures.Add("output_tok_s", output / std::max(1e-9, round.seconds), Direction::kHigher);
    ttft.push_back(Median(firsts)), total.push_back(Median(totals));
    if (!tpots.empty()) tpot.push_back(Median(tpots));
    tok_s.push_back(output / std::max(1e-9, round.seconds));
    prompt_tok_s.push_back(static_cast<double>(cell.input) * cell.concurrency / std::max(1e-9, first_last_s));
  }
  result->by_round = std::move(figures.all);
  result->rounds = static_cast<int>(ttft.size());
  result->ttft_s = Over(ttft), result->tpot_s = Over(tpot), result->total_s = Over(total);
  result->tok_s = Over(tok_s), result->prompt_tok_s = Over(prompt_tok_s);
  if (!queue.empty()) result->queue_s = Median(queue);
  if (!gaps.empty()) result->median_gap_s = Median(gaps), result->p99_gap_s = Quantile(gaps, 0.99);
  if (has_joules && tokens > 0) result->joules_a_token = joules / tokens;
  result->peak_rss_bytes = PeakResidentBytes();
}

Deployment DeploymentOf(const ProfileModel& model, const ProfileReport& report, const Efficiency& efficiency,
                        const ProfileCell& cell, bool exact) {
  Deployment d;
  d.shape = ShapeOfConfig(model.model->config());
  d.format = StoredFormat(*model.checkpoint, d.shape);
  const KvType kv = model.engine->options().kv;
  d.kv = *FindKvFormat(kv == KvType::kF32 ? "f32" : kv == KvType::kI8 ? "int8" : "bf16");
  d.hardware = ThisMachine(report.roof, d.format, exact, static_cast<double>(FreeMemoryBytes() + report.weight_bytes));
  d.efficiency = efficiency;
  d.input = cell.input, d.output = cell.output, d.concurrency = cell.concurrency;
  d.step_tokens = model.engine->options().step_tokens;
  return d;
}

// Median TTFT and TPOT of a cell as hone plan's steps make them: all requests come at once, and the engine's own
// scheduler decides what each step does.
std::pair<double, double> PredictCell(const Deployment& d, const EngineOptions& engine) {
  // Rounds before the one for the record teach the step controller, which trusts a chunk twice as large as the largest it has seen: as
  // many as it takes from its first chunk to a whole step. So these are steps of an engine that has run such loads before.
  constexpr double kLater = 1e8;
  const int rounds = 1 + std::bit_width(static_cast<unsigned>(engine.step_tokens / StepController::kColdChunk));
  std::vector<SimRequest> trace;
  for (int round = 0; round <= rounds; ++round)
    trace.insert(trace.end(), d.concurrency, SimRequest{.at_s = kLater * round, .input = d.input, .output = round < rounds ? std::min(d.output, kWarmOutput) : d.output});
  SimOptions options{.policy = engine.policy, .max_sequences = engine.max_sequences, .step_tokens = engine.step_tokens, .step_ms = engine.step_ms,
                     .prefix_cache = false, .warm_requests = rounds * d.concurrency};
  const Result<SimResult> result = Simulate(trace, CostFromDeployment(d), options);
  if (!result) return {0, 0};
  return {result->ttft_s.p50, result->tpot_s.p50};
}

}  // namespace

Interval BootstrapMedian(std::span<const double> values, double confidence, int resamples, uint64_t seed) {
  Rng rng(seed);
  std::vector<double> medians, draw(values.size());
  for (int i = 0; i < resamples; ++i) {
    for (double& value : draw) value = values[rng.Below(values.size())];
    medians.push_back(Median(draw));
  }
  const double miss = (1 - confidence) / 2;
  Interval interval = MedianInterval(values, confidence);
  interval.low = std::min(interval.low, Quantile(medians, miss));
  interval.high = std::max(interval.high, Quantile(medians, 1 - miss));
  return interval;
}

std::string ProfileCell::Name() const { return fmt::format("{} + {} tokens, {} at once", input, output, concurrency); }

Result<std::vector<ProfileCell>> PlanProfile(const ProfileOptions& options, int context) {
  const bool asked = !options.input.empty() || !options.output.empty();
  std::vector<ProfileCell> cells;
  for (const int concurrency : options.concurrency.empty() ? kDefaultConcurrency : options.concurrency) {
    for (const int input : options.input.empty() ? kDefaultInput : options.input) {
      for (const int output : options.output.empty() ? kDefaultOutput : options.output) {
        const ProfileCell cell{input, output, concurrency};
        if (input < 1 || output < 2 || concurrency < 1 || concurrency > kMaxSequences)
          return UsageError(fmt::format("{}: wanted at least 1 input and 2 output tokens, and 1 to {} requests", cell.Name(), kMaxSequences));
        if (int64_t{input} + output <= context) {
          cells.push_back(cell);
        } else if (asked) {
          return UsageError(fmt::format("{}: the context is {}", cell.Name(), context));
        }
      }
    }
  }
  if (cells.empty()) return UsageError(fmt::format("no cell of the default grid fits the context of {}; give --input and --output", context));
  return cells;
}

namespace {

// One variant while it is profiled.
struct Variant {
  Variant(const ProfileModel& model_, const Runtime& runtime, const ProfileOptions& options)
      : model(model_), profiler(model_, runtime, options), exact(model_.model->options().exact) {
    const ModelConfig& config = model.model->config();
    block_bytes = static_cast<double>(config.layers) * KvTokenBytes(model.engine->options().kv, config.kv_heads, config.head_width) * kKvBlockTokens;
    report.model = model.name, report.kv = model.kv, report.before = model.before;
    report.kernel = std::string(Info(StoredFormat(*model.checkpoint, ShapeOfConfig(config)).kernel).name);
    report.load_s = model.load_s;
    report.weight_bytes = model.model->weight_bytes();
    report.rss_bytes = ResidentBytes();
    report.prefix_cache = "cold: prompts are random and the prefix cache is off";
    if (!profiler.energy().readable()) report.energy = profiler.energy().why_not();
  }

  Result<void> WarmUp(const ProfileCell& cell, const std::function<bool()>& stop) {
    result = CellResult();
    rounds.clear();
    result.cell = cell;
    if (tokenize.find(cell.input) == tokenize.end()) tokenize[cell.input] = profiler.TokenizeSeconds(cell.input);
    result.tokenize_s = tokenize[cell.input];
    ProfileCell warm = cell;  // the same prompt, a few tokens: kernels, pages, the engine's own model of steps
    warm.output = std::min(cell.output, kWarmOutput);
    HONE_RETURN_IF_ERROR(profiler.Run(warm, &result, false, stop));
    return {};
  }

  // The cell's rounds as a result; none if no round was ended.
  void Keep(const ProfileCell& cell) {
    if (rounds.empty()) return;
    Summarise(cell, rounds, block_bytes, &result);
    const Deployment d = DeploymentOf(model, report, report.before, cell, exact);
    std::tie(result.predicted_ttft_s, result.predicted_tpot_s) = PredictCell(d, model.engine->options());
    CellFacts& facts = result.facts;
    facts.ttft_s = result.ttft_s.value, facts.tokenize_s = result.tokenize_s, facts.queue_s = result.queue_s;
    facts.most_blocks = result.kv_bytes / std::max(1.0, block_bytes * model.engine->stats().blocks);
    facts.asked_at_once = cell.concurrency, facts.places = model.engine->options().max_sequences;
    facts.median_gap_s = result.median_gap_s, facts.p99_gap_s = result.p99_gap_s;
    facts.prefill = result.prefill.facts, facts.decode = result.decode.facts;
    facts.read_bytes_s = d.hardware.read_bytes_s, facts.ops = d.hardware.ops_16bit;
    result.verdict = NameBottleneck(facts);
    const bool alone = cell.concurrency == 1 && result.verdict.bottleneck == Bottleneck::kLongTail;  // nobody's prompt was in the way
    std::vector<Proposal> proposals = Propose(d, FindingOf(result.verdict, facts), {}, model.name);
    if (!proposals.empty() && !alone) result.next = std::move(proposals.front());
    report.cells.push_back(std::move(result));
  }

  void Fit() {
    report.steps = std::move(profiler.steps);
    report.fitted = report.before;
    if (report.cells.empty()) return;
    const Deployment d = DeploymentOf(model, report, report.before, report.cells[0].cell, exact);
    report.fitted = FitEfficiency(profiler.measured, d.hardware, d.format, report.before);
    for (CellResult& cell : report.cells) {
      std::tie(cell.fitted_ttft_s, cell.fitted_tpot_s) =
          PredictCell(DeploymentOf(model, report, report.fitted, cell.cell, exact), model.engine->options());
    }
  }

  const ProfileModel& model;
  Profiler profiler;
  const bool exact;
  double block_bytes = 0;
  std::map<int, double> tokenize;
  ProfileReport report;
  CellResult result;          // of the cell that is run
  std::vector<Round> rounds;  // of the same
};

// One cell of all variants: warm-up of each, then rounds that run each, in turning order. Half a round is none.
Result<void> RunCell(const ProfileCell& cell, std::vector<std::unique_ptr<Variant>>& variants, const ProfileOptions& options,
                     const Runtime& runtime, const std::function<bool()>& stop) {
  for (const auto& variant : variants) HONE_RETURN_IF_ERROR(variant->WarmUp(cell, stop));
  const double start_s = runtime.clock->Now();
  const size_t count = variants.size();
  for (int i = 0; i < (options.rounds > 0 ? options.rounds : kCellRounds); ++i) {
    if (stop && stop()) return {};
    const double budget_s = options.cell_s * static_cast<double>(count);
    if (options.rounds == 0 && i >= kLeastCellRounds && runtime.clock->Now() - start_s > budget_s) return {};
    std::vector<Round> taken(count);
    for (size_t turn = 0; turn < count; ++turn) {
      const size_t which = i % 2 == 0 ? turn : count - 1 - turn;
      HONE_TRY(taken[which], variants[which]->profiler.Run(cell, &variants[which]->result, true, stop));
      if (stop && stop()) return {};
    }
    for (size_t v = 0; v < count; ++v) variants[v]->rounds.push_back(std::move(taken[v]));
  }
  return {};
}

}  // namespace

std::vector<ProfileReport> RunProfile(std::span<const ProfileModel> models, const std::vector<ProfileCell>& cells,
                                      const ProfileOptions& options, const Roof& roof, const Runtime& runtime,
                                      const ProfileCallbacks& callbacks) {
  std::vector<std::unique_ptr<Variant>> variants;
  for (const ProfileModel& model : models) {
    variants.push_back(std::make_unique<Variant>(model, runtime, options));
    variants.back()->report.roof = roof;
  }
  double done = 0;
  bool interrupted = false;
  std::string failed;
  for (const ProfileCell& cell : cells) {
    if (callbacks.progress) callbacks.progress(done++ / static_cast<double>(cells.size()), cell.Name());
    const Result<void> ran = RunCell(cell, variants, options, runtime, callbacks.stop);
    if (!ran) failed = cell.Name() + ": " + ran.error().message;
    interrupted = callbacks.stop && callbacks.stop();
    for (const auto& variant : variants) variant->Keep(cell);
    if (interrupted || !failed.empty()) break;
  }
  for (const auto& variant : variants) {  // the engine is ours: no request may fail
    for (const CellResult& cell : variant->report.cells) {
      if (cell.errors == 0 || interrupted || !failed.empty()) continue;
      failed = fmt::format("{}, {}: {} of {} requests failed: {}", variant->model.name, cell.cell.Name(), cell.errors, cell.requests, cell.first_error);
    }
  }
  std::vector<ProfileReport> reports;
  for (const auto& variant : variants) {
    variant->Fit();
    variant->report.interrupted = interrupted, variant->report.failed = failed;
    reports.push_back(std::move(variant->report));
  }
  return reports;
}

}  // namespace hone
