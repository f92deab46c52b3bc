// The free list is a stack that starts with block 0 on top; cached blocks are a ring by age.
#include "cache/block_pool.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace hone {

BlockPool::BlockPool(int blocks, int block_tokens) : block_tokens_(block_tokens) {
  HONE_CHECK(blocks >= 0 && block_tokens >= 1);
  references_.resize(blocks, 0);
  kept_.resize(blocks, 0);
  for (std::vector<double>* times : {&filled_s_, &taken_s_, &left_s_}) times->resize(blocks, 0);
  newer_.resize(blocks + 1, blocks);
  older_.resize(blocks + 1, blocks);
  free_.reserve(blocks);
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

int BlockPool::references(int32_t block) const {
  HONE_CHECK(block >= 0 && block < blocks());
  return references_[block];
}

void BlockPool::LinkNewest(int32_t block) {
  const int32_t ends = blocks(), newest = older_[ends];
  older_[block] = newest;
  newer_[block] = ends;
  newer_[newest] = older_[ends] = block;
  ++cached_;
}

void BlockPool::Unlink(int32_t block) {
  newer_[older_[block]] = newer_[block];
  older_[newer_[block]] = older_[block];
  --cached_;
}

int32_t BlockPool::Take() {
  if (!free_.empty()) {
    const int32_t block = free_.back();
    free_.pop_back();
    touched_ = std::max(touched_, block + 1);
    return block;
  }
  const int32_t oldest = newer_[blocks()];
  Unlink(oldest);
  kept_[oldest] = 0;
  evicted_.push_back(oldest);
  times_.lifetime.Add(now_s_ - filled_s_[oldest], kBlockTimeBounds);
  times_.idle.Add(now_s_ - left_s_[oldest], kBlockTimeBounds);
  return oldest;
}

bool BlockPool::Allocate(int count, std::vector<int32_t>* table) {
  HONE_CHECK(count >= 0);
  if (count > free_blocks()) return false;
  for (int i = 0; i < count; ++i) {
    const int32_t block = Take();
    references_[block] = 1;
    filled_s_[block] = taken_s_[block] = now_s_;
    table->push_back(block);
  }
  return true;
}

void BlockPool::Share(int32_t block) {
  const int owners = references(block);
  HONE_CHECK(owners > 0 || is_kept(block), "a free block cannot be shared");
  if (owners == 0) Unlink(block);
  if (owners == 1) ++shared_;
  ++references_[block];
  times_.reuse_gap.Add(now_s_ - taken_s_[block], kBlockTimeBounds);
  taken_s_[block] = now_s_;
}

void BlockPool::Release(int32_t block) {
  HONE_CHECK(references(block) > 0, "a free block was released again");
  const int owners = --references_[block];
  if (owners == 1) --shared_;
  if (owners > 0) return;
  left_s_[block] = now_s_;
  if (is_kept(block)) {
    LinkNewest(block);
  } else {
    free_.push_back(block);
  }
}

void BlockPool::ReleaseAll(std::vector<int32_t>* table) {
  for (; !table->empty(); table->pop_back()) Release(table->back());
}

void BlockPool::Keep(int32_t block) {
  HONE_CHECK(references(block) > 0, "a free block was kept");
  kept_[block] = 1;
}

void BlockPool::Drop(int32_t block) {
  const bool is_cached = references(block) == 0 && is_kept(block);
  kept_[block] = 0;
  if (!is_cached) return;
  Unlink(block);
  free_.push_back(block);
}

std::string BlockPool::Audit() const {
  std::vector<bool> is_free(references_.size(), false);
  const auto mark = [&](int32_t block) -> std::string {
    if (block < 0 || block >= blocks()) return fmt::format("free block {} does not exist", block);
    if (is_free[block]) return fmt::format("block {} is free twice", block);
    if (references_[block] != 0) return fmt::format("free block {} has {} owners", block, references_[block]);
    is_free[block] = true;
    return "";
  };
  for (const int32_t block : free_) {
    if (std::string problem = mark(block); !problem.empty()) return problem;
    if (kept_[block]) return fmt::format("block {} is kept but not cached", block);
  }
  int cached = 0, shared = 0;
  for (int32_t block = newer_[blocks()]; block != blocks(); block = newer_[block], ++cached) {
    if (std::string problem = mark(block); !problem.empty()) return problem;
    if (!kept_[block]) return fmt::format("block {} is cached but not kept", block);
  }
  if (cached != cached_) return fmt::format("{} blocks are cached, {} are counted", cached, cached_);
  for (int32_t block = 0; block < blocks(); ++block) {
    if (references_[block] < 0) return fmt::format("block {} has {} owners", block, references_[block]);
    if (references_[block] == 0 && !is_free[block]) return fmt::format("block {} is lost: no owner, not free", block);
    shared += references_[block] > 1;
  }
  if (shared != shared_) return fmt::format("{} blocks are shared, {} are counted", shared, shared_);
  return "";
}

}  // namespace hone
