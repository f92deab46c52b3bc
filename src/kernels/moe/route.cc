// Plain code: a few hundred logits a token are no hot path.
#include "kernels/moe/route.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace hone {
namespace {

// A NaN logit is worse than any number, so that the order is total and every id appears at most once.
double OrderKey(float logit) { return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : logit; }

// The `chosen` best experts by insertion into a sorted list; a later id goes behind an equal one.
void ChooseBest(const float* logits, int experts, int chosen, int32_t* ids) {
  int found = 0;
  for (int e = 0; e < experts; ++e) {
    const double key = OrderKey(logits[e]);
    int place = found;
    while (place > 0 && key > OrderKey(logits[ids[place - 1]])) --place;
    if (place == chosen) continue;
    if (found < chosen) ++found;
    for (int j = found - 1; j > place; --j) ids[j] = ids[j - 1];
    ids[place] = e;
  }
}

}  // namespace

void RouteExperts(const RouteParams& params, const float* logits, int64_t rows, int32_t* ids, float* weights) {
  HONE_CHECK(params.chosen >= 1 && params.chosen <= params.experts);
  for (int64_t i = 0; i < rows; ++i, logits += params.experts, ids += params.chosen, weights += params.chosen) {
    ChooseBest(logits, params.experts, params.chosen, ids);
    const double max = logits[ids[0]];
    double sum_chosen = 0, sum_all = 0;
    for (int j = 0; j < params.chosen; ++j) sum_chosen += std::exp(logits[ids[j]] - max);
    for (int e = 0; e < params.experts; ++e) sum_all += std::exp(logits[e] - max);
    const double sum = params.softmax_first && !params.renormalise ? sum_all : sum_chosen;
    for (int j = 0; j < params.chosen; ++j) weights[j] = static_cast<float>(std::exp(logits[ids[j]] - max) / sum);
  }
}

}  // namespace hone
