// Counting is lazy: a sequence without penalties never pays for it.
#include "engine/samplers/token_history.h"

#include <algorithm>

namespace hone {

std::span<const int32_t> TokenHistory::last(int n) const {
  const size_t count = n < 0 ? tokens_.size() : std::min<size_t>(n, tokens_.size());
  return std::span(tokens_).subspan(tokens_.size() - count);
}

const TokenHistory::Counts& TokenHistory::CountsOfLast(int n) {
  if (n < 0 || static_cast<size_t>(n) >= tokens_.size()) {
    CountFrom(counted_, &all_);
    counted_ = tokens_.size();
    return all_;
  }
  window_.clear();
  CountFrom(tokens_.size() - n, &window_);
  return window_;
}

void TokenHistory::CountFrom(size_t begin, Counts* counts) const {
  for (size_t i = begin; i < tokens_.size(); ++i) {
    Count& count = (*counts)[tokens_[i]];
    ++count.all;
    if (i >= prompt_tokens_) ++count.output;
  }
}

}  // namespace hone
