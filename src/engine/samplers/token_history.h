// TokenHistory: the ids of a sequence, prompt then output, and how often each occurred: what penalties look at.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/samplers/candidates.h"

namespace hone {

class TokenHistory {
 public:
  struct Count {
    int all = 0;     // in prompt and output
    int output = 0;  // in the output
  };
  using Counts = std::unordered_map<int32_t, Count>;

  explicit TokenHistory(std::vector<int32_t> prompt) : tokens_(std::move(prompt)), prompt_tokens_(tokens_.size()) {}

  void Append(int32_t id) { tokens_.push_back(id); }
  std::span<const int32_t> tokens() const { return tokens_; }
  std::span<const int32_t> last(int n) const;  // the last n; all for -1
  size_t prompt_tokens() const { return prompt_tokens_; }

  // Counts over the last n tokens, over all for -1. Over all they are kept up to date; a window is counted at each
  // call. Valid until the next call of a non-const member.
  const Counts& CountsOfLast(int n);

 private:
  void CountFrom(size_t begin, Counts* counts) const;

  std::vector<int32_t> tokens_;
  size_t prompt_tokens_;
  Counts all_, window_;
  size_t counted_ = 0;  // tokens that all_ covers
};

// Calls fn(candidate, count) for every candidate that occurs in `counts`, in no particular order.
template <typename Fn>
void ForEachSeen(Candidates* candidates, const TokenHistory::Counts& counts, Fn fn) {
  if (candidates->whole()) {
    for (const auto& [id, count] : counts) {
      if (Candidate* candidate = candidates->Find(id)) fn(*candidate, count);
    }
  } else {
    for (Candidate& candidate : candidates->items()) {
      if (const auto it = counts.find(candidate.id); it != counts.end()) fn(candidate, it->second);
    }
  }
  candidates->LogitsChanged();
}

}  // namespace hone
