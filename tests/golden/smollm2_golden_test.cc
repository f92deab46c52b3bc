// A real model, SmolLM2-135M in Q4_1, against a float64 forward pass of its dequantised weights (README of
// goldens/smollm2).
//
// With exact activations: every kept logit within 5e-4, greedy tokens equal up to the first margin below 0.05. As models run by
// default, on the CPU's best ISA: top-1 equal wherever the golden margin exceeds 0.5, errors within those of llama.cpp on the same
// file; on every ISA whose default is two int8 terms, 254 times smaller errors and the same perplexity.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/test_shared.h"
#include "formats/safetensors.h"
#include "golden/driver.h"

namespace hone::golden {
namespace {

constexpr int kTop = 20;  // logits kept a position

struct Prompt {
  std::string name;
  std::vector<int32_t> ids, positions, greedy;
  std::vector<double> margins;  // of the greedy tokens
  int sure_tokens = 0;
};

std::vector<Prompt> ReadPrompts(const std::string& folder) {
  std::ifstream file(folder + "/prompts.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  std::vector<Prompt> prompts;
  for (const nlohmann::json& entry : json["cases"]) {
    const nlohmann::json& greedy = entry["greedy"];
    prompts.push_back(
        {entry["name"], entry["ids"], entry["positions"], greedy["ids"], greedy["margins"], greedy["sure_tokens"]});
  }
  return prompts;
}

// Logits and errors against the golden, over everything a test feeds.
class Comparison {
 public:
  explicit Comparison(const std::string& folder)
      : file_(SafetensorsFile::Open(folder + "/logits.safetensors").value()) {}

  void Add(const Prompt& prompt, size_t place, const std::vector<float>& logits) {
    const auto* ids = file_->FindTensor(prompt.name + ".top_ids")->view.as<int32_t>() + place * kTop;
    const auto* wanted = file_->FindTensor(prompt.name + ".top_logits")->view.as<float>() + place * kTop;
    for (int i = 0; i < kTop; ++i) {
      const double error = std::abs(double{logits[ids[i]]} - double{wanted[i]});
      ASSERT_TRUE(std::isfinite(error));
      largest = std::max(largest, error);
      squares += error * error;
      ++count;
    }
    if (wanted[0] - wanted[1] > 0.5) {
      ++clear;
      clear_equal += ArgMax(logits) == ids[0];
    }
  }
  double rms() const { return std::sqrt(squares / count); }

  double largest = 0, squares = 0;
  int count = 0, clear = 0, clear_equal = 0;

 private:
  std::shared_ptr<const SafetensorsFile> file_;
};

// All prompts, each in one step; returns the logits that choose each one's first token.
std::vector<std::vector<float>> Prefill(Sequences& sequences, const std::vector<Prompt>& prompts,
                                        Comparison& comparison) {
  std::vector<std::vector<float>> next;
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t> rows = prompts[i].positions;  // the last position is among them
    const auto logits = sequences.Feed({{static_cast<int>(i), prompts[i].ids}}, rows);
    for (size_t p = 0; p < rows.size(); ++p) comparison.Add(prompts[i], p, logits[p]);
    next.push_back(logits.back());
  }
  return next;
}

// Decodes all prompts together along their golden tokens; a prompt leaves when `last(prompt, step)` says so.
template <typename Last>
int Decode(Sequences& sequences, const std::vector<Prompt>& prompts, std::vector<std::vector<float>> next, Last last) {
  int compared = 0;
  std::vector<size_t> live(prompts.size());
  for (size_t i = 0; i < live.size(); ++i) live[i] = i;
  for (size_t step = 0; !live.empty(); ++step) {
    std::vector<Chunk> chunks;
    std::vector<size_t> stay;
    for (size_t k = 0; k < live.size(); ++k) {
      const Prompt& prompt = prompts[live[k]];
      if (step >= prompt.greedy.size() || last(prompt, step)) continue;
      EXPECT_EQ(ArgMax(next[k]), prompt.greedy[step]) << prompt.name << " step " << step;
      ++compared;
      chunks.push_back({static_cast<int>(live[k]), {prompt.greedy[step]}});
      stay.push_back(live[k]);
    }
    live = stay;
    if (!live.empty()) next = sequences.Feed(chunks);
  }
  return compared;
}

TEST(SmolLm2Golden, ExactActivationsMatch) {
  HONE_NEED_SHARED(folder, "goldens/smollm2");
  HONE_NEED_SHARED(path, "models/smollm2-135m-instruct-q4_1.gguf");
  Machine machine;
  const auto model = LoadModel(path, machine.runtime(machine.isas().back()), {.max_rows = 900, .exact = true});
  ASSERT_NE(model, nullptr);
  const std::vector<Prompt> prompts = ReadPrompts(folder);
  Sequences sequences(*model, 96);
  Comparison comparison(folder);
  const auto next = Prefill(sequences, prompts, comparison);
  EXPECT_LE(comparison.largest, 5e-4);
  EXPECT_EQ(comparison.clear_equal, comparison.clear);
  EXPECT_GT(comparison.clear, 50);
  const int compared = Decode(sequences, prompts, next, [](const Prompt& prompt, size_t step) {
    return static_cast<int>(step) >= prompt.sure_tokens;
  });
  EXPECT_GT(compared, 400);
}

TEST(SmolLm2Golden, EightBitActivationsStayClose) {
  HONE_NEED_SHARED(folder, "goldens/smollm2");
  HONE_NEED_SHARED(path, "models/smollm2-135m-instruct-q4_1.gguf");
  Machine machine;
  const auto model = LoadModel(path, machine.runtime(machine.isas().back()), {.max_rows = 900});
  ASSERT_NE(model, nullptr);
  const std::vector<Prompt> prompts = ReadPrompts(folder);
  Sequences sequences(*model, 96);
  Comparison comparison(folder);
  const auto next = Prefill(sequences, prompts, comparison);
  EXPECT_LE(comparison.largest, 1.8);  // llama.cpp's largest
  EXPECT_EQ(comparison.clear_equal, comparison.clear);
  Decode(sequences, prompts, next, [](const Prompt& prompt, size_t step) { return prompt.margins[step] < 0.5; });
  RecordProperty("largest_error", std::to_string(comparison.largest));
  RecordProperty("rms_error", std::to_string(comparison.rms()));
}

// Smaller caches, with everything else in F32 ("exact") and as models run by default (on AMX: tiles of BF16). I8 moves a number by up
// to 1/254 of its token's largest: its errors stay within those of llama.cpp with an F16 cache on the same file (1.8).
TEST(SmolLm2Golden, SmallerCachesStayClose) {
  HONE_NEED_SHARED(folder, "goldens/smollm2");
  HONE_NEED_SHARED(path, "models/smollm2-135m-instruct-q4_1.gguf");
  Machine machine;
  const std::vector<Prompt> prompts = ReadPrompts(folder);
  const struct { const char* name; KvType type; bool exact; double largest, rms; } caches[] = {
      {"bf16 exact", KvType::kBF16, true, 0.2, 0.04}, {"int8 exact", KvType::kI8, true, 1.8, 0.25},
      {"f16", KvType::kF16, false, 1.8, 0.2},         {"bf16", KvType::kBF16, false, 1.8, 0.2},
      {"int8", KvType::kI8, false, 1.8, 0.3}};
  for (const bool exact : {true, false}) {
    const auto model = LoadModel(path, machine.runtime(machine.isas().back()), {.max_rows = 900, .exact = exact});
    ASSERT_NE(model, nullptr);
    for (const auto& cache : caches) {
      if (cache.exact != exact) continue;
      SCOPED_TRACE(cache.name);
      Sequences sequences(*model, 96, cache.type);
      Comparison comparison(folder);
      Prefill(sequences, prompts, comparison);
      EXPECT_LE(comparison.largest, cache.largest);
      EXPECT_LE(comparison.rms(), cache.rms);
      EXPECT_EQ(comparison.clear_equal, comparison.clear);
    }
  }
}

// Negative log-likelihoods of the tokens after the first.
std::vector<double> Nlls(Sequences& sequences, const std::vector<int32_t>& ids) {
  const auto logits = sequences.Feed({{0, ids}});
  std::vector<double> nlls;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    const double top = logits[i][ArgMax(logits[i])];
    double total = 0;
    for (const float logit : logits[i]) total += std::exp(logit - top);
    nlls.push_back(std::log(total) + top - logits[i][ids[i + 1]]);
  }
  return nlls;
}

// What models run by default where no BF16 tiles take over: two int8 terms. The second leaves a step 254 times smaller than the first, whose
// errors on this file are llama.cpp's (1.8): so are the errors here, beside those of F32 arithmetic (5e-4). Perplexity of the longest
// prompt stays within a tenth of a percent of that of exact activations. Kernels of AVX2 have the second term in groups with large numbers
// only: there a tenth of the squared errors of one term (rms 0.25) may be left, from which perplexity is safe (docs/kernels-matmul.md),
// and perplexity may differ by what chance adds on so few tokens, three standard errors.
TEST(SmolLm2Golden, TwoTermsKeepLogitsAndPerplexity) {
  HONE_NEED_SHARED(folder, "goldens/smollm2");
  HONE_NEED_SHARED(path, "models/smollm2-135m-instruct-q4_1.gguf");
  Machine machine;
  const std::vector<Prompt> prompts = ReadPrompts(folder);
  const std::vector<int32_t>* text = &prompts[0].ids;
  for (const Prompt& prompt : prompts) {
    if (prompt.ids.size() > text->size()) text = &prompt.ids;
  }
  const auto exact = LoadModel(path, machine.runtime(machine.isas().back()), {.max_rows = 900, .exact = true});
  ASSERT_NE(exact, nullptr);
  Sequences of_exact(*exact, 32);
  const std::vector<double> wanted = Nlls(of_exact, *text);
  for (const Isa isa : machine.isas()) {
    if (isa < Isa::kAvx2 || isa > Isa::kVnni) continue;
    SCOPED_TRACE(IsaName(isa));
    const auto model = LoadModel(path, machine.runtime(isa), {.max_rows = 900});
    ASSERT_NE(model, nullptr);
    Sequences sequences(*model, 96);
    Comparison comparison(folder);
    Prefill(sequences, prompts, comparison);
    const double left = isa < Isa::kVnni ? std::sqrt(0.1) : 1.0 / 254;  // of one term's errors
    EXPECT_LE(comparison.largest, 1.8 * left + 5e-4);
    EXPECT_LE(comparison.rms(), 0.25 * left + 5e-4);
    EXPECT_EQ(comparison.clear_equal, comparison.clear);
    Sequences alone(*model, 32);
    const std::vector<double> nlls = Nlls(alone, *text);
    const auto n = static_cast<double>(nlls.size());
    double sum = 0, squares = 0;
    for (size_t i = 0; i < nlls.size(); ++i) sum += nlls[i] - wanted[i], squares += std::pow(nlls[i] - wanted[i], 2);
    const double chance = isa < Isa::kVnni ? 3 * std::sqrt((squares / n - sum / n * sum / n) / n) : 0;
    EXPECT_LE(std::fabs(sum / n), 1e-3 + chance);
  }
}

// Lower ISAs on the short prompts: slower kernels, the same tolerance.
TEST(SmolLm2Golden, LowerIsasMatch) {
  HONE_NEED_SHARED(folder, "goldens/smollm2");
  HONE_NEED_SHARED(path, "models/smollm2-135m-instruct-q4_1.gguf");
  Machine machine;
  std::vector<Prompt> prompts = ReadPrompts(folder);
  prompts.resize(1);
  for (const Isa isa : machine.isas()) {
    if (isa == machine.isas().back()) continue;
    SCOPED_TRACE(IsaName(isa));
    const auto model = LoadModel(path, machine.runtime(isa), {.max_rows = 64, .exact = true});
    ASSERT_NE(model, nullptr);
    Sequences sequences(*model, 8);
    Comparison comparison(folder);
    Prefill(sequences, prompts, comparison);
    EXPECT_LE(comparison.largest, 5e-4);
  }
}

}  // namespace
}  // namespace hone::golden
