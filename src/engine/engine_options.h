// EngineOptions as asked for, to options that hold: every 0 filled in, every contradiction an error with its numbers.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "cache/kv_cache.h"
#include "engine/engine.h"

namespace hone {

struct ResolvedOptions {
  EngineOptions options;
  KvCacheShape cache;
};

// `free_bytes`: memory this process may still take; 0: unknown.
Result<ResolvedOptions> ResolveOptions(const EngineOptions& asked, const ModelConfig& config, const LoadOptions& load,
                                       uint64_t free_bytes);

// What Submit checks. `vocab` ids, `context` tokens at most.
Result<void> CheckRequest(const SequenceRequest& request, int vocab, int context);

}  // namespace hone
