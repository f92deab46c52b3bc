// Arrival processes against their closed forms; what is sent, when and with what, by a server made of arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "measure/load/load_run.h"
#include "measure/statistics.h"

namespace hone {
namespace {

using nlohmann::json;

std::vector<double> Gaps(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (size_t i = 0; i < times.size(); ++i) gaps.push_back(times[i] - (i == 0 ? 0 : times[i - 1]));
  return gaps;
}

// A mean of n values with this deviation is within 4.5 standard errors of the truth all but once in 150 000 times.
void ExpectMean(double got, double want, double deviation, double n, const std::string& what) {
  EXPECT_NEAR(got, want, 4.5 * deviation / std::sqrt(n)) << what;
}

TEST(Arrivals, PoissonHasExponentialGapsAndTheWantedRate) {
  const int n = 20000;
  for (const uint64_t seed : {1u, 2u, 3u}) {
    const std::vector<double> times = ArrivalTimes({ArrivalKind::kPoisson, 5}, n, seed);
    ASSERT_EQ(times.size(), static_cast<size_t>(n));
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_NEAR(times.back(), n / 5.0, 1e-6);  // n requests take n / rate
    std::vector<double> gaps = Gaps(times), squares;
    for (const double gap : gaps) squares.push_back(gap * gap);
    ExpectMean(Mean(squares), 2 / 25.0, std::sqrt(20.0) / 25, n, "second moment");  // Var(X^2) = 20 / rate^4
    int above = 0;
    for (const double gap : gaps) above += gap > 0.2;
    ExpectMean(above / static_cast<double>(n), std::exp(-1), std::sqrt(std::exp(-1) * (1 - std::exp(-1))), n,
               "P(X > 1/rate)");
    // Counts in windows of 1 s, given the total: binomial with p = 1 / 4000.
    std::vector<double> counts(4000);
    for (const double t : times) counts[std::min(3999, static_cast<int>(t))] += 1;
    EXPECT_NEAR(Mean(counts), 5, 1e-9);
    ExpectMean(Variance(counts), 5 * (1 - 1 / 4000.0), std::sqrt(2.0 * 25 + 5), 4000, "variance of counts");
  }
}

TEST(Arrivals, BurstinessIsTheShapeOfTheGaps) {
  const int n = 40000;
  for (const double shape : {0.25, 0.5, 1.0, 4.0, 25.0}) {
    const std::vector<double> gaps = Gaps(ArrivalTimes({ArrivalKind::kGamma, 10, 0, shape}, n, 7));
    const double cv = std::sqrt(Variance(gaps)) / Mean(gaps);
    EXPECT_NEAR(Mean(gaps), 0.1, 1e-9);
    EXPECT_NEAR(cv, 1 / std::sqrt(shape), 0.04 / std::sqrt(shape)) << shape;
    Rng rng(3);
    std::vector<double> draws(n);
    for (double& draw : draws) draw = DrawGamma(rng, shape);
    ExpectMean(Mean(draws), shape, std::sqrt(shape), n, "mean of gamma");
    ExpectMean(Variance(draws), shape, std::sqrt(2 * shape * shape + 6 * shape), n, "variance of gamma");
  }
}

TEST(Arrivals, ConstantAndRampFollowTheirRates) {
  const std::vector<double> constant = ArrivalTimes({ArrivalKind::kConstant, 4}, 9, 1);
  for (int i = 0; i < 9; ++i) EXPECT_DOUBLE_EQ(constant[i], i / 4.0);
  for (const auto& [from, to] : {std::pair(1.0, 9.0), std::pair(9.0, 1.0), std::pair(3.0, 3.0)}) {
    const int n = 10000;
    const std::vector<double> times = ArrivalTimes({ArrivalKind::kRamp, from, to}, n, 11);
    const double d = 2.0 * n / (from + to);
    EXPECT_NEAR(times.back(), d, 1e-6 * d);
    double worst = 0;  // Kolmogorov and Smirnov's distance; above 2.2 / sqrt(n) once in 10 000
    for (int i = 0; i < n; ++i) {
      const double t = times[i], expected = (from * t + (to - from) * t * t / (2 * d)) / n;
      worst = std::max(worst, std::fabs((i + 0.5) / n - expected));
    }
    EXPECT_LT(worst, 2.2 / std::sqrt(n)) << from;
  }
}

TEST(Arrivals, ASeedRepeatsItsSchedule) {
  const ArrivalSpec spec{ArrivalKind::kGamma, 3, 0, 0.5};
  EXPECT_EQ(ArrivalTimes(spec, 100, 5), ArrivalTimes(spec, 100, 5));
  EXPECT_NE(ArrivalTimes(spec, 100, 5), ArrivalTimes(spec, 100, 6));
  EXPECT_TRUE(ArrivalTimes(spec, 0, 5).empty());
  EXPECT_EQ(ParseArrivalKind("bursty").value(), ArrivalKind::kGamma);
  EXPECT_EQ(ParseArrivalKind("often").error().code, ErrorCode::kUsage);
}

TEST(Dataset, LengthsSeedsAndSharedBeginnings) {
  DatasetSpec spec;
  spec.input_tokens = 100;
  spec.output_tokens = 20;
  spec.word_tokens = {2, 2, true};
  const std::vector<LoadTask> tasks = MakeTasks(spec, "", 5, 1).value();
  ASSERT_EQ(tasks.size(), 5u);
  for (const LoadTask& task : tasks) {
    ASSERT_EQ(task.turns.size(), 1u);
    EXPECT_EQ(std::count(task.turns[0].text.begin(), task.turns[0].text.end(), ' '),
              48);  // 49 words: 2 + 2 * 49 tokens
    EXPECT_EQ(task.turns[0].output_tokens, 20);
  }
  EXPECT_EQ(MakeTasks(spec, "", 5, 1).value()[3].turns[0].text, tasks[3].turns[0].text);
  EXPECT_NE(MakeTasks(spec, "", 5, 2).value()[3].turns[0].text, tasks[3].turns[0].text);
  spec.shared_words = 10;
  spec.prefixes = 2;
  spec.range = 0.5;
  std::map<std::string, int> prefixes;
  int shortest = 1000, longest = 0;
  const std::vector<LoadTask> shared = MakeTasks(spec, "", 200, 1).value();
  for (const LoadTask& task : shared) {
    ++prefixes[task.system];
    shortest = std::min(shortest, task.turns[0].output_tokens);
    longest = std::max(longest, task.turns[0].output_tokens);
  }
  EXPECT_EQ(prefixes.size(), 2u);
  EXPECT_EQ(shortest, 10);
  EXPECT_EQ(longest, 30);
}

TEST(Dataset, MorePromptsThanMemoryAreRefused) {
  DatasetSpec spec;
  spec.input_tokens = 1 << 24;
  EXPECT_EQ(MakeTasks(spec, "", 1000, 1).error().code, ErrorCode::kLimit);
  spec.kind = DatasetKind::kTrace;
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += "{\"timestamp\": 1, \"input_length\": 16777216}\n";
  EXPECT_EQ(MakeTasks(spec, lines, 0, 1).error().code, ErrorCode::kLimit);
}

TEST(Dataset, FilesOfSeveralShapes) {
  DatasetSpec spec;
  spec.kind = DatasetKind::kFile;
  const std::string text =
      R"({"conversations": [{"from": "system", "value": "be brief"}, {"from": "human", "value": "one"}, {"from": "gpt", "value": "a b c d e f g h i j"}, {"from": "human", "value": "two"}]}
{"messages": [{"role": "user", "content": [{"type": "text", "text": "parts"}]}], "output_tokens": 7}

{"prompt": "plain", "max_tokens": 3})";
  std::map<std::string, LoadTask> by_text;
  const std::vector<LoadTask> read = MakeTasks(spec, text, 0, 1).value();
  for (const LoadTask& task : read) by_text[task.turns[0].text] = task;
  ASSERT_EQ(by_text.size(), 3u);
  EXPECT_EQ(by_text["one"].system, "be brief");
  ASSERT_EQ(by_text["one"].turns.size(), 2u);
  EXPECT_EQ(by_text["one"].turns[0].output_tokens, 13);  // ten words
  EXPECT_EQ(by_text["parts"].turns[0].output_tokens, 7);
  EXPECT_EQ(by_text["plain"].turns[0].output_tokens, 3);
  EXPECT_EQ(MakeTasks(spec, text, 7, 1).value().size(), 7u);
  EXPECT_EQ(MakeTasks(spec,
                      "["
                      R"({"prompt": "in an array"})"
                      "]",
                      0, 1)
                .value()[0]
                .turns[0]
                .text,
            "in an array");
  for (const char* bad :
       {"", " \n", "[]", "[", "7", "{\"prompt\": 1}", "{\"prompt\": \"x\", \"max_tokens\": -1}", "{\"messages\": []}",
        "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}", "{\"prompt\": \"x\"}\n{"}) {
    const auto result = MakeTasks(spec, bad, 0, 1);
    ASSERT_FALSE(result.has_value()) << bad;
    EXPECT_EQ(result.error().code, ErrorCode::kInvalidInput);
  }
  EXPECT_NE(MakeTasks(spec, "{\"prompt\": \"x\"}\n{", 0, 1).error().message.find("line 2"), std::string::npos);
}

TEST(Dataset, ATraceKeepsItsTimesAndItsSharedBlocks) {
  DatasetSpec spec;
  spec.kind = DatasetKind::kTrace;
  spec.speed = 2;
  spec.word_tokens = {0, 1, true};
  const std::string text =
      "{\"timestamp\": 3000, \"input_length\": 700, \"output_length\": 4, \"hash_ids\": [1, 3]}\n"
      "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [1, 2]}\n";
  const std::vector<LoadTask> tasks = MakeTasks(spec, text, 0, 1).value();
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_DOUBLE_EQ(tasks[0].at_s, 0);
  EXPECT_DOUBLE_EQ(tasks[1].at_s, 1);
  const std::string &a = tasks[0].turns[0].text, &b = tasks[1].turns[0].text;
  size_t same = 0, words = 1;
  while (same < a.size() && a[same] == b[same]) words += a[same++] == ' ';
  EXPECT_GE(words, 512u);
  EXPECT_LT(words, 530u);
  EXPECT_EQ(std::count(a.begin(), a.end(), ' '), 599);
  for (const char* bad : {"{\"input_length\": 3}", "{\"timestamp\": -1, \"input_length\": 3}", "{\"timestamp\": 1}",
                          "{\"timestamp\": 1, \"input_length\": 1e30}"}) {
    EXPECT_FALSE(MakeTasks(spec, bad, 0, 1).has_value()) << bad;
  }
}

// A server that answers every request after `service_s`, `servers` at once, first come first served, in chunks; time is
// a number.
class FakeServer : public LoadTransport {
 public:
  double service_s = 1;
  int servers = 1 << 30;
  int chunks = 2;
  std::string error;  // of every request
  std::vector<std::string> bodies;
  std::vector<double> sent;

  double Now() override { return now_; }
  double CpuSeconds() override { return 0; }
  int active() const override { return static_cast<int>(ends_.size()); }
  void Start(int64_t id, const std::string& body) override {
    bodies.push_back(body);
    sent.push_back(now_);
    double start_s = now_;
    if (static_cast<int>(busy_.size()) >= servers) {
      start_s = std::max(now_, *busy_.begin());
      busy_.erase(busy_.begin());
    }
    const double end_s = start_s + service_s;
    busy_.insert(end_s);
    StreamOutcome outcome;
    outcome.sent_s = now_;
    outcome.error = error;
    for (int i = 0; i < chunks; ++i) outcome.chunk_s.push_back(end_s - (chunks - 1 - i) * service_s / (2 * chunks));
    outcome.first_s = outcome.chunk_s.front();
    outcome.last_s = end_s;
    outcome.completion_tokens = chunks;
    outcome.text = "answer";
    ends_.emplace(end_s, std::pair(id, outcome));
  }
  void Poll(double wait_s, const Done& done) override {
    const double until_s = now_ + wait_s;
    if (ends_.empty() || ends_.begin()->first > until_s) {
      now_ = std::max(until_s, std::nextafter(now_, 1e9));  // a wait below the last digit of the time passes too
      return;
    }
    now_ = std::max(now_, ends_.begin()->first);
    while (!ends_.empty() && ends_.begin()->first <= now_) {
      const auto [id, outcome] = ends_.begin()->second;
      ends_.erase(ends_.begin());
      done(id, outcome);
    }
  }
  void CancelAll(const Done& done) override {
    while (!ends_.empty()) {
      auto [id, outcome] = ends_.begin()->second;
      ends_.erase(ends_.begin());
      outcome.error = "cancelled";
      done(id, outcome);
    }
  }

 private:
  double now_ = 1000;
  std::multimap<double, std::pair<int64_t, StreamOutcome>> ends_;
  std::multiset<double> busy_;
};

std::vector<LoadTask> Tasks(int n, int turns = 1) {
  std::vector<LoadTask> tasks(static_cast<size_t>(n));
  for (LoadTask& task : tasks) task.turns.resize(static_cast<size_t>(turns), {"hello", 2});
  return tasks;
}

TEST(LoadDriver, AnOpenLoopSendsWhenItIsTimeAndQueuesAsTheorySays) {
  FakeServer server;
  server.service_s = 0.1;
  server.servers = 1;
  const int n = 40000;
  const RunPlan plan{{ArrivalKind::kPoisson, 5}, 0, 0, 0, 3};
  const LoadRun run = RunLoad(plan, Tasks(n), {}, server, {}).value();
  ASSERT_EQ(run.records.size(), static_cast<size_t>(n));
  std::vector<double> waits;
  for (const LoadRecord& record : run.records) {
    EXPECT_NEAR(record.sent_s, record.due_s, 1e-9);
    waits.push_back(record.e2e_s() - 0.1);
  }
  // M/D/1 at half load: the mean wait is rho s / (2 (1 - rho)) = 0.05 s.
  EXPECT_NEAR(Mean(waits), 0.05, 0.004);
  EXPECT_NEAR(run.mean_active, 5 * 0.15, 0.03);  // Little's law
  EXPECT_NEAR(run.records[0].gaps_s[0], 0.025, 1e-9);
  EXPECT_EQ(run.records[0].output_tokens, 2);
}

TEST(LoadDriver, AClosedLoopKeepsSoManyUnderWay) {
  FakeServer server;
  const LoadRun run = RunLoad({{}, 4, 0, 0, 1}, Tasks(22), {}, server, {}).value();
  EXPECT_NEAR(run.duration_s, 6, 1e-9);  // ceil(22 / 4) rounds of a second
  EXPECT_EQ(run.most_active, 4);
  EXPECT_EQ(run.unsent, 0);
  for (const LoadRecord& record : run.records) EXPECT_NEAR(record.sent_s, record.due_s, 1e-9);
}

TEST(LoadDriver, ALimitHoldsBackAndSaysSo) {
  FakeServer server;
  const LoadRun run = RunLoad({{ArrivalKind::kConstant, 10}, 2, 0, 0, 1}, Tasks(8), {}, server, {}).value();
  EXPECT_EQ(run.most_active, 2);
  EXPECT_NEAR(run.duration_s, 4.1, 0.11);
  int held = 0;
  for (const LoadRecord& record : run.records) {
    held += record.held;
    if (!record.held) {
      EXPECT_NEAR(record.sent_s, record.due_s, 1e-9);
    }
  }
  EXPECT_EQ(held, 6);
}

TEST(LoadDriver, TurnsFollowAnswersAndCarryThem) {
  FakeServer server;
  RequestShape shape;
  shape.chat = true;
  shape.model = "m";
  const LoadRun run = RunLoad({{}, 1, 0, 0.5, 1}, Tasks(2, 3), shape, server, {}).value();
  ASSERT_EQ(run.records.size(), 6u);
  EXPECT_NEAR(run.duration_s, 2 * (3 + 2 * 0.5), 1e-9);
  EXPECT_EQ(run.most_active, 1);
  const json third = json::parse(server.bodies[2]);
  ASSERT_EQ(third["messages"].size(), 5u);
  EXPECT_EQ(third["messages"][1]["role"], "assistant");
  EXPECT_EQ(third["messages"][1]["content"], "answer");
  EXPECT_EQ(third["stream_options"]["include_usage"], true);
  EXPECT_EQ(third["ignore_eos"], true);
  EXPECT_EQ(third["max_tokens"], 2);
  EXPECT_EQ(run.records[5].turn, 2);
}

TEST(LoadDriver, EndsEarlyWithWhatThereIs) {
  FakeServer nobody;
  nobody.error = "connect";
  const LoadRun given_up = RunLoad({{}, 1, 0, 0, 1}, Tasks(100), {}, nobody, {}).value();
  EXPECT_EQ(given_up.records.size(), static_cast<size_t>(kConnectTries));
  EXPECT_NE(given_up.gave_up.find("cannot be reached"), std::string::npos);
  EXPECT_EQ(given_up.unsent, 100 - kConnectTries);
  FakeServer server;
  int polls = 0;
  RunCallbacks callbacks;
  callbacks.stop = [&] { return ++polls > 35; };
  const LoadRun stopped = RunLoad({{}, 2, 0, 0, 1}, Tasks(100), {}, server, callbacks).value();
  EXPECT_TRUE(stopped.interrupted);
  int answered = 0, cancelled = 0;
  for (const LoadRecord& record : stopped.records) (record.ok() ? answered : cancelled) += 1;
  EXPECT_GT(answered, 0);
  EXPECT_EQ(cancelled, 2);
  FakeServer timed;
  const LoadRun timed_run = RunLoad({{ArrivalKind::kConstant, 2}, 0, 3, 0, 1}, Tasks(100), {}, timed, {}).value();
  EXPECT_EQ(timed_run.records.size(), 6u);  // at 0, 0.5 ... 2.5 s
  EXPECT_EQ(timed_run.unsent, 94);
  RequestShape shape;
  shape.extra = "[1]";
  EXPECT_EQ(RunLoad({{}, 1, 0, 0, 1}, Tasks(1), shape, server, {}).error().code, ErrorCode::kUsage);
}

}  // namespace
}  // namespace hone
