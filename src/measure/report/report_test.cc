// Reports: which charts figures make, what goes into which of the three lists, and text that could end an element.
#include "measure/report/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "measure/report/charts.h"

namespace hone {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

LedgerEntry Bench(int64_t id, double factor) {
  LedgerEntry entry;
  entry.id = id;
  entry.kind = "bench";
  entry.model = "tiny";
  entry.environment = R"({"cpu": "x", "virtual_machine": false})";
  for (const int context : {0, 512}) {
    for (const int batch : {1, 4}) {
      const double value = factor * 10 * batch;
      entry.figures.push_back(
          {"decode_tok_s[context=" + std::to_string(context) + ",batch=" + std::to_string(batch) + "]",
           {value, 0.98 * value, 1.02 * value, 0.97},
           Direction::kHigher});
    }
  }
  entry.figures.push_back({"prefill_tok_s[tokens=128]", {100, 99, 101, 0.97}, Direction::kHigher});
  entry.figures.push_back({"prefill_tok_s[tokens=512]", {120, 119, 121, 0.97}, Direction::kHigher});
  entry.figures.push_back({"load_s", {1, 1, 1, 1}, Direction::kLower});
  entry.result = R"({"rows": [{"work": "decode", "context": 0, "batch": 1, "roof_percent": 82, "steady": true},
                              {"work": "prefill", "tokens": 128, "roof_percent": 12, "steady": false}]})";
  return entry;
}

bool Has(const ordered_json& list, const std::string& part) {
  for (const ordered_json& statement : list) {
    if (statement.get<std::string>().find(part) != std::string::npos) return true;
  }
  return false;
}

TEST(ReportCharts, CellsBecomeAxes) {
  const ordered_json alone = ReportCharts(Bench(1, 1), std::nullopt);
  ASSERT_EQ(alone.size(), 4u);  // a heat map, two ways through it, prefill
  EXPECT_EQ(alone[0]["kind"], "heat");
  EXPECT_EQ(alone[0]["xs"], ordered_json::parse(R"(["0", "512"])"));
  EXPECT_EQ(alone[0]["cells"].size(), 4u);
  EXPECT_EQ(alone[1]["title"], "decode_tok_s over context");
  EXPECT_EQ(alone[1]["series"].size(), 2u);
  EXPECT_EQ(alone[1]["series"][0]["points"][0], ordered_json::parse("[0, 10, 9.8, 10.2]"));
  EXPECT_EQ(alone[3]["title"], "prefill_tok_s over tokens");
  const ordered_json beside = ReportCharts(Bench(2, 1.1), Bench(1, 1));
  ASSERT_EQ(beside.size(), 5u);
  EXPECT_EQ(beside[1]["around"], 1.0);
  EXPECT_EQ(beside[1]["cells"][0][2], 1.1);
  EXPECT_EQ(beside[2]["series"].size(), 4u);
}

TEST(ReportCharts, ThreeNumbersAreAHeatMapForEachOfTheThird) {
  LedgerEntry entry;
  entry.kind = "profile";
  for (const int input : {64, 128, 256}) {
    for (const int output : {16, 32}) {
      for (const int concurrency : {1, 8}) {
        entry.figures.push_back({"ttft_ms[input=" + std::to_string(input) + ",output=" + std::to_string(output) +
                                     ",concurrency=" + std::to_string(concurrency) + "]",
                                 {1.0 * input, 0, 0, 0},
                                 Direction::kLower});
      }
    }
  }
  const ordered_json charts = ReportCharts(entry, std::nullopt);
  ASSERT_EQ(charts.size(), 5u);  // two maps, three ways through
  EXPECT_EQ(charts[1]["title"], "ttft_ms, concurrency 8");
  EXPECT_EQ(charts[1]["cells"].size(), 6u);
  EXPECT_EQ(charts[1]["x"], "input");
}

TEST(ReportCharts, WordsAreAxesToo) {
  LedgerEntry entry;
  entry.kind = "simulate";
  for (const char* policy : {"fcfs", "mlfq"}) {
    for (const int rate : {1, 2, 10}) {
      entry.figures.push_back({std::string("ttft_ms.p99[policy=") + policy + ",block=32,rate=" + std::to_string(rate) + "]", {1.0 * rate, 1.0 * rate, 1.0 * rate, 1}, Direction::kLower});
    }
  }
  const ordered_json charts = ReportCharts(entry, std::nullopt);
  ASSERT_EQ(charts.size(), 2u);  // a map, and curves over the rate; a word is no place on a curve
  EXPECT_EQ(charts[0]["xs"], ordered_json::parse(R"(["fcfs", "mlfq"])"));
  EXPECT_EQ(charts[0]["ys"], ordered_json::parse(R"(["1", "2", "10"])"));  // in the order of the numbers
  EXPECT_EQ(charts[1]["title"], "ttft_ms.p99 over rate");
  EXPECT_EQ(charts[1]["series"][1]["name"], "policy mlfq");  // what all cells share is not said
  EXPECT_EQ(charts[1]["series"][1]["points"].size(), 3u);
  entry.figures = {{"ppl[domain=code]", {3, 2, 4, 0.95}, Direction::kLower}, {"ppl[domain=prose]", {5, 4, 6, 0.95}, Direction::kLower}};
  const ordered_json named = ReportCharts(entry, std::nullopt);
  ASSERT_EQ(named.size(), 1u);
  EXPECT_EQ(named[0]["dots"], true);
}

TEST(ReportViews, AProfileSaysWhereTheTimeGoes) {
  LedgerEntry entry;
  entry.kind = "profile";
  entry.model = "tiny";
  entry.result = R"({"model": "tiny", "energy": "no counters", "cells": [
    {"input": 8, "output": 4, "concurrency": 2, "errors": 1, "requests": 10, "ttft_s": {"value": 0.1}, "tpot_s": {"value": 0.02},
     "prefill": {"peak_percent": 30, "op_shares": {"feed-forward": 0.7, "attention": 0.3}}, "decode": {"read_roof_percent": 60, "op_shares": {"feed-forward": 1}},
     "bottleneck": {"name": "weight bandwidth", "reason": "reads much"}, "next_step": {"do": "fewer bits", "test": "hone profile x"},
     "predicted": {"ttft_s": 0.05, "tpot_s": 0.02, "fitted_ttft_s": 0.15, "fitted_tpot_s": 0.021}}]})";
  const json report = json::parse(ReportJson(entry, std::nullopt));
  EXPECT_EQ(report["title"], "profile: tiny");
  EXPECT_TRUE(Has(report["conclusions"]["inferred"], "8 + 4, 2 at once is bound by weight bandwidth: reads much"));
  EXPECT_TRUE(Has(report["conclusions"]["shown"], "1 of 10 requests ended with an error"));
  EXPECT_TRUE(Has(report["conclusions"]["open"], "time to the first token: also with the constants fitted"));
  EXPECT_FALSE(Has(report["conclusions"]["open"], "time a token: also"));  // 5 % off
  EXPECT_TRUE(Has(report["conclusions"]["open"], "Energy: no counters"));
  EXPECT_TRUE(Has(report["conclusions"]["open"], "in no ledger"));
  ASSERT_EQ(report["charts"].size(), 4u);
  EXPECT_EQ(report["charts"][0]["title"], "prefill: where the time goes");
  EXPECT_EQ(report["charts"][0]["cells"], json::parse("[[0, 0, 70], [0, 1, 30]]"));
  EXPECT_EQ(report["tables"][0]["title"], "Bottlenecks");
  EXPECT_NE(ReportMarkdown(report.dump()).find("| 8 + 4, 2 at once | weight bandwidth |"), std::string::npos);
}

TEST(ReportViews, WhatWasComputedIsNotShown) {
  const auto simulated = [](int64_t id, double p99) {
    LedgerEntry entry;
    entry.id = id;
    entry.kind = "simulate";
    entry.figures = {{"ttft_ms.p99[policy=fcfs,rate=1]", {p99, p99, p99, 1}, Direction::kLower}};
    const std::string latency = R"({"p50": 1, "p90": 2, "p99": )" + std::to_string(p99) + R"(, "max": 4})";
    entry.result = R"({"cost": {"source": "a guess", "error": 0}, "runs": [{"policy": "fcfs", "tok_s": 1, "ttft_s": )" + latency +
                   R"(}, {"policy": "mlfq", "tok_s": 2, "ttft_s": )" + latency + "}]}";
    return entry;
  };
  const json report = json::parse(ReportJson(simulated(2, 3), simulated(1, 5)));
  EXPECT_TRUE(report["conclusions"]["shown"].empty()) << report["conclusions"]["shown"];
  EXPECT_TRUE(Has(report["conclusions"]["inferred"], "ttft_ms.p99[policy=fcfs,rate=1] is better"));
  EXPECT_TRUE(Has(report["conclusions"]["inferred"], "simulated, not measured"));
  EXPECT_TRUE(Has(report["conclusions"]["inferred"], "output tokens a second: best 2 (mlfq"));
  EXPECT_TRUE(Has(report["conclusions"]["open"], "not fitted"));
  for (const char* result : {"", "[]", "{}", R"({"runs": 3})", R"({"runs": [3, {}]})", R"({"cells": [null]})", R"({"predictions": [0]})"}) {
    for (const char* kind : {"profile", "simulate", "plan"}) {  // entries of other versions
      LedgerEntry odd;
      odd.kind = kind, odd.result = result;
      EXPECT_TRUE(json::accept(ReportJson(odd, std::nullopt))) << kind << result;
    }
  }
}

TEST(ReportCharts, LoadsAreCurvesOverPercentilesAndThroughput) {
  LedgerEntry entry;
  entry.kind = "load";
  for (const char* key : {"p50", "p90", "p95", "p99", "p999"}) {
    entry.figures.push_back({std::string("ttft_ms.") + key, {5, 4, 6, 0.95}, Direction::kLower});
  }
  const ordered_json percentiles = ReportCharts(entry, std::nullopt);
  ASSERT_EQ(percentiles.size(), 1u);
  EXPECT_EQ(percentiles[0]["categories"].size(), 5u);
  entry.figures.clear();
  for (int i = 1; i <= 3; ++i) {
    const std::string cell = "[poisson, " + std::to_string(i) + " a second]";
    entry.figures.push_back({"request_s" + cell, {1.0 * i, 0, 0, 0}, Direction::kHigher});
    entry.figures.push_back({"ttft_ms.p50" + cell, {10.0 * i, 0, 0, 0}, Direction::kLower});
    entry.figures.push_back({"ttft_ms.p99" + cell, {90.0 * i, 80.0 * i, 99.0 * i, 0.95}, Direction::kLower});
  }
  const ordered_json sweep = ReportCharts(entry, std::nullopt);
  ASSERT_EQ(sweep.size(), 1u);
  EXPECT_EQ(sweep[0]["title"], "ttft_ms against throughput");
  EXPECT_EQ(sweep[0]["series"][1]["points"][2], ordered_json::parse("[3, 270, 240, 297]"));
  EXPECT_EQ(sweep[0]["series"][0]["points"][0], ordered_json::parse("[1, 10, null, null]"));  // no interval
  EXPECT_EQ(ReportCharts(LedgerEntry{}, std::nullopt).size(), 0u);
}

TEST(Report, WhatIsShownInferredAndOpen) {
  const json alone = json::parse(ReportJson(Bench(1, 1), std::nullopt));
  EXPECT_TRUE(Has(alone["conclusions"]["shown"], "decode_tok_s[context=0,batch=1] is 10 tok/s (9.8 to 10.2, 97 %)"));
  EXPECT_TRUE(Has(alone["conclusions"]["inferred"], "bound by read bandwidth: it takes 82 %"));
  EXPECT_TRUE(Has(alone["conclusions"]["inferred"], "prefill of 128 is not bound"));
  EXPECT_TRUE(Has(alone["conclusions"]["open"], "did not hold still"));
  EXPECT_TRUE(Has(alone["conclusions"]["open"], "--parent 1"));
  LedgerEntry next = Bench(2, 1.1);
  next.recipe = "Q4_0";
  next.environment = R"({"cpu": "y", "virtual_machine": true})";
  next.failures = {{"http_429", "closed, 8 at once", "full", 3}};
  const json beside = json::parse(ReportJson(next, Bench(1, 1)));
  EXPECT_TRUE(Has(beside["conclusions"]["shown"], "decode_tok_s[context=0,batch=1] is better"));
  EXPECT_FALSE(Has(beside["conclusions"]["shown"], "prefill_tok_s[tokens=128] is better"));
  EXPECT_TRUE(Has(beside["conclusions"]["shown"], "recipe '' to 'Q4_0'"));
  EXPECT_TRUE(Has(beside["conclusions"]["shown"], "http_429 (closed, 8 at once): full, 3 times"));
  EXPECT_TRUE(Has(beside["conclusions"]["inferred"], "did not run side by side"));
  EXPECT_TRUE(Has(beside["conclusions"]["open"], "2 of 7 common figures: their intervals touch"));
  EXPECT_TRUE(Has(beside["conclusions"]["open"], "cpu was x, is y"));
  EXPECT_TRUE(Has(beside["conclusions"]["open"], "virtual"));
  EXPECT_EQ(beside["tables"][0]["rows"][0][8], 1.1);
}

TEST(Report, TextOfTheLedgerStaysText) {
  LedgerEntry entry = Bench(1, 1);
  entry.label = "</script><script>alert(1)</script> | a\nb";
  entry.result = "not JSON";
  entry.environment = "[";
  const std::string document = ReportJson(entry, std::nullopt);
  const std::string page = "<p>before</p><script>{\"place\":\"of the document\"}</script>after";
  const std::string html = ReportHtml(page, document).value();
  EXPECT_EQ(html.find("</script><script>"), std::string::npos);
  EXPECT_EQ(html.substr(html.size() - 14), "</script>after");
  const std::string inside = html.substr(21, html.size() - 21 - 14);
  EXPECT_EQ(json::parse(inside)["entry"]["label"], entry.label);
  EXPECT_EQ(ReportHtml("no place", document).error().code, ErrorCode::kInternal);
  const std::string markdown = ReportMarkdown(document);
  EXPECT_NE(markdown.find("\\| a b"), std::string::npos);
  EXPECT_NE(markdown.find("| decode_tok_s[context=0,batch=1] | 10 |"), std::string::npos) << markdown;
}

}  // namespace
}  // namespace hone
