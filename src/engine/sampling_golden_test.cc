// Samplers, log-probabilities and stop strings against goldens/sampling: formulas in float64 by numpy, checked there
// against transformers and llama.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "base/test_shared.h"
#include "engine/logprobs.h"
#include "engine/samplers/sampler.h"
#include "engine/stop_matcher.h"
#include "text/utf8.h"

namespace hone {
namespace {

using Json = nlohmann::json;

Json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return Json::parse(file);
}

struct Step {
  std::vector<const Sampler*> order;
  SamplingParams params;
  bool history_is_output =
      false;  // frequency and presence count the output only: the golden's history is what is counted
};

Step ReadStep(const Json& json) {
  const std::string name = json.at("processor");
  Step step;
  SamplingParams& p = step.params;
  const auto number = [&](const char* key) { return json.at(key).get<float>(); };
  const auto add = [&](const Sampler& sampler) { step.order.push_back(&sampler); };
  if (name == "temperature") {
    p.temperature = number("t");
    add(kTemperatureSampler);
  } else if (name == "dynatemp") {
    p.temperature = number("t");
    p.dynatemp_range = number("delta");
    p.dynatemp_exponent = number("exponent");
    add(kTemperatureSampler);
  } else if (name == "top_k") {
    p.top_k = json.at("k");
    add(kTopKSampler);
  } else if (name == "top_p") {
    p.top_p = number("p");
    p.min_keep = json.value("min_keep", 1);
    add(kTopPSampler);
  } else if (name == "min_p") {
    p.min_p = number("p");
    add(kMinPSampler);
  } else if (name == "typical") {
    p.typical = number("p");
    add(kTypicalSampler);
  } else if (name == "top_n_sigma") {
    p.top_n_sigma = number("n");
    add(kTopNSigmaSampler);
  } else if (name == "epsilon") {
    p.epsilon_cutoff = number("e");
    add(kEpsilonSampler);
  } else if (name == "eta") {
    p.eta_cutoff = number("e");
    add(kEtaSampler);
  } else if (name == "mirostat_v2_cut") {
    p.mirostat = true;
    p.mirostat_tau = number("mu") / 2;
    add(kMirostatSampler);
  } else if (name == "xtc") {
    p.xtc_probability = number("probability");
    p.xtc_threshold = number("threshold");
    add(kXtcSampler);
  } else if (name == "repetition") {
    p.repetition_penalty = number("r");
    add(kRepetitionPenaltySampler);
  } else if (name == "openai" || name == "penalties") {
    p.frequency_penalty = number("frequency");
    p.presence_penalty = number("presence");
    p.repetition_penalty = json.value("repeat", 1.0f);
    p.penalty_last_n = json.value("last_n", -1);
    step.history_is_output = true;
    add(kRepetitionPenaltySampler);
    add(kFrequencyPresenceSampler);
  } else if (name == "bias") {
    for (const Json& pair : json.at("bias")) p.logit_bias[pair[0]] = pair[1];
    add(kLogitBiasSampler);
  } else if (name == "ngram") {
    p.no_repeat_ngram = json.at("n");
    add(kNoRepeatNgramSampler);
  } else if (name == "dry") {
    p.dry_multiplier = number("multiplier");
    p.dry_base = number("base");
    p.dry_allowed_length = json.at("allowed");
    p.dry_last_n = json.at("last_n");
    p.dry_breakers = json.value("breakers", std::vector<int32_t>());
    add(kDrySampler);
  }
  return step;
}

TEST(SamplingGoldens, Processors) {
  HONE_NEED_SHARED(folder, "goldens/sampling");
  const Json file = ReadJson(folder + "/processors.json");
  int cases = 0;
  for (const Json& test : file.at("cases")) {
    SCOPED_TRACE(test.at("name").get<std::string>());
    ++cases;
    const std::vector<float> logits = test.at("logits");
    const std::vector<int32_t> history = test.at("history");
    Candidates candidates;
    candidates.Fill(logits);
    for (const Json& json : test.at("steps")) {
      const Step step = ReadStep(json);
      ASSERT_FALSE(step.order.empty()) << "no sampler for " << json;
      ASSERT_TRUE(CheckSamplingParams(step.params, static_cast<int>(logits.size())));
      SamplerState state{TokenHistory(step.history_is_output ? std::vector<int32_t>() : history),
                         Rng(1),
                         {},
                         2 * step.params.mirostat_tau};
      if (step.history_is_output) {
        for (const int32_t id : history) state.history.Append(id);
      }
      ApplySamplers(step.order, step.params, &state, &candidates);
    }
    double total = 0;
    const std::span<const float> weights = candidates.Weights(&total);
    std::vector<std::pair<int32_t, double>> kept;
    for (size_t i = 0; i < weights.size(); ++i) kept.emplace_back(candidates.items()[i].id, weights[i] / total);
    std::sort(kept.begin(), kept.end());
    const std::vector<int32_t> wanted = test.at("formula").at("kept");
    const std::vector<double> probabilities = test.at("formula").at("probs");
    std::vector<int32_t> ids;
    for (const auto& [id, unused] : kept) ids.push_back(id);
    ASSERT_EQ(ids, wanted);
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_NEAR(kept[i].second, probabilities[i], std::max(1e-5 * probabilities[i], 1e-7)) << "token " << ids[i];
    }
  }
  EXPECT_GT(cases, 150);
}

TEST(SamplingGoldens, Logprobs) {
  HONE_NEED_SHARED(folder, "goldens/sampling");
  const Json file = ReadJson(folder + "/logprobs.json");
  int compared = 0;
  for (const Json& test : file.at("cases")) {
    const std::vector<float> logits = test.at("logits");
    const int32_t chosen = test.at("chosen");
    for (const char* form : {"chat_raw", "chat_processed"}) {
      Candidates candidates;
      candidates.Fill(logits);
      if (std::string(form) == "chat_processed") {
        SamplingParams params;
        params.temperature = test.at("temperature");
        SamplerState state{TokenHistory({}), Rng(1), {}, 0};
        const Sampler* order[] = {&kTemperatureSampler};
        ApplySamplers(order, params, &state, &candidates);
      }
      const Json& wanted = test.at(form);
      const Logprobs got = LogprobsOf(&candidates, chosen, test.at("top_logprobs"));
      EXPECT_NEAR(got.chosen, wanted.at("logprob").get<double>(), 2e-6);
      ASSERT_EQ(got.top.size(), wanted.at("top_logprobs").size());
      for (size_t i = 0; i < got.top.size(); ++i, ++compared) {
        const Json& entry = wanted.at("top_logprobs")[i];
        EXPECT_NEAR(got.top[i].logprob, entry.at("logprob").get<double>(), 2e-6);
        const std::string hex = test.at("pieces_hex").at(got.top[i].id);
        std::string bytes;
        for (const int byte : entry.at("bytes")) bytes += static_cast<char>(byte);
        std::string wanted_hex;
        for (const unsigned char byte : bytes) {
          wanted_hex += "0123456789abcdef"[byte >> 4];
          wanted_hex += "0123456789abcdef"[byte & 15];
        }
        EXPECT_EQ(hex, wanted_hex);
      }
    }
  }
  EXPECT_GT(compared, 20);
}

std::string FromHex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST(SamplingGoldens, StopStrings) {
  HONE_NEED_SHARED(folder, "goldens/sampling");
  const Json file = ReadJson(folder + "/stops.json");
  Rng rng(7);
  int cases = 0;
  for (const Json& test : file.at("cases")) {
    SCOPED_TRACE(test.at("name").get<std::string>());
    ++cases;
    std::vector<std::string> pieces;
    for (const Json& hex : test.at("pieces_hex")) pieces.push_back(FromHex(hex));
    if (!test.at("max_tokens").is_null()) {
      pieces.resize(std::min<size_t>(pieces.size(), test.at("max_tokens").get<size_t>()));
    }
    const std::vector<std::string> stops = test.at("stop");
    const std::vector<size_t> safe = test.at("safe_bytes_after_token");

    StopMatcher matcher(stops), including(stops, true);
    std::string bytes, text, with_stop;
    Utf8Assembler assembler, with_stop_assembler;
    size_t used = 0;
    for (; used < pieces.size() && !matcher.stopped(); ++used) {
      const std::string settled = matcher.Push(pieces[used]);
      bytes += settled;
      EXPECT_EQ(bytes.size(), safe.at(used)) << "after token " << used;
      assembler.Push(settled, &text);
      with_stop_assembler.Push(including.Push(pieces[used]), &with_stop);
    }
    EXPECT_EQ(used, test.at("tokens_used").get<size_t>());
    const std::string rest = matcher.Finish();
    assembler.Push(rest, &text);
    assembler.Finish(&text);
    with_stop_assembler.Push(including.Finish(), &with_stop);
    with_stop_assembler.Finish(&with_stop);
    EXPECT_EQ(text, test.at("text").get<std::string>());
    EXPECT_EQ(with_stop, test.at("text_with_stop").get<std::string>());
    EXPECT_EQ(matcher.stopped(), !test.at("stop_string").is_null());
    EXPECT_EQ(matcher.stopped() ? Json(matcher.stop_string()) : Json(), test.at("stop_string"));
    bytes += rest;

    // The same bytes cut at other places: the same text.
    std::string all;
    for (const std::string& piece : pieces) all += piece;
    for (int round = 0; round < 20; ++round) {
      StopMatcher again(stops);
      std::string joined;
      for (size_t at = 0; at < all.size();) {
        const size_t size = 1 + rng.Below(5);
        joined += again.Push(std::string_view(all).substr(at, size));
        at += size;
      }
      joined += again.Finish();
      EXPECT_EQ(joined, bytes);
      EXPECT_EQ(again.stopped(), matcher.stopped());
    }
  }
  EXPECT_GT(cases, 80);
}

}  // namespace
}  // namespace hone
