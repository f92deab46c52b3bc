// The ledger keeps what it is given, takes several writers at once, and refuses files that are not its own.
#include "measure/ledger/ledger.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/test_shared.h"
#include "measure/ledger/entries.h"

namespace hone {
namespace {

using nlohmann::json;

std::string Fresh(const std::string& name) {
  const std::string path = TestPath("ledger_" + name);
  for (const char* end : {"", "-wal", "-shm"}) std::filesystem::remove(path + end);
  return path;
}

LedgerEntry Sample() {
  LedgerEntry entry;
  entry.kind = "eval kld";
  entry.command = "hone eval kld 'a b'";
  entry.model = "tiny";
  entry.model_digest = "abcdef";
  entry.recipe = "Q4_K_M";
  entry.dataset = "wiki";
  entry.dataset_digest = "0123";
  entry.seed = 18446744073709551615u;
  entry.load = "windows of 512";
  entry.environment = "{\"cpu\": \"x\", \"threads\": 2}";
  entry.figures = {{"kld.mean", {0.02, 0.01, 0.03, 0.95}, Direction::kLower},
                   {"ppl", {NAN, NAN, NAN, 0}, Direction::kLower}};
  entry.failures = {{"wrong answer", "item 3", "got \"7\", wanted é", 2}};
  entry.result = "{\"ppl\": 5}";
  return entry;
}

void Sql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
}

std::string Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Ledger, KeepsEverythingOfAnEntry) {
  const std::string path = Fresh("keeps");
  {
    const auto ledger = Ledger::Open(path).value();
    EXPECT_EQ(ledger->Add(Sample()).value(), 1);
    LedgerEntry second = Sample();
    second.kind = "load";
    second.parent = 1;
    second.seed.reset();
    EXPECT_EQ(ledger->Add(second).value(), 2);
  }
  const auto ledger = Ledger::OpenToRead(path).value();
  const LedgerEntry got = ledger->Get(1).value(), want = Sample();
  EXPECT_EQ(got.kind, want.kind);
  EXPECT_EQ(got.command, want.command);
  EXPECT_EQ(got.model_digest, want.model_digest);
  EXPECT_EQ(got.seed, want.seed);
  EXPECT_EQ(got.environment, want.environment);
  EXPECT_EQ(got.result, want.result);
  EXPECT_EQ(got.time.size(), 20u);
  ASSERT_EQ(got.figures.size(), 2u);
  EXPECT_EQ(got.figures[0].interval.high, 0.03);
  EXPECT_EQ(got.figures[0].better, Direction::kLower);
  EXPECT_TRUE(std::isnan(got.figures[1].interval.value));  // no number is no zero
  ASSERT_EQ(got.failures.size(), 1u);
  EXPECT_EQ(got.failures[0].text, want.failures[0].text);
  EXPECT_EQ(got.failures[0].count, 2);
  EXPECT_EQ(ledger->Get(2).value().parent, 1);
  EXPECT_FALSE(ledger->Get(2).value().seed.has_value());
  EXPECT_EQ(ledger->Get(3).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ledger->List({}).value().size(), 2u);
  EXPECT_EQ(ledger->List({}).value()[0].id, 2);  // newest first
  EXPECT_EQ(ledger->List({"eval", "", 0}).value().size(), 1u);
  EXPECT_EQ(ledger->List({"", "abc", 0}).value().size(), 2u);
  EXPECT_EQ(ledger->List({"", "bcd", 0}).value().size(), 0u);
  EXPECT_EQ(ledger->List({"", "", 1}).value().size(), 1u);
  EXPECT_EQ(ledger->Newest("load", "abcdef").value()->id, 2);
  EXPECT_FALSE(ledger->Newest("load", "other").value().has_value());
  const json shown = json::parse(LedgerEntryJson(got));
  EXPECT_EQ(shown["environment"]["threads"], 2);
  EXPECT_EQ(shown["result"]["ppl"], 5);
  EXPECT_TRUE(shown["figures"][1]["value"].is_null());
  EXPECT_NE(LedgerEntryText(got).find("0.02 (0.01 - 0.03, 95 %)"), std::string::npos);
}

TEST(Ledger, SeveralProcessesWriteAtOnce) {
  const std::string path = Fresh("writers");
  constexpr int kWriters = 4, kEach = 25;
  std::vector<pid_t> children;
  for (int w = 0; w < kWriters; ++w) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {  // each opens the file, which none of them has made yet
      int failed = 0;
      for (int i = 0; i < kEach; ++i) {
        auto ledger = Ledger::Open(path);
        failed += !ledger.has_value() || !(*ledger)->Add(Sample()).has_value();
      }
      _exit(failed);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto ledger = Ledger::OpenToRead(path).value();
  EXPECT_EQ(ledger->List({}).value().size(), static_cast<size_t>(kWriters * kEach));
  EXPECT_EQ(ledger->Get(kWriters * kEach).value().figures.size(), 2u);
}

TEST(Ledger, LeavesWhatIsNotItsOwnAlone) {
  const std::string path = Fresh("damaged");
  EXPECT_EQ(Ledger::OpenToRead(path).error().code, ErrorCode::kNotFound);
  std::ofstream(path) << "this is no database, but long enough to be taken for one with some luck "
                      << std::string(4096, 'x');
  const std::string before = Bytes(path);
  EXPECT_EQ(Ledger::Open(path).error().code, ErrorCode::kInvalidInput);
  EXPECT_NE(Ledger::Open(path).error().message.find("left as it is"), std::string::npos);
  EXPECT_EQ(Bytes(path), before);

  const std::string other = Fresh("other");
  Sql(other, "CREATE TABLE t(x)");
  EXPECT_NE(Ledger::Open(other).error().message.find("no ledger of hone"), std::string::npos);

  const std::string newer = Fresh("newer");
  { ASSERT_TRUE(Ledger::Open(newer).value()->Add(Sample()).has_value()); }
  Sql(newer, "PRAGMA user_version = 99");
  const Error error = Ledger::Open(newer).error();
  EXPECT_EQ(error.code, ErrorCode::kUnsupported);
  EXPECT_NE(error.message.find("schema 99"), std::string::npos);

  // A page in the middle is overwritten: found when it is read, and nothing crashes.
  const std::string torn = Fresh("torn");
  {
    const auto ledger = Ledger::Open(torn).value();
    for (int i = 0; i < 200; ++i) ASSERT_TRUE(ledger->Add(Sample()).has_value());
  }
  Sql(torn, "PRAGMA wal_checkpoint(TRUNCATE)");
  const auto size = std::filesystem::file_size(torn);
  for (uintmax_t at = 4096; at + 4096 <= size; at += 4096) {
    std::fstream file(torn, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file << std::string(64, '\xff');
  }
  const auto ledger = Ledger::OpenToRead(torn);
  if (ledger.has_value()) {
    const auto entry = (*ledger)->Get(150);
    ASSERT_FALSE(entry.has_value());
    EXPECT_NE(entry.error().message.find(torn), std::string::npos);
  }
}

TEST(Ledger, ARunIsNeverLostForIt) {
  const std::string folder = TestPath("ledger_folder");
  std::filesystem::create_directories(folder);
  EXPECT_EQ(Enter(folder, Sample(), nullptr), 0);  // a folder is no file
  EXPECT_EQ(Enter("/proc/none/ledger", Sample(), nullptr), 0);
  EXPECT_EQ(Enter("off", Sample(), nullptr), 0);
  const std::string nested = folder + "/a/b/ledger.sqlite";
  std::filesystem::remove_all(folder + "/a");
  EXPECT_EQ(Enter(nested, Sample(), nullptr), 1);
  EXPECT_EQ(LedgerPath("off"), "");
  EXPECT_EQ(LedgerPath("x"), "x");
  std::filesystem::remove_all(folder);
}

TEST(Ledger, ComparesAndExports) {
  LedgerEntry a = Sample(), b = Sample();
  a.id = 1;
  b.id = 2;
  b.model = "tiny, \"new\"";
  b.environment = "{\"cpu\": \"y\", \"threads\": 2}";
  b.figures[0].interval = {0.05, 0.04, 0.06, 0.95};
  const json compared = json::parse(LedgerCompareJson(a, b));
  EXPECT_EQ(compared["figures"][0]["verdict"], "worse");
  EXPECT_EQ(compared["figures"][0]["ratio"], 2.5);
  ASSERT_EQ(compared["differences"].size(), 2u);
  EXPECT_EQ(compared["differences"][1]["what"], "environment.cpu");
  b.figures[0].interval.low = 0.02;
  EXPECT_EQ(json::parse(LedgerCompareJson(a, b))["figures"][0]["verdict"], "no difference shown");
  const std::string csv = LedgerCsv({a, b});
  EXPECT_NE(csv.find("\"tiny, \"\"new\"\"\""), std::string::npos);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 5);
}

TEST(Ledger, FiguresOfJsonResultsHaveTheSameNames) {
  const auto names = [](const std::string& text) {
    std::string joined;
    const std::vector<Figure> figures = FiguresOfJson(text).value();
    for (const Figure& figure : figures) joined += figure.name + " ";
    return joined;
  };
  EXPECT_EQ(names(R"({"rows": [{"work": "prefill", "tokens": 512, "tok_s": 9, "low": 8, "high": 10, "confidence": 0.97},
                               {"work": "decode", "context": 0, "batch": 4, "tok_s": 7}]})"),
            "prefill_tok_s[tokens=512] decode_tok_s[context=0,batch=4] ");
  EXPECT_EQ(
      names(
          R"({"ppl": 5, "ppl_stderr": 0.1, "kld": {"mean": 0.1, "stderr": 0.01}, "same_top": {"percent": 90, "stderr": 1}})"),
      "ppl kld.mean same_top_percent ");
  EXPECT_EQ(
      names(
          R"({"request_s": {"value": 3}, "ttft_ms": {"p99": {"value": 9, "low": 8, "high": 12, "confidence": 0.95}}, "failed": 0})"),
      "request_s ttft_ms.p99 failed ");
  for (const char* bad : {"", "[]", "{}", "{\"rows\": [3, {}]}"}) {
    EXPECT_EQ(FiguresOfJson(bad).error().code, ErrorCode::kInvalidInput) << bad;
  }
}

TEST(ModelDigest, TellsModelsApart) {
  const std::string a = TestPath("digest_a.gguf");
  std::ofstream(a) << std::string(3 << 20, 'a');
  const std::string first = ModelDigest(a);
  EXPECT_EQ(first.size(), 64u);
  EXPECT_EQ(ModelDigest(a), first);
  std::ofstream(a) << std::string(3 << 20, 'b');
  EXPECT_NE(ModelDigest(a), first);
  EXPECT_EQ(ModelDigest("/no/such/file"), "");
}

}  // namespace
}  // namespace hone
