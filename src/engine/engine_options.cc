// The rules, in the order in which a person would want to hear of them.
#include "engine/engine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "cache/block_pool.h"
#include "text/utf8.h"

namespace hone {
namespace {

std::string Megabytes(uint64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

Result<void> ResolveContext(EngineOptions* options, const ModelConfig& config, const LoadOptions& load) {
  const int longest = load.max_context > 0 ? load.max_context : config.context;
  if (options->context == 0) options->context = std::min(longest, kMaxDefaultContext);
  if (options->context < 2) {
    return UsageError(
        fmt::format("context is {}; wanted at least 2 tokens, one of prompt and one of output", options->context));
  }
  if (options->context > longest) {
    return UsageError(fmt::format("context is {} tokens, but the model was loaded for {}; ask for {} or less",
                                  options->context, longest, longest));
  }
  return {};
}

Result<void> CheckPolicyAndTimes(const EngineOptions& options) {
  const std::vector<std::string> known = SchedulingPolicies();
  if (std::find(known.begin(), known.end(), options.policy) == known.end()) {
    return UsageError(
        fmt::format("policy is \"{}\"; wanted one of {}", options.policy, fmt::join(known, ", ")));
  }
  const std::pair<const char*, double> times[] = {{"step_ms", options.step_ms},
                                                  {"queue_timeout_s", options.queue_timeout_s},
                                                  {"request_timeout_s", options.request_timeout_s}};
  for (const auto& [field, value] : times) {
    if (!(value >= 0)) return UsageError(fmt::format("{} is {}; wanted 0 (off) or more", field, value));
  }
  return {};
}

Result<void> ResolveStep(EngineOptions* options, const LoadOptions& load) {
  if (options->max_sequences < 1 || options->max_sequences > kMaxSequences) {
    return UsageError(fmt::format("max_sequences is {}; wanted 1 to {}", options->max_sequences, kMaxSequences));
  }
  if (options->max_queue < 0) return UsageError(fmt::format("max_queue is {}; wanted 0 or more", options->max_queue));
  if (options->step_tokens < 1) {
    return UsageError(fmt::format("step_tokens is {}; wanted 1 or more", options->step_tokens));
  }
  options->step_tokens = std::min(options->step_tokens, load.max_rows);
  if (options->step_tokens < options->max_sequences) {
    return UsageError(
        fmt::format("a step of {} tokens (the model was loaded for {}) is too small for max_sequences {}: each "
                    "running sequence needs one token a step",
                    options->step_tokens, load.max_rows, options->max_sequences));
  }
  return {};
}

Result<void> ResolveCache(ResolvedOptions* resolved, const ModelConfig& config, uint64_t free_bytes) {
  EngineOptions& options = resolved->options;
  KvCacheShape& shape = resolved->cache;
  shape = {options.kv, config.layers, config.kv_heads, config.head_width, 0};
  const uint64_t block_bytes = shape.block_bytes() * shape.layers;  // a block of all layers
  const uint64_t context_blocks = BlockPool::BlocksFor(options.context);
  const uint64_t wanted_blocks = context_blocks * options.max_sequences;
  const uint64_t context_bytes = context_blocks * block_bytes;

  uint64_t blocks = wanted_blocks;
  if (block_bytes > 0) {
    const bool asked = options.kv_bytes > 0;
    if (asked && free_bytes > 0 && options.kv_bytes > free_bytes) {
      return UsageError(fmt::format("kv_bytes is {}, but only {} of memory are free", Megabytes(options.kv_bytes),
                                    Megabytes(free_bytes)));
    }
    const uint64_t most =
        asked ? options.kv_bytes : (free_bytes > 0 ? free_bytes / 4 : std::numeric_limits<uint64_t>::max());
    blocks = asked ? most / block_bytes : std::min(wanted_blocks, most / block_bytes);
    if (blocks < context_blocks) {
      return UsageError(fmt::format(
          "one context of {} tokens needs {} of KV cache, but {} is {}; ask for a context of at most {} tokens{}",
          options.context, Megabytes(context_bytes), asked ? "kv_bytes" : "a quarter of the free memory",
          Megabytes(most), blocks * kKvBlockTokens, asked ? " or for more kv_bytes" : ", or for kv_bytes"));
    }
  }
  shape.blocks = static_cast<int>(std::min<uint64_t>(blocks, std::numeric_limits<int32_t>::max()));
  options.kv_bytes = shape.total_bytes();
  return {};
}

Error WrongCount(const char* field, size_t count, int most) {
  return InvalidInput(fmt::format("{} has {} entries; at most {}", field, count, most));
}

Result<void> CheckIds(const char* field, const std::vector<int32_t>& ids, int vocab) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) {
      return InvalidInput(
          fmt::format("{} holds token {} at place {}; the vocabulary has ids 0 to {}", field, ids[i], i, vocab - 1));
    }
  }
  return {};
}

Result<void> CheckStops(const std::vector<std::string>& stops) {
  if (stops.size() > static_cast<size_t>(kMaxStops)) return WrongCount("stop", stops.size(), kMaxStops);
  for (const std::string& stop : stops) {
    if (stop.empty()) return InvalidInput("stop holds an empty string; every text begins with it");
    if (stop.size() > static_cast<size_t>(kMaxStopBytes)) {
      return InvalidInput(fmt::format("stop holds a string of {} bytes; at most {}", stop.size(), kMaxStopBytes));
    }
    if (!IsValidUtf8(stop))
      return InvalidInput("stop holds a string that is not UTF-8; it could never occur in the text");
  }
  return {};
}

}  // namespace

Result<ResolvedOptions> ResolveOptions(const EngineOptions& asked, const ModelConfig& config, const LoadOptions& load,
                                       uint64_t free_bytes) {
  ResolvedOptions resolved{asked, {}};
  HONE_RETURN_IF_ERROR(ResolveContext(&resolved.options, config, load));
  HONE_RETURN_IF_ERROR(ResolveStep(&resolved.options, load));
  HONE_RETURN_IF_ERROR(CheckPolicyAndTimes(resolved.options));
  HONE_RETURN_IF_ERROR(ResolveCache(&resolved, config, free_bytes));
  return resolved;
}

Result<void> CheckRequest(const SequenceRequest& request, int vocab, int context) {
  if (request.prompt.empty()) return InvalidInput("prompt is empty; wanted at least one token");
  const bool prompt_only = request.prompt_only || request.pooling != Pooling::kNone;
  if (request.prompt.size() >= static_cast<size_t>(context) + prompt_only) {
    return InvalidInput(
        fmt::format("prompt has {} tokens, but the context holds {} tokens of prompt and output together; "
                    "shorten it to {} or less",
                    request.prompt.size(), context, context - 1 + prompt_only));
  }
  HONE_RETURN_IF_ERROR(CheckIds("prompt", request.prompt, vocab));
  if (request.max_tokens < 0) {
    return InvalidInput(fmt::format("max_tokens is {}; wanted 0 (up to the context) or more", request.max_tokens));
  }
  if (request.min_tokens < 0 || (request.max_tokens > 0 && request.min_tokens > request.max_tokens)) {
    return InvalidInput(
        fmt::format("min_tokens is {}; wanted 0 to max_tokens ({})", request.min_tokens, request.max_tokens));
  }
  HONE_RETURN_IF_ERROR(CheckStops(request.stop));
  if (request.stop_ids.size() > static_cast<size_t>(kMaxStopIds)) {
    return WrongCount("stop_ids", request.stop_ids.size(), kMaxStopIds);
  }
  HONE_RETURN_IF_ERROR(CheckIds("stop_ids", request.stop_ids, vocab));
  if (request.logprobs < -1 || request.logprobs > kMaxLogprobs) {
    return InvalidInput(fmt::format("logprobs is {}; wanted -1 (none) to {}", request.logprobs, kMaxLogprobs));
  }
  if (request.prompt_logprobs < -1 || request.prompt_logprobs > kMaxLogprobs) {
    return InvalidInput(
        fmt::format("prompt_logprobs is {}; wanted -1 (none) to {}", request.prompt_logprobs, kMaxLogprobs));
  }
  if (request.salt.size() > static_cast<size_t>(kMaxSaltBytes)) {
    return InvalidInput(fmt::format("salt has {} bytes; at most {}", request.salt.size(), kMaxSaltBytes));
  }
  for (const auto& [field, seconds] : {std::pair{"queue_timeout_s", request.queue_timeout_s},
                                       std::pair{"timeout_s", request.timeout_s}}) {
    if (!(seconds >= 0)) return InvalidInput(fmt::format("{} is {}; wanted 0 (the engine's) or more", field, seconds));
  }
  return CheckSamplingParams(request.sampling, vocab);
}

}  // namespace hone
