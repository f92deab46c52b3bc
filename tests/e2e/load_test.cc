// hone load, ledger and gate as scripts run them, against hone serve and against nobody. Times are never judged.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "e2e/program.h"

namespace {

using namespace hone::e2e;
using nlohmann::json;

// hone serve builtin, killed at the end.
class LoadedServer : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::string log = TempPath("load_serve.log");
    const std::string line =
        "'" HONE_PROGRAM "' serve builtin --port 0 >/dev/null 2>'" + log + "' </dev/null & echo $!";
    std::FILE* pipe = popen(line.c_str(), "r");
    ASSERT_NE(pipe, nullptr);
    ASSERT_EQ(std::fscanf(pipe, "%d", &pid_), 1);
    pclose(pipe);
    const std::string before = "http://127.0.0.1:";
    while (url_.empty() && kill(pid_, 0) == 0) {  // until it listens or has ended, however long that takes
      const std::string text = ReadAll(log);
      const size_t at = text.find(before), end = text.find_first_of(" \n", at);
      if (at != std::string::npos && end != std::string::npos) url_ = text.substr(at, end - at);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ASSERT_FALSE(url_.empty()) << ReadAll(log);
  }
  static void TearDownTestSuite() {
    if (pid_ > 0) kill(pid_, SIGKILL);
  }
  static inline int pid_ = 0;
  static inline std::string url_;
};

TEST_F(LoadedServer, ClosedAndOpenLoopsAnswerEverything) {
  const std::string records = TempPath("records.jsonl");
  const Outcome closed = Hone("load " + url_ +
                              " --concurrency 3 --requests 12 --input 40 --output 5 --seeds 1,2 --json "
                              "--slo ttft=600s,tpot=600s --records '" +
                              records + "'");
  ASSERT_EQ(closed.code, 0) << closed.err;
  const json result = json::parse(closed.out);
  for (const char* key : {"server",    "api",          "model",       "definitions",  "dataset",     "seeds",
                          "slo",       "interval",     "arrivals",    "completed",    "failed",      "cancelled",
                          "unsent",    "duration_s",   "request_s",   "output_tok_s", "total_tok_s", "goodput_s",
                          "met_share", "ttft_ms",      "tpot_ms",     "itl_ms",       "e2e_ms",      "errors",
                          "client",    "same_machine", "interrupted", "gave_up",      "environment"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_EQ(result["completed"], 24);
  EXPECT_EQ(result["failed"], 0);
  EXPECT_EQ(result["output_tokens"], 24 * 5);  // ignore_eos: answers are as long as was asked
  EXPECT_EQ(result["output_tokens_from"], "usage");
  EXPECT_EQ(result["met_share"], 1);
  EXPECT_EQ(result["definitions"], "vllm bench serve");
  EXPECT_EQ(result["active_most"], 3);
  EXPECT_NEAR(result["prompt_tokens"].get<double>() / 24, 40, 12);  // words were counted out to reach --input
  EXPECT_EQ(result["ttft_ms"]["too_few_for"], json::parse(R"(["p95", "p99", "p999"])"));
  EXPECT_LE(result["ttft_ms"]["p50"]["value"], result["ttft_ms"]["p99"]["value"]);
  const std::string lines = ReadAll(records);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 24);
  const Outcome open =
      Hone("load " + url_ + " --chat --rate 200 --burstiness 0.5 --requests 10 --input 30 --output 4 --json");
  ASSERT_EQ(open.code, 0) << open.err;
  EXPECT_EQ(json::parse(open.out)["arrivals"]["kind"], "gamma");
  EXPECT_EQ(json::parse(open.out)["completed"], 10);
}

TEST_F(LoadedServer, ASeedRepeatsTheSchedule) {
  const auto due = [&](const std::string& seed) {
    const std::string records = TempPath("due.jsonl");
    EXPECT_EQ(Hone("load " + url_ + " --rate 300 --requests 8 --input 20 --output 2 --seeds " + seed + " --records '" +
                   records + "'")
                  .code,
              0);
    std::vector<std::pair<int, double>> times;
    std::istringstream lines(ReadAll(records));
    for (std::string line; std::getline(lines, line);) {
      const json record = json::parse(line);
      times.emplace_back(record["task"].get<int>(), record["due_ms"].get<double>());
    }
    std::sort(times.begin(), times.end());
    return times;
  };
  const auto first = due("7");
  EXPECT_EQ(first.size(), 8u);
  EXPECT_EQ(due("7"), first);
  EXPECT_NE(due("8"), first);
}

TEST_F(LoadedServer, TracesTurnsFilesAndSweeps) {
  const std::string trace =
      WriteTemp("trace.jsonl",
                "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 2, \"hash_ids\": [4, 5]}\n"
                "{\"timestamp\": 50, \"input_length\": 600, \"output_length\": 3, \"hash_ids\": [4, 6]}\n");
  const Outcome replay = Hone("load " + url_ + " --trace '" + trace + "' --json");
  ASSERT_EQ(replay.code, 0) << replay.err;
  EXPECT_EQ(json::parse(replay.out)["output_tokens"], 5);
  EXPECT_EQ(json::parse(replay.out)["dataset"]["digest"].get<std::string>().size(), 64u);
  const Outcome turns =
      Hone("load " + url_ + " --chat --dataset multi-turn --turns 3 --requests 2 --input 20 --output 3 --json");
  ASSERT_EQ(turns.code, 0) << turns.err;
  EXPECT_EQ(json::parse(turns.out)["completed"], 6);
  EXPECT_EQ(json::parse(turns.out)["ttft_ms_by_turn"].size(), 3u);
  const std::string file = WriteTemp(
      "sharegpt.jsonl",
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"hi\"}, {\"from\": \"gpt\", \"value\": \"a b\"}]}\n");
  const Outcome from_file = Hone("load " + url_ + " --dataset '" + file + "' --requests 3 --json");
  ASSERT_EQ(from_file.code, 0) << from_file.err;
  EXPECT_EQ(json::parse(from_file.out)["completed"], 3);
  const Outcome sweep = Hone("load " + url_ + " --sweep 2 --concurrency 4 --requests 8 --input 20 --output 2 --json");
  ASSERT_EQ(sweep.code, 0) << sweep.err;
  EXPECT_EQ(json::parse(sweep.out)["points"].size(), 4u);
  EXPECT_EQ(Hone("load " + url_ + " --shared-words 30 --requests 3 --input 40 --output 2").code, 0);
}

TEST_F(LoadedServer, ErrorsOfTheServerAreCountedByKind) {
  const Outcome unknown = Hone("load " + url_ + " --model nobody --requests 2");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_TRUE(Contains(unknown.err, "http_404") && Contains(unknown.err, "nobody")) << unknown.err;
  // The second prompt does not fit into the context.
  std::string longer;
  for (int i = 0; i < 6000; ++i) longer += "word ";
  const std::string file =
      WriteTemp("mixed.jsonl", "{\"prompt\": \"hi\", \"max_tokens\": 2}\n{\"prompt\": \"" + longer + "\"}\n");
  const Outcome mixed = Hone("load " + url_ + " --dataset '" + file + "' --requests 2 --warmup 0 --json");
  ASSERT_EQ(mixed.code, 0) << mixed.err;
  const json result = json::parse(mixed.out);
  EXPECT_EQ(result["completed"], 1);
  ASSERT_EQ(result["errors"].size(), 1u);
  EXPECT_EQ(result["errors"][0]["kind"], "http_400");
  EXPECT_TRUE(Contains(result["errors"][0]["first"], "context")) << result["errors"];
}

TEST_F(LoadedServer, RunsAreEnteredShownComparedAndExported) {
  const std::string ledger = TempPath("runs.sqlite");
  std::filesystem::remove(ledger);
  const std::string in = "HONE_LEDGER='" + ledger + "'";
  ASSERT_EQ(Hone("load " + url_ + " --requests 2 --input 20 --output 2 --label first --api-key hidden", in).code, 0);
  ASSERT_EQ(Hone("load " + url_ + " --requests 2 --input 20 --output 3 --parent 1", in).code, 0);
  const json list = json::parse(Hone("ledger list --json", in).out);
  ASSERT_EQ(list["entries"].size(), 2u);
  EXPECT_EQ(list["entries"][0]["parent"], 1);
  EXPECT_EQ(list["entries"][1]["label"], "first");
  const Outcome shown = Hone("ledger show 1 --json", in);
  EXPECT_FALSE(Contains(shown.out, "hidden")) << shown.out;
  EXPECT_TRUE(Contains(shown.out, "--api-key ***"));
  const json entry = json::parse(shown.out);
  EXPECT_EQ(entry["kind"], "load");
  EXPECT_EQ(entry["result"]["completed"], 2);
  EXPECT_TRUE(entry["environment"].contains("isa"));
  EXPECT_GT(entry["figures"].size(), 10u);
  EXPECT_EQ(json::parse(Hone("ledger compare 1 2 --json", in).out)["figures"].size(), entry["figures"].size());
  const std::string lines = Hone("ledger export", in).out;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2);
  EXPECT_TRUE(Contains(Hone("ledger export --csv", in).out, "ttft_ms.p99"));
  EXPECT_EQ(Hone("ledger show 9", in).code, 3);
  EXPECT_EQ(Hone("ledger show x", in).code, 2);
  EXPECT_EQ(Hone("ledger list", "HONE_LEDGER='" + TempPath("none.sqlite") + "'").code, 3);
  // A ledger that cannot be written costs one warning.
  const Outcome warned = Hone("load " + url_ + " --requests 1 --input 20 --output 2 --ledger /proc/none/x");
  EXPECT_EQ(warned.code, 0) << warned.err;
  EXPECT_TRUE(Contains(warned.err, "not in the ledger")) << warned.err;
}

TEST(Load, NobodyThere) {
  const Outcome nobody = Hone("load http://127.0.0.1:9 --requests 3");
  EXPECT_EQ(nobody.code, 1);
  EXPECT_TRUE(Contains(nobody.err, "cannot be reached")) << nobody.err;
  EXPECT_EQ(nobody.out, "");
}

TEST(Load, WrongUsageIsSaidBeforeTheServerIsAsked) {
  for (const char* wrong :
       {"load", "load nowhere", "load http://127.0.0.1:9 --arrivals often", "load http://127.0.0.1:9 --slo x=1",
        "load http://127.0.0.1:9 --arrivals poisson", "load http://127.0.0.1:9 --burstiness 2",
        "load http://127.0.0.1:9 --arrivals closed --rate 3", "load http://127.0.0.1:9 --rate 0", "load http://127.0.0.1:9 --seeds 1,2,1",
        // NaN is outside of no range.
        "load http://127.0.0.1:9 --rate nan", "load http://127.0.0.1:9 --timeout NAN", "load http://127.0.0.1:9 --temperature -nan",
        "simulate poisson --rate 1,nan --shape llama-3-8b --card h100", "run builtin-draft -p x --temperature nan"}) {
    EXPECT_EQ(Hone(wrong).code, 2) << wrong;
  }
  EXPECT_EQ(Hone("load http://127.0.0.1:9 --trace /no/such/file").code, 3);
  EXPECT_EQ(Hone("load http://127.0.0.1:9 --trace '" + WriteTemp("empty.jsonl", "") + "'").code, 3);
}

// Whatever is wrong with a URL, one line says so before anybody is asked.
TEST(Load, AUrlThatIsNoneIsWrongUsage) {
  for (const char* url : {"http://[::1", "http://[::1]x", "http://[zz]:80", "http://[]:80", "http://h:0x1", "http://h:99999", "http://h:-1",
                          "http://h:80:90", "http://a b", "http://a\tb", "http://h/a b", "http://", "http://:80", "http://@", "http://u@:80",
                          "http://h?x=1", "http://h/p#f", "http://h<x", "ftp://h", "file:///etc/passwd", "h:80", "//h", "http:/h", "http:h",
                          "HTTP//h", " http://h", "http://h\nx", "-", ""}) {
    for (const std::string& before : {std::string(), "HONE_HUB='" + std::string(url) + "'"}) {
      if (!before.empty() && *url == 0) continue;  // not set
      const Outcome outcome = Hone(before.empty() ? "load '" + std::string(url) + "'" : "pull some/model", before);
      EXPECT_EQ(outcome.code, 2) << before << " " << url << ": " << outcome.err;
      EXPECT_TRUE(outcome.out.empty());
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n') - std::count(url, url + std::strlen(url), '\n'), 1) << outcome.err;
    }
  }
}

std::string Rules(const std::string& name, const std::string& text) {
  return "--rules '" + WriteTemp(name, text) + "'";
}

TEST(Gate, StoredResultsAndEntriesAreComparedWithoutRunning) {
  const auto result = [](const char* name, double p50, double p99) {
    const auto at = [](double x) {
      return "{\"value\": " + std::to_string(x) + ", \"low\": " + std::to_string(0.98 * x) +
             ", \"high\": " + std::to_string(1.02 * x) + ", \"confidence\": 0.95}";
    };
    return "'" + WriteTemp(name, "{\"ttft_ms\": {\"p50\": " + at(p50) + ", \"p99\": " + at(p99) + "}, \"failed\": 0}") +
           "'";
  };
  const std::string base = result("base.json", 100, 200), slow = result("slow.json", 120, 240),
                    tail = result("tail.json", 80, 260),
                    rules = Rules("rules.toml", "[[rule]]\nfigure = \"ttft_ms.*\"\nratio_most = 1.1\n");
  EXPECT_EQ(Hone("gate " + base + " " + base + " " + rules).code, 0);
  const Outcome failed = Hone("gate " + base + " " + slow + " " + rules + " --json");
  EXPECT_EQ(failed.code, 10) << failed.err;
  EXPECT_EQ(json::parse(failed.out)["verdict"], "fails");
  const Outcome worse_tail =
      Hone("gate " + base + " " + tail + " " +
           Rules("tails.json", "{\"rules\": [{\"figure\": \"ttft_ms.p50\", \"ratio_most\": 1}]}"));
  EXPECT_EQ(worse_tail.code, 10);
  EXPECT_TRUE(Contains(worse_tail.out, "ttft_ms.p99")) << worse_tail.out;
  EXPECT_EQ(Hone("gate " + base + " " + slow + " " +
                 Rules("close.toml", "[[rule]]\nfigure = \"ttft_ms.p50\"\nratio_most = 1.2\n"))
                .code,
            11);
  EXPECT_EQ(Hone("gate " + base + " " + base + " " +
                 Rules("none.toml", "[[rule]]\nfigure = \"tpot_ms.p50\"\nratio_most = 1.2\n"))
                .code,
            11);
  EXPECT_EQ(Hone("gate " + base + " builtin " + rules).code, 2);
  EXPECT_EQ(Hone("gate " + base + " " + base).code, 2);
  EXPECT_EQ(Hone("gate " + base + " " + base + " " + Rules("bad.toml", "x")).code, 3);
  EXPECT_EQ(Hone("gate 1 2 " + rules, "HONE_LEDGER='" + TempPath("no_ledger.sqlite") + "'").code, 3);
}

TEST(Gate, ModelsAreMeasuredSideBySide) {
  const std::string text = WriteTemp("gate.txt", [] {
    std::string words;
    for (int i = 0; i < 700; ++i)
      words += "the quick brown fox jumps over lazy dog number " + std::to_string(i) + ".\n";
    return words;
  }());
  const std::string ledger = TempPath("gate.sqlite");
  std::filesystem::remove(ledger);
  const std::string before = "HONE_LEDGER='" + ledger + "' XDG_CACHE_HOME='" + TempPath("kept") + "'";
  // A model against itself: no divergence. Latencies depend on what else the machine does and two seeds bound their
  // ratio hardly at all, so the rule on them asks only that they were measured.
  const std::string same =
      Rules("same.json",
            "{\"rules\": [{\"figure\": \"kld.mean\", \"most\": 1e-6}, {\"figure\": \"ppl\", \"ratio_most\": 1.001},"
            "{\"figure\": \"ttft_ms.p50\", \"ratio_most\": 1e300}], \"tails\": false,"
            "\"measure\": {\"text\": \"" +
                text + "\", \"chunks\": 2, \"seeds\": [1, 2], \"requests\": 6, \"input\": 20, \"output\": 3}}");
  const Outcome held = Hone("gate builtin builtin --json " + same, before);
  ASSERT_EQ(held.code, 0) << held.err << held.out;
  const json report = json::parse(held.out);
  EXPECT_EQ(report["verdict"], "holds");
  EXPECT_EQ(report["findings"].size(), 3u);
  // Another model is not the same.
  const std::string other = Rules("other.json",
                                  "{\"rules\": [{\"figure\": \"kld.mean\", \"most\": 1e-6}],"
                                  "\"measure\": {\"text\": \"" +
                                      text + "\", \"chunks\": 2}}");
  EXPECT_EQ(Hone("gate builtin builtin-draft " + other, before).code, 10);
  const json list = json::parse(Hone("ledger list --json", before).out);
  EXPECT_EQ(list["entries"][0]["kind"], "gate");
  EXPECT_EQ(list["entries"][0]["outcome"], "fails");
  // A rule on cells: the matrix of both, and every cell of it is judged. Two rounds cannot show a difference, so a bound that
  // nothing reaches is what holds, and one that everything breaks is what fails.
  const auto matrix = [](const char* bound) {
    return std::string("{\"rules\": [{\"figure\": \"ttft_ms.p50[*]\", ") + bound + "}], \"tails\": false, " +
           "\"matrix\": {\"input\": [16, 32], \"output\": [3], \"concurrency\": [1, 2], \"rounds\": 2}}";
  };
  const Outcome cells = Hone("gate builtin builtin --json " + Rules("matrix.json", matrix("\"ratio_most\": 1e300")), before);
  ASSERT_EQ(cells.code, 0) << cells.err << cells.out;
  EXPECT_EQ(json::parse(cells.out)["findings"].size(), 4u);
  EXPECT_EQ(json::parse(cells.out)["findings"][3]["figure"], "ttft_ms.p50[input=32,output=3,concurrency=2]");
  const Outcome broken = Hone("gate builtin builtin " + Rules("matrix.json", matrix("\"ratio_most\": 0")), before);
  EXPECT_EQ(broken.code, 10) << broken.out;
  EXPECT_TRUE(Contains(broken.out, "ttft_ms.p50[input=16,output=3,concurrency=1]")) << broken.out;
  EXPECT_EQ(
      Hone("gate builtin builtin " + Rules("no_text.json", "{\"rules\": [{\"figure\": \"ppl\", \"most\": 9}]}")).code,
      2);
}

// One of the two servers of a gate goes away: what was measured until then is judged and kept, one error says who went and how.
TEST(Gate, AServerThatGoesAwayIsNamed) {
  const std::string pid_file = TempPath("gate.pid"), ledger = TempPath("left.sqlite");
  std::filesystem::remove(ledger);
  json measure = {{"requests", 4}, {"input", 8}, {"output", 2}, {"seeds", json::array()}};
  for (int seed = 1; seed <= 300; ++seed) measure["seeds"].push_back(seed);  // far more than are done when the first is seen
  const std::string rules = Rules("left.json", json{{"rules", {{{"figure", "ttft_ms.p50"}, {"ratio_most", 1e300}}}}, {"tails", false}, {"measure", measure}}.dump());
  Outcome outcome;
  std::atomic<bool> ended = false;
  std::thread gate([&] {
    outcome = Hone("gate builtin-draft builtin-draft -v --json " + rules, "export HONE_LEDGER='" + ledger + "'; echo $$ >'" + pid_file + "'; exec");
    ended = true;
  });
  while (!ended && !Contains(ReadAll(TempPath("err")), "seed 1: both are measured")) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  // The newest child of the gate serves NEW.
  const int parent = std::stoi(ReadAll(pid_file));
  int newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    const std::string stat = pid > 0 ? ReadAll(entry.path().string() + "/stat") : "";
    const size_t name_end = stat.rfind(')');
    int of = 0;
    if (name_end != std::string::npos && std::sscanf(stat.c_str() + name_end, ") %*c %d", &of) == 1 && of == parent) newest = std::max(newest, pid);
  }
  if (newest > 0) kill(newest, SIGKILL);
  gate.join();
  EXPECT_GT(newest, 0);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(Contains(outcome.err, "builtin-draft: seed ") && Contains(outcome.err, "hone serve was ended by signal 9")) << outcome.err;
  const json report = json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << outcome.out;
  EXPECT_EQ(report["findings"][0]["figure"], "ttft_ms.p50") << report["findings"];
  EXPECT_TRUE(std::any_of(report["figures"].begin(), report["figures"].end(), [](const json& figure) { return figure["name"] == "ttft_ms.p50"; }));
  EXPECT_NE(report["verdict"], "holds") << "not all was measured";
  EXPECT_EQ(json::parse(Hone("ledger list --json --ledger '" + ledger + "'").out)["entries"][0]["outcome"], "failed");
}

}  // namespace
