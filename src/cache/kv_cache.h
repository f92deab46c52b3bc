// KvCache: the memory of all KV blocks of all layers. Who owns which block is decided by BlockPool (block_pool.h), a
// pure state machine; this is only bytes. Layout of a block: kernels/attention/kv_view.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "base/threads.h"
#include "kernels/attention/kv_view.h"

namespace hone {

struct KvCacheShape {
  KvType type = KvType::kF32;
  int layers = 0, kv_heads = 0, head_width = 0;
  int blocks = 0;

  uint64_t block_bytes() const {  // keys and values of one layer
    return uint64_t{2} * kv_heads * KvHeadBlockBytes(type, head_width);
  }
  uint64_t token_bytes() const { return block_bytes() * layers / kKvBlockTokens; }  // keys and values of one token, all layers
  uint64_t total_bytes() const { return block_bytes() * layers * blocks; }
};

class KvCache {
 public:
  explicit KvCache(const KvCacheShape& shape);  // memory is reserved; a page gets it at its first write, or by TouchAhead
  const KvCacheShape& shape() const { return shape_; }
  // REQUIRES: 0 <= layer < shape().layers; block ids in [0, shape().blocks).
  KvView View(int layer, const int32_t* blocks) const;
  void CopyBlock(int from, int to);  // all layers; for copy-on-write

  // The first write to a huge page takes milliseconds (it is cleared; a virtual machine has to get it first), and all layers come
  // to the end of theirs in the same step. So this writes to pages before anybody needs them (contents stay): to that of the next
  // fresh block and to the one behind it, in all layers, and, since a long prompt is given its blocks at once, to the lowest that
  // a block below `used` lies in; in both places to as many a call as `tokens`, those just computed, fill, and one more. True if it
  // did anything. Not beside another call of this.
  bool TouchAhead(int used, int tokens, ThreadPool* threads);

 private:
  KvCacheShape shape_;
  mutable std::vector<Buffer> layers_;  // one a layer: [block][keys | values]
  std::vector<int> touched_;  // of the first page of all layers, of the second, ...: in how many layers; empty where there are no pages
  int lowest_ = 0;            // in touched_: those before it are complete
};

}  // namespace hone
