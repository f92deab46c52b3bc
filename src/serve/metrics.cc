// See metrics.h.
#include "serve/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace hone {

void Histogram::Observe(double value, uint64_t times) {
  if (!(value >= 0) || times == 0) return;
  const size_t bucket = static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin());
  counts_[bucket].fetch_add(times, std::memory_order_relaxed);
  double old = sum_.load(std::memory_order_relaxed);
  while (!sum_.compare_exchange_weak(old, old + value * static_cast<double>(times), std::memory_order_relaxed)) {
  }
}

uint64_t Histogram::count() const {
  uint64_t total = 0;
  for (const auto& count : counts_) total += count.load(std::memory_order_relaxed);
  return total;
}

double Histogram::Quantile(double q) const {
  const double wanted = q * static_cast<double>(count());
  double below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    const double here = static_cast<double>(counts_[i].load(std::memory_order_relaxed));
    if (here > 0 && below + here >= wanted) {
      const double low = i == 0 ? 0 : bounds_[i - 1];
      return low + (bounds_[i] - low) * (wanted - below) / here;
    }
    below += here;
  }
  return below > 0 || counts_.back().load(std::memory_order_relaxed) > 0 ? bounds_.back() : 0;
}

void Histogram::Write(std::string_view name, std::string_view labels, std::string* out) const {
  std::vector<uint64_t> counts;
  for (const auto& count : counts_) counts.push_back(count.load(std::memory_order_relaxed));
  WriteHistogram(name, labels, bounds_, counts, sum(), out);
}

std::string_view OutcomeText(Outcome outcome) {
  switch (outcome) {
    case Outcome::kStop:
      return "stop";
    case Outcome::kLength:
      return "length";
    case Outcome::kToolCalls:
      return "tool_calls";
    case Outcome::kAbort:
      return "abort";
    case Outcome::kError:
    case Outcome::kCount:
      break;
  }
  return "error";
}

uint64_t ModelMetrics::finished() const {
  uint64_t total = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (i != static_cast<size_t>(Outcome::kAbort)) total += outcomes[i].load(std::memory_order_relaxed);
  }
  return total;
}

void HttpMetrics::Count(std::string_view method, std::string_view route, int status, double seconds) {
  std::string labels =
      MetricLabel("method", method) + "," + MetricLabel("route", route) + fmt::format(",code=\"{}\"", status);
  seconds_.Observe(seconds);
  std::lock_guard lock(mutex_);
  ++counts_[std::move(labels)];
}

void HttpMetrics::Write(std::string* out) const {
  WriteMetricHead("hone_http_requests_total", "counter", "Answers by method, route and status.", out);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [labels, count] : counts_)
      WriteSample("hone_http_requests_total", labels, static_cast<double>(count), out);
  }
  WriteMetricHead("hone_http_request_seconds", "histogram", "From a whole request to the end of its answer.", out);
  seconds_.Write("hone_http_request_seconds", "", out);
}

namespace {

void WriteHistograms(std::span<const Series> models, Histogram ModelMetrics::*member, std::string_view name,
                     std::string_view help, std::string* out) {
  WriteMetricHead(name, "histogram", help, out);
  for (const Series& series : models) (series.metrics->*member).Write(name, series.labels, out);
}

void WriteCounters(std::span<const Series> models, std::atomic<uint64_t> ModelMetrics::*member, std::string_view name,
                   std::string_view help, std::string* out) {
  WriteMetricHead(name, "counter", help, out);
  for (const Series& series : models)
    WriteSample(name, series.labels, static_cast<double>((series.metrics->*member).load()), out);
}

}  // namespace

void WriteModelMetrics(std::span<const Series> models, bool vllm, std::string* out) {
#define HONE_HISTOGRAM(member, name, vllm_name, bounds, help) \
  WriteHistograms(models, &ModelMetrics::member, vllm ? vllm_name : name, help, out);
#include "serve/metrics.inc"
#undef HONE_HISTOGRAM
  if (vllm) {
    WriteHistograms(models, &ModelMetrics::tpot_s, "vllm:time_per_output_token_seconds",
                    "The older name of vllm:inter_token_latency_seconds.", out);
  }
  const std::string_view finished = vllm ? "vllm:request_success_total" : "hone_requests_total";
  WriteMetricHead(finished, "counter", "Choices that ended, by reason.", out);
  for (const Series& series : models) {
    for (size_t i = 0; i < series.metrics->outcomes.size(); ++i) {
      const std::string reason = MetricLabel("finished_reason", OutcomeText(static_cast<Outcome>(i)));
      const double count = static_cast<double>(series.metrics->outcomes[i].load(std::memory_order_relaxed));
      WriteSample(finished, series.labels.empty() ? reason : series.labels + "," + reason, count, out);
    }
  }
  WriteCounters(models, &ModelMetrics::prompt_tokens, vllm ? "vllm:prompt_tokens_total" : "hone_prompt_tokens_total",
                "Tokens of prompts, cached ones too.", out);
  WriteCounters(models, &ModelMetrics::generation_tokens,
                vllm ? "vllm:generation_tokens_total" : "hone_generation_tokens_total", "Tokens generated.", out);
  WriteCounters(models, &ModelMetrics::cached_tokens,
                vllm ? "vllm:prompt_tokens_cached_total" : "hone_cached_prompt_tokens_total",
                "Tokens of prompts that the prefix cache held.", out);
}

void WriteMetricHead(std::string_view name, std::string_view type, std::string_view help, std::string* out) {
  *out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void WriteHistogram(std::string_view name, std::string_view labels, std::span<const double> bounds, std::span<const uint64_t> counts,
                    double sum, std::string* out) {
  const std::string_view comma = labels.empty() ? "" : ",";
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const std::string le = i == bounds.size() ? "+Inf" : fmt::format("{}", bounds[i]);
    *out += fmt::format("{}_bucket{{{}{}le=\"{}\"}} {}\n", name, labels, comma, le, total);
  }
  WriteSample(std::string(name) + "_sum", labels, sum, out);
  WriteSample(std::string(name) + "_count", labels, static_cast<double>(total), out);
}

void WriteSample(std::string_view name, std::string_view labels, double value, std::string* out) {
  const std::string number = std::floor(value) == value && std::fabs(value) < 9e15
                                 ? fmt::format("{}", static_cast<int64_t>(value))
                                 : fmt::format("{}", value);
  *out += labels.empty() ? fmt::format("{} {}\n", name, number) : fmt::format("{}{{{}}} {}\n", name, labels, number);
}

std::string MetricLabel(std::string_view name, std::string_view value) {
  std::string out(name);
  out += "=\"";
  for (const char c : value) {
    if (c == '\n')
      out += "\\n";
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else
      out += c;
  }
  return out += '"';
}

}  // namespace hone
