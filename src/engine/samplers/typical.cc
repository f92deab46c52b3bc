// locally typical sampling (Meister et al. 2022): candidates in order of | -ln p_i - H |, H the entropy in nats; the
// one that makes the sum of probabilities > p (strictly, unlike top-p) is the last kept; at least min_keep. Candidates
// with p = 0 do not count (0 ln 0 = 0).
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) { return params.typical < 1; }

void Apply(const SamplingParams& params, SamplerState*, Candidates* candidates) {
  double total = 0;
  const std::span<const float> weights = candidates->Weights(&total);
  if (total == 0) return;
  double sum = 0;
  for (const float weight : weights) {
    if (weight > 0) sum += weight * std::log(double{weight});
  }
  const double mean_log_weight = sum / total;  // -H + ln total
  struct Entry {
    double distance;
    uint32_t index;
    bool operator<(const Entry& other) const {
      return distance < other.distance || (distance == other.distance && index < other.index);
    }
  };
  std::vector<Entry> entries;
  entries.reserve(weights.size());
  for (uint32_t i = 0; i < weights.size(); ++i) {
    if (weights[i] > 0) entries.push_back({std::abs(std::log(double{weights[i]}) - mean_log_weight), i});
  }
  std::sort(entries.begin(), entries.end());
  const std::span<float> keep = candidates->Scratch();
  std::fill(keep.begin(), keep.end(), 0.0f);
  double mass = 0;
  int kept = 0;
  for (const Entry& entry : entries) {
    keep[entry.index] = 1;
    mass += weights[entry.index] / total;
    ++kept;
    if (mass > params.typical && kept >= params.min_keep) break;
  }
  candidates->KeepIfIndex([&](size_t i) { return keep[i] != 0; });
}

}  // namespace

const Sampler kTypicalSampler = {"typical", Enabled, Apply};

}  // namespace hone
