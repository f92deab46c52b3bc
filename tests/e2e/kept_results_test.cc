// What was measured before something breaks is kept: every measuring command, broken midway by logits that are not finite, by
// an interrupt, and by files that cannot be written. A run that is interrupted has work for minutes; its signal is sent when it
// draws that some is done, so nothing depends on how fast the machine is.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "e2e/broken_model.h"
#include "e2e/foreign_server.h"
#include "e2e/program.h"

namespace {

using namespace hone::e2e;
using nlohmann::json;

const std::string kProse = HONE_SOURCE_DIR "/assets/builtin/tasks/held-out-prose.txt";
constexpr char kBreaks = '~';  // a token of its own, which the prose does not have

class KeptResults : public InFolder {
 protected:
  KeptResults() : InFolder("kept") {}

  std::string Broken() {
    EXPECT_EQ(Hone("tokenize builtin-draft -p '" + std::string(1, kBreaks) + "'"), 0);
    const json ids = json::parse(Out());
    EXPECT_EQ(ids.size(), 1u);
    return WriteBrokenModel(folder_ + "broken", ids[0]);
  }

  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + name, std::ios::binary) << text;
    return folder_ + name;
  }

  // Questions, the one at `breaks` with the word that breaks the model (-1: none).
  std::string Questions(const std::string& name, int count, int breaks, bool choices) const {
    std::string lines;
    for (int i = 0; i < count; ++i) {
      json item = {{"question", std::string("What is ") + (i == breaks ? kBreaks : 'x') + " and " + std::to_string(i) + "?"}, {"answer", "b"}};
      if (choices) item["choices"] = {"a", "b"};
      lines += item.dump() + "\n";
    }
    return Write(name, lines);
  }

  // Runs `hone ARGS --json` with a terminal as stderr, sends `signal` once a line that matches `what` shows that some of the work
  // is done, and waits. The result is interrupted_, the exit code is returned.
  int Interrupt(const std::string& args, const std::string& what, int signal) {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const std::string side = ptsname(terminal), out = folder_ + "interrupted.out";
    const std::string line = "HONE_THREADS=1 HONE_LEDGER='" + folder_ + "ledger.sqlite' exec '" HONE_PROGRAM "' " + args + " --json >'" + out + "' 2>'" + side + "' </dev/null";
    const pid_t pid = Spawn(line);
    std::string drawn;
    bool sent = false;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
      pollfd one = {terminal, POLLIN, 0};
      if (poll(&one, 1, 20) <= 0 || (one.revents & POLLIN) == 0) continue;
      char buffer[4096];
      const ssize_t n = read(terminal, buffer, sizeof(buffer));
      if (n > 0) drawn.append(buffer, static_cast<size_t>(n));
      if (sent || !std::regex_search(drawn, std::regex(what))) continue;
      sent = true;
      kill(pid, signal);
    }
    close(terminal);
    EXPECT_TRUE(sent) << args << ": ended before " << what << " was drawn: " << drawn;
    interrupted_ = ReadAll(out);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string interrupted_;
};

TEST_F(KeptResults, LogitsThatAreNotFinite) {
  const std::string broken = Broken(), prose = ReadAll(kProse);
  const std::string text = Write("text.txt", prose.substr(0, 5000) + " ~ ~ " + prose.substr(5000, 4000));
  const std::string common = " -f '" + text + "' --ctx 64 --json";
  // Perplexity and divergence: the windows before it; the same from either side.
  ASSERT_EQ(Hone("eval perplexity '" + broken + "'" + common), 1);
  EXPECT_TRUE(Contains(Err(), "not finite") && Contains(Err(), "windows before it are fine")) << Err();
  const json ppl = json::parse(Out());
  const int windows = ppl["windows"];
  EXPECT_GT(windows, 5);
  EXPECT_TRUE(Contains(ppl["failed"], "not finite"));
  EXPECT_TRUE(Contains(ppl["failed"], std::to_string(windows) + " windows before it are fine")) << ppl["failed"];
  ASSERT_EQ(Hone("eval perplexity builtin-draft --chunks " + std::to_string(windows) + common), 0) << Err();
  EXPECT_EQ(json::parse(Out())["nll_sum"], ppl["nll_sum"]) << "what was kept is what a whole model gets";
  const std::string saved = folder_ + "saved.kld";
  for (const std::string& models : {"'" + broken + "' --base builtin-draft", "builtin-draft --base '" + broken + "' --save '" + saved + "'"}) {
    ASSERT_EQ(Hone("eval kld " + models + common), 1) << models;
    const json kld = json::parse(Out());
    EXPECT_EQ(kld["chunks"], windows) << models;
    EXPECT_TRUE(Contains(kld["failed"], "not finite"));
    EXPECT_FALSE(kld.contains("saved")) << "half a file is none";
  }
  EXPECT_FALSE(std::filesystem::exists(saved));
  ASSERT_EQ(Hone("eval domains '" + broken + "' prose='" + kProse + "' text='" + text + "' never='" + kProse + "' --ctx 64 --chunks 40 --json"), 1);
  const json domains = json::parse(Out());
  ASSERT_EQ(domains["domains"].size(), 2u);
  EXPECT_EQ(domains["domains"][1]["rows"], windows * 31);
  EXPECT_TRUE(Contains(domains["failed"], "text.txt")) << domains["failed"];
  // Tasks: the items before it, and those that were under way beside it.
  const std::string items = folder_ + "items.jsonl", good = Questions("good.jsonl", 3, -1, true);
  for (const bool choices : {true, false}) {
    const std::string file = Questions("bad.jsonl", 200, 5, choices);
    ASSERT_EQ(Hone("eval tasks '" + broken + "' '" + good + "' '" + file + "' '" + good + "' --max-tokens 4 --items '" + items + "' --compare builtin-draft --json"), 1);
    EXPECT_TRUE(Contains(Err(), "item 6")) << Err();
    const json tasks = json::parse(Out());
    ASSERT_EQ(tasks["files"].size(), 2u);
    EXPECT_EQ(tasks["files"][0]["of"], 3);
    EXPECT_GE(tasks["files"][1]["of"], 5);
    EXPECT_LT(tasks["files"][1]["of"], 199);
    EXPECT_TRUE(Contains(tasks["failed"], "item 6"));
    EXPECT_FALSE(tasks.contains("compare")) << "half a comparison is none";
    std::set<int> kept;
    std::istringstream lines(ReadAll(items));
    for (std::string line; std::getline(lines, line);) {
      if (const json item = json::parse(line); Contains(item["file"], "bad.jsonl")) kept.insert(item["item"].get<int>());
    }
    EXPECT_EQ(kept.size(), tasks["files"][1]["of"]);
    EXPECT_EQ(kept.count(5), 0u);
    EXPECT_EQ(kept.count(4), 1u);
  }
  // Needles: the word stands far back in the text, so short prompts do not reach it.
  ASSERT_EQ(Hone("eval needle '" + broken + "' -f '" + text + "' --lengths 128,2400 --depths 0,100 --needles 2 --json"), 1);
  const json needle = json::parse(Out());
  ASSERT_EQ(needle["cells"].size(), 4u);
  EXPECT_EQ(needle["cells"][0]["of"], 2);
  EXPECT_EQ(needle["cells"][2]["of"], 0);
  EXPECT_NE(needle["failed"], "");
  // A profile of random prompts: those with the token fail, the others are counted. 3000 of 2048 ids hold each of them nearly surely.
  ASSERT_EQ(Hone("profile '" + broken + "' --input 1,3000 --output 2 --concurrency 1 --rounds 4 --no-keep --json"), 1);
  EXPECT_TRUE(Contains(Err(), "requests failed")) << Err();
  const json profile = json::parse(Out());
  ASSERT_EQ(profile["cells"].size(), 2u);
  EXPECT_GT(profile["cells"][0]["ttft_s"]["value"], 0);
  EXPECT_GT(profile["cells"][1]["errors"], 0);
  EXPECT_TRUE(Contains(profile["failed"], "3000 + 2 tokens")) << profile["failed"];
  // A gate: the figures of the steps before are judged, and it does not hold.
  const std::string rules = Write("rules.json", json{{"rules", {{{"figure", "kld.mean"}, {"most", 0.1}}, {{"figure", "accuracy"}, {"change_least", -1}}}},
                                                     {"measure", {{"text", kProse}, {"chunks", 2}, {"tasks", {folder_ + "bad.jsonl"}}}}}.dump());
  ASSERT_EQ(Hone("gate builtin-draft '" + broken + "' --rules '" + rules + "' --json"), 1);
  const json gate = json::parse(Out());
  EXPECT_TRUE(Contains(gate.dump(), "kld.mean")) << gate;
  EXPECT_EQ(Hone("gate builtin-draft builtin-draft --rules '" + rules + "'"), 0) << Err();
}

TEST_F(KeptResults, Interrupts) {
  // Work for ten seconds and more with one thread, and little to read before it begins.
  const std::string prose = ReadAll(kProse);
  std::string text;
  for (int i = 0; i < 6; ++i) text += prose;
  Write("long.txt", text);
  const std::string rules = Write("rules.json", json{{"rules", {{{"figure", "kld.mean"}, {"most", 0.1}}}}, {"measure", {{"text", folder_ + "long.txt"}}}}.dump());
  struct Case {
    std::string args, what;
    std::function<bool(const json&)> kept;
  };
  const auto above = [](const char* key) { return [key](const json& out) { return out[key] > 0; }; };
  const Case cases[] = {
      {"eval perplexity builtin -f '" + kProse + "' --protocol sliding --ctx 512 --stride 8", "so far", above("windows")},
      {"eval kld builtin --base builtin-draft -f '" + folder_ + "long.txt' --ctx 512", "divergence", above("chunks")},
      {"eval domains builtin --base builtin-draft short='" + Write("short.txt", prose.substr(0, 9000)) + "' long='" + folder_ + "long.txt'", "\rlong  ", [](const json& out) { return !out["domains"].empty(); }},
      {"eval tasks builtin '" + Questions("choices.jsonl", 4000, -1, true) + "'", " right of [1-9]", above("of")},
      {"eval tasks builtin '" + Questions("questions.jsonl", 4000, -1, false) + "'", " right of [1-9]", above("of")},
      {"eval needle builtin --lengths 128,3000 --needles 300", " found of [1-9]", [](const json& out) { return out["cells"][0]["of"] > 0; }},
      {"profile builtin --input 8,2000 --output 4 --rounds 200 --no-keep", "2000 . 4 tokens", [](const json& out) { return out["cells"][0]["rounds"] > 0; }},
      {"gate builtin-draft builtin --rules '" + rules + "'", "divergence", [](const json& out) { return Contains(out.dump(), "kld.mean"); }},
  };
  for (const Case& one : cases) {
    for (const int signal : {SIGINT, SIGTERM}) {
      SCOPED_TRACE(one.args);
      ASSERT_EQ(Interrupt(one.args, one.what, signal), 130) << interrupted_;
      const json out = json::parse(interrupted_, nullptr, false);
      ASSERT_TRUE(out.is_object()) << interrupted_;
      EXPECT_EQ(out["interrupted"], true);
      EXPECT_TRUE(one.kept(out)) << interrupted_;
      const auto list = hone::e2e::Hone("ledger list --limit 1 --json --ledger '" + folder_ + "ledger.sqlite'");
      EXPECT_EQ(json::parse(list.out)["entries"][0]["outcome"], "interrupted") << list.out;
    }
  }
}

// A page, a list of items or a file of logits that cannot be written to the end (the disk is full) is an error, but the result
// stands on stdout and in the ledger; and if stdout is full, it stands in the ledger.
TEST_F(KeptResults, AFullDisk) {
  const std::string tasks = Questions("choices.jsonl", 3, -1, true), ledger = folder_ + "ledger.sqlite";
  const std::string rules = Write("rules.json", json{{"rules", {{{"figure", "kld.mean"}, {"most", 0.1}}}}, {"measure", {{"text", kProse}, {"chunks", 2}}}}.dump());
  const std::string f = " -f '" + kProse + "' --ctx 64 --chunks 4";
  ForeignServer server;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"eval kld builtin-draft --base builtin-draft" + f, "--save"},
      {"eval perplexity builtin-draft" + f, "--html"},
      {"eval kld builtin-draft --base builtin-draft" + f, "--html"},
      {"eval domains builtin-draft prose='" + kProse + "' --ctx 64 --chunks 2", "--html"},
      {"eval tasks builtin-draft '" + tasks + "'", "--html"},
      {"eval tasks builtin-draft '" + tasks + "'", "--items"},
      {"eval needle builtin-draft --lengths 128 --depths 0 --needles 1", "--html"},
      {"profile builtin-draft --input 8 --output 2 --rounds 1 --no-keep", "--html"},
      {"gate builtin-draft builtin-draft --rules '" + rules + "'", "--html"},
      {"simulate poisson --rate 1 --requests 4 --input 8 --output 2 --shape llama-3-8b --card h100", "--html"},
      {"plan llama-3-8b --card h100", "--html"},
      {"load " + server.url() + " --requests 2 --warmup 0", "--html"},
      {"load " + server.url() + " --requests 2 --warmup 0", "--records"},
  };
  for (const auto& [args, flag] : cases) {
    SCOPED_TRACE(args + " " + flag);
    const std::string full = folder_ + "full";  // a name for the device that is always full
    std::filesystem::remove(full);
    std::filesystem::create_symlink("/dev/full", full);
    const std::string command = args + " --json --ledger '" + ledger + "' ";
    // --save is written beside its name and renamed, so it is the size of files that is limited.
    const bool whole = flag == "--save";
    const auto outcome = hone::e2e::Hone(command + flag + " '" + (whole ? folder_ + "big.kld" : full) + "'", whole ? "trap '' XFSZ; ulimit -f 400;" : "");
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_TRUE(Contains(outcome.err, "cannot write")) << outcome.err;
    EXPECT_TRUE(json::parse(outcome.out, nullptr, false).is_object()) << outcome.out;
    const std::string err = folder_ + "lost.err";
    EXPECT_EQ(Hone(command + ">/dev/full 2>'" + err + "'; exit $?;"), 1);
    EXPECT_TRUE(Contains(ReadAll(err), "stdout")) << ReadAll(err);
  }
  const json entries = json::parse(hone::e2e::Hone("ledger list --limit 100 --json --ledger '" + ledger + "'").out)["entries"];
  EXPECT_EQ(entries.size(), 2 * cases.size() + 2);  // a gate's eval is a run of its own
}

}  // namespace
