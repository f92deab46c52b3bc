// Partial selection instead of a full sort: a heap of k while k is small against the size, else a partition and a short
// sort.
#include "engine/samplers/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace hone {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

}  // namespace

void Candidates::Reserve(size_t vocab) {
  items_.reserve(vocab);
  weights_.reserve(vocab);
  scratch_.reserve(vocab);
}

void Candidates::Fill(std::span<const float> logits) {
  items_.resize(logits.size());
  for (size_t id = 0; id < logits.size(); ++id) {
    float logit = logits[id];
    if (!(logit <= std::numeric_limits<float>::max())) {
      logit = std::isnan(logit) ? kMinusInfinity : std::numeric_limits<float>::max();
    }
    items_[id] = {static_cast<int32_t>(id), logit};
  }
  sorted_ = 0;
  whole_ = true;
}

Candidate* Candidates::Find(int32_t id) {
  if (whole_) return id >= 0 && static_cast<size_t>(id) < items_.size() ? &items_[id] : nullptr;
  for (Candidate& item : items_) {
    if (item.id == id) return &item;
  }
  return nullptr;
}

void Candidates::SortTop(size_t k) {
  k = std::min(k, items_.size());
  if (k <= sorted_) return;
  const auto first = items_.begin() + sorted_, middle = items_.begin() + k;  // what is sorted already stays in front
  if (k - sorted_ <= items_.size() / 64) {
    std::partial_sort(first, middle, items_.end(), Better);
  } else {
    if (middle != items_.end()) std::nth_element(first, middle, items_.end(), Better);
    std::sort(first, middle, Better);
  }
  sorted_ = k;
  whole_ = false;
}

void Candidates::Truncate(size_t n) {
  HONE_CHECK(n <= items_.size());
  if (n < items_.size()) whole_ = false;
  items_.resize(n);
  sorted_ = std::min(sorted_, n);
}

float Candidates::MaxLogit() const {
  if (sorted_ > 0) return items_[0].logit;
  float most = kMinusInfinity;
  for (const Candidate& item : items_) most = std::max(most, item.logit);
  return most;
}

std::span<const float> Candidates::Weights(double* total) {
  weights_.resize(items_.size());
  const float most = MaxLogit();
  double sum = 0;
  if (most == kMinusInfinity) {
    std::fill(weights_.begin(), weights_.end(), 0.0f);
  } else {
    for (size_t i = 0; i < items_.size(); ++i) {
      weights_[i] = std::exp(items_[i].logit - most);
      sum += weights_[i];
    }
  }
  *total = sum;
  return weights_;
}

std::span<float> Candidates::Scratch() {
  scratch_.resize(items_.size());
  return scratch_;
}

}  // namespace hone
