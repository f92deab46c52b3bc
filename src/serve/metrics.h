// Metrics: what /metrics shows, in the text format of Prometheus (version 0.0.4). Own code, since Debian packages no
// client library for C++; the format is lines of text.
//
// A metric of requests is one line of metrics.inc. Observing is a few relaxed atomic additions; any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Counts of values by upper bound. Cumulative buckets, as Prometheus wants them, are made when it is written.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

  void Observe(double value, uint64_t times = 1);

  uint64_t count() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }
  double mean() const { return count() == 0 ? 0 : sum() / static_cast<double>(count()); }
  // An estimate: linear within the bucket that holds it; the last finite bound beyond. 0 where nothing was observed.
  double Quantile(double q) const;
  // Its lines; see WriteHistogram.
  void Write(std::string_view name, std::string_view labels, std::string* out) const;

 private:
  const std::span<const double> bounds_;  // of static storage
  std::vector<std::atomic<uint64_t>> counts_;
  std::atomic<double> sum_{0};
};

// Upper bounds of buckets, as vLLM has them, so that dashboards and alerts fit both.
inline constexpr double kTtftBounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                         1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
inline constexpr double kTpotBounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                                         0.4,   0.5,    0.75,  1,    2.5,   5,    7.5,   10,  20,   40,  80};
inline constexpr double kE2eBounds[] = {0.03, 0.1, 0.3, 0.5, 0.8, 1,   1.5, 2,   2.5, 5,    10,  15,
                                        20,   30,  40,  50,  60,  120, 240, 480, 960, 1920, 7680};
inline constexpr double kTokenBounds[] = {1,   2,    5,    10,   20,    50,    100,   200,
                                          500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
inline constexpr double kCountBounds[] = {1, 2, 5, 10, 20};

// Why generations ended: the values of the label finished_reason.
enum class Outcome { kStop, kLength, kToolCalls, kAbort, kError, kCount };
std::string_view OutcomeText(Outcome outcome);

// The requests that one set of weights answered.
struct ModelMetrics {
#define HONE_HISTOGRAM(member, name, vllm, bounds, help) Histogram member{bounds};
#include "serve/metrics.inc"
#undef HONE_HISTOGRAM
  std::array<std::atomic<uint64_t>, static_cast<size_t>(Outcome::kCount)> outcomes{};
  std::atomic<uint64_t> prompt_tokens{0}, generation_tokens{0}, cached_tokens{0};

  uint64_t finished() const;  // all outcomes but kAbort: what a client that left says nothing about
  uint64_t errors() const { return outcomes[static_cast<size_t>(Outcome::kError)].load(std::memory_order_relaxed); }
};

// Answers by method, route and status.
class HttpMetrics {
 public:
  void Count(std::string_view method, std::string_view route, int status, double seconds);
  void Write(std::string* out) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> counts_;  // by labels; routes are the patterns of the table, so there are few
  Histogram seconds_{kE2eBounds};
};

// One series with its labels (`a="b"`), for the text below.
struct Series {
  std::string labels;
  const ModelMetrics* metrics = nullptr;
};

// The families of metrics.inc, the outcomes and the token counts. `vllm`: under the names of vLLM.
void WriteModelMetrics(std::span<const Series> models, bool vllm, std::string* out);

// "# HELP" and "# TYPE".
void WriteMetricHead(std::string_view name, std::string_view type, std::string_view help, std::string* out);
// The lines of one histogram; `labels` is `a="b",c="d"` or empty. `counts`: of each bound, and of what is beyond.
void WriteHistogram(std::string_view name, std::string_view labels, std::span<const double> bounds, std::span<const uint64_t> counts,
                    double sum, std::string* out);
void WriteSample(std::string_view name, std::string_view labels, double value, std::string* out);
// `name="value"` with the escapes of the format.
std::string MetricLabel(std::string_view name, std::string_view value);

}  // namespace hone
