// What the goldens do not reach: odd numbers, ties, distributions of draws, large vocabularies against a full sort,
// state.
#include "engine/samplers/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/logprobs.h"

namespace hone {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

SamplerState StateOf(uint64_t seed = 1, std::vector<int32_t> prompt = {}) {
  return {TokenHistory(std::move(prompt)), Rng(seed), {}, 10};
}
int32_t Sample(const std::vector<float>& logits, const SamplingParams& params, SamplerState* state) {
  Candidates scratch;
  return SampleToken(DefaultSamplerOrder(), logits, params, state, &scratch);
}
std::vector<int32_t> Kept(const std::vector<float>& logits, const SamplingParams& params,
                          SamplerState state = StateOf()) {
  Candidates candidates;
  candidates.Fill(logits);
  ApplySamplers(DefaultSamplerOrder(), params, &state, &candidates);
  std::vector<int32_t> ids;
  for (const Candidate& item : candidates.items()) ids.push_back(item.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}
std::vector<float> RandomLogits(Rng* rng, size_t n, int levels = 0) {
  std::vector<float> logits(n);
  for (float& logit : logits) {
    logit = static_cast<float>(levels > 0 ? double(rng->Below(levels)) : 20 * rng->Uniform() * rng->Uniform());
  }
  return logits;
}
using Ids = std::vector<int32_t>;

TEST(Sampler, TheDefaultOrderIsTheDocumentedOne) {
  std::vector<std::string_view> names;
  for (const Sampler* sampler : DefaultSamplerOrder()) names.push_back(sampler->name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"grammar", "logit_bias", "repetition_penalty", "frequency_presence", "dry",
                                                  "no_repeat_ngram", "ban", "temperature", "top_n_sigma", "top_k",
                                                  "typical", "top_p", "min_p", "epsilon", "eta", "xtc", "mirostat"}));
}

TEST(Sampler, LogitsThatAreNoNumbers) {
  SamplerState state = StateOf();
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    params.top_p = 0.99f;
    EXPECT_EQ(Sample({kNan, kNan}, params, &state), -1);
    EXPECT_EQ(Sample({-kInf, kNan, -kInf}, params, &state), -1);
    EXPECT_EQ(Sample({}, params, &state), -1);
    EXPECT_EQ(Sample({kNan, -3, kNan}, params, &state), 1);
    EXPECT_EQ(Sample({0, 1, kInf, 5}, params, &state), 2);
    EXPECT_EQ(Sample({-kInf, -1e30f, kNan}, params, &state), 1);
  }
}

// Every sampler alone and all together, on numbers that overflow and vanish: an id in range, or -1, and never one with
// -inf.
TEST(Sampler, OddLogitsWithEverySampler) {
  const float odd[] = {kNan, kInf, -kInf, 0, -0.0f, 3e38f, -3e38f, 1e-45f, 1, 2, 2};
  std::vector<SamplingParams> all(16);
  all[0].top_k = 2;
  all[1].top_p = 0;
  all[2].min_p = 1;
  all[3].typical = 0;
  all[4].top_n_sigma = 0.01f;
  all[5].epsilon_cutoff = 1;
  all[6].eta_cutoff = 1;
  all[7].xtc_probability = 1;
  all[7].xtc_threshold = 0;
  all[8].mirostat = true;
  all[9].dynatemp_range = 5;
  all[10].temperature = 1e-30f;
  all[11].repetition_penalty = 1e30f;
  all[12].frequency_penalty = -1e30f;
  all[13].dry_multiplier = 1e30f;
  all[13].dry_base = 100;
  all[14].logit_bias = {{0, 3e38f}, {1, 3e38f}, {2, 1}};
  all[15].temperature = 1e30f;
  Rng rng(5);
  for (int round = 0; round < 4000; ++round) {
    std::vector<float> logits(1 + rng.Below(6));
    for (float& logit : logits) logit = odd[rng.Below(std::size(odd))];
    SamplerState state = StateOf(round, {0, 1, 2, 0, 1, 2, 0, 1});
    const int32_t id = Sample(logits, all[round % all.size()], &state);
    const bool possible = std::any_of(logits.begin(), logits.end(), [](float x) { return x > -kInf; });
    ASSERT_EQ(id >= 0, possible) << "round " << round;
    if (possible) {
      ASSERT_LT(id, static_cast<int32_t>(logits.size()));
      ASSERT_GT(logits[id], -kInf);
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  SamplingParams params;
  params.temperature = 0;
  SamplerState state = StateOf();
  EXPECT_EQ(Sample({1, 7, 7, 7}, params, &state), 1);
  params.repetition_penalty = 2;  // the long way
  EXPECT_EQ(Sample({1, 7, 7, 7}, params, &state), 1);
  state.history.Append(1);
  EXPECT_EQ(Sample({1, 7, 7, 7}, params, &state), 2);
}

TEST(Sampler, BansAndBias) {
  SamplingParams params;
  params.temperature = 0;
  SamplerState state = StateOf();
  const Ids banned = {1, 2, 77};
  state.banned = banned;
  EXPECT_EQ(Sample({1, 7, 9, 5}, params, &state), 3);
  params.logit_bias = {{0, 10.0f}, {2, 100.0f}};
  EXPECT_EQ(Sample({1, 7, 9, 5}, params, &state), 0);
}

TEST(Sampler, PenaltiesCountWhatTheyShould) {
  SamplerState state = StateOf(1, {0, 0, 1});
  state.history.Append(1);
  state.history.Append(2);
  state.history.Append(2);
  const auto logits_after = [&](const SamplingParams& params) {
    Candidates candidates;
    candidates.Fill(std::vector<float>{4, 4, 4, 4});
    ApplySamplers(DefaultSamplerOrder(), params, &state, &candidates);
    std::vector<float> logits;
    for (const Candidate& item : candidates.items()) logits.push_back(item.logit);
    return logits;
  };
  SamplingParams params;
  params.repetition_penalty = 2;  // prompt and output, once
  EXPECT_EQ(logits_after(params), (std::vector<float>{2, 2, 2, 4}));
  params.penalty_last_n = 3;
  EXPECT_EQ(logits_after(params), (std::vector<float>{4, 2, 2, 4}));
  params.penalty_last_n = 0;
  EXPECT_EQ(logits_after(params), (std::vector<float>{4, 4, 4, 4}));
  params = {};
  params.frequency_penalty = 0.5f;  // output only
  params.presence_penalty = 1;
  EXPECT_EQ(logits_after(params), (std::vector<float>{4, 2.5f, 2, 4}));
}

TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<float> logits = {std::log(0.5f), std::log(0.3f), std::log(0.15f), std::log(0.05f)};
  SamplerState state = StateOf(11);
  std::map<int32_t, int> counts;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) ++counts[Sample(logits, {}, &state)];
  const double wanted[] = {0.5, 0.3, 0.15, 0.05};
  for (int id = 0; id < 4; ++id) {  // five standard deviations
    EXPECT_NEAR(counts[id] / double{kDraws}, wanted[id], 5 * std::sqrt(wanted[id] * (1 - wanted[id]) / kDraws));
  }
}

// Cuts on large vocabularies with many ties, against the definition on a fully sorted list.
TEST(Sampler, PartialSelectionEqualsFullSort) {
  Rng rng(3);
  for (int round = 0; round < 60; ++round) {
    const size_t vocab = 1 + rng.Below(20000);
    const std::vector<float> logits = RandomLogits(&rng, vocab, round % 2 == 0 ? 40 : 0);
    std::vector<Candidate> sorted(vocab);
    double total = 0;
    for (size_t id = 0; id < vocab; ++id) sorted[id] = {static_cast<int32_t>(id), logits[id]};
    std::sort(sorted.begin(), sorted.end(), Better);
    for (const Candidate& item : sorted) total += std::exp(double{item.logit} - sorted[0].logit);

    SamplingParams params;
    params.top_k = static_cast<int>(1 + rng.Below(vocab + 10));
    Ids wanted;
    for (size_t i = 0; i < std::min<size_t>(params.top_k, vocab); ++i) wanted.push_back(sorted[i].id);
    std::sort(wanted.begin(), wanted.end());
    ASSERT_EQ(Kept(logits, params), wanted);

    params = {};
    params.top_p = static_cast<float>(rng.Uniform());
    double sum = 0;
    size_t n = 0;
    while (n < vocab && sum < params.top_p * total) sum += std::exp(double{sorted[n++].logit} - sorted[0].logit);
    const Ids kept = Kept(logits, params);
    ASSERT_NEAR(static_cast<double>(kept.size()), static_cast<double>(n), 1)
        << "float rounding may move the edge by one";
    wanted.clear();
    for (size_t i = 0; i < kept.size(); ++i) wanted.push_back(sorted[i].id);
    std::sort(wanted.begin(), wanted.end());
    ASSERT_EQ(kept, wanted);
  }
}

TEST(Sampler, SortTopExtendsWhatIsSorted) {
  Rng rng(9);
  for (int round = 0; round < 50; ++round) {
    const std::vector<float> logits = RandomLogits(&rng, 3000, 100);
    Candidates candidates;
    candidates.Fill(logits);
    std::vector<Candidate> sorted(candidates.items().begin(), candidates.items().end());
    std::sort(sorted.begin(), sorted.end(), Better);
    for (size_t k = 1; k < 4000; k = k * 2 + rng.Below(50)) {
      candidates.SortTop(k);
      for (size_t i = 0; i < std::min<size_t>(k, 3000); ++i) ASSERT_EQ(candidates.items()[i].id, sorted[i].id);
    }
  }
}

TEST(Sampler, XtcDrawsItsProbability) {
  SamplingParams params;
  params.xtc_probability = 0.3f;
  SamplerState state = StateOf(4);
  int excluded = 0;
  for (int i = 0; i < 20000; ++i) {
    Candidates candidates;
    candidates.Fill(
        std::vector<float>{2, 1, 0});  // 0.67, 0.24, 0.09: two are above the threshold, the first is excluded
    ApplySamplers(DefaultSamplerOrder(), params, &state, &candidates);
    if (candidates.size() == 3) continue;
    ++excluded;
    ASSERT_EQ(candidates.items()[0].id, 1);
  }
  EXPECT_NEAR(excluded / 20000.0, 0.3, 5 * std::sqrt(0.3 * 0.7 / 20000));
}

TEST(Sampler, MirostatMovesTowardsTau) {
  SamplingParams params;
  params.mirostat = true;
  params.mirostat_tau = 3;
  Rng rng(8);
  SamplerState state = StateOf(2);
  state.mirostat_mu = 6;
  const std::vector<float> logits = RandomLogits(&rng, 2000);
  double surprise = 0;
  for (int i = 0; i < 4000; ++i) {
    const float before = state.mirostat_mu;
    Sample(logits, params, &state);
    if (i >= 1000) surprise += params.mirostat_tau - (state.mirostat_mu - before) / params.mirostat_eta;
  }
  EXPECT_NEAR(surprise / 3000, 3, 0.1);
}

TEST(Sampler, SameStateSameToken) {
  Rng rng(6);
  const std::vector<float> logits = RandomLogits(&rng, 500);
  SamplingParams params;
  params.top_p = 0.9f;
  params.xtc_probability = 0.5f;
  SamplerState a = StateOf(77), b = StateOf(77), c = StateOf(78);
  Candidates used;  // scratch that saw other work
  used.Fill(RandomLogits(&rng, 900));
  used.SortTop(10);
  int different = 0;
  for (int i = 0; i < 200; ++i) {
    const int32_t first = Sample(logits, params, &a);
    ASSERT_EQ(first, SampleToken(DefaultSamplerOrder(), logits, params, &b, &used));
    different += first != Sample(logits, params, &c);
  }
  EXPECT_GT(different, 50);
}

TEST(TokenHistory, WindowsAndCounts) {
  TokenHistory history({1, 2, 1});
  history.Append(3);
  history.Append(1);
  EXPECT_EQ(history.CountsOfLast(-1).at(1).all, 3);
  EXPECT_EQ(history.CountsOfLast(-1).at(1).output, 1);
  EXPECT_EQ(history.CountsOfLast(2).size(), 2u);
  EXPECT_EQ(history.CountsOfLast(2).at(1).all, 1);
  history.Append(2);
  EXPECT_EQ(history.CountsOfLast(-1).at(2).all, 2);
  EXPECT_EQ(history.CountsOfLast(100).at(2).output, 1);
  EXPECT_TRUE(history.CountsOfLast(0).empty());
  EXPECT_EQ(history.last(2).size(), 2u);
  EXPECT_EQ(history.last(-1).size(), 6u);
}

TEST(Logprobs, TokensThatCannotComeAreLeftOut) {
  Candidates candidates;
  candidates.Fill(std::vector<float>{0, kNan, -kInf, 0});
  const Logprobs got = LogprobsOf(&candidates, 2, 10);
  EXPECT_EQ(got.chosen, -kInf);
  ASSERT_EQ(got.top.size(), 2u);
  EXPECT_EQ(got.top[0].id, 0);
  EXPECT_EQ(got.top[1].id, 3);
  EXPECT_FLOAT_EQ(got.top[0].logprob, -std::log(2.0f));
}

}  // namespace
}  // namespace hone
