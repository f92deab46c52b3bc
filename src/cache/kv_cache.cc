// One buffer a layer: for each block its keys, then its values.
#include "cache/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace hone {

KvCache::KvCache(const KvCacheShape& shape) : shape_(shape) {
  HONE_CHECK(shape.layers >= 0 && shape.kv_heads >= 0 && shape.head_width >= 0 && shape.blocks >= 0);
  layers_.reserve(shape.layers);
  for (int layer = 0; layer < shape.layers; ++layer) layers_.emplace_back(shape.block_bytes() * shape.blocks);
  const size_t bytes = shape.block_bytes() * shape.blocks;  // of a layer; less than a page is cleared when it is made
  if (bytes >= Buffer::kHugePage) touched_.resize((bytes + Buffer::kHugePage - 1) / Buffer::kHugePage);
}

bool KvCache::TouchAhead(int used, int tokens, ThreadPool* threads) {
  if (touched_.empty()) return false;
  const int end = static_cast<int>(touched_.size());
  const int next = std::min(end - 1, static_cast<int>(shape_.block_bytes() * used / Buffer::kHugePage));
  const int most = 1 + static_cast<int>(shape_.token_bytes() * tokens / Buffer::kHugePage);
  std::vector<std::pair<int, int>> pages;  // which of a layer; the layer
  const auto take = [&](int from, int to) {
    for (int page = from, left = most; page < to; ++page) {
      for (; touched_[page] < shape_.layers && left > 0; --left) pages.emplace_back(page, touched_[page]++);
    }
  };
  take(next, std::min(end, next + 2));
  while (lowest_ < next && touched_[lowest_] == shape_.layers) ++lowest_;
  take(lowest_, next);
  if (pages.empty()) return false;
  const auto touch = [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) {
      Buffer& layer = layers_[pages[i].second];
      const size_t at = pages[i].first * Buffer::kHugePage;
      TouchPages(layer.data() + at, std::min(Buffer::kHugePage, layer.size() - at));
    }
  };
  if (threads != nullptr) {
    threads->ParallelFor(pages.size(), 1, touch);
  } else {
    touch(0, pages.size());
  }
  return true;
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
