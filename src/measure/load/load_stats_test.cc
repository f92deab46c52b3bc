// Figures of made-up records against closed forms; the event-stream parser at every cut; statistics that loads need.
#include "measure/load/load_stats.h"

#include <gtest/gtest.h>

#include <cmath>

#include "measure/load/sse.h"

namespace hone {
namespace {

LoadRecord Record(double sent_s, double ttft_s, double e2e_s, int64_t tokens) {
  LoadRecord record;
  record.due_s = record.sent_s = sent_s;
  record.first_s = sent_s + ttft_s;
  record.last_s = sent_s + e2e_s;
  record.output_tokens = tokens;
  record.tokens_counted = true;
  record.prompt_tokens = 10;
  for (int64_t i = 1; i < tokens; ++i) record.gaps_s.push_back((e2e_s - ttft_s) / static_cast<double>(tokens - 1));
  return record;
}

TEST(LoadFigures, AreTheNamedDefinitions) {
  LoadRun run;
  for (int i = 0; i <= 100; ++i) run.records.push_back(Record(i, 0.001 * i, 0.001 * i + 0.1, 11));  // ttft 0 ... 100 ms
  run.records.push_back(Record(0, 0.05, 0.05, 1));  // one token: no tpot
  run.duration_s = 50;
  const LoadFigures figures = ComputeLoadFigures(std::vector{run}, ParseSlo("ttft=50,tpot=10ms").value());
  EXPECT_EQ(figures.completed, 102);
  EXPECT_EQ(figures.tpot_ms.count, 101);
  EXPECT_NEAR(figures.tpot_ms.percentiles.at("p99").value, 10, 1e-9);
  EXPECT_EQ(figures.itl_ms.count, 1010);
  EXPECT_NEAR(figures.ttft_ms.percentiles.at("p50").value, 50, 1e-9);
  EXPECT_NEAR(figures.ttft_ms.percentiles.at("p99").value, 98.99, 1e-9);  // at 0.99 * 101 of the sorted 102
  EXPECT_NEAR(figures.request_s.value, 102 / 50.0, 1e-12);
  EXPECT_NEAR(figures.output_tok_s.value, (101 * 11 + 1) / 50.0, 1e-12);
  EXPECT_NEAR(figures.total_tok_s.value, (101 * 11 + 1 + 1020) / 50.0, 1e-12);
  // ttft <= 50 ms: 0 ... 50 and the one-token answer, whose tpot counts as 0. The tpot of the others is 10 ms, by
  // rounding on either side of the limit, so the limit is moved a little.
  const LoadFigures judged = ComputeLoadFigures(std::vector{run}, ParseSlo("ttft=50.0001,tpot=10.0001").value());
  EXPECT_NEAR(judged.goodput_s->value, 52 / 50.0, 1e-12);
  EXPECT_NEAR(judged.met_share, 52 / 102.0, 1e-12);
  EXPECT_EQ(figures.ttft_ms.thin, (std::vector<std::string>{"p999"}));
  EXPECT_TRUE(figures.client_limit.empty());
}

TEST(LoadFigures, IntervalsAreOverSeeds) {
  std::vector<LoadRun> runs(3);
  const double rates[] = {10, 12, 14};
  for (int r = 0; r < 3; ++r) {
    runs[r].duration_s = 10;
    for (int i = 0; i < static_cast<int>(rates[r] * 10); ++i)
      runs[r].records.push_back(Record(i, 0.01 * rates[r], 1, 5));
  }
  const LoadFigures figures = ComputeLoadFigures(runs, {});
  const double half = 4.302652729911275 * 2 / std::sqrt(3.0);  // t(0.975, 2) s / sqrt(n)
  EXPECT_NEAR(figures.request_s.value, 12, 1e-12);
  EXPECT_NEAR(figures.request_s.low, 12 - half, 1e-6);
  EXPECT_NEAR(figures.ttft_ms.percentiles.at("p90").high, 120 + 10 * half, 1e-5);
  EXPECT_FALSE(figures.goodput_s.has_value());
}

TEST(LoadFigures, ErrorsAreCountedByKindAndTheClientJudged) {
  LoadRun run;
  run.duration_s = 1;
  run.cpu_s = 0.9;
  for (int i = 0; i < 5; ++i) {
    LoadRecord record = Record(i, 0.01, 0.1, 3);
    record.error = i < 2 ? "http_429" : i < 3 ? "timeout" : i < 4 ? "cancelled" : "";
    record.error_text = "text " + std::to_string(i);
    run.records.push_back(record);
  }
  const LoadFigures figures = ComputeLoadFigures(std::vector{run}, {});
  EXPECT_EQ(figures.failed, 3);
  EXPECT_EQ(figures.cancelled, 1);
  EXPECT_EQ(figures.completed, 1);
  EXPECT_EQ(figures.errors.at("http_429").count, 2);
  EXPECT_EQ(figures.errors.at("http_429").first, "text 0");
  EXPECT_NE(figures.client_limit.find("90 %"), std::string::npos);
  run.cpu_s = 0;
  for (LoadRecord& record : run.records) record.due_s -= 0.5;  // sent half a second late
  EXPECT_NE(ComputeLoadFigures(std::vector{run}, {}).client_limit.find("500.0 ms"), std::string::npos);
  for (LoadRecord& record : run.records) record.held = true;  // --concurrency held them back
  EXPECT_EQ(ComputeLoadFigures(std::vector{run}, {}).client_limit, "");
  EXPECT_EQ(ComputeLoadFigures({}, {}).completed, 0);
}

TEST(Slo, IsReadAndRefused) {
  const Slo slo = ParseSlo("ttft=200,tpot:50ms,e2e=3s").value();
  EXPECT_EQ(slo.ttft_ms, 200);
  EXPECT_EQ(slo.tpot_ms, 50);
  EXPECT_EQ(slo.e2e_ms, 3000);
  EXPECT_FALSE(ParseSlo("").value().any());
  for (const char* bad : {"ttft", "ttft=", "ttft=-1", "ttft=x", "itl=3", "ttft=nan"}) {
    EXPECT_EQ(ParseSlo(bad).error().code, ErrorCode::kUsage) << bad;
  }
}

TEST(EventStream, IsTheSameWhereverItIsCut) {
  const std::string stream =
      ": a comment\r\ndata: {\"choices\": [{\"delta\": {\"role\": \"assistant\"}}]}\r\n\r\n"
      "event: x\ndata: {\"choices\": [{\"delta\": {\"content\": \"h\\u00e9\"}}], \"usage\": null}\n\n"
      "data: first\ndata: second\n\ndata:{\"choices\": [], \"usage\": {\"prompt_tokens\": 3, \"completion_tokens\": 4, "
      "\"prompt_tokens_details\": {\"cached_tokens\": 2}}}\r\rdata: [DONE]\n\nnot ended";
  std::vector<std::string> whole;
  SseParser parser;
  ASSERT_TRUE(parser.Add(stream, [&](std::string_view data) { whole.emplace_back(data); }));
  ASSERT_EQ(whole.size(), 5u);
  EXPECT_EQ(whole[2], "first\nsecond");
  for (size_t cut = 0; cut <= stream.size(); ++cut) {
    SseParser again;
    std::vector<std::string> events;
    const auto take = [&](std::string_view data) { events.emplace_back(data); };
    ASSERT_TRUE(again.Add(std::string_view(stream).substr(0, cut), take));
    ASSERT_TRUE(again.Add(std::string_view(stream).substr(cut), take));
    ASSERT_EQ(events, whole) << cut;
  }
  EXPECT_EQ(ParseStreamEvent(whole[0]).kind, StreamEvent::Kind::kOther);
  EXPECT_TRUE(ParseStreamEvent(whole[0]).has_choices);
  EXPECT_EQ(ParseStreamEvent(whole[1]).text, "h\u00e9");
  EXPECT_EQ(ParseStreamEvent(whole[2]).kind, StreamEvent::Kind::kBad);
  const StreamEvent usage = ParseStreamEvent(whole[3]);
  EXPECT_EQ(usage.prompt_tokens, 3);
  EXPECT_EQ(usage.completion_tokens, 4);
  EXPECT_EQ(usage.cached_tokens, 2);
  EXPECT_EQ(ParseStreamEvent(whole[4]).kind, StreamEvent::Kind::kDone);
}

TEST(EventStream, TakesWhateverServersSend) {
  EXPECT_EQ(ParseStreamEvent(R"({"error": {"message": "full", "code": 1}})").text, "full");
  EXPECT_EQ(ParseStreamEvent(R"({"error": "flat"})").kind, StreamEvent::Kind::kError);
  EXPECT_EQ(ParseStreamEvent(R"({"choices": [{"text": "t", "finish_reason": "stop"}]})").finish_reason, "stop");
  EXPECT_EQ(ParseStreamEvent(R"({"choices": [{"delta": {"tool_calls": [{"id": "x"}]}}]})").kind,
            StreamEvent::Kind::kContent);
  EXPECT_EQ(ParseStreamEvent(R"({"choices": [{"delta": {"reasoning_content": "r"}}]})").kind,
            StreamEvent::Kind::kContent);
  for (const char* odd : {R"({"choices": 3, "usage": 4})", R"({"choices": [null, 3, {"delta": [], "text": 7}]})",
                          R"({"usage": {"prompt_tokens": "many", "completion_tokens": 1e300}})",
                          R"({"usage": {"prompt_tokens": 18446744073709551615}})", "{}"}) {
    EXPECT_EQ(ParseStreamEvent(odd).kind, StreamEvent::Kind::kOther) << odd;
    EXPECT_EQ(ParseStreamEvent(odd).prompt_tokens, -1) << odd;
  }
  for (const char* bad : {"", "[1]", "{", "null"})
    EXPECT_EQ(ParseStreamEvent(bad).kind, StreamEvent::Kind::kBad) << bad;
  EXPECT_EQ(ErrorText("{\"detail\": \"gone\"}"), "gone");
  EXPECT_EQ(ErrorText("<html>"), "<html>");
  EXPECT_LT(ErrorText(std::string(5000, 'x')).size(), 600u);
  SseParser parser;
  EXPECT_FALSE(parser.Add(std::string(kMaxEventBytes + 1, 'x'), [](std::string_view) {}));
}

TEST(Statistics, StudentsQuantilesAreThoseOfTheTables) {
  EXPECT_NEAR(StudentQuantile(0.975, 1), 12.706204736432095, 1e-8);
  EXPECT_NEAR(StudentQuantile(0.975, 2), 4.302652729911275, 1e-9);
  EXPECT_NEAR(StudentQuantile(0.975, 4), 2.7764451051977987, 1e-9);
  EXPECT_NEAR(StudentQuantile(0.95, 30), 1.6972608865939947, 1e-9);
  EXPECT_NEAR(StudentQuantile(0.995, 7), 3.4994832973505026, 1e-9);
  EXPECT_NEAR(StudentQuantile(0.025, 4), -2.7764451051977987, 1e-9);
  EXPECT_NEAR(StudentQuantile(0.975, 100000), 1.96, 1e-4);
  EXPECT_NEAR(StudentQuantile(0.5, 3), 0, 1e-9);
  const std::vector<double> one = {3};
  EXPECT_EQ(StudentMean(one, 0.95).confidence, 0);
}

TEST(Statistics, IntervalsOfQuantilesAndMeansCoverAsTheySay) {
  Rng rng(99);
  for (const auto& [n, fraction] : {std::pair(60, 0.5), std::pair(200, 0.9), std::pair(600, 0.99)}) {
    const double truth = -std::log1p(-fraction);  // of the exponential distribution
    const int repeats = 2000;
    int covered = 0;
    for (int r = 0; r < repeats; ++r) {
      std::vector<double> values(static_cast<size_t>(n));
      for (double& value : values) value = DrawExponential(rng);
      const Interval interval = QuantileInterval(values, fraction, 0.95);
      EXPECT_LE(interval.low, interval.value);
      EXPECT_GE(interval.high, interval.value);
      covered += interval.low <= truth && truth <= interval.high;
      if (r == 0) {
        EXPECT_NEAR(interval.confidence, 0.95, n == 600 ? 0.03 : 1e-12);
      }
    }
    // At least 95 %, and not much more: the ends are whole ranks. 4 standard errors are 2 %.
    EXPECT_GT(covered, 0.93 * repeats) << n;
    EXPECT_LT(covered, 0.995 * repeats) << n;
  }
  const std::vector<double> few = {1, 2, 3};
  EXPECT_LT(QuantileInterval(few, 0.99, 0.95).confidence, 0.1);  // nothing is known of the far end
  int covered = 0;
  for (int r = 0; r < 4000; ++r) {
    std::vector<double> values(5);
    for (double& value : values) value = 7 + DrawNormal(rng);
    const Interval interval = StudentMean(values, 0.95);
    covered += interval.low <= 7 && 7 <= interval.high;
  }
  EXPECT_NEAR(covered / 4000.0, 0.95, 0.015);
}

}  // namespace
}  // namespace hone
