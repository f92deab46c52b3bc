// BlockPool: who owns which KV block. A pure state machine over integers: no tensors, clock, thread or lock.
//
// Promises: a block is either free or has one owner or more (its reference count); free + used == blocks, always. Only
// a block with a single owner may be written (IsWritable). A block whose content somebody may want again (Keep) stays
// cached when its last owner goes: it counts as free, can be taken over with Share, and is given to somebody else only
// when no other free block is left, the one free for longest first. Other blocks freed last are handed out first, so
// memory never touched stays so. What the content is: prefix_index.h. The bytes: kv_cache.h. Who asks:
// engine/scheduler.h. It has no clock: who wants to know how long blocks live says what time it is (SetNow).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/block_times.h"
#include "kernels/attention/kv_view.h"

namespace hone {

class BlockPool {
 public:
  // REQUIRES: blocks >= 0, block_tokens >= 1. The engine's blocks have kKvBlockTokens; simulations try others.
  explicit BlockPool(int blocks, int block_tokens = kKvBlockTokens);

  int blocks() const { return static_cast<int>(references_.size()); }
  int free_blocks() const { return static_cast<int>(free_.size()) + cached_; }  // cached ones too
  int used_blocks() const { return blocks() - free_blocks(); }
  int cached_blocks() const { return cached_; }  // kept without an owner
  int shared_blocks() const { return shared_; }  // with more than one owner
  int touched_blocks() const { return touched_; }  // every block ever handed out is below
  int references(int32_t block) const;

  int block_tokens() const { return block_tokens_; }
  int BlocksOf(int64_t tokens) const { return static_cast<int>((tokens + block_tokens_ - 1) / block_tokens_); }

  // Blocks of the engine that hold `tokens` positions.
  static int BlocksFor(int64_t tokens) { return static_cast<int>((tokens + kKvBlockTokens - 1) / kKvBlockTokens); }

  // Appends `count` free blocks, each with one owner now, to `table`. All or nothing: false leaves both as they were.
  // Cached blocks that had to be taken are listed in evicted().
  bool Allocate(int count, std::vector<int32_t>* table);
  // One more owner of a block that is in use or cached; it is read-only while it has several.
  void Share(int32_t block);
  // One owner less; without owners it is free, or cached if it is kept. REQUIRES: the block is in use.
  void Release(int32_t block);
  // Releases a whole table, last block first, and empties it: of a chain the end is evicted before the beginning.
  void ReleaseAll(std::vector<int32_t>* table);

  // The block's content may be wanted again. REQUIRES: it is in use.
  void Keep(int32_t block);
  // Nobody will ask for the content any more; a cached block becomes a free one.
  void Drop(int32_t block);
  bool is_kept(int32_t block) const { return kept_[block] != 0; }

  // Blocks that Allocate took from the cache since ClearEvicted, in that order; they are not kept any more.
  std::span<const int32_t> evicted() const { return evicted_; }
  void ClearEvicted() { evicted_.clear(); }

  // The time of what follows, in seconds that do not fall; 0 before.
  void SetNow(double seconds) { now_s_ = seconds; }
  const BlockTimes& times() const { return times_; }

  bool IsWritable(int32_t block) const { return references(block) == 1; }

  // "" if every promise above holds, else which one does not. Linear in blocks: for tests and simulation.
  std::string Audit() const;

 private:
  int32_t Take();
  void LinkNewest(int32_t block);
  void Unlink(int32_t block);

  std::vector<int32_t> references_;        // [blocks] owners
  std::vector<uint8_t> kept_;              // [blocks]
  std::vector<int32_t> free_;              // a stack
  std::vector<int32_t> newer_, older_;     // [blocks + 1] a ring of the cached; the last place is between newest, oldest
  std::vector<int32_t> evicted_;
  std::vector<double> filled_s_, taken_s_, left_s_;  // [blocks] when it was allocated, last shared, last left by all
  BlockTimes times_;
  double now_s_ = 0;
  int block_tokens_;
  int cached_ = 0, shared_ = 0, touched_ = 0;
};

}  // namespace hone
