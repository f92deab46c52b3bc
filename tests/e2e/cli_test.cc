// The program as users and scripts run it: results on stdout, messages on stderr, exit codes, suggestions.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/test_shared.h"
#include "e2e/program.h"

namespace {

using namespace hone::e2e;

TEST(Cli, HelpListsEveryCommandAndExitsZero) {
  const Outcome help = Hone("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* word : {"run", "chat", "serve", "inspect", "tokenize", "template", "logits", "convert", "roof", "bench", "eval"}) {
    EXPECT_TRUE(Contains(help.out, std::string("  ") + word)) << word;
    const Outcome one = Hone(std::string(word) + " --help");
    EXPECT_EQ(one.code, 0) << word;
    EXPECT_TRUE(Contains(one.out, "--threads")) << word;
    EXPECT_EQ(Hone(std::string("help ") + word).out, one.out);
  }
  EXPECT_EQ(Hone("help help").out, help.out);
  EXPECT_EQ(Hone("help rnu").code, 2);
  EXPECT_EQ(Hone("").code, 2);
  EXPECT_TRUE(Contains(Hone("--version").out, "hone "));
}

TEST(Cli, WrongUsageIsTwoAndSuggests) {
  EXPECT_EQ(Hone("rnu builtin").code, 2);
  EXPECT_TRUE(Contains(Hone("rnu builtin").err, "did you mean run?"));
  const Outcome flag = Hone("run builtin -p x --temprature 1");
  EXPECT_EQ(flag.code, 2);
  EXPECT_TRUE(Contains(flag.err, "did you mean --temperature?")) << flag.err;
  EXPECT_EQ(Hone("run builtin").code, 2);                                  // no prompt
  EXPECT_EQ(Hone("run").code, 2);                                          // no model
  EXPECT_EQ(Hone("run builtin -p x --temperature hot").code, 2);
  EXPECT_EQ(Hone("run builtin -p x --logit-bias 5").code, 2);
  EXPECT_EQ(Hone("run builtin -p x --isa sse9").code, 2);
  EXPECT_EQ(Hone("run builtin -p x --kv f64").code, 2);
  EXPECT_EQ(Hone("run builtin -p x --threads 0").code, 2);
  EXPECT_EQ(Hone("run builtin -p x --config /no/such.toml").code, 2);
  // Values that no model allows are wrong usage too, and are found before a model is read.
  for (const char* flags : {"--temperature -1", "--temperature nan", "--top-p 2", "--min-p -1", "--top-k -5", "--stop ''",
                            "--logit-bias 99999999999=1", "--logit-bias 5=inf", "--seed 18446744073709551616", "-n 0", "--ctx 0"}) {
    EXPECT_EQ(Hone(std::string("run /no/such.gguf -p x ") + flags).code, 2) << flags;
  }
  EXPECT_FALSE(Contains(Hone("run builtin -p x -n 0").err, "000000")) << "a range that nobody can read";
  for (const char* flags : {"--cors 'a\tb'", "--name 'a\tb'", "--max-queue -1", "--drain-timeout -1", "--drain-timeout nan",
                            "--host x.y"}) {
    EXPECT_EQ(Hone(std::string("serve builtin --port 0 ") + flags).code, 2) << flags;
  }
}

// What is mapped from the cache is what is computed with: the same answer, and another one where the file was tampered with.
TEST(Cli, PackedWeightsAreKeptAndMapped) {
  const std::string cache = TempPath("packed"), before = "XDG_CACHE_HOME='" + cache + "'";
  std::filesystem::remove_all(cache);
  const std::string run = "run builtin -p 'What is 2 + 2?' -n 8 --temperature 0 --ignore-eos --json";
  const auto answer = [&](const std::string& flags) {
    const Outcome outcome = Hone(run + flags, before);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out)["ids"];
  };
  const nlohmann::json plain = answer("");
  EXPECT_FALSE(std::filesystem::exists(cache + "/hone/packed"));
  EXPECT_EQ(answer(" --packed-cache"), plain);
  std::string file;
  for (const auto& entry : std::filesystem::directory_iterator(cache + "/hone/packed")) file = entry.path();
  ASSERT_NE(file, "");
  EXPECT_EQ(answer(" --packed-cache"), plain);
  {
    std::fstream panels(file, std::ios::binary | std::ios::in | std::ios::out);
    panels.seekp(4096);
    panels << std::string(std::filesystem::file_size(file) - 4096, '\0');
  }
  EXPECT_NE(answer(" --packed-cache"), plain);
}

TEST(Cli, BadInputIsThreeAndNamesTheFile) {
  const Outcome missing = Hone("inspect /no/such/model.gguf");
  EXPECT_EQ(missing.code, 3);
  EXPECT_TRUE(Contains(missing.err, "/no/such/model.gguf"));
  EXPECT_TRUE(missing.out.empty());
  const std::string junk = WriteTemp("junk.gguf", "GGUF this is not one");
  EXPECT_EQ(Hone("run " + junk + " -p x").code, 3);
  const std::string ids = WriteTemp("ids.json", "[1, 999999]");
  const Outcome bad = Hone("logits builtin --ids " + ids + " -o " + TempPath("x"));
  EXPECT_EQ(bad.code, 3);
  EXPECT_TRUE(Contains(bad.err, "999999")) << bad.err;
}

TEST(Cli, NestedIdsAreRefusedAtAnyDepth) {
  const std::string deep = std::string(1000000, '[') + std::string(1000000, ']');
  for (const std::string& text : {deep, "[1, " + deep + "]", std::string("[{\"a\": 1}]"), std::string("[[1]]")}) {
    const std::string ids = WriteTemp("nested.json", text);
    for (const std::string& args : {"logits builtin -o " + TempPath("x") + " --ids " + ids, "tokenize builtin --decode " + ids,
                                    "run builtin --ids " + ids}) {
      const Outcome outcome = Hone(args);
      EXPECT_EQ(outcome.code, 3) << outcome.err;
      EXPECT_TRUE(Contains(outcome.err, "wanted a token id")) << outcome.err;
    }
  }
}

std::string Little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}
std::string GgufText(const std::string& text) { return Little(text.size(), 8) + text; }

TEST(Cli, InspectShowsTensorsWhateverTheArchitectureKeyHolds) {
  struct { uint32_t type; std::string value; } values[] = {
      {4, Little(7, 4)}, {6, Little(0x7fc00000, 4)}, {7, "\1"}, {9, Little(8, 4) + Little(1, 8) + GgufText("llama")},
      {8, GgufText("")}, {8, GgufText("\xff\xfe")}, {8, GgufText("mamba")}};
  for (const auto& [type, value] : values) {
    const std::string tensor = GgufText("w") + Little(1, 4) + Little(8, 8) + Little(0, 4) + Little(0, 8);
    std::string file = "GGUF" + Little(3, 4) + Little(1, 8) + Little(1, 8) + GgufText("general.architecture") + Little(type, 4) + value + tensor;
    file.resize((file.size() + 31) / 32 * 32 + 32);
    const std::string path = WriteTemp("architecture.gguf", file);
    for (const char* form : {"", " --json", " --tensors"}) {
      const Outcome outcome = Hone("inspect " + path + form);
      EXPECT_EQ(outcome.code, 0) << type << outcome.err;
      EXPECT_TRUE(Contains(outcome.out, "F32")) << outcome.out;
    }
    EXPECT_EQ(Hone("run " + path + " -p x").code, 3);
  }
}

TEST(Cli, FilesBesideModelsAreNamedForWhatTheyAre) {
  for (const char* type : {"adapter", "mmproj", "imatrix"}) {
    const std::string tensor = GgufText("w") + Little(1, 4) + Little(8, 8) + Little(0, 4) + Little(0, 8);
    std::string file = "GGUF" + Little(3, 4) + Little(1, 8) + Little(2, 8) + GgufText("general.architecture") + Little(8, 4) +
                       GgufText("llama") + GgufText("general.type") + Little(8, 4) + GgufText(type) + tensor;
    file.resize((file.size() + 31) / 32 * 32 + 32);
    const std::string path = WriteTemp("beside.gguf", file);
    const Outcome run = Hone("run " + path + " -p x"), inspect = Hone("inspect " + path);
    EXPECT_EQ(run.code, 3);
    EXPECT_TRUE(Contains(run.err, std::string("general.type is \"") + type)) << run.err;
    EXPECT_EQ(inspect.code, 0);
    EXPECT_TRUE(Contains(inspect.out, type)) << inspect.out;
  }
}

TEST(Cli, PipesInModelFoldersDoNotBlock) {
  for (const char* name : {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    SCOPED_TRACE(name);
    namespace fs = std::filesystem;
    const std::string folder = TempPath("pipes");
    fs::remove_all(folder);
    fs::copy(HONE_SOURCE_DIR "/assets/builtin/main", folder);
    fs::permissions(folder, fs::perms::owner_all);
    fs::remove(folder + "/" + name);
    ASSERT_EQ(mkfifo((folder + "/" + name).c_str(), 0600), 0);
    for (const std::string& args : {"run " + folder + " -p x -n 1", "convert " + folder + " " + folder + ".gguf --force"}) {
      EXPECT_EQ(Hone(args, "timeout 300").code, 3) << args;
    }
    fs::remove_all(folder);
  }
}

// 824 GB of weights in a file of one hole: refused before anything is read, not killed for its memory.
TEST(Cli, WeightsBeyondTheFreeMemoryAreRefused) {
  std::string keys, tensors;
  int key_count = 0, tensor_count = 0;
  uint64_t offset = 0;
  const auto key = [&](const std::string& name, uint32_t type, const std::string& value) {
    keys += GgufText(name) + Little(type, 4) + value;
    ++key_count;
  };
  const auto tensor = [&](const std::string& name, uint64_t columns, uint64_t rows) {
    tensors += GgufText(name) + Little(rows > 0 ? 2 : 1, 4) + Little(columns, 8) + (rows > 0 ? Little(rows, 8) : "") + Little(0, 4) + Little(offset, 8);
    ++tensor_count;
    offset += columns * (rows > 0 ? rows : 1) * 4;
  };
  const uint64_t width = 65536, ffn = 1 << 20;
  key("general.architecture", 8, GgufText("llama"));
  for (const auto& [name, value] : {std::pair("block_count", uint64_t{1}), {"context_length", 64}, {"embedding_length", width},
                                    {"feed_forward_length", ffn}, {"attention.head_count", 1024}, {"attention.head_count_kv", 1}}) {
    key(std::string("llama.") + name, 4, Little(value, 4));
  }
  tensor("token_embd.weight", width, 32);
  tensor("output_norm.weight", width, 0);
  tensor("blk.0.attn_norm.weight", width, 0);
  tensor("blk.0.ffn_norm.weight", width, 0);
  tensor("blk.0.attn_q.weight", width, width);
  tensor("blk.0.attn_k.weight", width, 64);
  tensor("blk.0.attn_v.weight", width, 64);
  tensor("blk.0.attn_output.weight", width, width);
  tensor("blk.0.ffn_gate.weight", width, ffn);
  tensor("blk.0.ffn_up.weight", width, ffn);
  tensor("blk.0.ffn_down.weight", ffn, width);
  std::string head = "GGUF" + Little(3, 4) + Little(tensor_count, 8) + Little(key_count, 8) + keys + tensors;
  head.resize((head.size() + 31) / 32 * 32);
  const std::string path = WriteTemp("hole.gguf", head), ids = WriteTemp("few.json", "[1, 2]");
  std::error_code error;
  std::filesystem::resize_file(path, head.size() + offset, error);
  if (error) GTEST_SKIP() << "no file of " << offset << " bytes here: " << error.message();
  const Outcome outcome = Hone("logits " + path + " --ids " + ids + " -o " + TempPath("x"));
  std::remove(path.c_str());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(Contains(outcome.err, "of memory") && Contains(outcome.err, "free")) << outcome.err;
}

TEST(Cli, RunWritesOnlyTheTextToStdout) {
  const std::string args = "run builtin -p 'What is the opposite of dry?' --temperature 0";
  const Outcome run = Hone(args);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, "The opposite of dry is wet.\n");
  EXPECT_TRUE(Contains(run.err, "tok/s")) << run.err;
  EXPECT_EQ(Hone(args + " --quiet").err, "");
  const Outcome json = Hone(args + " --json");
  EXPECT_TRUE(Contains(json.out, "\"finish_reason\":\"stop\"")) << json.out;
  EXPECT_TRUE(Contains(json.out, "\"text\":\"The opposite of dry is wet.\"")) << json.out;
}

TEST(Cli, FlagsComeFromEnvironmentAndConfigFile) {
  const std::string args = "run builtin -p 'Tell me a story about a fox and a lamp.' --temperature 0 --json";
  EXPECT_TRUE(Contains(Hone(args + " -n 3").out, "\"output_tokens\":3"));
  EXPECT_TRUE(Contains(Hone(args, "HONE_MAX_TOKENS=4").out, "\"output_tokens\":4"));
  const std::string config = WriteTemp("c.toml", "max-tokens = 5\n");
  EXPECT_TRUE(Contains(Hone(args + " --config " + config).out, "\"output_tokens\":5"));
  EXPECT_TRUE(Contains(Hone(args + " -n 3 --config " + config, "HONE_MAX_TOKENS=4").out, "\"output_tokens\":3"));
}

TEST(Cli, AConfigFileHoldsOnlyFlags) {
  const auto with = [](const std::string& text) {
    return Hone("run builtin -p x -n 2 --temperature 0 --config " + WriteTemp("bad.toml", text));
  };
  EXPECT_EQ(with("top-k = 1\n").code, 0);
  for (const char* text : {"nokey = 3\n", "top_k = 3\n", "[run]\ntop-k = 3\n", "top-k = \"x\"\n", "\x01\xff = [\n"}) {
    EXPECT_EQ(with(text).code, 2) << text;
  }
  EXPECT_TRUE(Contains(with("top_k = 3\n").err, "did you mean top-k?"));
  EXPECT_TRUE(Contains(with("[run]\ntop-k = 3\n").err, "the table [run]")) << with("[run]\ntop-k = 3\n").err;
}

TEST(Cli, AnEmptyPromptIsAPrompt) {
  EXPECT_EQ(Hone("run builtin -p '' -n 2 --temperature 0").code, 0);
  EXPECT_EQ(Hone("run builtin -p '' -n 2 --temperature 0").out, Hone("run builtin -f /dev/null -n 2 --temperature 0").out);
}

// In a shell of its own: `line` has HONE for the program.
int Shell(std::string line) {
  for (size_t at; (at = line.find("HONE")) != std::string::npos;) line.replace(at, 4, "'" HONE_PROGRAM "'");
  const int status = std::system(("exec 2>/dev/null; " + line).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Cli, ResultsThatCannotBeWrittenFail) {
  for (const char* command : {"run builtin -p hi -n 3", "tokenize builtin -p hi", "inspect builtin", "chat builtin --temperature 0"}) {
    EXPECT_EQ(Shell(std::string("echo hi | HONE ") + command + " >/dev/full"), 1) << command;
    EXPECT_EQ(Shell(std::string("echo hi | HONE ") + command + " >&-"), 1) << command;
  }
  const std::string plan = "quantize builtin '" + TempPath("none.gguf") + "' --type Q4_0 --plan";
  const std::string help = "--help", version = "--version", help_of_run = "run --help";
  for (const std::string& command : {help, version, help_of_run, plan}) {
    EXPECT_EQ(Shell("HONE " + command + " >/dev/full"), 1) << command;
  }
  // A reader that has seen enough is no failure, and ends an answer that would not end.
  EXPECT_EQ(Shell("{ HONE run builtin -p hi --ignore-eos --seed 1 --ctx 4096; echo $? >'" + TempPath("rc") + "'; } | head -c 10 >/dev/null"), 0);
  EXPECT_EQ(ReadAll(TempPath("rc")), "0\n");
}

// Every command that writes a file, with each file that it reads as its output.
TEST(Cli, OutputsNeverReplaceWhatIsRead) {
  const std::string text = WriteTemp("kept.txt", "Some words.\n"), ids = WriteTemp("kept.json", "[1, 2, 3]");
  const std::string items = WriteTemp("kept.jsonl", "{\"question\": \"a\", \"answer\": \"b\"}\n");
  const std::string model = TempPath("kept_model"), weights = model + "/model.safetensors";
  const std::string link = TempPath("kept_link");
  std::filesystem::remove_all(model);
  std::filesystem::remove(link);
  std::filesystem::copy(HONE_SOURCE_DIR "/assets/builtin/draft", model, std::filesystem::copy_options::recursive);
  std::filesystem::create_hard_link(text, link);
  ASSERT_TRUE(std::filesystem::exists(weights));
  const auto size = std::filesystem::file_size(weights);
  for (const std::string& command :
       {"logits builtin --ids " + ids + " -o " + ids, "logits " + model + " --ids " + ids + " -o " + weights,
        "calibrate builtin -f " + text + " -o " + text, "calibrate builtin -f " + text + " -o " + link,
        "calibrate " + model + " -f " + text + " -o " + weights, "eval kld builtin -f " + text + " --save " + text,
        "eval kld builtin --base " + model + " -f " + text + " --save " + weights,
        "eval tasks builtin " + items + " --items " + items, "logits builtin --ids " + ids + " -o " + model}) {
    EXPECT_EQ(Hone(command).code, 2) << command;
  }
  EXPECT_EQ(ReadAll(text), "Some words.\n");
  EXPECT_EQ(ReadAll(ids), "[1, 2, 3]");
  EXPECT_EQ(std::filesystem::file_size(weights), size);
  EXPECT_EQ(Hone("calibrate builtin -f " + text + " -o /no/such/folder/x").code, 1);
  EXPECT_EQ(Hone("calibrate builtin -f " + model + " -o " + TempPath("new")).code, 3);  // a folder is no text
  std::filesystem::remove_all(model);
}

TEST(Cli, AnInterruptWhileThePromptIsReadIs130) {
  EXPECT_EQ(Shell("sleep 2 | timeout --preserve-status -s INT 0.3 HONE run builtin -f -"), 130);
}

TEST(Cli, AClosedStdinIsAnEmptyOne) {
  EXPECT_EQ(Shell("HONE chat builtin <&- >/dev/null"), 0);
  EXPECT_EQ(Shell("HONE run builtin -f - -n 2 <&- >/dev/null"), 0);
}

TEST(Cli, SeedsRepeatAndStopsCut) {
  const std::string args = "run builtin -p 'Tell me a story about a fox and a lamp.' --temperature 1.5 -n 40";
  const Outcome a = Hone(args + " --seed 7"), b = Hone(args + " --seed 7 --threads 1"), c = Hone(args + " --seed 8");
  EXPECT_EQ(a.out, b.out);
  EXPECT_NE(a.out, c.out);
  const Outcome stop = Hone("run builtin -p 'What is the opposite of dry?' --temperature 0 --stop ' is'");
  EXPECT_EQ(stop.out, "The opposite of dry\n");
  // A repeatable flag takes one value each: what follows it is the MODEL.
  EXPECT_EQ(Hone("run --stop ' is' builtin -p 'What is the opposite of dry?' --temperature 0").out, stop.out);
}

TEST(Cli, TokenizeRoundTrips) {
  const std::string text = "The fox has a lamp.\n  12 + 30 = 42 \xc3\xa9\xf0\x9f\x98\x80";
  const std::string in = WriteTemp("text", text);
  const Outcome ids = Hone("tokenize builtin -f " + in);
  EXPECT_EQ(ids.code, 0) << ids.err;
  const Outcome back = Hone("tokenize builtin --decode " + WriteTemp("ids2", ids.out));
  EXPECT_EQ(back.out, text);
  EXPECT_EQ(Hone("tokenize builtin -p ''").out, "[]\n");
  EXPECT_EQ(Hone("tokenize builtin -p '<|im_end|>' --parse-special").out, "[2]\n");
  EXPECT_NE(Hone("tokenize builtin -p '<|im_end|>'").out, "[2]\n");
}

TEST(Cli, TemplateRendersAndRaises) {
  const std::string messages = WriteTemp("m.json", R"({"messages": [{"role": "user", "content": "hi"}], "add_generation_prompt": true})");
  EXPECT_EQ(Hone("template builtin -m " + messages).out, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  const std::string raising = WriteTemp("r.jinja", "{{ raise_exception('no ' + messages[0].role) }}");
  const Outcome raised = Hone("template " + raising + " -m " + messages);
  EXPECT_EQ(raised.code, 3);
  EXPECT_TRUE(Contains(raised.err, "no user"));
  const std::string clock = WriteTemp("t.jinja", "{{ strftime_now('%Y-%m-%d') }}");
  EXPECT_EQ(Hone("template " + clock + " -m " + messages + " --now 2026-01-02T03:04:05").out, "2026-01-02");
}

TEST(Cli, InspectSaysWhatTheModelIs) {
  const Outcome json = Hone("inspect builtin --json");
  EXPECT_EQ(json.code, 0) << json.err;
  for (const char* part : {"\"layers\": 8", "\"width\": 256", "\"kv_heads\": 2", "\"head_width\": 64", "\"vocab\": 2048",
                           "\"context\": 4096", "\"format\": \"safetensors\"", "\"type\": \"BF16\""}) {
    EXPECT_TRUE(Contains(json.out, part)) << part;
  }
  EXPECT_TRUE(Contains(Hone("inspect builtin").out, "chat template"));
}

TEST(Cli, ChatKeepsTheConversation) {
  const std::string input = WriteTemp("chat.in", "My name is Vera.\nWhat is my name?\n/exit\n");
  const std::string out = TempPath("chat.out");
  const int status = std::system(("'" HONE_PROGRAM "' chat builtin --temperature 0 --quiet <'" + input + "' >'" + out + "'").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ReadAll(out), "Nice to meet you, Vera.\nYour name is Vera.\n");
}

TEST(Cli, SmolLmAnswers) {
  HONE_NEED_SHARED(model, "models/smollm2-135m-instruct-q4_1.gguf");
  const Outcome run = Hone("run '" + model + "' --chat -p 'What is the boiling point of water in Celsius?' --temperature 0 -n 40");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(Contains(run.out, "100")) << run.out;
}

}  // namespace
