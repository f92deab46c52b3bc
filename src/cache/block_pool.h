// BlockPool: who owns which KV block. A pure state machine over integers: no tensors, clock, thread or lock.
//
// Promises: a block is either free or has one owner or more (its reference count); free + used == blocks, always. Only
// a block with a single owner may be written (IsWritable). Blocks freed last are handed out first, so memory never
// touched stays so. The bytes behind a block: kv_cache.h. Who asks: engine/scheduler.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/attention/kv_view.h"

namespace hone {

class BlockPool {
 public:
  explicit BlockPool(int blocks);  // REQUIRES: blocks >= 0

  int blocks() const { return static_cast<int>(references_.size()); }
  int free_blocks() const { return static_cast<int>(free_.size()); }
  int used_blocks() const { return blocks() - free_blocks(); }
  int references(int32_t block) const;

  // Blocks that hold `tokens` positions.
  static int BlocksFor(int64_t tokens) { return static_cast<int>((tokens + kKvBlockTokens - 1) / kKvBlockTokens); }

  // Appends `count` free blocks, each with one owner now, to `table`. All or nothing: false leaves both as they were.
  bool Allocate(int count, std::vector<int32_t>* table);
  // One more owner of a block in use; it is read-only until it has one owner again.
  void Share(int32_t block);
  // One owner less; without owners it is free. REQUIRES: the block is in use.
  void Release(int32_t block);
  // Releases a whole table, last block first, and empties it.
  void ReleaseAll(std::vector<int32_t>* table);

  bool IsWritable(int32_t block) const { return references(block) == 1; }

  // "" if every promise above holds, else which one does not. Linear in blocks: for tests and simulation.
  std::string Audit() const;

 private:
  std::vector<int32_t> references_;  // [blocks] owners
  std::vector<int32_t> free_;        // a stack
};

}  // namespace hone
