// See load_session.h.
#include "measure/load/load_session.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/json_text.h"

namespace hone {
namespace {

constexpr int kProbeWords[] = {16, 80};
constexpr int kSweepConcurrency = 64;
constexpr double kLeastGrowth = 0.05;  // requests more under way, a request sent
constexpr double kLeastMore = 3;       // and in all
constexpr double kTrendT = 4;          // standard errors of a slope; neighbours hang together, so more than usual

// One request that is waited for. Its error, if it failed or `stop` said so.
Result<StreamOutcome> Ask(HttpTransport& transport, const RequestShape& shape, const LoadTask& task, const std::function<bool()>& stop) {
  HONE_TRY(const std::string body, RequestBody(shape, task, 0, {}));
  StreamOutcome got;
  bool ended = false;
  const LoadTransport::Done done = [&](int64_t, StreamOutcome outcome) {
    got = std::move(outcome);
    ended = true;
  };
  transport.Start(0, body);
  while (!ended) {
    transport.Poll(0.1, done);
    if (!ended && stop && stop()) {
      transport.CancelAll(done);
      return Error{ErrorCode::kCancelled, "stopped before the server answered the first request"};
    }
  }
  if (got.error.empty()) return got;
  std::string message = "the server's answer to the first request: " + got.error + ": " + got.error_text;
  if (got.error == "connect") message = "the server cannot be reached: " + got.error_text;
  if (shape.ignore_eos && got.error_text.find("ignore_eos") != std::string::npos)
    message += " (--no-ignore-eos leaves it out)";
  if (shape.usage && got.error_text.find("stream_options") != std::string::npos)
    message += " (--no-usage leaves it out)";
  return IoError(std::move(message));
}

Result<std::string> FirstModel(HttpTransport& transport, const std::function<bool()>& stop) {
  HONE_TRY(const std::string body, transport.Get("/v1/models", stop));
  const nlohmann::ordered_json json = ParseJson(body);
  const auto data = json.is_object() ? json.find("data") : json.end();
  if (json.is_object() && data != json.end() && data->is_array() && !data->empty() && (*data)[0].is_object()) {
    const auto id = (*data)[0].find("id");
    if (id != (*data)[0].end() && id->is_string()) return id->get<std::string>();
  }
  return IoError("/v1/models lists no model; name one with --model");
}

// How many tokens the server counts for a prompt of so many words: a line through two.
Result<WordTokens> CountWordTokens(HttpTransport& transport, const RequestShape& shape, uint64_t seed, const std::function<bool()>& stop) {
  WordTokens rate;
  double tokens[2] = {};
  for (int i = 0; i < 2; ++i) {
    Rng rng(seed + static_cast<uint64_t>(i));
    HONE_TRY(const StreamOutcome outcome, Ask(transport, shape, {0, "", {{RandomWords(kProbeWords[i], rng), 1}}}, stop));
    tokens[i] = static_cast<double>(outcome.prompt_tokens);
  }
  const double slope = (tokens[1] - tokens[0]) / (kProbeWords[1] - kProbeWords[0]);
  if (tokens[0] <= 0 || !(slope > 0.1 && slope < 100)) return rate;
  return WordTokens{tokens[0] - slope * kProbeWords[0], slope, true};
}

// A line through points, and how many standard errors its slope is away from none.
struct Trend {
  double slope = 0, t = 0;
};
Trend TrendOf(const std::vector<double>& y) {  // over 0, 1, 2 ...
  const double n = static_cast<double>(y.size()), mean_x = (n - 1) / 2, mean_y = Mean(y);
  double xx = 0, xy = 0, yy = 0;
  for (size_t i = 0; i < y.size(); ++i) {
    const double dx = static_cast<double>(i) - mean_x, dy = y[i] - mean_y;
    xx += dx * dx;
    xy += dx * dy;
    yy += dy * dy;
  }
  const double slope = xy / xx, error = std::sqrt(std::max(0.0, yy - slope * xy) / (n - 2) / xx);
  return {slope, error > 0 ? slope / error : slope > 0 ? 1e9 : 0};
}

// Whether the queue grows: after the first third, which fills the server, both what is under way when a request is sent
// and the time to its first token go up from request to request. Above a rate that the server can do by a share s, s
// more requests are under way after each.
bool Grows(const LoadRun& run) {
  std::vector<const LoadRecord*> sent;
  std::vector<double> ends;
  for (const LoadRecord& record : run.records) {
    if (!record.ok()) continue;
    sent.push_back(&record);
    ends.push_back(record.last_s);
  }
  std::sort(sent.begin(), sent.end(), [](const auto* a, const auto* b) { return a->sent_s < b->sent_s; });
  std::sort(ends.begin(), ends.end());
  std::vector<double> active, ttft;
  for (size_t i = sent.size() / 3; i < sent.size(); ++i) {
    const auto ended = std::upper_bound(ends.begin(), ends.end(), sent[i]->sent_s) - ends.begin();
    active.push_back(static_cast<double>(i) - static_cast<double>(ended));
    ttft.push_back(sent[i]->ttft_s());
  }
  if (active.size() < 8) return false;
  const Trend queue = TrendOf(active), wait = TrendOf(ttft);
  return queue.slope > kLeastGrowth && queue.slope * static_cast<double>(active.size()) >= kLeastMore &&
         queue.t > kTrendT && wait.t > kTrendT;
}

class Session {
 public:
  Session(LoadClientOptions options, HttpTransport& transport, const LoadCallbacks& callbacks)
      : transport_(transport), callbacks_(callbacks) {
    report_.options = std::move(options);
  }

  Result<LoadReport> Run() {
    LoadClientOptions& options = report_.options;
    if (options.shape.model.empty()) {
      HONE_TRY(options.shape.model, FirstModel(transport_, callbacks_.stop));
    }
    report_.model = options.shape.model;
    HONE_TRY(options.dataset.word_tokens, CountWordTokens(transport_, options.shape, 0x5eed, callbacks_.stop));
    if (!options.dataset.word_tokens.counted && callbacks_.note) {
      callbacks_.note("the server counts no tokens of prompts; 1.3 tokens a word are taken");
    }
    for (int i = 0; i < options.warmup && !Stopped(); ++i) {
      DatasetSpec spec = options.dataset;
      spec.kind = DatasetKind::kRandom;
      HONE_TRY(std::vector<LoadTask> tasks, MakeTasks(spec, "", 1, 0xaaaa0000 + static_cast<uint64_t>(i)));
      HONE_RETURN_IF_ERROR(Ask(transport_, options.shape, tasks[0], callbacks_.stop));
    }
    HONE_RETURN_IF_ERROR(options.sweep > 0 ? Sweep()
                                           : Point(options.arrivals, options.concurrency, options.requests, 0, 1));
    return std::move(report_);
  }

 private:
  bool Stopped() const { return callbacks_.stop && callbacks_.stop(); }
  bool Over() const { return report_.interrupted || !report_.gave_up.empty(); }

  // Runs every seed at this load. It is [from, to) of the whole for the progress line.
  Result<void> Point(const ArrivalSpec& arrivals, int concurrency, int requests, double from, double to) {
    const LoadClientOptions& options = report_.options;
    LoadPoint point{PointName(arrivals, concurrency), arrivals, concurrency, {}, false};
    std::vector<LoadRun> runs;
    int growing = 0;
    for (size_t i = 0; i < options.seeds.size() && !Over(); ++i) {
      const uint64_t seed = options.seeds[i] + 1'000'000 * report_.points.size();  // points do not share prompts
      HONE_TRY(const std::vector<LoadTask> tasks, MakeTasks(options.dataset, options.dataset_text, requests, seed));
      const RunPlan plan{arrivals, concurrency, options.duration_s, options.think_s, seed};
      const RunCallbacks callbacks{
          [&](int done, int of, int active, int failed) {
            if (!callbacks_.progress) return;
            const double share = (static_cast<double>(i) + static_cast<double>(done) / std::max(1, of)) /
                                 static_cast<double>(options.seeds.size());
            callbacks_.progress(from + (to - from) * share,
                                fmt::format("{}: {} of {} answered, {} under way{}", point.name, done, of, active,
                                            failed > 0 ? fmt::format(", {} failed", failed) : ""));
          },
          callbacks_.stop};
      HONE_TRY(LoadRun run, RunLoad(plan, tasks, options.shape, transport_, callbacks));
      run.seed = options.seeds[i];
      report_.interrupted |= run.interrupted;
      if (report_.gave_up.empty()) report_.gave_up = run.gave_up;
      growing += Grows(run);
      runs.push_back(std::move(run));
    }
    point.figures = ComputeLoadFigures(runs, options.slo);
    point.saturated = arrivals.kind != ArrivalKind::kClosed && 2 * growing > static_cast<int>(runs.size());
    report_.points.push_back(std::move(point));
    for (LoadRun& run : runs) report_.runs.push_back(std::move(run));
    return {};
  }

  // One at a time, then as many as the server can answer, then rates between the two and a little above.
  Result<void> Sweep() {
    const LoadClientOptions& options = report_.options;
    const int most = options.concurrency > 0 ? options.concurrency : kSweepConcurrency;
    const double step = 1.0 / (options.sweep + 2);
    ArrivalSpec closed;
    HONE_RETURN_IF_ERROR(Point(closed, 1, std::max(8, options.requests / 4), 0, step));
    if (Over()) return {};
    HONE_RETURN_IF_ERROR(Point(closed, most, std::max(options.requests, 2 * most), step, 2 * step));
    const double slow = report_.points[0].figures.request_s.value, fast = report_.points[1].figures.request_s.value;
    report_.saturation_request_s = fast;
    if (!(slow > 0 && fast > 0)) return {};
    for (int i = 0; i < options.sweep && !Over(); ++i) {
      ArrivalSpec arrivals = options.arrivals;
      if (arrivals.kind == ArrivalKind::kClosed) arrivals.kind = ArrivalKind::kPoisson;
      const double share = options.sweep == 1 ? 1 : static_cast<double>(i) / (options.sweep - 1);
      const double low = 0.5 * std::min(slow, fast), high = 1.1 * fast;
      arrivals.rate = low + (high - low) * share;
      HONE_RETURN_IF_ERROR(Point(arrivals, 0, options.requests, (i + 2) * step, (i + 3) * step));
    }
    return {};
  }

  HttpTransport& transport_;
  const LoadCallbacks& callbacks_;
  LoadReport report_;
};

}  // namespace

std::string PointName(const ArrivalSpec& arrivals, int concurrency) {
  if (arrivals.kind == ArrivalKind::kClosed) return fmt::format("closed, {} at once", concurrency);
  std::string name = ArrivalName(arrivals.kind);
  if (arrivals.kind == ArrivalKind::kRamp) {
    name += fmt::format(", {:.4g} to {:.4g} a second", arrivals.rate, arrivals.rate_to);
  } else if (arrivals.kind != ArrivalKind::kTrace) {
    name += fmt::format(", {:.4g} a second", arrivals.rate);
  }
  if (arrivals.kind == ArrivalKind::kGamma) name += fmt::format(", burstiness {:.4g}", arrivals.burstiness);
  if (concurrency > 0) name += fmt::format(", at most {} at once", concurrency);
  return name;
}

Result<LoadReport> MeasureLoad(LoadClientOptions options, HttpTransport& transport, const LoadCallbacks& callbacks) {
  return Session(std::move(options), transport, callbacks).Run();
}

}  // namespace hone
