// Gates on synthetic measurements with known answers: a 5 % slowdown is caught, a comparison of a model with itself is
// not; rules from files, and files that are none.
#include "measure/gate/gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "measure/load/arrivals.h"

namespace hone {
namespace {

using nlohmann::json;

GateRules Rules(const std::string& text) {
  Result<GateRules> rules = ParseGateRules(text);
  EXPECT_TRUE(rules.has_value()) << (rules ? "" : rules.error().message);
  return rules ? std::move(*rules) : GateRules{};
}

Verdict Of(const GateRules& rules, const std::vector<PairedFigure>& figures) {
  GateReport report;
  report.findings = Judge(rules, figures);
  return report.verdict();
}

// Pairs of runs on a machine that drifts by 5 % from pair to pair and differs by 1 % within one.
PairedFigure Simulate(Rng& rng, const std::string& name, double slowdown, int pairs = 8) {
  std::vector<double> base, next;
  for (int i = 0; i < pairs; ++i) {
    const double drift = std::exp(0.05 * DrawNormal(rng));
    base.push_back(100 * drift * std::exp(0.01 * DrawNormal(rng)));
    next.push_back(100 * drift * slowdown * std::exp(0.01 * DrawNormal(rng)));
  }
  return PairValues(name, Direction::kLower, base, next, 0.95);
}

TEST(GatePower, ASlowdownOfFivePercentIsCaughtAndNoneIsNot) {
  const GateRules rules = Rules(R"({"rules": [{"figure": "ttft_ms.p50", "ratio_most": 1.02}]})");
  Rng rng(2024);
  int caught = 0, passed_slow = 0, false_alarms = 0, held = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const Verdict slow = Of(rules, {Simulate(rng, "ttft_ms.p50", 1.05)});
    caught += slow == Verdict::kFails;
    passed_slow += slow == Verdict::kHolds;
    const Verdict same = Of(rules, {Simulate(rng, "ttft_ms.p50", 1.0)});
    false_alarms += same == Verdict::kFails;
    held += same == Verdict::kHolds;
  }
  EXPECT_GE(caught, 190);  // the ratio's standard error is 0.5 %, the bound 3 % away
  EXPECT_EQ(passed_slow, 0);
  EXPECT_EQ(false_alarms, 0);
  EXPECT_GE(held, 180);
}

TEST(GatePower, WithoutAMarginFalseAlarmsAreAsRareAsTheConfidenceSays) {
  const GateRules rules = Rules(R"({"rules": [{"figure": "ttft_ms.p50", "ratio_most": 1}]})");
  Rng rng(7);
  int false_alarms = 0;
  for (int repeat = 0; repeat < 200; ++repeat)
    false_alarms += Of(rules, {Simulate(rng, "ttft_ms.p50", 1.0)}) == Verdict::kFails;
  EXPECT_LE(false_alarms, 13);  // 2.5 % of 200 are 5; more than 13 once in a thousand
  // Two runs that are not side by side share no drift: each figure's interval holds it, and the gate cannot tell.
  int alarms = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto alone = [&](double factor) {
      std::vector<double> values;
      const double drift = std::exp(0.05 * DrawNormal(rng));
      for (int i = 0; i < 8; ++i) values.push_back(100 * factor * drift * std::exp(0.05 * DrawNormal(rng)));
      return Figure{"ttft_ms.p50", StudentMean(values, 0.95), Direction::kLower};
    };
    const GateRules margin = Rules(R"({"rules": [{"figure": "ttft_ms.p50", "ratio_most": 1.25}]})");
    alarms += Of(margin, PairFigures(std::vector{alone(1)}, std::vector{alone(1)}, 0.95)) == Verdict::kFails;
  }
  EXPECT_EQ(alarms, 0);
}

TEST(Gate, ABetterMedianWithAWorseTailFailsAndNamesTheCell) {
  Rng rng(5);
  const GateRules rules = Rules(R"({"rules": [{"figure": "ttft_ms.p50*", "ratio_most": 1}]})");
  std::vector<PairedFigure> figures = {
      Simulate(rng, "ttft_ms.p50[closed, 8 at once]", 0.8), Simulate(rng, "ttft_ms.p99[closed, 8 at once]", 1.3),
      Simulate(rng, "ttft_ms.p50[closed, 1 at once]", 0.8), Simulate(rng, "ttft_ms.p99[closed, 1 at once]", 0.9)};
  GateReport report;
  report.findings = Judge(rules, figures);
  EXPECT_EQ(report.verdict(), Verdict::kFails);
  ASSERT_EQ(report.findings.size(), 3u);
  EXPECT_EQ(report.findings[2].figure, "ttft_ms.p99[closed, 8 at once]");
  EXPECT_NE(GateTable(report).find("ttft_ms.p99[closed, 8 at once]"), std::string::npos);
  const GateRules without = Rules(R"({"tails": false, "rules": [{"figure": "ttft_ms.p50*", "ratio_most": 1}]})");
  EXPECT_EQ(Of(without, figures), Verdict::kHolds);
}

TEST(Gate, HoldsFailsOrCannotTell) {
  const auto figure = [](Interval interval) {
    return std::vector<PairedFigure>{{"kld.mean", Direction::kLower, {}, interval, {}, {}, ""}};
  };
  const GateRules rules = Rules("[[rule]]\nfigure = \"kld.mean\"\nmost = 0.02\n");
  EXPECT_EQ(Of(rules, figure({0.01, 0.009, 0.011, 0.95})), Verdict::kHolds);
  EXPECT_EQ(Of(rules, figure({0.03, 0.025, 0.035, 0.95})), Verdict::kFails);
  EXPECT_EQ(Of(rules, figure({0.019, 0.015, 0.023, 0.95})), Verdict::kOpen);
  EXPECT_EQ(Of(rules, figure({0.01, 0.009, 0.011, 0.5})), Verdict::kOpen);  // too little confidence
  EXPECT_EQ(Of(rules, figure({0.01, 0.01, 0.01, 0})), Verdict::kOpen);      // a bare number
  EXPECT_EQ(Of(rules, figure({0.01, 0.01, 0.01, 1})), Verdict::kHolds);     // an exact one
  EXPECT_EQ(Of(rules, figure({NAN, NAN, NAN, 0.95})), Verdict::kOpen);
  EXPECT_EQ(Of(rules, {}), Verdict::kOpen);  // a rule that judges nothing does not hold
  const GateRules ratio = Rules(R"({"rules": [{"figure": "kld.mean", "ratio_most": 1.1}]})");
  EXPECT_EQ(Of(ratio, figure({0.01, 0.009, 0.011, 0.95})), Verdict::kOpen);  // nothing to divide by
  const GateRules least = Rules(R"({"rules": [{"figure": "kld.mean", "least": 0.02, "change_least": -1}]})");
  EXPECT_EQ(Of(least, figure({0.03, 0.025, 0.035, 0.95})), Verdict::kOpen);
  EXPECT_EQ(Judge(least, figure({0.03, 0.025, 0.035, 0.95}))[0].verdict, Verdict::kHolds);
}

TEST(Gate, PairsHaveTheIntervalsOfTheBooks) {
  const std::vector<double> base = {10, 20, 30}, next = {11, 22, 33};
  const PairedFigure figure = PairValues("x", Direction::kLower, base, next, 0.95);
  EXPECT_NEAR(figure.ratio->value, 1.1, 1e-12);
  EXPECT_NEAR(figure.ratio->low, 1.1, 1e-9);  // the ratio is the same each time
  EXPECT_NEAR(figure.change->value, 2, 1e-12);
  EXPECT_NEAR(figure.change->high, 2 + 4.302652729911275 / std::sqrt(3.0), 1e-9);
  EXPECT_FALSE(
      PairValues("x", Direction::kLower, std::vector<double>{0, 1}, std::vector<double>{1, 1}, 0.95).ratio.has_value());
  // Independent: errors add as squares, in logarithms for the ratio.
  const double z = 1.959963984540054;
  const std::vector<Figure>
      a = {{"x", {100, 100 / std::exp(0.03 * z), 100 * std::exp(0.03 * z), 0.95}, Direction::kLower}},
      b = {{"x", {100, 100 / std::exp(0.04 * z), 100 * std::exp(0.04 * z), 0.95}, Direction::kLower},
           {"only new", {1, 1, 1, 0}, Direction::kLower}};
  const std::vector<PairedFigure> pairs = PairFigures(a, b, 0.95);
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_NEAR(std::log(pairs[0].ratio->high), 0.05 * z, 1e-9);
  EXPECT_FALSE(pairs[1].ratio.has_value());
}

TEST(Gate, ReadsWhatTheMeasuringCommandsPrint) {
  const std::string kld = R"({"ppl": 5.1, "ppl_base": 5, "ppl_stderr": 0.1, "ppl_base_stderr": 0.1,
    "ln_ppl_ratio": {"mean": 0.0198, "stderr": 0.001}, "kld": {"mean": 0.02, "stderr": 0.001}, "same_top": {"percent": 95, "stderr": 0.5}, "rows": 100})";
  const std::vector<PairedFigure> quality = PairedOfResult(kld, 0.95).value();
  ASSERT_EQ(quality[0].name, "ppl");
  EXPECT_NEAR(quality[0].ratio->value, 1.02, 1e-3);
  EXPECT_LT(quality[0].ratio->high - quality[0].ratio->low, 0.005);  // the same tokens: far narrower than the two alone
  const std::string bench =
      R"({"rows": [{"work": "decode", "context": 0, "batch": 1, "tokens": 32, "tok_s": 95, "low": 94, "high": 96, "confidence": 0.97}],
    "compare": {"rows": [{"work": "decode", "context": 0, "batch": 1, "tokens": 32, "tok_s_other": 100, "ratio": 0.95, "low": 0.94, "high": 0.96, "confidence": 0.992}]}})";
  const std::vector<PairedFigure> speed = PairedOfResult(bench, 0.95).value();
  ASSERT_EQ(speed.size(), 1u);
  EXPECT_EQ(speed[0].name, "decode_tok_s[context=0,batch=1]");
  EXPECT_EQ(speed[0].base->value, 100);
  EXPECT_EQ(Of(Rules(R"({"rules": [{"figure": "decode_tok_s[*]", "ratio_least": 0.97}]})"), speed), Verdict::kFails);
  const std::string tasks = R"({"accuracy": 0.8, "low": 0.7, "high": 0.9, "files": [],
    "compare": {"difference": -0.01, "low": -0.02, "high": 0, "other": {"accuracy": 0.81, "low": 0.71, "high": 0.9}}})";
  const std::vector<PairedFigure> accuracy = PairedOfResult(tasks, 0.95).value();
  EXPECT_EQ(Of(Rules(R"({"rules": [{"figure": "accuracy", "change_least": -0.03}]})"), accuracy), Verdict::kHolds);
  EXPECT_FALSE(PairedOfResult("{}", 0.95).has_value());
}

// A matrix of three cells, each with its rounds in pairs, as hone profile prints it of NEW and BASE.
std::string Matrix(Rng& rng, double slowdown_of_last, double tail_of_last, int rounds) {
  json variants = json::array({json{{"model", "new"}, {"cells", json::array()}}, json{{"model", "base"}, {"cells", json::array()}}});
  for (int c = 0; c < 3; ++c) {
    json next, base;
    for (int i = 0; i < rounds; ++i) {
      const double drift = std::exp(0.05 * DrawNormal(rng));
      const auto noise = [&] { return drift * std::exp(0.01 * DrawNormal(rng)); };
      const double slower = c == 2 ? slowdown_of_last : 1, tail = c == 2 ? tail_of_last : 1;
      base["ttft_ms.p50"]["by_round"].push_back(100 * noise());
      next["ttft_ms.p50"]["by_round"].push_back(100 * slower * noise());
      base["ttft_ms.p99"]["by_round"].push_back(200 * noise());
      next["ttft_ms.p99"]["by_round"].push_back(200 * tail * noise());
    }
    for (json* figures : {&next, &base}) {
      for (auto& [name, figure] : figures->items()) figure["better"] = "lower";
    }
    variants[0]["cells"].push_back({{"input", 64 << c}, {"output", 32}, {"concurrency", 4}, {"figures", next}});
    variants[1]["cells"].push_back({{"input", 64 << c}, {"output", 32}, {"concurrency", 4}, {"figures", base}});
  }
  return json{{"variants", variants}}.dump();
}

TEST(GatePower, TheCellOfAMatrixThatIsSlowerIsNamed) {
  const GateRules rules = Rules("[[rules]]\nfigure = \"ttft_ms.p50[*]\"\nratio_most = 1.05\n");
  EXPECT_TRUE(rules.WantsMatrix());
  EXPECT_FALSE(rules.WantsLoad());
  Rng rng(31);
  int caught = 0, false_alarms = 0, held = 0;
  for (int repeat = 0; repeat < 200; ++repeat) {
    const auto findings = Judge(rules, PairedOfResult(Matrix(rng, 1.08, 1.08, 8), 0.95).value());
    ASSERT_EQ(findings.size(), 3u);
    caught += findings[2].verdict == Verdict::kFails && findings[2].figure == "ttft_ms.p50[input=256,output=32,concurrency=4]";
    false_alarms += findings[0].verdict == Verdict::kFails || findings[1].verdict == Verdict::kFails;
    const Verdict same = Of(rules, PairedOfResult(Matrix(rng, 1, 1, 8), 0.95).value());
    false_alarms += same == Verdict::kFails;
    held += same == Verdict::kHolds;
  }
  EXPECT_GE(caught, 190);
  EXPECT_EQ(false_alarms, 0);
  EXPECT_GE(held, 190);
  // The median of one cell is better, its tail is worse: that fails, and the cell is named.
  const auto findings = Judge(rules, PairedOfResult(Matrix(rng, 0.8, 1.3, 8), 0.95).value());
  ASSERT_EQ(findings.size(), 4u);
  EXPECT_EQ(findings[3].verdict, Verdict::kFails);
  EXPECT_EQ(findings[3].figure, "ttft_ms.p99[input=256,output=32,concurrency=4]");
  for (const char* bad : {R"({"variants": 3})", R"({"variants": [{}]})"}) EXPECT_FALSE(PairedOfResult(bad, 0.95)) << bad;
  for (const char* empty : {R"({"variants": [{}, {}]})", R"({"variants": [3, {"cells": [4]}]})", R"({"variants": [{"cells": [{"figures": {"x": 3}}]}, {"cells": [{"figures": {}}]}]})"})
    EXPECT_TRUE(PairedOfResult(empty, 0.95)->empty()) << empty;
}

TEST(GateRules, TheMatrixIsAskedForByItsCells) {
  EXPECT_TRUE(Rules(R"({"rules": [{"figure": "ttft_ms.*", "most": 1}]})").WantsLoad());
  EXPECT_FALSE(Rules(R"({"rules": [{"figure": "ttft_ms.*", "most": 1}]})").WantsMatrix());
  EXPECT_FALSE(Rules(R"({"rules": [{"figure": "decode_tok_s[*]", "most": 1}]})").WantsMatrix());
  EXPECT_TRUE(Rules(R"({"rules": [{"figure": "output_tok_s[input=64*", "least": 1}]})").WantsMatrix());
  const GateRules rules = Rules("[[rules]]\nfigure = \"itl_ms.p99[*]\"\nratio_most = 1.1\n[matrix]\ninput = [64, 512]\nconcurrency = [1, 8]\nrounds = 9\n");
  EXPECT_EQ(rules.matrix.input, (std::vector<int>{64, 512}));
  EXPECT_EQ(rules.matrix.concurrency, (std::vector<int>{1, 8}));
  EXPECT_TRUE(rules.matrix.output.empty());
  EXPECT_EQ(rules.matrix.rounds, 9);
  for (const char* bad : {"[matrix]\nwidth = [1]\n", "[matrix]\ninput = 3\n", "[matrix]\nrounds = 0\n"})
    EXPECT_FALSE(ParseGateRules(std::string("[[rules]]\nfigure = \"x\"\nmost = 1\n") + bad)) << bad;
}

TEST(GateRules, JsonAndTomlSayTheSame) {
  const GateRules from_toml = Rules(
      "# a gate\nconfidence = 0.9   # of every rule\ntails = false\n\n[[rules]]\nfigure = "
      "'decode_tok_s[*]'\nratio_least = 0.95\n"
      "[[rules]]\nfigure = \"kld.mean # not a comment\"\nmost = 2e-2\nconfidence = 0.99\n\n[measure]\ntext = \"a "
      "b.txt\"\n"
      "prefill = [128, 512]\nseeds = [7]\nrate = 1.5\nrounds = 9\n");
  const GateRules from_json = Rules(
      R"({"confidence": 0.9, "tails": false, "rules": [{"figure": "decode_tok_s[*]", "ratio_least": 0.95},
          {"figure": "kld.mean # not a comment", "most": 0.02, "confidence": 0.99}],
          "measure": {"text": "a b.txt", "prefill": [128, 512], "seeds": [7], "rate": 1.5, "rounds": 9}})");
  for (const GateRules& rules : {from_toml, from_json}) {
    ASSERT_EQ(rules.rules.size(), 2u);
    EXPECT_EQ(rules.rules[0].figure, "decode_tok_s[*]");
    EXPECT_EQ(rules.rules[0].bounds[0].Text(), "ratio >= 0.95");
    EXPECT_EQ(rules.rules[0].confidence, 0.9);
    EXPECT_EQ(rules.rules[1].figure, "kld.mean # not a comment");
    EXPECT_EQ(rules.rules[1].confidence, 0.99);
    EXPECT_FALSE(rules.tails);
    EXPECT_EQ(rules.measure.text, "a b.txt");
    EXPECT_EQ(rules.measure.prefill, (std::vector<int>{128, 512}));
    EXPECT_EQ(rules.measure.seeds, (std::vector<uint64_t>{7}));
    EXPECT_EQ(rules.measure.rounds, 9);
    EXPECT_TRUE(rules.Wants("decode_tok_s"));
    EXPECT_FALSE(rules.Wants("prefill_tok_s"));
    EXPECT_TRUE(rules.Wants("kld."));
  }
}

TEST(GateRules, FilesThatAreNone) {
  for (const char* bad : {"",
                          "  \n",
                          "{",
                          "{}",
                          "[]",
                          "{\"rules\": []}",
                          "{\"rules\": [3]}",
                          "{\"rules\": [{\"figure\": \"x\"}]}",
                          "{\"rules\": [{\"most\": 1}]}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": \"1\"}]}",
                          "{\"rules\": [{\"figure\": \"x\", \"moost\": 1}]}",
                          "{\"rulez\": [{\"figure\": \"x\", \"most\": 1}]}",
                          "{\"confidence\": 2, \"rules\": [{\"figure\": \"x\", \"most\": 1}]}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": 1}], \"measure\": {\"seeds\": []}}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": 1}], \"measure\": {\"requests\": -3}}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": 1}], \"measure\": {\"seeds\": [1, 2, 1]}}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": 1}], \"measure\": {\"seeds\": [1.5]}}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": 1}], \"matrix\": {\"input\": [8, 8]}}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": 1, \"most\": 2}]}",
                          "{\"confidence\": 0.95, \"confidence\": 0.9, \"rules\": [{\"figure\": \"x\", \"most\": 1}]}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": NaN}]}",
                          "{\"rules\": [{\"figure\": \"x\", \"most\": null}]}",
                          "[[rules]]\nfigure = \"x\"\nmost = nan",
                          "figure = \"x\"\nmost = 1",
                          "[[rules]\nfigure = \"x\"",
                          "[rules]\nfigure = \"x\"\nmost = 1",
                          "[[rules]]\nfigure = \"x\"\nfigure = \"y\"\nmost = 1",
                          "[[rules]]\nfigure = x\nmost = 1",
                          "[[rules]]\nfigure\n",
                          "[a.b]\n",
                          "[measure]\n[measure]\n[[rules]]\n"}) {
    const Result<GateRules> rules = ParseGateRules(bad);
    ASSERT_FALSE(rules.has_value()) << bad;
    EXPECT_EQ(rules.error().code, ErrorCode::kInvalidInput) << bad;
  }
  EXPECT_NE(ParseGateRules("[[rules]]\nfigure = \"x\"\nmost = one\n").error().message.find("line 3"),
            std::string::npos);
}

TEST(GateRules, PatternsMatchNames) {
  EXPECT_TRUE(MatchesFigure("a[*]", "a[context=0,batch=1]"));
  EXPECT_TRUE(MatchesFigure("*", ""));
  EXPECT_TRUE(MatchesFigure("*p99*", "ttft_ms.p99[x]"));
  EXPECT_TRUE(MatchesFigure("a*b*c", "axxbyybzc"));
  EXPECT_FALSE(MatchesFigure("a*b", "axxbc"));
  EXPECT_FALSE(MatchesFigure("kld", "kld.mean"));
  EXPECT_FALSE(MatchesFigure("", "x"));
}

}  // namespace
}  // namespace hone
