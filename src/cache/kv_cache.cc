// One buffer a layer: for each block its keys, then its values.
#include "cache/kv_cache.h"

#include <cstring>

#include "base/check.h"

namespace hone {

KvCache::KvCache(const KvCacheShape& shape) : shape_(shape) {
  HONE_CHECK(shape.layers >= 0 && shape.kv_heads >= 0 && shape.head_width >= 0 && shape.blocks >= 0);
  layers_.reserve(shape.layers);
  for (int layer = 0; layer < shape.layers; ++layer) layers_.emplace_back(shape.block_bytes() * shape.blocks);
}

KvView KvCache::View(int layer, const int32_t* blocks) const {
  HONE_CHECK(layer >= 0 && layer < shape_.layers);
  KvView view;
  view.type = shape_.type;
  view.kv_heads = shape_.kv_heads;
  view.head_width = shape_.head_width;
  view.keys = layers_[layer].data();
  view.values = view.keys + shape_.block_bytes() / 2;
  view.block_stride = shape_.block_bytes();
  view.blocks = blocks;
  return view;
}

void KvCache::CopyBlock(int from, int to) {
  HONE_CHECK(from >= 0 && from < shape_.blocks && to >= 0 && to < shape_.blocks);
  if (from == to) return;
  const size_t bytes = shape_.block_bytes();
  for (Buffer& layer : layers_) std::memcpy(layer.data() + to * bytes, layer.data() + from * bytes, bytes);
}

}  // namespace hone
