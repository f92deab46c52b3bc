// The free list is a stack that starts with block 0 on top.
#include "cache/block_pool.h"

#include <fmt/core.h>

#include "base/check.h"

namespace hone {

BlockPool::BlockPool(int blocks) {
  HONE_CHECK(blocks >= 0);
  references_.resize(blocks, 0);
  free_.reserve(blocks);
  for (int32_t block = blocks - 1; block >= 0; --block) free_.push_back(block);
}

int BlockPool::references(int32_t block) const {
  HONE_CHECK(block >= 0 && block < blocks());
  return references_[block];
}

bool BlockPool::Allocate(int count, std::vector<int32_t>* table) {
  HONE_CHECK(count >= 0);
  if (count > free_blocks()) return false;
  for (int i = 0; i < count; ++i) {
    const int32_t block = free_.back();
    free_.pop_back();
    references_[block] = 1;
    table->push_back(block);
  }
  return true;
}

void BlockPool::Share(int32_t block) {
  HONE_CHECK(references(block) > 0, "a free block cannot be shared");
  ++references_[block];
}

void BlockPool::Release(int32_t block) {
  HONE_CHECK(references(block) > 0, "a free block was released again");
  if (--references_[block] == 0) free_.push_back(block);
}

void BlockPool::ReleaseAll(std::vector<int32_t>* table) {
  for (; !table->empty(); table->pop_back()) Release(table->back());
}

std::string BlockPool::Audit() const {
  std::vector<bool> is_free(references_.size(), false);
  for (const int32_t block : free_) {
    if (block < 0 || block >= blocks()) return fmt::format("block {} on the free list does not exist", block);
    if (is_free[block]) return fmt::format("block {} is twice on the free list", block);
    if (references_[block] != 0) return fmt::format("free block {} has {} owners", block, references_[block]);
    is_free[block] = true;
  }
  for (int32_t block = 0; block < blocks(); ++block) {
    if (references_[block] < 0) return fmt::format("block {} has {} owners", block, references_[block]);
    if (references_[block] == 0 && !is_free[block]) return fmt::format("block {} is lost: no owner, not free", block);
  }
  return "";
}

}  // namespace hone
