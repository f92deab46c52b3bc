// DRY, don't repeat yourself: for each earlier place where the last n tokens of the context occur again, n >=
// allowed_length, the token that followed there loses multiplier * base^(n - allowed_length); the largest n per token
// counts. n is at most the number of tokens after the last breaker; a breaker token is itself never penalised. Window:
// dry_last_n tokens, prompt included. Time: linear in the window (Z-algorithm, Gusfield 1997, over the reversed
// window).
#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/samplers/sampler.h"

namespace hone {
namespace {

bool Enabled(const SamplingParams& params, const SamplerState&) {
  return params.dry_multiplier > 0 && params.dry_last_n != 0;
}

// z[i]: length of the longest common prefix of r and r[i..], r the tokens in reverse; that is, how many of the last
// tokens also stand before the end of place i. z[0] is not set.
std::vector<int> CommonSuffixes(std::span<const int32_t> tokens) {
  const int n = static_cast<int>(tokens.size());
  const auto r = [&](int i) { return tokens[n - 1 - i]; };
  std::vector<int> z(n, 0);
  for (int i = 1, left = 0, right = 0; i < n; ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < n && r(z[i]) == r(i + z[i])) ++z[i];
    if (i + z[i] > right) {
      left = i;
      right = i + z[i];
    }
  }
  return z;
}

void Apply(const SamplingParams& params, SamplerState* state, Candidates* candidates) {
  const std::span<const int32_t> tokens = state->history.last(params.dry_last_n);
  const int n = static_cast<int>(tokens.size());
  const std::unordered_set<int32_t> breakers(params.dry_breakers.begin(), params.dry_breakers.end());
  const auto is_breaker = [&](int32_t id) { return breakers.count(id) != 0; };
  int longest = 0;  // tokens after the last breaker
  while (longest < n && !is_breaker(tokens[n - 1 - longest])) ++longest;
  if (longest < params.dry_allowed_length) return;

  const std::vector<int> z = CommonSuffixes(tokens);
  std::unordered_map<int32_t, int> repeats;  // the token that would go on: how much would be repeated
  for (int i = 1; i < n; ++i) {
    const int length = std::min(z[i], longest);
    if (length == 0 || length < params.dry_allowed_length) continue;
    int& most = repeats[tokens[n - i]];
    most = std::max(most, length);
  }
  for (const auto& [id, length] : repeats) {
    Candidate* candidate = candidates->Find(id);
    if (candidate == nullptr || is_breaker(id)) continue;
    const double penalty =
        params.dry_multiplier * std::pow(double{params.dry_base}, length - params.dry_allowed_length);
    candidate->logit = MovedLogit(candidate->logit, candidate->logit - penalty);
  }
  candidates->LogitsChanged();
}

}  // namespace

const Sampler kDrySampler = {"dry", Enabled, Apply};

}  // namespace hone
