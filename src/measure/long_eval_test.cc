// Needles and domains: what is asked of the model, and the built-in model's answers counted; bad input.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/test_shared.h"
#include "measure/domains.h"
#include "measure/ledger/entries.h"
#include "measure/needle.h"

namespace hone {
namespace {

using nlohmann::json;

class LongEvalTest : public testing::Test {
 protected:
  Runtime runtime() { return {&cpu_, cpu_.best_isa(), &threads_, &log_, &clock_}; }

  void Load(const std::string& name, int context) {
    auto checkpoint = Checkpoint::Open(std::string(HONE_SOURCE_DIR) + "/assets/builtin/" + name);
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    LoadOptions load;
    load.max_context = context;
    auto model = Model::Load(*checkpoint, runtime(), load);
    ASSERT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
    auto tokenizer = Tokenizer::FromCheckpoint(**checkpoint);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = *tokenizer;
    auto chat = ChatTemplateFromCheckpoint(**checkpoint);
    if (chat) template_ = std::make_shared<const ChatTemplate>(*std::move(chat));
  }

  const CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{2};
  Log log_{LogLevel::kOff};
  Clock clock_;
  std::shared_ptr<Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;
};

TEST_F(LongEvalTest, NeedlesStandAtTheirDepthAndPromptsKeepTheirLength) {
  ASSERT_NO_FATAL_FAILURE(Load("draft", 512));
  const NeedleOptions options{.lengths = {200, 400}, .depths = {0, 0.5, 1}, .trials = 4, .seed = 3};
  for (const int length : options.lengths) {
    for (const bool chat : {false, true}) {
      std::vector<int> tokens;
      const TaskSet set = MakeNeedles(options, length, "", *tokenizer_, chat, &tokens);
      ASSERT_EQ(set.items.size(), 12u);
      for (size_t i = 0; i < set.items.size(); ++i) {
        const std::string text = chat ? set.items[i].messages_json : set.items[i].prompt;
        EXPECT_LE(tokens[i], length);
        EXPECT_GT(tokens[i], length - 90);
        const size_t at = text.find("is " + set.items[i].answer);
        ASSERT_NE(at, std::string::npos);
        EXPECT_EQ(text.find(set.items[i].answer, at + 9), std::string::npos) << "told once";
        const double depth = static_cast<double>(at) / static_cast<double>(text.size());
        const double wanted = options.depths[i / 4];
        EXPECT_NEAR(depth, wanted * 0.75 + 0.1, 0.2) << text;
      }
    }
  }
  // The same seed asks the same; a file's own sentences are used, and repeated where it is short.
  EXPECT_EQ(MakeNeedles(options, 200, "", *tokenizer_, false, nullptr).items[5].prompt, MakeNeedles(options, 200, "", *tokenizer_, false, nullptr).items[5].prompt);
  const TaskSet own = MakeNeedles(options, 200, "Rain fell on the roof. The cat slept", *tokenizer_, false, nullptr);
  EXPECT_NE(own.items[0].prompt.find("The cat slept"), std::string::npos);
  EXPECT_EQ(own.items[0].prompt.find("gardener"), std::string::npos);
}

TEST_F(LongEvalTest, TheGridIsFilledAndCounted) {
  ASSERT_NO_FATAL_FAILURE(Load("main", 512));
  EngineOptions engine_options;
  engine_options.context = 512;
  engine_options.max_sequences = 4;
  auto engine = Engine::Create(model_, tokenizer_, runtime(), engine_options);
  ASSERT_TRUE(engine) << engine.error().message;
  const auto options = ResolveNeedles({.lengths = {128, 256}, .depths = {0, 1}, .trials = 2, .max_tokens = 8}, 512);
  ASSERT_TRUE(options);
  const TaskModel model{model_, tokenizer_, template_, engine->get()};
  const auto report = RunNeedles(*options, "", model, runtime(), KvType::kF16, nullptr, nullptr);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->cells.size(), 4u);
  int right = 0;
  for (const NeedleCell& cell : report->cells) {
    EXPECT_EQ(cell.of, 2);
    EXPECT_LE(cell.right, 2);
    EXPECT_LE(cell.tokens, cell.length);
    right += cell.right;
  }
  EXPECT_EQ(report->accuracy().value, right / 8.0);
  const json out = json::parse(NeedleJson(*report, "m", "f16"));
  EXPECT_EQ(out["cells"].size(), 4u);
  EXPECT_NE(NeedleTable(*report, "m", "f16").find("256 tokens"), std::string::npos);
  EXPECT_EQ(NeedleEntry(*report, "m", "/nowhere", "{}").figures.size(), 5u);
  // Stopped before the first answer: nothing is counted, nothing is lost.
  const auto stopped = RunNeedles(*options, "", model, runtime(), KvType::kF16, nullptr, [] { return true; });
  ASSERT_TRUE(stopped);
  EXPECT_TRUE(stopped->interrupted);
  EXPECT_EQ(stopped->accuracy().confidence, 0);
}

// Thousands of items take seconds to look at: an interrupt is answered then too, before a later item is found to be bad.
TEST_F(LongEvalTest, AnInterruptIsAnsweredWhileItemsAreLookedAt) {
  ASSERT_NO_FATAL_FAILURE(Load("draft", 128));
  EngineOptions options;
  options.context = 128;
  auto engine = Engine::Create(model_, tokenizer_, runtime(), options);
  ASSERT_TRUE(engine) << engine.error().message;
  const TaskModel model{model_, tokenizer_, template_, engine->get()};
  std::string longer;
  for (int i = 0; i < 200; ++i) longer += " word" + std::to_string(i);
  for (const bool choices : {true, false}) {
    std::string lines;
    for (int i = 0; i < 8; ++i) {
      json item = {{"question", i == 7 ? longer : "Where is it?"}, {"answer", "b"}};
      if (choices) item["choices"] = {"a", "b"};
      lines += item.dump() + "\n";
    }
    const auto set = ParseTasks("items", lines, {});
    ASSERT_TRUE(set) << set.error().message;
    EXPECT_FALSE(RunTasks(*set, model, runtime(), KvType::kF16, {}, nullptr, nullptr)) << "longer than the context";
    int asked = 0;
    const auto stopped = RunTasks(*set, model, runtime(), KvType::kF16, {}, nullptr, [&] { return ++asked > 4; });
    ASSERT_TRUE(stopped) << stopped.error().message;
    EXPECT_TRUE(stopped->interrupted);
    EXPECT_TRUE(stopped->outcomes.empty());
  }
}

TEST(NeedleOptionsTest, DefaultsAndWhatDoesNotFit) {
  const auto defaults = ResolveNeedles({}, 2048);
  ASSERT_TRUE(defaults);
  EXPECT_EQ(defaults->lengths, (std::vector<int>{256, 512, 1024}));
  EXPECT_EQ(defaults->depths.size(), 5u);
  EXPECT_EQ(ResolveNeedles({}, 200)->lengths, (std::vector<int>{176}));
  for (const NeedleOptions& bad : {NeedleOptions{.lengths = {4096}}, NeedleOptions{.lengths = {10}}, NeedleOptions{.depths = {1.5}},
                                   NeedleOptions{.depths = {-0.1}}, NeedleOptions{.trials = 0}}) {
    const auto resolved = ResolveNeedles(bad, 2048);
    ASSERT_FALSE(resolved);
    EXPECT_EQ(resolved.error().code, ErrorCode::kUsage);
  }
}

TEST_F(LongEvalTest, DomainsAreThePerplexitiesOfTheirTexts) {
  ASSERT_NO_FATAL_FAILURE(Load("draft", 64));
  std::string prose, code;
  for (int i = 0; i < 60; ++i) {
    prose += "The tide went out and left " + std::to_string(i) + " shells on the sand. ";
    code += "for (int i = 0; i < " + std::to_string(i) + "; ++i) sum += values[i];\n";
  }
  const DomainText texts[] = {{"prose", "p.txt", prose}, {"code", "c.cc", code}};
  std::vector<DomainResult> results;
  for (const DomainText& text : texts) {
    const auto result = MeasureDomain(*model_, nullptr, runtime(), KvType::kF32, *tokenizer_, text, 64, 2, {});
    ASSERT_TRUE(result) << result.error().message;
    const auto same = MeasurePerplexity(*model_, runtime(), KvType::kF32, *tokenizer_, PrepareText(*tokenizer_, text.text, Protocol::kLlamaCpp),
                                        *ResolveRules({Protocol::kLlamaCpp, 64, 0, 2}), {});
    ASSERT_TRUE(same);
    EXPECT_EQ(result->ppl, same->ppl);
    EXPECT_EQ(result->digest, same->dataset_digest);
    EXPECT_FALSE(result->compared);
    // Against itself nothing diverges.
    const auto itself = MeasureDomain(*model_, model_.get(), runtime(), KvType::kF32, *tokenizer_, text, 64, 2, {});
    ASSERT_TRUE(itself) << itself.error().message;
    EXPECT_NEAR(itself->kld, 0, 1e-7);  // log-probabilities are F32
    EXPECT_EQ(itself->same_top, 1);
    EXPECT_NEAR(itself->ppl, result->ppl, 1e-6 * result->ppl);
    results.push_back(*itself);
  }
  const json out = json::parse(DomainsJson(results, "m", "b", 64, false, ""));
  ASSERT_EQ(out["domains"].size(), 2u);
  EXPECT_EQ(out["domains"][1]["name"], "code");
  EXPECT_TRUE(out["domains"][0].contains("kld"));
  EXPECT_NE(DomainsTable(results, "m", "b", false, "").find("code"), std::string::npos);
  EXPECT_EQ(DomainsEntry(results, "m", "/nowhere", "b", false, "", "{}").figures.size(), 6u);
  const auto brief = MeasureDomain(*model_, nullptr, runtime(), KvType::kF32, *tokenizer_, {"x", "x.txt", "too short"}, 64, 0, {});
  ASSERT_FALSE(brief);
  EXPECT_NE(brief.error().message.find("x.txt"), std::string::npos);
}

// A model whose logits are damaged after some steps.
class Spoiled : public Model {
 public:
  Spoiled(Model& inner, int good_steps) : inner_(inner), good_steps_(good_steps) {
    config_ = inner.config();
    options_ = inner.options();
  }
  uint64_t weight_bytes() const override { return inner_.weight_bytes(); }
  void Forward(const ForwardBatch& batch, const KvLayers& kv, float* logits, const StateObserver* states) override {
    inner_.Forward(batch, kv, logits, states);
    if (good_steps_-- <= 0) logits[0] = NAN;
  }

 private:
  Model& inner_;
  int good_steps_;
};

TEST_F(LongEvalTest, DamageOnTheWayKeepsTheWindowsBeforeIt) {
  ASSERT_NO_FATAL_FAILURE(Load("draft", 64));
  std::string prose;
  for (int i = 0; i < 200; ++i) prose += "The tide went out and left " + std::to_string(i) + " shells on the sand. ";
  const EvalText text = PrepareText(*tokenizer_, prose, Protocol::kGptq);
  const ProtocolRules rules = *ResolveRules({Protocol::kGptq, 64, 0, 0});
  const auto whole = MeasurePerplexity(*model_, runtime(), KvType::kF32, *tokenizer_, text, rules, {});
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(whole->failed, "");
  Spoiled late(*model_, 1), at_once(*model_, 0), beside(*model_, 3);
  const auto part = MeasurePerplexity(late, runtime(), KvType::kF32, *tokenizer_, text, rules, {});
  ASSERT_TRUE(part) << part.error().message;
  EXPECT_NE(part->failed.find("not finite"), std::string::npos);
  ASSERT_GT(part->windows, 0);
  EXPECT_LT(part->windows, whole->windows);
  EXPECT_EQ(part->nll.size(), static_cast<size_t>(part->tokens_scored));
  for (int w = 0; w < part->windows; ++w) EXPECT_EQ(part->window_nll[w], whole->window_nll[w]);
  EXPECT_TRUE(std::isfinite(part->ppl));
  EXPECT_EQ(PerplexityEntry(*part, "m", "", "t", "{}").outcome, "failed");
  const auto none = MeasurePerplexity(at_once, runtime(), KvType::kF32, *tokenizer_, text, rules, {});
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("not finite"), std::string::npos);
  const std::vector<Window> windows = *PlanWindows(*ResolveRules({Protocol::kLlamaCpp, 64, 0, 0}), static_cast<int64_t>(text.tokens.size()));
  const auto divergence = MeasureDivergence(beside, {nullptr, model_.get()}, runtime(), KvType::kF32, text, windows, nullptr, {});
  ASSERT_TRUE(divergence) << divergence.error().message;
  EXPECT_NE(divergence->failed.find("not finite"), std::string::npos);
  EXPECT_EQ(divergence->chunks, 3);
  EXPECT_EQ(divergence->rows.size(), 3u * windows[0].targets());
  for (const DivergenceRow& row : divergence->rows) EXPECT_TRUE(std::isfinite(row.kld) && std::isfinite(row.nll));
}

TEST(DomainsTest, TheDefaultTextsAreThere) {
  const auto domains = DefaultDomains(HONE_SOURCE_DIR "/assets");
  ASSERT_TRUE(domains) << domains.error().message;
  ASSERT_EQ(domains->size(), 5u);
  for (const DomainText& domain : *domains) EXPECT_GT(domain.text.size(), 4000u) << domain.name;
  EXPECT_NE((*domains)[4].text.find("<tool_call>"), std::string::npos);
  EXPECT_FALSE(DefaultDomains("/nowhere"));
  EXPECT_EQ(*TextOfTasks("t", "{\"messages\": [{\"role\": \"user\", \"content\": \"a?\"}], \"answer\": \"b\"}\n\n{\"messages\": []}"), "a?\nb\n\n");
  for (const char* bad : {"x", "[]", "{}", "{\"messages\": 3}"}) EXPECT_NE(TextOfTasks("t.jsonl", bad).error().message.find("t.jsonl: line 1"), std::string::npos) << bad;
}

TEST(DomainsTest, Arguments) {
  EXPECT_EQ(ParseDomain("code=a=b.cc")->file, "a=b.cc");
  for (const char* bad : {"", "code", "=x", "code="}) {
    const auto domain = ParseDomain(bad);
    ASSERT_FALSE(domain) << bad;
    EXPECT_EQ(domain.error().code, ErrorCode::kUsage);
  }
}

}  // namespace
}  // namespace hone
