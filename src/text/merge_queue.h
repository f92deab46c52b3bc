// Queues of merge candidates (rank, place): lowest rank first, leftmost among equals. Two forms with one interface.
//
// HeapQueue is a binary heap, for pieces of up to some thousand symbols. RankQueue keeps one queue of places a rank,
// and finds the lowest rank in a bitmap: for pieces of millions of symbols, where a heap would miss the cache at every
// step. Candidates usually arrive in order of place, so a rank's queue is a sorted list with a cursor; latecomers go to
// a small heap beside it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <functional>
#include <vector>

namespace hone {

class HeapQueue {
 public:
  // Borrows memory that lives from piece to piece.
  explicit HeapQueue(std::vector<uint64_t>* storage) : heap_(*storage) { heap_.clear(); }
  void Push(uint32_t rank, uint32_t place) {
    heap_.push_back(static_cast<uint64_t>(rank) << 32 | place);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  bool Pop(uint32_t* rank, uint32_t* place) {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    *rank = static_cast<uint32_t>(heap_.back() >> 32);
    *place = static_cast<uint32_t>(heap_.back());
    heap_.pop_back();
    return true;
  }

 private:
  std::vector<uint64_t>& heap_;
};

class RankQueue {
 public:
  // Ranks are below `ranks`.
  explicit RankQueue(uint32_t ranks) : bucket_of_(ranks, 0), buckets_(1) {
    size_t words = (static_cast<size_t>(ranks) + 63) / 64;
    for (auto& level : bits_) {
      level.assign(std::max<size_t>(words, 1), 0);
      words = (words + 63) / 64;
    }
  }
  void Push(uint32_t rank, uint32_t place) {
    uint32_t& index = bucket_of_[rank];
    if (index == 0) {
      index = static_cast<uint32_t>(buckets_.size());
      buckets_.emplace_back();
    }
    Bucket& bucket = buckets_[index];
    if (bucket.Empty()) Mark(rank);
    if (bucket.cursor == bucket.sorted.size()) {
      bucket.sorted.clear();
      bucket.cursor = 0;
    }
    if (bucket.sorted.empty() || place >= bucket.sorted.back()) {
      bucket.sorted.push_back(place);
    } else {
      bucket.late.push_back(place);
      std::push_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
    }
  }
  bool Pop(uint32_t* rank, uint32_t* place) {
    if (!Lowest(rank)) return false;
    Bucket& bucket = buckets_[bucket_of_[*rank]];
    const bool sorted = bucket.cursor < bucket.sorted.size();
    if (sorted && (bucket.late.empty() || bucket.sorted[bucket.cursor] <= bucket.late.front())) {
      *place = bucket.sorted[bucket.cursor++];
    } else {
      std::pop_heap(bucket.late.begin(), bucket.late.end(), std::greater<>());
      *place = bucket.late.back();
      bucket.late.pop_back();
    }
    if (bucket.Empty()) Clear(*rank);
    return true;
  }

 private:
  struct Bucket {
    std::vector<uint32_t> sorted, late;
    size_t cursor = 0;
    bool Empty() const { return cursor == sorted.size() && late.empty(); }
  };
  static constexpr int kLevels = 6;  // 64^6 ranks and more

  void Mark(uint32_t rank) {
    size_t at = rank;
    for (auto& level : bits_) {
      uint64_t& word = level[at / 64];
      const bool was_empty = word == 0;
      word |= uint64_t{1} << (at % 64);
      if (!was_empty) return;
      at /= 64;
    }
  }
  void Clear(uint32_t rank) {
    size_t at = rank;
    for (auto& level : bits_) {
      uint64_t& word = level[at / 64];
      word &= ~(uint64_t{1} << (at % 64));
      if (word != 0) return;
      at /= 64;
    }
  }
  bool Lowest(uint32_t* rank) const {
    size_t at = 0;
    if (bits_[kLevels - 1][0] == 0) return false;
    for (int level = kLevels - 1; level >= 0; --level) {
      at = at * 64 + static_cast<size_t>(std::countr_zero(bits_[static_cast<size_t>(level)][at]));
    }
    *rank = static_cast<uint32_t>(at);
    return true;
  }

  std::vector<uint32_t> bucket_of_;  // by rank; 0: none yet
  std::vector<Bucket> buckets_;
  std::array<std::vector<uint64_t>, kLevels> bits_;  // [0]: a bit a rank; above: a bit a word below that is not empty
};

inline constexpr size_t kRankQueueSymbols = 4096;  // from here on RankQueue

}  // namespace hone
