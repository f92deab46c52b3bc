// hone load against a server that is not hone's (foreign_server.h): what it counts and times is held against what that
// server knows it did. A client's time of an event is never before the server's, on however slow a machine: no other
// assumption is made about time.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "e2e/foreign_server.h"
#include "e2e/program.h"

namespace {

using namespace hone::e2e;
using nlohmann::json;

std::vector<json> Lines(const std::string& path) {
  std::vector<json> lines;
  std::istringstream text(ReadAll(path));
  for (std::string line; std::getline(text, line);) lines.push_back(json::parse(line));
  return lines;
}

// `each` requests of every kind, 6 tokens each.
std::string Requests(const std::string& name, const std::vector<std::string>& kinds, int each) {
  std::string lines;
  for (const std::string& kind : kinds) {
    for (int i = 0; i < each; ++i) lines += json{{"prompt", kind + " please"}, {"max_tokens", 6}}.dump() + "\n";
  }
  return WriteTemp(name, lines);
}

// numpy's default: between the neighbours of fraction * (n - 1).
double Percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  const double at = fraction * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(at);
  return values[low] + (at - static_cast<double>(low)) * (values[std::min(low + 1, values.size() - 1)] - values[low]);
}

TEST(ForeignServer, CountsAndTimesAreThoseOfTheServer) {
  ForeignServer server;
  ASSERT_NE(server.url(), "");
  const std::vector<std::string> kinds = {"plain", "many", "usage", "crlf", "split", "role", "undone"};
  const std::string file = Requests("kinds.jsonl", kinds, 3), records = TempPath("kinds_records.jsonl");
  const Outcome outcome = Hone("load " + server.url() + " --dataset '" + file + "' --requests 21 --warmup 0 --json --records '" + records + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["completed"], 21);
  EXPECT_EQ(result["failed"], 0) << result["errors"];
  EXPECT_EQ(result["model"], "foreign");
  std::vector<Served> served = server.served();
  ASSERT_EQ(served.size(), 23u);  // two that count the tokens of words come first
  served.erase(served.begin(), served.begin() + 2);
  const std::vector<json> lines = Lines(records);
  ASSERT_EQ(lines.size(), served.size());  // one at a time, so both have the same order
  std::vector<double> ttft, e2e, gaps, server_ttft;
  int64_t tokens = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Served& did = served[i];
    SCOPED_TRACE(did.kind);
    const int chunks = did.kind == "many" || did.kind == "usage" ? 2 : 6;
    EXPECT_EQ(did.chunks, chunks);
    EXPECT_EQ(did.tokens, 6);
    EXPECT_EQ(lines[i]["output_tokens"], did.kind == "usage" ? did.tokens : did.chunks);  // nobody counts tokens but usage
    EXPECT_EQ(lines[i]["prompt_tokens"], did.kind == "usage" ? 5 : -1);
    EXPECT_EQ(lines[i]["finish_reason"], "length");
    EXPECT_EQ(lines[i]["gaps_ms"].size(), static_cast<size_t>(did.chunks - 1));
    tokens += lines[i]["output_tokens"].get<int64_t>();
    ttft.push_back(lines[i]["ttft_ms"]), e2e.push_back(lines[i]["e2e_ms"]);
    server_ttft.push_back(1e3 * (did.first_s - did.received_s));
    double sum = lines[i]["ttft_ms"];
    for (const json& gap : lines[i]["gaps_ms"]) gaps.push_back(gap), sum += gap.get<double>();
    EXPECT_GE(ttft.back() + 0.01, server_ttft.back());  // written to the microsecond
    EXPECT_GE(e2e.back() + 0.01, 1e3 * (did.last_s - did.received_s));
    EXPECT_GE(e2e.back() + 0.01, sum);  // the last chunk has no text, only the finish
  }
  EXPECT_EQ(result["output_tokens"], tokens);
  EXPECT_EQ(result["ttft_ms"]["count"], 21);
  EXPECT_EQ(result["itl_ms"]["count"], gaps.size());
  EXPECT_EQ(gaps.size(), 15u * 5 + 6u * 1);
  for (const auto& [key, fraction] : {std::pair("p50", 0.5), std::pair("p90", 0.9), std::pair("p99", 0.99)}) {
    for (const auto& [name, values] : {std::pair("ttft_ms", &ttft), std::pair("e2e_ms", &e2e), std::pair("itl_ms", &gaps)}) {
      const double want = Percentile(*values, fraction);
      EXPECT_NEAR(result[name][key]["value"].get<double>(), want, 2e-3 * want + 2e-3) << name << key;
    }
    EXPECT_GE(result["ttft_ms"][key]["value"].get<double>() * 1.001 + 0.01, Percentile(server_ttft, fraction)) << key;
  }
  double together_ms = 0;
  for (const double one : e2e) together_ms += one;
  EXPECT_GE(result["duration_s"].get<double>() * 1.001 + 0.001, together_ms / 1e3);  // one at a time
  std::filesystem::remove(records);
}

TEST(ForeignServer, EveryTroubleHasItsKind) {
  ForeignServer server;
  const std::map<std::string, std::string> errors = {{"busy", "http_429"}, {"error", "stream_error"}, {"cut", "stream_broken"}, {"short", "stream_broken"},
                                                     {"whole", "not_a_stream"}, {"bad", "bad_reply"}, {"empty", "no_tokens"},
                                                     {"down", "http_500"}, {"oldcut", "stream_broken"}, {"garbage", "stream_broken"}, {"endless", "stream_broken"},
                                                     {"noise", "bad_reply"}, {"number", "bad_reply"}, {"nohttp", "stream_broken"}, {"headers", "stream_broken"}};
  std::vector<std::string> kinds = {"plain", "old", "noend"};  // an answer that is whole is one, however its connection ends
  std::map<std::string, int> want;
  for (const auto& [kind, error] : errors) kinds.push_back(kind), want[error] += 2;
  const std::string file = Requests("troubles.jsonl", kinds, 2), records = TempPath("trouble_records.jsonl");
  const Outcome outcome = Hone("load " + server.url() + " --dataset '" + file + "' --requests 36 --concurrency 2 --warmup 0 --json --records '" + records + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["completed"], 6);
  EXPECT_EQ(result["failed"], 30);
  std::map<std::string, int> got, recorded;
  for (const json& error : result["errors"]) got[error["kind"]] = error["count"];
  EXPECT_EQ(got, want) << result["errors"];
  for (const json& line : Lines(records)) {
    if (line.contains("error")) ++recorded[line["error"]];
  }
  EXPECT_EQ(recorded, want);
  EXPECT_EQ(result["ttft_ms"]["count"], 6);  // of answered requests only
  std::filesystem::remove(records);
}

// Servers that accept and do not answer end with --timeout, each for itself.
TEST(ForeignServer, WhoDoesNotAnswerIsNotWaitedForLonger) {
  ForeignServer server;
  const std::string file = Requests("hanging.jsonl", {"silent", "half", "drip"}, 2);
  const Outcome outcome = Hone("load " + server.url() + " --dataset '" + file + "' --requests 6 --concurrency 6 --warmup 0 --timeout 3 --json");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_TRUE(Contains(outcome.err, "no request was answered")) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["completed"], 0);
  ASSERT_EQ(result["errors"].size(), 1u) << result["errors"];
  EXPECT_EQ(result["errors"][0]["kind"], "timeout");
  EXPECT_EQ(result["errors"][0]["count"], 6);
}

// Nobody waits for ten minutes for the first answer of a server that gives none: a signal ends the asking for models, the counting
// of tokens and the warming up.
TEST(ForeignServer, ASignalBeforeTheFirstAnswerEnds) {
  const std::string pid_file = TempPath("early.pid");
  for (const int silent : {0, 1, 3}) {  // models, the first of two that count tokens, the first that warms up
    ForeignServer server;
    const auto end = [&] { return kill(std::stoi(ReadAll(pid_file)), SIGINT), false; };
    if (silent == 0) server.before_models = end;
    server.before_answer = [&](int number) { return number != silent || end(); };
    const Outcome outcome = Hone("load " + server.url() + " --requests 5 --input 20 --output 4 --json", "echo $$ >'" + pid_file + "'; exec");
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    EXPECT_TRUE(Contains(outcome.err, "stopped before")) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(ForeignServer, WhatItDoesNotKnowIsSaid) {
  ForeignServer server;
  const Outcome chat = Hone("load " + server.url() + " --chat --requests 2");  // it has completions only
  EXPECT_EQ(chat.code, 1);
  EXPECT_TRUE(Contains(chat.err, "http_404") && Contains(chat.err, "Not Found")) << chat.err;
  const std::string strict = "load " + server.url() + "/strict --model x --requests 2 --output 3 --json";
  const Outcome eos = Hone(strict), usage = Hone(strict + " --no-ignore-eos"), good = Hone(strict + " --no-ignore-eos --no-usage");
  EXPECT_EQ(eos.code, 1);
  EXPECT_TRUE(Contains(eos.err, "--no-ignore-eos leaves it out")) << eos.err;
  EXPECT_EQ(usage.code, 1);
  EXPECT_TRUE(Contains(usage.err, "--no-usage leaves it out")) << usage.err;
  ASSERT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(json::parse(good.out)["output_tokens"], 6);
  EXPECT_EQ(json::parse(good.out)["output_tokens_from"], "chunks");
}

// Two requests to count tokens, none to warm up, then one at a time: the sixth is never answered.
constexpr int kBefore = 2, kAnswered = 3;

TEST(ForeignServer, AnInterruptedLoadKeepsWhatItHas) {
  const std::string pid_file = TempPath("load.pid"), ledger = TempPath("interrupted.sqlite");
  std::filesystem::remove(ledger);
  ForeignServer server;
  server.before_answer = [&](int number) {
    if (number <= kBefore + kAnswered) return true;
    kill(std::stoi(ReadAll(pid_file)), SIGINT);
    return false;
  };
  const Outcome outcome = Hone("load " + server.url() + " --requests 50 --warmup 0 --input 20 --output 4 --json",
                               "export HONE_LEDGER='" + ledger + "'; echo $$ >'" + pid_file + "'; exec");
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["interrupted"], true);
  EXPECT_EQ(result["completed"], kAnswered);
  EXPECT_EQ(result["cancelled"], 1);
  EXPECT_EQ(result["unsent"], 50 - kAnswered - 1);
  const Outcome list = Hone("ledger list --json --ledger '" + ledger + "'");
  ASSERT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(json::parse(list.out)["entries"][0]["outcome"], "interrupted");
}

TEST(ForeignServer, AServerThatGoesAwayLeavesWhatItAnswered) {
  ForeignServer server;
  server.before_answer = [&](int number) {
    if (number == kBefore + kAnswered) server.Leave();  // this one is still answered
    return true;
  };
  const std::string page = TempPath("left.html");
  const Outcome outcome = Hone("load " + server.url() + " --requests 50 --warmup 0 --input 20 --output 4 --json --html '" + page + "'");
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["completed"], kAnswered);
  EXPECT_NE(result["gave_up"], "");
  EXPECT_GT(result["failed"], 0);
  EXPECT_TRUE(Contains(ReadAll(page), "request_s")) << "the page has the figures until then";
  std::filesystem::remove(page);
}

}  // namespace
