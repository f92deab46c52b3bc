// GET /metrics: the text format of Prometheus. Request metrics are serve/metrics.inc; what the engine counts is listed
// here.
#include "serve/metrics.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <span>
#include <utility>

#include "base/memory.h"
#include "serve/endpoint.h"
#include "serve/limits.h"

namespace hone {
namespace {

struct EngineMetric {
  std::string_view name, vllm;  // vllm "": it has none
  std::string_view type, help;
  double (*value)(const EngineStats& stats);
};

double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }

constexpr EngineMetric kEngineMetrics[] = {
    {"hone_sequences_running", "vllm:num_requests_running", "gauge", "Sequences in the batch.",
     [](const EngineStats& s) { return double(s.running); }},
    {"hone_sequences_waiting", "vllm:num_requests_waiting", "gauge", "Sequences waiting for their turn.",
     [](const EngineStats& s) { return double(s.waiting); }},
    {"hone_kv_blocks", "", "gauge", "Blocks of keys and values.",
     [](const EngineStats& s) { return double(s.blocks); }},
    {"hone_kv_blocks_used", "", "gauge", "Blocks that a sequence owns.",
     [](const EngineStats& s) { return double(s.blocks_used); }},
    {"hone_kv_blocks_shared", "", "gauge", "Blocks that several sequences own.",
     [](const EngineStats& s) { return double(s.blocks_shared); }},
    {"hone_kv_blocks_cached", "", "gauge", "Free blocks whose content a prompt can take over.",
     [](const EngineStats& s) { return double(s.blocks_cached); }},
    {"hone_kv_usage", "vllm:kv_cache_usage_perc", "gauge", "Used share of the blocks, 0 to 1.",
     [](const EngineStats& s) { return Share(s.blocks_used, s.blocks); }},
    {"", "vllm:gpu_cache_usage_perc", "gauge", "The older name of vllm:kv_cache_usage_perc.",
     [](const EngineStats& s) { return Share(s.blocks_used, s.blocks); }},
    {"hone_steps_total", "", "counter", "Steps of the engine.", [](const EngineStats& s) { return double(s.steps); }},
    {"hone_preemptions_total", "vllm:num_preemptions_total", "counter",
     "Sequences that lost their blocks and were computed again.",
     [](const EngineStats& s) { return double(s.preemptions); }},
    {"hone_prefix_query_tokens_total", "vllm:prefix_cache_queries_total", "counter",
     "Prompt tokens looked up in the prefix cache.",
     [](const EngineStats& s) { return double(s.prefix_query_tokens); }},
    {"hone_prefix_hit_tokens_total", "vllm:prefix_cache_hits_total", "counter",
     "Prompt tokens found in the prefix cache.", [](const EngineStats& s) { return double(s.prefix_hit_tokens); }},
    {"", "vllm:gpu_prefix_cache_queries_total", "counter", "The older name of vllm:prefix_cache_queries_total.",
     [](const EngineStats& s) { return double(s.prefix_query_tokens); }},
    {"", "vllm:gpu_prefix_cache_hits_total", "counter", "The older name of vllm:prefix_cache_hits_total.",
     [](const EngineStats& s) { return double(s.prefix_hit_tokens); }},
    {"hone_kv_blocks_copied_total", "", "counter", "Blocks copied on write.",
     [](const EngineStats& s) { return double(s.blocks_copied); }},
    {"hone_kv_blocks_evicted_total", "", "counter", "Cached blocks that made room.",
     [](const EngineStats& s) { return double(s.blocks_evicted); }},
    {"hone_computed_prompt_tokens_total", "", "counter", "Prompt tokens computed.",
     [](const EngineStats& s) { return double(s.prompt_tokens); }},
    {"hone_sequences_cancelled_total", "", "counter", "Sequences that were cancelled.",
     [](const EngineStats& s) { return double(s.cancelled); }},
    {"hone_sequences_timed_out_total", "", "counter", "Sequences that ran or waited too long.",
     [](const EngineStats& s) { return double(s.timed_out); }},
    {"hone_sequences_failed_total", "", "counter", "Sequences that failed.",
     [](const EngineStats& s) { return double(s.failed); }},
};

void WriteEngineMetrics(const std::vector<Series>& series, const std::vector<EngineStats>& stats, bool vllm,
                        std::string* out) {
  for (const EngineMetric& metric : kEngineMetrics) {
    const std::string_view name = vllm ? metric.vllm : metric.name;
    if (name.empty()) continue;
    WriteMetricHead(name, metric.type, metric.help, out);
    for (size_t i = 0; i < series.size(); ++i) WriteSample(name, series[i].labels, metric.value(stats[i]), out);
  }
}

struct EngineHistogram {
  std::string_view name, vllm, help;
  std::span<const double> bounds;
  std::span<const uint64_t> (*counts)(const EngineStats& stats);
  double (*sum)(const EngineStats& stats);
};

constexpr EngineHistogram kEngineHistograms[] = {
    {"hone_step_tokens", "vllm:iteration_tokens_total", "Tokens of a step, of prompts and generated.", kStepTokenBounds,
     [](const EngineStats& s) { return std::span<const uint64_t>(s.step_tokens.counts); },
     [](const EngineStats& s) { return s.step_tokens.sum; }},
    {"hone_kv_block_lifetime_seconds", "vllm:kv_block_lifetime_seconds", "Of an evicted block: since it was taken for what it held.",
     kBlockTimeBounds, [](const EngineStats& s) { return std::span<const uint64_t>(s.block_times.lifetime.counts); },
     [](const EngineStats& s) { return s.block_times.lifetime.sum; }},
    {"hone_kv_block_idle_before_evict_seconds", "vllm:kv_block_idle_before_evict_seconds",
     "Of an evicted block: since its last owner left.", kBlockTimeBounds,
     [](const EngineStats& s) { return std::span<const uint64_t>(s.block_times.idle.counts); },
     [](const EngineStats& s) { return s.block_times.idle.sum; }},
    {"hone_kv_block_reuse_gap_seconds", "vllm:kv_block_reuse_gap_seconds",
     "Between one sequence and the next that takes a block over.", kBlockTimeBounds,
     [](const EngineStats& s) { return std::span<const uint64_t>(s.block_times.reuse_gap.counts); },
     [](const EngineStats& s) { return s.block_times.reuse_gap.sum; }},
};

void WriteEngineHistograms(const std::vector<Series>& series, const std::vector<EngineStats>& stats, bool vllm, std::string* out) {
  for (const EngineHistogram& metric : kEngineHistograms) {
    const std::string_view name = vllm ? metric.vllm : metric.name;
    WriteMetricHead(name, "histogram", metric.help, out);
    for (size_t i = 0; i < series.size(); ++i)
      WriteHistogram(name, series[i].labels, metric.bounds, metric.counts(stats[i]), metric.sum(stats[i]), out);
  }
}

void WriteAdapters(const std::vector<Series>& series, const std::vector<EngineStats>& stats, std::string* out) {
  WriteMetricHead("hone_adapter_sequences", "gauge", "Sequences that use an adapter.", out);
  for (size_t i = 0; i < series.size(); ++i) {
    for (const AdapterSequences& one : stats[i].adapters) {
      const std::string labels = series[i].labels + "," + MetricLabel("adapter", one.name);
      WriteSample("hone_adapter_sequences", labels + R"(,state="running")", one.running, out);
      WriteSample("hone_adapter_sequences", labels + R"(,state="waiting")", one.waiting, out);
    }
  }
}

// vLLM packs the names of adapters in use into labels; routers take the sample with the latest time.
void WriteVllmAdapters(const std::vector<std::shared_ptr<ServedModel>>& models, const std::vector<Series>& series,
                       const std::vector<EngineStats>& stats, std::string* out) {
  WriteMetricHead("vllm:lora_requests_info", "gauge", "Adapters in use; the value is the time.", out);
  const auto names = [](const EngineStats& of, int AdapterSequences::*count) {
    std::string text;
    for (const AdapterSequences& one : of.adapters) {
      if (one.*count > 0) text += (text.empty() ? "" : ",") + one.name;
    }
    return text;
  };
  for (size_t i = 0; i < series.size(); ++i) {
    const int most = std::min(static_cast<int>(kMaxAdapters), models[i]->engine->options().max_sequences);
    WriteSample("vllm:lora_requests_info",
                series[i].labels + "," + MetricLabel("max_lora", std::to_string(most)) + "," +
                    MetricLabel("running_lora_adapters", names(stats[i], &AdapterSequences::running)) + "," +
                    MetricLabel("waiting_lora_adapters", names(stats[i], &AdapterSequences::waiting)),
                static_cast<double>(std::time(nullptr)), out);
  }
}

void WriteOne(std::string_view name, std::string_view type, std::string_view help, std::string_view labels,
              double value, std::string* out) {
  WriteMetricHead(name, type, help, out);
  WriteSample(name, labels, value, out);
}

// What dashboards compute the size of the cache from: labels of a gauge that is always 1.
void WriteVllmCacheConfig(const std::vector<std::shared_ptr<ServedModel>>& models, const std::vector<Series>& series,
                          const std::vector<EngineStats>& stats, std::string* out) {
  WriteMetricHead("vllm:cache_config_info", "gauge", "How keys and values are cached.", out);
  for (size_t i = 0; i < series.size(); ++i) {
    const std::string blocks = std::to_string(stats[i].blocks);
    const char* const prefixes = models[i]->engine->options().prefix_cache ? "True" : "False";
    WriteSample("vllm:cache_config_info",
                series[i].labels + "," + MetricLabel("block_size", std::to_string(kKvBlockTokens)) + "," +
                    MetricLabel("enable_prefix_caching", prefixes) + "," + MetricLabel("num_gpu_blocks", blocks) + "," +
                    MetricLabel("num_cpu_blocks", blocks),
                1, out);
  }
}

// What vLLM tells with a label more than hone needs.
struct VllmSample {
  std::string_view name, type, help, label, text;
  double (*value)(const EngineStats& stats, const ModelMetrics& metrics);
};

constexpr VllmSample kVllmSamples[] = {
    {"vllm:engine_sleep_state", "gauge", "1 for the state that the engine is in: it is always awake.", "sleep_state", "awake",
     [](const EngineStats&, const ModelMetrics&) { return 1.0; }},
    {"vllm:engine_sleep_state", "", "", "sleep_state", "weights_offloaded", [](const EngineStats&, const ModelMetrics&) { return 0.0; }},
    {"vllm:engine_sleep_state", "", "", "sleep_state", "discard_all", [](const EngineStats&, const ModelMetrics&) { return 0.0; }},
    {"vllm:num_requests_waiting_by_reason", "gauge", "Sequences waiting for their turn: all for room.", "reason", "capacity",
     [](const EngineStats& s, const ModelMetrics&) { return double(s.waiting); }},
    {"vllm:num_requests_waiting_by_reason", "", "", "reason", "deferred", [](const EngineStats&, const ModelMetrics&) { return 0.0; }},
    {"vllm:prompt_tokens_by_source_total", "counter", "Tokens of prompts, by where their keys and values came from.", "source", "local_compute",
     [](const EngineStats&, const ModelMetrics& m) { return m.request_computed_tokens.sum(); }},
    {"vllm:prompt_tokens_by_source_total", "", "", "source", "local_cache_hit",
     [](const EngineStats&, const ModelMetrics& m) { return double(m.cached_tokens); }},
    {"vllm:prompt_tokens_by_source_total", "", "", "source", "external_kv_transfer",
     [](const EngineStats&, const ModelMetrics&) { return 0.0; }},
};

void WriteVllmSamples(const std::vector<Series>& series, const std::vector<EngineStats>& stats, std::string* out) {
  for (const VllmSample& sample : kVllmSamples) {
    if (!sample.type.empty()) WriteMetricHead(sample.name, sample.type, sample.help, out);
    for (size_t i = 0; i < series.size(); ++i) {
      const std::string labels = series[i].labels + "," + MetricLabel(sample.label, sample.text);
      WriteSample(sample.name, labels, sample.value(stats[i], *series[i].metrics), out);
    }
  }
}

void WriteServer(ServeContext& context, std::string* out) {
  WriteOne("hone_info", "gauge", "The version of the program.", MetricLabel("version", HONE_VERSION), 1, out);
  WriteOne("hone_ready", "gauge", "1 while new requests are taken.", "",
           context.stopping || (context.warm != nullptr && !*context.warm) ? 0 : 1, out);
  WriteOne("hone_generations", "gauge", "Requests at work that generate.", "", context.generations, out);
  WriteOne("hone_start_time_seconds", "gauge", "Unix time of the start.", "", static_cast<double>(context.created),
           out);
  WriteOne("hone_resident_bytes", "gauge", "Resident memory of the process.", "", static_cast<double>(ResidentBytes()),
           out);
  const CanaryState canary = context.models.state();
  WriteOne("hone_canary_share", "gauge", "Share of new requests that the canary gets; 0 without one.", "",
           canary.phase == CanaryState::Phase::kRunning ? canary.share : 0, out);
  if (context.access_log != nullptr) {
    WriteOne("hone_access_log_dropped_total", "counter", "Lines of the access log that were dropped.", "",
             static_cast<double>(context.access_log->dropped()), out);
  }
  context.http.Write(out);
}

}  // namespace

void MetricsEndpoint(ServeContext& context, HttpRequest, std::shared_ptr<ResponseWriter> writer) {
  const std::vector<std::shared_ptr<ServedModel>> models = context.models.all();
  std::vector<Series> series, vllm_series;
  std::vector<EngineStats> stats;
  for (const auto& model : models) {
    const std::string name = MetricLabel("model_name", context.options.name);
    series.push_back({name + "," + MetricLabel("weights", std::to_string(model->number)), &model->metrics});
    vllm_series.push_back({name + "," + MetricLabel("engine", std::to_string(model->number - 1)), &model->metrics});
    stats.push_back(model->engine->stats());
  }
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  std::string& out = response.body;
  WriteServer(context, &out);
  WriteEngineMetrics(series, stats, false, &out);
  WriteModelMetrics(series, false, &out);
  WriteEngineHistograms(series, stats, false, &out);
  WriteAdapters(series, stats, &out);
  if (context.options.vllm_metrics) {
    WriteEngineMetrics(vllm_series, stats, true, &out);
    WriteModelMetrics(vllm_series, true, &out);
    WriteEngineHistograms(vllm_series, stats, true, &out);
    WriteVllmAdapters(models, vllm_series, stats, &out);
    WriteVllmSamples(vllm_series, stats, &out);
    WriteVllmCacheConfig(models, vllm_series, stats, &out);
  }
  writer->Send(std::move(response));
}

}  // namespace hone
