// Candidates: the tokens that may still be chosen, with their logits. Samplers change logits and remove candidates.
//
// It starts as the whole vocabulary in order of id (Find is then one look-up). Order everywhere: larger logit first, of
// equal logits the lower id. A logit of NaN is -inf; a candidate with -inf is never chosen. Nothing here allocates
// after Reserve.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace hone {

struct Candidate {
  int32_t id = 0;
  float logit = 0;
};

inline bool Better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

// A logit that a penalty or bias moved from `before` to `after`: what was finite stays finite, what was banned stays
// banned.
inline float MovedLogit(float before, double after) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return before == -std::numeric_limits<float>::infinity() ? before
                                                           : static_cast<float>(std::clamp(after, -kMost, kMost));
}

class Candidates {
 public:
  void Reserve(size_t vocab);
  // All ids of the vocabulary. NaN becomes -inf, +inf the largest finite number.
  void Fill(std::span<const float> logits);

  std::span<Candidate> items() { return items_; }
  std::span<const Candidate> items() const { return items_; }
  size_t size() const { return items_.size(); }
  bool whole() const { return whole_; }  // items()[id].id == id for the whole vocabulary
  Candidate* Find(int32_t id);           // nullptr if it is no candidate

  // Afterwards the first min(k, size()) items are the best, best first; the order of the others is unspecified but
  // depends on nothing else than the items.
  void SortTop(size_t k);
  size_t sorted() const { return sorted_; }  // so many items at the front are known to be the best in order
  void Truncate(size_t n);                   // keeps the first n. REQUIRES: n <= size()

  template <typename Predicate>
  void KeepIf(Predicate keep) {  // keeps the order
    size_t kept = 0, kept_sorted = 0;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (!keep(items_[i])) continue;
      if (i < sorted_) ++kept_sorted;
      items_[kept++] = items_[i];
    }
    if (kept < items_.size()) whole_ = false;
    items_.resize(kept);
    sorted_ = kept_sorted;
  }
  // Same, for a predicate on the index before removal.
  template <typename Predicate>
  void KeepIfIndex(Predicate keep) {
    const Candidate* first = items_.data();
    KeepIf([&](const Candidate& item) { return keep(static_cast<size_t>(&item - first)); });
  }
  void LogitsChanged() { sorted_ = 0; }  // call after writing logits through items() or Find

  float MaxLogit() const;  // -inf if there are none
  // exp(logit - MaxLogit()) of every item, in the order of items(); valid until the next call of a non-const member.
  // `total` is their sum: a probability is weight / total. All weights are 0 if no logit is finite.
  std::span<const float> Weights(double* total);
  // A second array of the same size for a sampler's own use; contents are unspecified.
  std::span<float> Scratch();

 private:
  std::vector<Candidate> items_;
  std::vector<float> weights_, scratch_;
  size_t sorted_ = 0;
  bool whole_ = false;
};

}  // namespace hone
