// hone plan as scripts run it: the outputs that docs/plan.md shows are the program's own, keys of the JSON, exit codes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "e2e/program.h"

namespace {

using namespace hone::e2e;
using nlohmann::json;

TEST(Plan, TheOutputsInTheDocsAreThoseOfTheProgram) {
  const std::string doc = ReadAll(HONE_SOURCE_DIR "/docs/plan.md");
  const std::string open = "```\n$ hone ";
  int checked = 0;
  for (size_t at = doc.find(open); at != std::string::npos; at = doc.find(open, at)) {
    at += open.size();
    const size_t line = doc.find('\n', at), end = doc.find("```\n", line);
    ASSERT_NE(end, std::string::npos);
    const Outcome outcome = Hone(doc.substr(at, line - at));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, doc.substr(line + 1, end - line - 1)) << doc.substr(at, line - at);
    at = end + 4;
    ++checked;
  }
  EXPECT_EQ(checked, 4);
}

TEST(Plan, KeysOfTheJson) {
  const Outcome outcome = Hone("plan llama-3-8b --card h100 --batch 1,4 --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json plan = json::parse(outcome.out);
  for (const char* key : {"model", "hardware", "efficiency", "format", "kv", "weight_bytes", "kv_bytes_per_token", "state_bytes_per_sequence",
                          "activation_bytes", "needed_bytes", "usable_bytes", "fits", "most_sequences", "cards", "predictions", "formats",
                          "bottleneck", "proposals"}) {
    EXPECT_TRUE(plan.contains(key)) << key;
  }
  EXPECT_EQ(plan["kv_bytes_per_token"], 131072);
  EXPECT_EQ(plan["predictions"].size(), 2u);
  const json steps = json::parse(Hone("plan llama-3-8b --card h100 --tpot 4ms --steps --json").out);
  EXPECT_GE(steps["steps"].size(), 1u);
  for (const json& step : steps["steps"]) {
    for (const char* key : {"bottleneck", "because", "move", "do", "gain", "risk", "test", "undo", "then"}) EXPECT_TRUE(step.contains(key)) << key;
  }
}

TEST(Plan, AFileHereAndAConfigElsewhere) {
  const std::string kept = "XDG_CACHE_HOME='" + TempPath("plan_cache") + "' XDG_STATE_HOME='" + TempPath("plan_state") + "'";
  const Outcome here = Hone("plan builtin --json", kept);
  ASSERT_EQ(here.code, 0) << here.err;
  const json inspect = json::parse(Hone("inspect builtin --json").out), plan = json::parse(here.out);
  EXPECT_EQ(plan["model"]["source"], "file");
  EXPECT_EQ(plan["format"], "as stored");
  EXPECT_NEAR(plan["weight_bytes"].get<double>(), inspect["weight_bytes"].get<double>(), 0.01 * inspect["weight_bytes"].get<double>());
  EXPECT_EQ(plan["kv_bytes_per_token"], inspect["kv_bytes_per_token"]);
  const std::string config = WriteTemp("config.json", R"({"model_type": "mamba", "num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 100})");
  const json mamba = json::parse(Hone("plan " + config + " --card t4 --json").out);
  EXPECT_EQ(mamba["kv_bytes_per_token"], 0);
  EXPECT_EQ(mamba["state_bytes_per_sequence"], 4 * (128 * 16 + 128 * 3) * 4);
  std::filesystem::remove(config);
  std::filesystem::remove_all(TempPath("plan_cache"));
  std::filesystem::remove_all(TempPath("plan_state"));
}

TEST(Plan, WrongUsage) {
  for (const char* args : {"plan", "plan llama-2-7b --card a100", "plan llama-2-7b --memory 80GB", "plan llama-2-7b --card t4 --format q9",
                           "plan llama-2-7b --card t4 --kv int3", "plan llama-2-7b --card t4 --ttft soon", "plan llama-2-7b --card t4 --memory lots",
                           "plan llama-2-7b --card t4 --split both"}) {
    EXPECT_EQ(Hone(args).code, 2) << args;
  }
  const Outcome unknown = Hone("plan llama-9-7b --card t4");
  EXPECT_EQ(unknown.code, 3);
  EXPECT_TRUE(Contains(unknown.err, "llama-2-7b")) << unknown.err;
  EXPECT_EQ(Hone("plan --list").code, 0);
}

TEST(Simulate, ComparesAllocationsAndSaysWhatIsWrong) {
  const std::string args = "simulate poisson --rate 2 --requests 60 --shape llama-3-8b --card l4 --format awq-4bit-g128";
  const Outcome outcome = Hone(args + " --allocation paged,contiguous --ctx 4096 --policy fcfs,mlfq --json");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json runs = json::parse(outcome.out)["runs"];
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[1]["allocation"], "contiguous");
  EXPECT_LT(runs[0]["waste_percent"], 10);
  EXPECT_GT(runs[1]["waste_percent"], 50);
  for (const char* key : {"ttft_s", "tpot_s", "gap_s", "total_s", "tok_s", "preemptions", "cached_tokens"}) EXPECT_TRUE(runs[0].contains(key)) << key;
  EXPECT_EQ(Hone(args + " --json").out, Hone(args + " --json").out);
  EXPECT_EQ(Hone("simulate poisson").code, 2);
  EXPECT_EQ(Hone("simulate poisson --shape llama-3-8b --card l4 --policy best").code, 2);
  EXPECT_EQ(Hone("simulate poisson --shape llama-3.1-405b --card l4").code, 2);
  EXPECT_EQ(Hone("simulate /nowhere.jsonl --shape llama-3-8b --card l4").code, 3);
  const std::string bad = WriteTemp("trace.jsonl", "{\"time_s\": 0}\n");
  const Outcome line = Hone("simulate " + bad + " --shape llama-3-8b --card h100");
  EXPECT_EQ(line.code, 3);
  EXPECT_TRUE(Contains(line.err, "line 1")) << line.err;
  std::filesystem::remove(bad);
}

TEST(Profile, OfTheBuiltinModelAndWhatPlanAndSimulateMakeOfIt) {
  const std::string cache = TempPath("profile_cache"), state = TempPath("profile_state");
  const std::string kept = "XDG_CACHE_HOME='" + cache + "' XDG_STATE_HOME='" + state + "'";
  const Outcome outcome = Hone("profile builtin --input 16,32 --output 4 --concurrency 1,2 --rounds 2 --json", kept);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json profile = json::parse(outcome.out);
  ASSERT_EQ(profile["cells"].size(), 4u);
  for (const json& cell : profile["cells"]) {
    EXPECT_EQ(cell["errors"], 0);
    for (const char* key : {"ttft_s", "tpot_s", "tok_s", "prefill", "decode", "bottleneck", "predicted", "kv_bytes"}) EXPECT_TRUE(cell.contains(key)) << key;
  }
  EXPECT_TRUE(std::filesystem::exists(state + "/hone/fitted.json"));
  const json plan = json::parse(Hone("plan builtin --json", kept).out);
  EXPECT_EQ(plan["efficiency"]["source"], "fitted by hone profile");
  const std::string file = WriteTemp("profile.json", outcome.out);
  const Outcome simulated = Hone("simulate poisson --rate 20 --requests 50 --input 32 --output 8 --profile " + file + " --json");
  ASSERT_EQ(simulated.code, 0) << simulated.err;
  EXPECT_EQ(json::parse(simulated.out)["runs"][0]["requests"], 50);
  // Each of them as a page, with what it says in three lists.
  const std::string page = TempPath("page.html");
  for (const std::string& args : {std::string("plan builtin --json"), "simulate poisson --rate 5,20 --requests 20 --block 16,64 --profile " + file + " --json",
                                  std::string("profile builtin builtin-draft --kv-formats bf16,int8 --input 16 --output 4 --rounds 2 --no-keep --json")}) {
    std::filesystem::remove(page);
    const Outcome made = Hone(args + " --html '" + page + "'", kept);
    ASSERT_EQ(made.code, 0) << args << made.err;
    EXPECT_TRUE(json::accept(made.out));
    const std::string html = ReadAll(page);
    for (const char* part : {"\"shown\"", "\"inferred\"", "\"open\"", "\"charts\"", "<title>"}) EXPECT_TRUE(Contains(html, part)) << args << part;
  }
  EXPECT_EQ(Hone("plan builtin --html /nowhere/page.html", kept).code, 1);
  EXPECT_EQ(Hone("profile builtin --input 9999999 --output 4").code, 2);
  EXPECT_EQ(Hone("profile /nowhere").code, 3);
  std::filesystem::remove(file);
  std::filesystem::remove(page);
  std::filesystem::remove_all(cache);
  std::filesystem::remove_all(state);
}

TEST(Profile, ModelsAndCacheFormatsAreAxes) {
  const std::string cache = TempPath("variants_cache"), ledger = TempPath("variants.sqlite");
  const std::string kept = "export HONE_LEDGER='" + ledger + "' XDG_CACHE_HOME='" + cache + "';";
  const Outcome outcome = Hone("profile builtin builtin-draft --kv-formats bf16,int8 --input 16,32 --output 4 --concurrency 2 --rounds 2 --no-keep --json", kept);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const json variants = json::parse(outcome.out)["variants"];
  ASSERT_EQ(variants.size(), 4u);
  for (const json& variant : variants) {
    ASSERT_EQ(variant["cells"].size(), 2u);
    EXPECT_EQ(variant["cells"][0]["figures"]["ttft_ms.p50"]["by_round"].size(), 2u);
  }
  EXPECT_EQ(variants[1]["kv"], "int8");
  EXPECT_EQ(variants[3]["model"], "builtin-draft");
  EXPECT_LT(variants[1]["cells"][0]["kv_bytes"], variants[0]["cells"][0]["kv_bytes"]);
  EXPECT_NE(variants[0]["weight_bytes"], variants[2]["weight_bytes"]);
  // The ledger has every cell; a report of it has maps whose axes are the models.
  const json report = json::parse(Hone("report 1 --json", kept).out);
  bool has_map = false;
  for (const json& chart : report["charts"]) has_map |= chart["kind"] == "heat" && chart["x"] == "model";
  EXPECT_TRUE(has_map) << report["charts"].dump().substr(0, 2000);
  EXPECT_FALSE(report["conclusions"]["inferred"].empty());
  const std::string page = TempPath("list.html");
  EXPECT_EQ(Hone("ledger list --html '" + page + "'", kept).code, 0);
  EXPECT_TRUE(Contains(ReadAll(page), "Entries"));
  EXPECT_EQ(Hone("ledger export --html '" + page + "'", kept).code, 2);
  EXPECT_EQ(Hone("profile builtin --kv-formats int3 --no-keep", kept).code, 2);
  EXPECT_EQ(Hone("profile builtin /nowhere --no-keep", kept).code, 3);
  std::filesystem::remove(page);
  std::filesystem::remove(ledger);
  std::filesystem::remove_all(cache);
}

}  // namespace
