// hone roof, bench and eval as scripts run them: keys, exit codes, messages. Times are never judged.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/test_shared.h"
#include "e2e/program.h"

namespace {

using namespace hone::e2e;
using nlohmann::json;

// Benches keep the roof that one test of this process measured.
std::string KeptRoof() { return "XDG_CACHE_HOME='" + TempPath("kept") + "'"; }

TEST(Roof, JsonTableAndCache) {
  const std::string cache = TempPath("cache");
  const std::string before = "XDG_CACHE_HOME='" + cache + "' HONE_LEDGER='" + cache + "/ledger.sqlite'";
  const Outcome first = Hone("roof --json", before);
  ASSERT_EQ(first.code, 0) << first.err;
  const json roof = json::parse(first.out);
  for (const char* key : {"cpu", "cores", "threads", "isa", "read_gbs", "fp32_gflops", "avx512_bf16_gflops",
                          "vnni_gops", "amx_bf16_gflops", "amx_int8_gops", "barrier_ns"}) {
    EXPECT_TRUE(roof.contains(key)) << key;
  }
  EXPECT_TRUE(roof["read_gbs"].contains("1") && roof["read_gbs"].contains("N"));
  EXPECT_EQ(roof["cached"], false);
  EXPECT_TRUE(std::filesystem::exists(cache + "/hone/roof.json"));
  const json again = json::parse(Hone("roof --json", before).out);
  EXPECT_EQ(again["cached"], true);
  EXPECT_EQ(again["read_gbs"], roof["read_gbs"]);
  EXPECT_EQ(again["vnni_gops"], roof["vnni_gops"]);
  const Outcome table = Hone("roof", before);
  EXPECT_TRUE(Contains(table.out, "barrier") && Contains(table.out, "matmul")) << table.out;
  const json scalar = json::parse(Hone("roof --isa scalar --json", before).out);  // another ISA is another entry
  EXPECT_EQ(scalar["isa"], "scalar");
  EXPECT_TRUE(scalar["vnni_gops"].is_null());
  const json entries = json::parse(Hone("ledger list --kind roof --json", before).out)["entries"];
  EXPECT_EQ(entries.size(), 2u);  // what was measured, not what was kept
  EXPECT_EQ(Hone("roof --isa sse9", before).code, 2);
  std::filesystem::remove_all(cache);
}

const char* const kQuickBench = "--prefill 8 --context 0,40 --batch 1,2 --decode 2 --rounds 2";

TEST(Bench, KeysOfTheBuiltinModel) {
  const Outcome outcome = Hone(std::string("bench builtin --json ") + kQuickBench, KeptRoof());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json bench = json::parse(outcome.out);
  for (const char* key : {"roof", "rows", "load_s", "rss_bytes", "environment"})
    EXPECT_TRUE(bench.contains(key)) << key;
  ASSERT_EQ(bench["rows"].size(), 5u);
  for (const json& row : bench["rows"]) {
    for (const char* key :
         {"work", "tokens", "context", "batch", "tok_s", "low", "high", "roof_percent", "bytes", "flops"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
  EXPECT_TRUE(Contains(bench["check"], "all agree")) << bench["check"];
  // An earlier run as the other side; whatever the machine did since, every row gets a verdict.
  const std::string earlier = WriteTemp("earlier.json", outcome.out);
  const Outcome compared =
      Hone(std::string("bench builtin --json ") + kQuickBench + " --compare " + earlier, KeptRoof());
  ASSERT_EQ(compared.code, 0) << compared.err;
  EXPECT_EQ(json::parse(compared.out)["compare"]["rows"].size(), 5u);
}

TEST(Bench, AModelBesideItselfInTwoRoundsTellsNothing) {
  const Outcome outcome = Hone("bench builtin --compare builtin --json --prefill 8 --no-decode --rounds 2", KeptRoof());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json compare = json::parse(outcome.out)["compare"];
  ASSERT_EQ(compare["rows"].size(), 1u);
  EXPECT_EQ(compare["rows"][0]["verdict"], "not enough rounds");
}

TEST(Bench, BadInput) {
  EXPECT_EQ(Hone("bench").code, 2);
  EXPECT_EQ(Hone("bench builtin --prefill x").code, 2);
  EXPECT_EQ(Hone("bench builtin --rounds 0").code, 2);
  const Outcome longer = Hone("bench builtin --prefill 5000");
  EXPECT_EQ(longer.code, 2);
  EXPECT_TRUE(Contains(longer.err, "the model's context is 4096")) << longer.err;
  EXPECT_EQ(Hone("bench builtin --batch 0").code, 2);
  EXPECT_EQ(Hone("bench builtin --prefill 0 --no-decode").code, 2);
  EXPECT_EQ(Hone("bench /no/such.gguf").code, 3);
  EXPECT_EQ(Hone("bench builtin --prefill 8 --no-decode --compare /no/such.gguf").code, 3);
  const std::string other = WriteTemp("other.json", "{\"rows\": []}");
  EXPECT_EQ(Hone("bench builtin --prefill 8 --no-decode --rounds 1 --compare " + other).code, 3);
  const std::string same = "bench builtin --prefill 8 --no-decode --rounds 1 --json";
  json report = json::parse(Hone(same, KeptRoof()).out);
  EXPECT_EQ(Hone(same + " --compare " + WriteTemp("other.json", report.dump()), KeptRoof()).code, 0);
  report["rows"][0]["low"] = -1;
  EXPECT_EQ(Hone(same + " --compare " + WriteTemp("other.json", report.dump()), KeptRoof()).code, 3);
}

TEST(Eval, PerplexityOfTheBuiltinModel) {
  // measured.json: computed with another program in float32, windows of 512 of held-out.txt.
  const Outcome outcome = Hone("eval perplexity builtin -f '" HONE_SOURCE_DIR
                               "/assets/builtin/tasks/held-out-prose.txt' --protocol gptq --ctx 512 --chunks 4 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  for (const char* key :
       {"nll_sum", "tokens_scored", "windows", "ppl", "ppl_stderr", "bits_per_byte", "protocol", "dataset_digest"}) {
    EXPECT_TRUE(result.contains(key)) << key;
  }
  EXPECT_EQ(result["windows"], 4);
  EXPECT_EQ(result["tokens_scored"], 4 * 511);
  EXPECT_EQ(result["protocol"], "gptq");
  EXPECT_GT(result["ppl"], 1);
  EXPECT_LT(result["ppl"], 20);
}

TEST(Eval, DivergenceThroughAFileIsThatOfTheModels) {
  const std::string text = "'" HONE_SOURCE_DIR "/assets/builtin/tasks/held-out-prose.txt'", file = TempPath("base.kld");
  ASSERT_EQ(Hone("eval kld builtin --save " + file + " -f " + text + " --ctx 128 --chunks 2").code, 0);
  const Outcome stored = Hone("eval kld builtin-draft --base " + file + " --json");
  ASSERT_EQ(stored.code, 0) << stored.err;
  const Outcome direct = Hone("eval kld builtin-draft --base builtin -f " + text + " --ctx 128 --chunks 2 --json");
  ASSERT_EQ(direct.code, 0) << direct.err;
  const json a = json::parse(stored.out), b = json::parse(direct.out);
  for (const char* key : {"kld", "delta_p", "same_top", "ppl", "ppl_base"}) EXPECT_TRUE(a.contains(key)) << key;
  EXPECT_EQ(a["rows"], 2 * 63);
  EXPECT_NEAR(a["kld"]["mean"].get<double>(), b["kld"]["mean"].get<double>(), 2e-3);
  EXPECT_NEAR(a["same_top"]["percent"].get<double>(), b["same_top"]["percent"].get<double>(), 1.0);
  EXPECT_GT(a["kld"]["mean"], 0);
  std::filesystem::remove(file);
}

TEST(Eval, TasksCompareTwoModels) {
  const std::string all = ReadAll(HONE_SOURCE_DIR "/assets/builtin/tasks/facts.jsonl");
  size_t end = 0;
  for (int i = 0; i < 6; ++i) end = all.find('\n', end) + 1;
  const std::string file = WriteTemp("facts.jsonl", all.substr(0, end)), items = TempPath("items.jsonl");
  const Outcome outcome = Hone("eval tasks builtin " + file + " --compare builtin-draft --json --items " + items);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  for (const char* key : {"right", "of", "accuracy", "low", "high", "files", "compare"})
    EXPECT_TRUE(result.contains(key)) << key;
  EXPECT_EQ(result["files"][0]["of"], 6);
  EXPECT_EQ(result["right"], 6);  // measured.json: all 120 facts
  const std::string lines = ReadAll(items);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 6);
  std::filesystem::remove(items);
}

TEST(Eval, DomainsHaveTextsOfTheirOwn) {
  const std::string page = TempPath("domains.html");
  const Outcome outcome = Hone("eval domains builtin-draft --ctx 128 --chunks 1 --json --html " + page);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json domains = json::parse(outcome.out)["domains"];
  ASSERT_EQ(domains.size(), 5u);
  EXPECT_EQ(domains[1]["name"], "code");
  for (const json& domain : domains) EXPECT_GT(domain["ppl"], 1);
  EXPECT_TRUE(Contains(ReadAll(page), "ppl[domain=code]"));
  std::filesystem::remove(page);
}

// Weights that are not finite: one message, no figure that looks like one.
TEST(Eval, ADamagedModelIsSaid) {
  namespace fs = std::filesystem;
  const std::string folder = TempPath("damaged");
  fs::remove_all(folder);
  fs::copy(HONE_SOURCE_DIR "/assets/builtin/draft", folder);
  for (const auto& entry : fs::directory_iterator(folder)) {
    fs::permissions(entry.path(), fs::perms::owner_all);
    if (entry.path().extension() != ".safetensors") continue;
    std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-2, std::ios::end);
    file.write("\xff\x7f", 2);  // NaN in BF16
  }
  const std::string text = "'" HONE_SOURCE_DIR "/assets/builtin/tasks/held-out-prose.txt'";
  for (const std::string& args : {"perplexity " + folder + " -f " + text + " --ctx 64 --chunks 2", "kld " + folder + " --base builtin-draft -f " + text + " --ctx 64 --chunks 2",
                                  "domains " + folder + " --ctx 64 --chunks 1"}) {
    const Outcome outcome = Hone("eval " + args);
    EXPECT_EQ(outcome.code, 1) << args << outcome.out;
    EXPECT_TRUE(Contains(outcome.err, "not finite")) << outcome.err;
    EXPECT_EQ(outcome.out, "") << args;
  }
  fs::remove_all(folder);
}

TEST(Eval, BadInput) {
  const std::string text = WriteTemp("text.txt", "A few words."), empty = WriteTemp("empty.txt", "");
  EXPECT_EQ(Hone("eval").code, 2);
  EXPECT_EQ(Hone("eval poplexity builtin").code, 2);
  EXPECT_EQ(Hone("eval perplexity builtin").code, 2);
  EXPECT_EQ(Hone("eval perplexity builtin -f " + text + " --protocol papers").code, 2);
  EXPECT_EQ(Hone("eval perplexity builtin -f " + text + " --stride 4").code, 2);
  EXPECT_EQ(Hone("eval perplexity builtin -f " + text + " --protocol gptq --ctx 100000").code, 2);
  EXPECT_EQ(Hone("eval perplexity builtin -f /no/such.txt").code, 3);
  EXPECT_EQ(Hone("eval perplexity builtin -f " + empty).code, 3);
  const Outcome brief = Hone("eval perplexity builtin -f " + text);
  EXPECT_EQ(brief.code, 3);
  EXPECT_TRUE(Contains(brief.err, "needs at least 1024")) << brief.err;
  EXPECT_EQ(Hone("eval kld builtin -f " + text).code, 2);
  EXPECT_EQ(Hone("eval kld builtin --base /no/such.gguf -f " + text).code, 3);
  EXPECT_EQ(Hone("eval tasks builtin " + empty).code, 3);
  const Outcome line = Hone("eval tasks builtin " + WriteTemp("bad.jsonl", "{\"messages\": [], \"answer\": \"x\"}\n"));
  EXPECT_EQ(line.code, 3);
  EXPECT_TRUE(Contains(line.err, "line 1")) << line.err;
  EXPECT_EQ(Hone("eval tasks builtin /no/such.jsonl").code, 3);
  EXPECT_EQ(Hone("eval tasks builtin --frame 'no place for it'").code, 2);
  const Outcome base = Hone("eval kld builtin --base " + text);  // a text is no base
  EXPECT_EQ(base.code, 2);
  EXPECT_TRUE(Contains(base.err, "is no .kld file")) << base.err;
}

}  // namespace
