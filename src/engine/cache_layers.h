// A KvCache as the KvLayers that a model asks for. models/ and cache/ do not know each other; this ties them.
#pragma once

#include "cache/kv_cache.h"
#include "models/model.h"

namespace hone {

// The cache must outlive this.
class CacheLayers final : public KvLayers {
 public:
  explicit CacheLayers(const KvCache& cache) : cache_(cache) {}
  KvView View(int layer, const int32_t* blocks) const override { return cache_.View(layer, blocks); }

 private:
  const KvCache& cache_;
};

}  // namespace hone
