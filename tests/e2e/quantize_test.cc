// hone calibrate and hone quantize as users run them: a killed job goes on to the same bytes, a folder and its GGUF
// form give the same file, errors have their exit codes, and the built-in model still answers.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>

#include "base/test_shared.h"
#include "e2e/program.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class Quantize : public e2e::InFolder {
 protected:
  Quantize() : InFolder("quantize") {}

  // A copy of the built-in model with a NaN, or another BF16, in the middle of its weights.
  std::string Damaged(const char* weight = "\xff\x7f") const {
    const std::string model = folder_ + "damaged", weights = model + "/model.safetensors";
    fs::copy(builtin_, model, fs::copy_options::recursive);
    std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(fs::file_size(weights) / 4 * 2));
    file.write(weight, 2);
    return model;
  }

  // Finished steps of a work file's log, whose first line names the job.
  static size_t Lines(const std::string& log) {
    const std::string text = Bytes(log);
    const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    return lines > 0 ? lines - 1 : 0;
  }

  const std::string builtin_ = HONE_SOURCE_DIR "/assets/builtin/main";
};

// Killed before its first step is kept, then after 1, 2, 4 ... kept steps; each time --resume goes on with what is there.
TEST_F(Quantize, AKilledJobGoesOnToTheSameBytes) {
  const std::string draft = HONE_SOURCE_DIR "/assets/builtin/draft", text = " --chunk 64 --chunks 4 ";
  struct Job {
    const char *out, *flags;
    bool calibrated;
  };
  for (const Job& job : {Job{"plain.gguf", "--type Q4_K_M", false}, Job{"gptq.gguf", "--type Q4_0 --method gptq", true},
                         Job{"budget.gguf", "--bits 6", true}, Job{"budget-gptq.gguf", "--bits 6 --method gptq", true},
                         Job{"rtn", "--method rtn --group 64", false}, Job{"nf4", "--method nf4", false},
                         Job{"hqq", "--method hqq", false}, Job{"gptq", "--method gptq --group 64", true},
                         Job{"awq", "--method awq --group 64", true}, Job{"smoothquant", "--method smoothquant", true},
                         Job{"static", "--method smoothquant --activations static", true},
                         Job{"cache", "--method fp8 --kv-scheme fp8", true}}) {
    SCOPED_TRACE(job.flags);
    const std::string whole = folder_ + "whole-" + job.out, killed = folder_ + job.out;
    const std::string flags = job.flags + (job.calibrated ? text : " ") + "--no-measure --threads 1 ";
    ASSERT_EQ(Hone("quantize" + Quoted(draft) + Quoted(whole) + flags), 0) << Err();
    // GPTQ keeps the rows of a GGUF file apart, and AWQ what it found, until all is there.
    const std::string logs[] = {killed + ".partial.log", killed + ".gptq.partial.log", killed + ".scales.partial.log"};
    const auto kept = [&] { return std::max({Lines(logs[0]), Lines(logs[1]), Lines(logs[2])}); };
    const auto resumable = [&] { return fs::exists(logs[0]) || fs::exists(logs[1]) || fs::exists(logs[2]); };
    int kills = 0;
    for (size_t steps = 0; steps < 1000; steps = steps == 0 ? 1 : steps * 2) {
      const std::string command = "exec '" HONE_PROGRAM "' quantize" + Quoted(draft) + Quoted(killed) + flags + "--ledger off" +
                                  (resumable() ? " --resume" : "") + " 2>/dev/null";
      const pid_t child = e2e::Spawn(command);
      ASSERT_GT(child, 0);
      int status = 0;
      bool ended = false;
      while (!ended && kept() < steps) {
        ended = waitpid(child, &status, WNOHANG) == child;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (!ended) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        ++kills;
      }
      if (WIFEXITED(status)) {  // perhaps before it could be killed
        ASSERT_EQ(WEXITSTATUS(status), 0);
        break;
      }
    }
    EXPECT_GT(kills, 0);
    if (resumable()) {
      ASSERT_EQ(Hone("quantize" + Quoted(draft) + Quoted(killed) + flags + "--resume"), 0) << Err();
    }
    EXPECT_EQ(std::system(("diff -r" + Quoted(whole) + Quoted(killed) + ">/dev/null").c_str()), 0);
    for (const auto& entry : fs::directory_iterator(folder_)) {
      EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos) << entry.path();
    }
    ASSERT_EQ(Hone("run" + Quoted(killed) + "-p 'one two three' -n 4 --temperature 0"), 0) << Err();
  }
}

// Killed between the last step, the result's name, and the end of the work file: both are there.
TEST_F(Quantize, AJobKilledAtItsEndIsFinished) {
  struct Job {
    const char *out, *flags;
  };
  for (const Job& job : {Job{"a.gguf", "--type Q4_K_M"}, Job{"b", "--method rtn --group 64"},
                         Job{"c.gguf", "--type Q4_0 --method gptq --chunk 64 --chunks 8"}, Job{"d", "--method gptq --group 64 --chunk 64 --chunks 8"}}) {
    SCOPED_TRACE(job.flags);
    const std::string whole = folder_ + "whole-" + job.out, killed = folder_ + job.out;
    const std::string log = killed + (std::string(job.flags).find("--type") != std::string::npos && std::string(job.flags).find("gptq") != std::string::npos
                                          ? ".gptq.partial.log" : ".partial.log");
    const std::string flags = std::string(job.flags) + " --no-measure --ledger off";
    ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(whole) + flags), 0) << Err();
    const std::string command = "exec '" HONE_PROGRAM "' quantize" + Quoted(builtin_) + Quoted(killed) + flags + " --quiet 2>/dev/null";
    const pid_t child = e2e::Spawn(command);
    ASSERT_GT(child, 0);
    int status = 0;
    while (!fs::exists(log) && waitpid(child, &status, WNOHANG) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (!fs::exists(log)) continue;  // it was done before
    if (!fs::exists(killed)) fs::copy(whole, killed, fs::copy_options::recursive);
    ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(killed) + flags + " --resume"), 0) << Err();
    EXPECT_EQ(std::system(("diff -r" + Quoted(whole) + Quoted(killed) + ">/dev/null").c_str()), 0);
    EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(killed) + flags), 2) << "what is there is not replaced";
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos) << entry.path();
  }
}

// Chunks shorter than what measuring runs at once.
TEST_F(Quantize, ABudgetIsMetWithShortChunks) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  for (const char* name : {"mixtral", "gemma3", "llama"}) {
    for (const char* chunk : {"16", "40", "64"}) {
      SCOPED_TRACE(std::string(name) + " " + chunk);
      const std::string out = folder_ + name + chunk + ".gguf";
      ASSERT_EQ(Hone("quantize" + Quoted(goldens + "/" + name) + Quoted(out) + "--size 1MiB --no-measure --ledger off --chunks 4 --chunk " + chunk), 0) << Err();
      EXPECT_EQ(Hone("run" + Quoted(out) + "-p one -n 2 --temperature 0"), 0) << Err();
    }
  }
}

TEST_F(Quantize, AFolderAndItsGgufGiveTheSameTensors) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  for (const char* name : {"llama", "qwen3", "gemma3", "mixtral"}) {
    const std::string a = folder_ + name + "-a.gguf", b = folder_ + name + "-b.gguf", gguf = folder_ + name + ".gguf";
    ASSERT_EQ(Hone("convert" + Quoted(goldens + "/" + name) + Quoted(gguf)), 0) << name << Err();
    ASSERT_EQ(Hone("quantize" + Quoted(goldens + "/" + name) + Quoted(a) + "--type Q8_0"), 0) << name << Err();
    ASSERT_EQ(Hone("quantize" + Quoted(gguf) + Quoted(b) + "--type Q8_0"), 0) << name << Err();
    const auto x = GgufFile::Open(a), y = GgufFile::Open(b);
    ASSERT_TRUE(x && y);
    ASSERT_EQ((*x)->tensors().size(), (*y)->tensors().size());
    for (const NamedTensor& tensor : (*x)->tensors()) {
      const NamedTensor* other = (*y)->FindTensor(tensor.name);
      ASSERT_NE(other, nullptr) << name << " " << tensor.name;
      ASSERT_EQ(tensor.view.bytes(), other->view.bytes()) << name << " " << tensor.name;
      EXPECT_EQ(std::memcmp(tensor.view.data, other->view.data, tensor.view.bytes()), 0) << name << " " << tensor.name;
    }
  }
}

TEST_F(Quantize, CalibrationMakesAnImatrixThatIsUsed) {
  std::ofstream text(folder_ + "text");
  for (int i = 0; i < 200; ++i) text << "The quick brown fox number " << i << " jumps over the lazy dog.\n";
  text.close();
  const std::string imatrix = folder_ + "i.gguf", out = folder_ + "m.gguf";
  ASSERT_EQ(Hone("calibrate" + Quoted(builtin_) + "-f" + Quoted(folder_ + "text") + "-o" + Quoted(imatrix) +
                 "--chunk 128 --chunks 4"),
            0)
      << Err();
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(out) + "--type Q4_K_S --json --imatrix" + Quoted(imatrix)), 0)
      << Err();
  const auto report = nlohmann::json::parse(Out());
  int with_importance = 0;
  for (const auto& tensor : report["tensors"]) with_importance += tensor["importance"].get<bool>();
  EXPECT_GT(with_importance, 6);
  EXPECT_LT(report["relative_error"].get<double>(), 0.15);
  EXPECT_EQ(report["worst"].size(), 5u);
  ASSERT_EQ(Hone("run" + Quoted(out) + "-p 'one two three' -n 4 --temperature 0"), 0) << Err();
}

TEST_F(Quantize, FoldersAreWrittenAndPlansWriteNothing) {
  HONE_NEED_SHARED(base, "goldens/compress/quant/foreign/base");
  const std::string out = folder_ + "w4";
  ASSERT_EQ(Hone("quantize" + Quoted(base) + Quoted(out) + "--method rtn --group 32 --plan"), 0) << Err();
  EXPECT_NE(Out().find("down_proj"), std::string::npos);
  EXPECT_FALSE(fs::exists(out));
  ASSERT_EQ(Hone("quantize" + Quoted(base) + Quoted(out + "/") + "--method rtn --group 32 --json"), 0) << Err();
  EXPECT_EQ(nlohmann::json::parse(Out())["tensors"].size(), 14u);
  EXPECT_TRUE(fs::exists(out + "/model.safetensors") && fs::exists(out + "/config.json"));
}

// A folder's plan and report say what becomes of every tensor: those that are quantised and those that are copied make up all bytes.
TEST_F(Quantize, FoldersPlansNameEveryTensor) {
  const std::string recipe = folder_ + "every_tensor.recipe", out = folder_ + "every_tensor";
  std::ofstream(recipe) << "model.layers.0.*  keep\n";
  for (const std::string how : {"--method gptq --chunks 1", "--method nf4", "--method hqq", "--method fp8 --format fp8"}) {
    for (const bool keeps : {false, true}) {
      const std::string job = "quantize" + Quoted(builtin_) + Quoted(out) + how + (keeps ? " --recipe" + Quoted(recipe) : "") + " --no-measure --force";
      ASSERT_EQ(Hone(job + " --plan"), 0) << Err();
      const std::string table = Out();
      for (const char* plan : {" --json --plan", " --json"}) {
        ASSERT_EQ(Hone(job + plan), 0) << Err();
        const auto report = nlohmann::json::parse(Out());
        EXPECT_EQ(report["tensors"].size(), keeps ? 49u : 56u) << how;
        EXPECT_EQ(report["tensors"].size() + report["copied"].size(), 90u) << how;
        uint64_t bytes = 0;
        for (const char* list : {"tensors", "copied"}) {
          for (const auto& tensor : report[list]) {
            bytes += tensor["bytes"].get<uint64_t>();
            EXPECT_NE(table.find(tensor["name"].get<std::string>() + " "), std::string::npos) << how << ": " << tensor;
          }
        }
        EXPECT_EQ(bytes, report["bytes"].get<uint64_t>()) << how;
      }
    }
  }
}

TEST_F(Quantize, MethodsOfTheirOwnAreWrittenRunAndRefusedByName) {
  const std::string quantize = "quantize" + Quoted(builtin_), hqq = folder_ + "hqq";
  ASSERT_EQ(Hone(quantize + Quoted(hqq) + "--method hqq --bits 3 --no-measure --json"), 0) << Err();
  EXPECT_EQ(nlohmann::json::parse(Out())["format"], "hqq");
  ASSERT_EQ(Hone("run" + Quoted(hqq) + "-p 'one two three' -n 4 --temperature 0"), 0) << Err();
  EXPECT_EQ(Hone(quantize + Quoted(folder_ + "x") + "--method hqq --bits 5 --no-measure"), 2);
  // Binary codes: a report, and no folder.
  ASSERT_EQ(Hone(quantize + Quoted(folder_ + "x") + "--method bcq --bits 2 --plan --json"), 0) << Err();
  const auto report = nlohmann::json::parse(Out());
  for (const auto& tensor : report["tensors"])
    EXPECT_GT(tensor["relative_error"].get<double>(), 0.5 * tensor["rtn_relative_error"].get<double>());
  EXPECT_NE(Hone(quantize + Quoted(folder_ + "x") + "--method bcq --bits 1"), 0);
  EXPECT_NE(Err().find("no format that other engines read holds binary codes"), std::string::npos) << Err();
  EXPECT_FALSE(fs::exists(folder_ + "x"));
  // Searched ranges lose less than whole ones.
  double errors[2] = {};
  for (const char* clip : {"minmax", "mse"}) {
    ASSERT_EQ(Hone(quantize + Quoted(folder_ + clip) + "--method rtn --group 64 --no-measure --json --clip " + clip), 0)
        << Err();
    errors[std::string(clip) == "mse"] = nlohmann::json::parse(Out())["relative_error"].get<double>();
  }
  EXPECT_LT(errors[1], errors[0]);
  EXPECT_EQ(Hone(quantize + Quoted(folder_ + "x") + "--method gptq --clip mse"), 2);
}

TEST_F(Quantize, GptqMakesBothKindsOfOutputAndSaysWhatItCost) {
  const std::string text = HONE_SOURCE_DIR "/assets/builtin/tasks/calibration.txt", gguf = folder_ + "g.gguf";
  const std::string common = "--method gptq --calibration" + Quoted(text) + "--chunks 8 --json ";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(gguf) + "--type Q4_K_S " + common), 0) << Err();
  const auto swept = nlohmann::json::parse(Out());
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "p.gguf") + "--type Q4_K_S --json"), 0) << Err();
  const auto plain = nlohmann::json::parse(Out());
  EXPECT_EQ(swept["bytes"], plain["bytes"]);
  EXPECT_GT(swept["quality"]["ppl"].get<double>(), 1);
  EXPECT_GT(swept["quality"]["decode_tok_s"][1].get<double>(), 0);
  EXPECT_FALSE(fs::exists(gguf + ".gptq.partial"));
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "w4") + "--bits 4 --group 64 " + common), 0) << Err();
  const auto report = nlohmann::json::parse(Out());
  EXPECT_EQ(report["calibration"]["tokens"], 8 * 512);
  for (const auto& tensor : report["tensors"]) EXPECT_LT(tensor["output_error"].get<double>(), 0.3);
}

// The newest entry of a ledger, whole.
nlohmann::json Newest(const std::string& ledger) {
  const e2e::Outcome list = e2e::Hone("ledger list --json --ledger '" + ledger + "'");
  const auto entries = nlohmann::json::parse(list.out);
  const auto& newest = entries.contains("entries") ? entries["entries"][0] : entries[0];
  return nlohmann::json::parse(
      e2e::Hone("ledger show " + std::to_string(newest["id"].get<int>()) + " --json --ledger '" + ledger + "'").out);
}

TEST_F(Quantize, EveryRunIsInTheLedgerAndTheSummarySaysWhatItCost) {
  const std::string ledger = folder_ + "l.sqlite", with = " --ledger" + Quoted(ledger);
  const std::string text = HONE_SOURCE_DIR "/assets/builtin/tasks/calibration.txt";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "m.gguf") + "--type Q4_K_S --measure-windows 4" + with), 0)
      << Err();
  for (const char* said : {"bits per weight", "divergence (KL)", "perplexity", "decode", "prefill", "layer by layer",
                           "lost most", "peak memory"}) {
    EXPECT_NE(Err().find(said), std::string::npos) << said << "\n" << Err();
  }
  nlohmann::json entry = Newest(ledger);
  EXPECT_EQ(entry["kind"], "quantize");
  EXPECT_EQ(entry["recipe"], "Q4_K_S");
  EXPECT_EQ(entry["outcome"], "done");
  EXPECT_EQ(entry["model_digest"].get<std::string>().size(), 64u);
  EXPECT_NE(entry["environment"].dump().find("cpu"), std::string::npos);
  std::set<std::string> figures;
  for (const auto& figure : entry["figures"]) figures.insert(figure["name"].get<std::string>());
  for (const char* name : {"bits_per_weight", "bytes", "kld.mean", "ppl", "ppl_base", "same_top_percent", "decode_tok_s",
                           "decode_tok_s_base", "prefill_tok_s", "prefill_tok_s_base"}) {
    EXPECT_TRUE(figures.contains(name)) << name;
  }

  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "w4") + "--method gptq --chunks 4 --json --no-measure" +
                 with),
            0)
      << Err();
  const auto report = nlohmann::json::parse(Out());
  EXPECT_EQ(report["in_digest"], entry["model_digest"]);
  EXPECT_EQ(report["out_digest"].get<std::string>().size(), 64u);
  EXPECT_EQ(report["worst"].size(), 5u);
  ASSERT_GT(report["layers"].size(), 1u);
  for (const auto& layer : report["layers"]) {
    EXPECT_GT(layer["relative_error"].get<double>(), 0);
    EXPECT_GT(layer["output_error"].get<double>(), 0);
  }
  EXPECT_EQ(Newest(ledger)["recipe"], "gptq, 4 bits, group 128, symmetric, compressed-tensors");

  ASSERT_EQ(Hone("calibrate" + Quoted(builtin_) + "-f" + Quoted(text) + "-o" + Quoted(folder_ + "i.gguf") + "--chunks 2" + with),
            0)
      << Err();
  entry = Newest(ledger);
  EXPECT_EQ(entry["kind"], "calibrate");
  EXPECT_EQ(entry["dataset"], text);
  EXPECT_FALSE(entry["dataset_digest"].get<std::string>().empty());

  // What fails after it has begun is there too.
  EXPECT_EQ(Hone("quantize" + Quoted(Damaged()) + Quoted(folder_ + "x.gguf") + "--type Q4_0" + with), 3);
  EXPECT_EQ(Newest(ledger)["outcome"], "failed");
}

TEST_F(Quantize, ScalesOfACacheAreCalibratedAndWritten) {
  const std::string text = HONE_SOURCE_DIR "/assets/builtin/tasks/calibration.txt", ranges = folder_ + "kv.safetensors";
  ASSERT_EQ(Hone("calibrate" + Quoted(builtin_) + "--kv-scales --chunks 2 -f" + Quoted(text) + "-o" + Quoted(ranges)), 0)
      << Err();
  const auto config = nlohmann::json::parse(Bytes(builtin_ + "/config.json"));
  const int layers = config["num_hidden_layers"].get<int>();
  const auto seen = SafetensorsFile::Open(ranges);
  ASSERT_TRUE(seen);
  const std::string quantize = "quantize" + Quoted(builtin_), rtn = "--method rtn --no-measure --kv-scheme ";
  ASSERT_EQ(Hone(quantize + Quoted(folder_ + "a") + rtn + "fp8 --kv-scales" + Quoted(ranges)), 0) << Err();
  ASSERT_EQ(Hone(quantize + Quoted(folder_ + "b") + rtn + "fp8 --chunks 2 --calibration" + Quoted(text)), 0) << Err();
  ASSERT_EQ(Hone(quantize + Quoted(folder_ + "c") + rtn + "int8 --kv-per-head --kv-scales" + Quoted(ranges)), 0) << Err();
  EXPECT_TRUE(Bytes(folder_ + "a/model.safetensors") == Bytes(folder_ + "b/model.safetensors"));
  const auto scheme = [&](const char* name) {
    return nlohmann::json::parse(Bytes(folder_ + name + "/config.json"))["quantization_config"]["kv_cache_scheme"];
  };
  EXPECT_EQ(scheme("a")["type"], "float");
  EXPECT_EQ(scheme("a")["strategy"], "tensor");
  EXPECT_EQ(scheme("c")["type"], "int");
  const auto a = SafetensorsFile::Open(folder_ + "a/model.safetensors"), c = SafetensorsFile::Open(folder_ + "c/model.safetensors");
  ASSERT_TRUE(a && c);
  for (int layer = 0; layer < layers; ++layer) {
    for (const std::string kind : {"k", "v"}) {
      const std::string scale = "model.layers." + std::to_string(layer) + ".self_attn." + kind + "_scale";
      const NamedTensor *whole = (*a)->FindTensor(scale), *heads = (*c)->FindTensor(scale);
      const NamedTensor* range = (*seen)->FindTensor("layers." + std::to_string(layer) + "." + kind + "_absmax");
      ASSERT_TRUE(whole != nullptr && heads != nullptr && range != nullptr) << scale;
      const int64_t count = range->view.shape.elements();
      ASSERT_EQ(whole->view.shape.elements(), 1);
      ASSERT_EQ(heads->view.shape, (Shape{count, 1, 1}));
      float largest = 0;
      for (int64_t h = 0; h < count; ++h) {
        largest = std::max(largest, range->view.as<float>()[h]);
        EXPECT_FLOAT_EQ(heads->view.as<float>()[h], range->view.as<float>()[h] / 127.5f);
      }
      EXPECT_GT(largest, 0);
      EXPECT_FLOAT_EQ(whole->view.as<float>()[0], largest / 448);
    }
  }
  // hone itself reads such a folder; its cache finds its own scales.
  ASSERT_EQ(Hone("run" + Quoted(folder_ + "a") + "-p 'one two three' -n 4 --temperature 0"), 0) << Err();
  EXPECT_EQ(Hone(quantize + Quoted(folder_ + "d") + "--method nf4 --kv-scheme fp8"), 2);
  EXPECT_EQ(Hone(quantize + Quoted(folder_ + "d.gguf") + "--type Q4_0 --kv-scheme fp8"), 2);
  EXPECT_EQ(Hone(quantize + Quoted(folder_ + "d") + rtn + "fp8 --kv-scales" + Quoted(builtin_ + "/model.safetensors")), 3);
}

TEST_F(Quantize, MemoryIsBoundedWhateverTheModel) {
  // 72 layers of 2 MiB matrices, 288 MiB in all.
  const std::string model = folder_ + "many.gguf";
  Tensor matrix(DType::kF32, {1024, 1024});
  for (int64_t i = 0; i < 1024 * 1024; ++i) matrix.as<float>()[i] = static_cast<float>(i * 7919 % 8191 - 4095);
  std::vector<NamedTensor> tensors;
  for (int i = 0; i < 72; ++i) tensors.push_back({"blk." + std::to_string(i) + ".ffn_up.weight", matrix.view()});
  ASSERT_TRUE(WriteGguf(model, {.metadata = {{"general.architecture", GgufValue::String("llama")},
                                             {"llama.block_count", GgufValue::U32(72)}},
                                .tensors = tensors}));
  const std::string quantize = "quantize" + Quoted(model) + Quoted(folder_ + "small.gguf") + "--type Q4_0 --no-measure ";
  ASSERT_EQ(Hone(quantize + "--plan --memory 96M --json"), 0) << Err();
  const auto plan = nlohmann::json::parse(Out());
  constexpr uint64_t kCap = uint64_t{96} << 20;
  EXPECT_LE(plan["peak_memory_bytes"].get<uint64_t>(), kCap);
  ASSERT_EQ(Hone(quantize + "--memory 96M --json"), 0) << Err();
  const auto report = nlohmann::json::parse(Out());
  EXPECT_GT(report["peak_rss_bytes"].get<uint64_t>(), 0u);
  EXPECT_LE(report["peak_rss_bytes"].get<uint64_t>(), kCap);
  EXPECT_GT(report["bytes_before"].get<uint64_t>(), 2 * kCap);
  EXPECT_EQ(Hone(quantize + "--force --memory 8M"), 1);
  EXPECT_NE(Err().find("would do"), std::string::npos) << Err();
}

TEST_F(Quantize, MeasuringKeepsToTheMemoryToo) {
  const std::string quantize =
      "quantize" + Quoted(builtin_) + Quoted(folder_ + "m.gguf") + "--type Q4_0 --force --measure-windows 2 --json --memory ";
  ASSERT_EQ(Hone(quantize + "4G"), 0) << Err();
  const auto together = nlohmann::json::parse(Out())["quality"];
  ASSERT_TRUE(together.contains("kld")) << together;
  ASSERT_EQ(Hone(quantize + "100M"), 0) << Err();
  const auto not_at_all = nlohmann::json::parse(Out())["quality"];
  ASSERT_TRUE(not_at_all.contains("skipped")) << not_at_all;
  // "it needs 128.0 MiB of memory ..."
  const std::string said = not_at_all["skipped"].get<std::string>();
  const double needed = std::stod(said.substr(said.find("needs") + 5));
  ASSERT_EQ(Hone(quantize + std::to_string(static_cast<int>(needed) + 1) + "M"), 0) << Err();
  const auto apart = nlohmann::json::parse(Out())["quality"];
  ASSERT_TRUE(apart.contains("kld")) << apart;
  EXPECT_NEAR(apart["ppl"].get<double>(), together["ppl"].get<double>(), 1e-6 * together["ppl"].get<double>());
  EXPECT_NEAR(apart["ppl_base"].get<double>(), together["ppl_base"].get<double>(), 1e-6 * together["ppl_base"].get<double>());
  EXPECT_NEAR(apart["kld"].get<double>(), together["kld"].get<double>(), 0.02 * together["kld"].get<double>());
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos) << entry.path();
}

TEST_F(Quantize, ABudgetIsMetByWhatMatters) {
  const std::string out = folder_ + "mixed.gguf", text = HONE_SOURCE_DIR "/assets/builtin/tasks/calibration.txt";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(out) + "--bits 4.25 --chunks 1 --json --measure-windows 2 --calibration" +
                 Quoted(text)),
            0)
      << Err();
  EXPECT_NE(Err().find("measured for"), std::string::npos) << Err();
  const auto report = nlohmann::json::parse(Out());
  EXPECT_LE(report["bits_per_weight"].get<double>(), 4.25);
  EXPECT_GT(report["bits_per_weight"].get<double>(), 4.0);
  EXPECT_TRUE(report["quality"].contains("kld"));
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos) << entry.path();
  EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "y.gguf") + "--type Q4_0 --sensitivity inputs"), 2);
}

// Killed in its measuring, before the first groups are kept and after more and more of them, it goes on to the same bytes; with a
// file of its own too, which then serves another budget.
TEST_F(Quantize, AKilledMeasurementGoesOnToTheSameBytes) {
  const std::string flags = "--bits 4.25 --chunks 2 --no-measure --threads 1 --ledger off ", whole = folder_ + "whole.gguf";
  const std::string file = folder_ + "sensitivities";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(whole) + flags), 0) << Err();
  for (const std::string& more : {std::string(), "--sensitivities" + Quoted(file)}) {
    SCOPED_TRACE(more);
    const std::string killed = folder_ + (more.empty() ? "a.gguf" : "b.gguf");
    const std::string log = more.empty() ? killed + ".sensitivities.partial" : file;
    int kills = 0;
    for (size_t groups = 0; groups < 1000; groups = groups == 0 ? 1 : groups * 8) {
      const pid_t child = e2e::Spawn("exec '" HONE_PROGRAM "' quantize" + Quoted(builtin_) + Quoted(killed) + flags + more +
                                     (fs::exists(log) ? " --resume" : "") + " 2>/dev/null");
      ASSERT_GT(child, 0);
      int status = 0;
      bool ended = false;
      const auto begun = [&] { return fs::exists(log) && Lines(log) >= groups; };
      while (!ended && !begun() && !fs::exists(killed + ".types.partial")) {
        ended = waitpid(child, &status, WNOHANG) == child;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (!ended) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
        ++kills;
      }
      if (WIFEXITED(status) || fs::exists(killed + ".types.partial")) break;
    }
    EXPECT_GT(kills, 0);
    if (!fs::exists(killed)) {
      ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(killed) + flags + more + " --resume"), 0) << Err();
    }
    EXPECT_EQ(Bytes(killed), Bytes(whole));
  }
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos) << entry.path();

  // Nothing is measured again, and the file stays as it is.
  const auto with = [&](const std::string& out, const std::string& other) {
    return Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + out) + other + " --no-measure --json --ledger off --sensitivities" + Quoted(file));
  };
  const std::string kept = Bytes(file);
  const std::string all = std::to_string(Lines(file));
  EXPECT_EQ(with("second.gguf", "--bits 5.5 --chunks 2"), 0) << Err();
  EXPECT_NE(Err().find("measured for " + all + " groups"), std::string::npos) << Err();
  EXPECT_NE(Err().find(", " + all + " of them before"), std::string::npos) << Err();
  EXPECT_EQ(Bytes(file), kept);
  // Of another text or model: one error that says which, and the file stays.
  EXPECT_EQ(with("third.gguf", "--bits 5 --chunks 3"), 2);
  EXPECT_NE(Err().find("another calibration text"), std::string::npos) << Err();
  const std::string other = Damaged("\x00\x3c");
  EXPECT_EQ(Hone("quantize" + Quoted(other) + Quoted(folder_ + "third.gguf") + "--bits 5 --chunks 2 --sensitivities" + Quoted(file)), 2);
  EXPECT_NE(Err().find("another model"), std::string::npos) << Err();
  std::ofstream(folder_ + "note") << "not such a file\n";
  EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "third.gguf") + "--bits 5 --chunks 2 --sensitivities" + Quoted(folder_ + "note")), 3);
  EXPECT_EQ(Bytes(file), kept);
  EXPECT_EQ(Bytes(folder_ + "note"), "not such a file\n");
  for (const auto& entry : fs::directory_iterator(folder_)) EXPECT_FALSE(entry.path().filename().string().starts_with("third")) << entry.path();
}

// What could not stay, or not be written, is refused before anything is measured; a plan says so too.
TEST_F(Quantize, SensitivitiesAreKeptWhereTheyStay) {
  const std::string third = folder_ + "third.gguf";
  fs::create_symlink(third, folder_ + "link");
  ASSERT_EQ(mkfifo((folder_ + "pipe").c_str(), 0600), 0);
  for (const std::string& path : {third, folder_ + "./third.gguf", third + ".partial", third + ".types.partial", third + ".sensitivities.partial",
                                  folder_ + "link", folder_ + "pipe", folder_, folder_ + "not-there/sensitivities", std::string("/dev/null")}) {
    for (const char* more : {"", " --plan"}) {
      EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(third) + "--bits 5 --chunks 2 --sensitivities" + Quoted(path) + more), 2) << path;
      EXPECT_EQ(std::count(Err().begin(), Err().end(), '\n'), 1) << Err();
      EXPECT_FALSE(fs::exists(third) || fs::exists(third + ".imatrix.partial")) << path;
    }
  }
}

// A plan measures nothing: it says how much is there and how long the rest will take; with all of it, it says the job's types.
TEST_F(Quantize, PlansOfBudgetsSayWhatIsMeasured) {
  const std::string file = folder_ + "sensitivities", imatrix = folder_ + "imatrix.gguf", out = folder_ + "x.gguf";
  const std::string text = HONE_SOURCE_DIR "/assets/builtin/tasks/calibration.txt";
  ASSERT_EQ(Hone("calibrate" + Quoted(builtin_) + "--chunks 2 -f" + Quoted(text) + "-o" + Quoted(imatrix)), 0) << Err();
  const auto quantize = [&](const std::string& more) {
    return Hone("quantize" + Quoted(builtin_) + Quoted(out) + "--bits 4.5 --chunks 2 --no-measure --json --ledger off --imatrix" + Quoted(imatrix) +
                "--sensitivities" + Quoted(file) + more);
  };
  ASSERT_EQ(quantize("--plan"), 0) << Err();
  EXPECT_NE(Err().find("0 of "), std::string::npos) << Err();
  EXPECT_GT(nlohmann::json::parse(Out())["estimated_s"].get<double>(), 0);
  EXPECT_FALSE(fs::exists(file));
  ASSERT_EQ(quantize(""), 0) << Err();
  const auto made = nlohmann::json::parse(Out());
  const std::string whole = Bytes(file);
  const size_t groups = Lines(file);
  std::ofstream(file, std::ios::trunc) << whole.substr(0, whole.rfind('\n', whole.size() / 2) + 1);
  const size_t left = Lines(file);
  ASSERT_LT(left, groups);
  const std::string cut = Bytes(file);
  ASSERT_EQ(quantize("--plan"), 0) << Err();
  EXPECT_NE(Err().find(std::to_string(left) + " of " + std::to_string(groups)), std::string::npos) << Err();
  EXPECT_EQ(Bytes(file), cut);
  std::ofstream(file, std::ios::trunc) << whole;
  ASSERT_EQ(quantize("--plan"), 0) << Err();
  const auto planned = nlohmann::json::parse(Out());
  ASSERT_EQ(planned["tensors"].size(), made["tensors"].size());
  for (size_t i = 0; i < made["tensors"].size(); ++i) EXPECT_EQ(planned["tensors"][i]["to"], made["tensors"][i]["to"]);
  EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(out) + "--type Q4_0 --force --sensitivities" + Quoted(file)), 2);
  EXPECT_EQ(quantize("--force --sensitivity inputs"), 2);
}

TEST_F(Quantize, ADamagedModelLeavesNothingToResume) {
  const std::string model = Damaged();
  for (const std::string& flags :
       {Quoted(folder_ + "x.gguf") + "--type Q4_0", Quoted(folder_ + "x") + "--method fp8",
        Quoted(folder_ + "x.gguf") + "--type Q4_0 --method gptq --chunks 2",
        Quoted(folder_ + "x") + "--method gptq --group 32 --chunks 2", Quoted(folder_ + "x") + "--method smoothquant --chunks 2",
        Quoted(folder_ + "x") + "--method awq --format awq --asym --group 32 --chunks 2",
        Quoted(folder_ + "x.gguf") + "--bits 5 --chunks 2", Quoted(folder_ + "x") + "--method gptq --group 32 --chunks 2 --kv-scheme fp8"}) {
    EXPECT_EQ(Hone("quantize" + Quoted(model) + flags), 3) << flags;
    EXPECT_NE(Err().find("is nan"), std::string::npos) << Err();
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().filename().string().substr(0, 1), "x") << entry.path();
  }
}

// 2^30 is found too large only when the result is compared; it has no scale in F16.
TEST_F(Quantize, WeightsBeyondAFormatLeaveNothingToResume) {
  const std::string model = Damaged("\x80\x4e");
  for (const std::string& flags : {Quoted(folder_ + "x") + "--method rtn --format awq --asym --group 32", Quoted(folder_ + "x") + "--method rtn --format gptq --group 32",
                                   Quoted(folder_ + "x.gguf") + "--type Q4_0"}) {
    EXPECT_EQ(Hone("quantize" + Quoted(model) + flags), 3) << flags;
    EXPECT_NE(Err().find("too large"), std::string::npos) << Err();
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().filename().string().substr(0, 1), "x") << entry.path();
  }
}

TEST_F(Quantize, ADamagedScaleIsNotConverted) {
  const std::string folder = folder_ + "scaled";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder) + "--method rtn --group 64 --no-measure"), 0) << Err();
  std::fstream file(folder + "/model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
  uint64_t bytes = 0;
  file.read(reinterpret_cast<char*>(&bytes), 8);
  std::string header(bytes, ' ');
  file.read(header.data(), static_cast<std::streamsize>(bytes));
  const size_t scale = header.find("_scale\""), offsets = header.find("\"data_offsets\":[", scale);
  ASSERT_NE(offsets, std::string::npos);
  file.seekp(static_cast<std::streamoff>(8 + bytes + std::strtoull(header.c_str() + offsets + 16, nullptr, 10)));
  file.write("\xff\x7f", 2);  // NaN of BF16 and of F16
  file.close();
  EXPECT_EQ(Hone("convert" + Quoted(folder) + Quoted(folder_ + "x.gguf") + "--type bf16"), 3);
  EXPECT_NE(Err().find("NaN or infinite"), std::string::npos) << Err();
  EXPECT_FALSE(fs::exists(folder_ + "x.gguf"));
}

// The result within the input's folder, around it, through links, beyond a limit on files.
TEST_F(Quantize, ResultsInOddPlacesNeitherMixWithTheInputNorReplaceIt) {
  const std::string flags = " --method rtn --no-measure", model = folder_ + "model", whole = folder_ + "whole";
  fs::copy(builtin_, model, fs::copy_options::recursive);
  ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(whole) + flags), 0) << Err();
  const auto same = [&](const std::string& path) { return std::system(("diff -r" + Quoted(whole) + Quoted(path) + ">/dev/null").c_str()) == 0; };
  ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(model + "/q") + flags), 0) << Err();
  EXPECT_TRUE(same(model + "/q")) << "something else was copied";
  // Around the input.
  fs::copy_file(model + "/config.json", folder_ + "config.json");
  for (const std::string& around : {folder_, folder_ + "model/.."}) {
    EXPECT_EQ(Hone("quantize" + Quoted(model) + Quoted(around) + flags + " --force"), 2) << around;
    EXPECT_NE(Err().find("lies in OUT"), std::string::npos) << Err();
    ASSERT_TRUE(fs::exists(model + "/model.safetensors"));
  }
  // Through links, and with names that lists escape.
  fs::create_directory_symlink(model, folder_ + "link");
  fs::create_directory_symlink(folder_ + "nothing", folder_ + "dangling");
  const std::string odd = folder_ + "a name\nof two lines (deleted)";
  fs::copy(builtin_, odd, fs::copy_options::recursive);
  ASSERT_EQ(Hone("quantize" + Quoted(folder_ + "link") + Quoted(folder_ + "from-link") + flags), 0) << Err();
  EXPECT_TRUE(same(folder_ + "from-link"));
  ASSERT_EQ(Hone("quantize" + Quoted(odd) + Quoted(odd + " q") + flags), 0) << Err();
  EXPECT_TRUE(same(odd + " q"));
  EXPECT_EQ(Hone("quantize" + Quoted(model) + Quoted(folder_ + "dangling") + flags), 2);
  EXPECT_NE(Err().find("link to nothing"), std::string::npos) << Err();
  EXPECT_FALSE(fs::exists(folder_ + "dangling.partial"));
  // A limit on the length of files is an error, which leaves nothing; what had the name stays.
  for (const std::string& out : {folder_ + "limited", folder_ + "from-link"}) {
    const auto limited = e2e::Hone("quantize" + Quoted(model) + Quoted(out) + flags + " --force", "ulimit -f 2000;");
    EXPECT_EQ(limited.code, 1) << limited.err;
    EXPECT_NE(limited.err.find("cannot reserve"), std::string::npos) << limited.err;
    EXPECT_FALSE(fs::exists(out + ".partial") || fs::exists(out + ".partial.log"));
  }
  EXPECT_TRUE(same(folder_ + "from-link"));
  EXPECT_FALSE(fs::exists(folder_ + "limited"));
  // Over what is there, also where a link leads to it: the link goes, what it led to stays.
  fs::create_directory_symlink(whole, folder_ + "to-whole");
  ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(folder_ + "to-whole") + flags + " --bits 8 --force"), 0) << Err();
  EXPECT_FALSE(fs::is_symlink(folder_ + "to-whole"));
  EXPECT_TRUE(fs::exists(whole + "/model.safetensors"));
  EXPECT_FALSE(same(folder_ + "to-whole"));
  EXPECT_TRUE(same(folder_ + "from-link"));
}

// Cut while it is mapped: an error, not a signal.
TEST_F(Quantize, AModelThatIsCutWhileItIsReadIsSaid) {
  for (const char* flags : {" --method hqq", " --type Q4_K_M"}) {
    SCOPED_TRACE(flags);
    const std::string model = folder_ + "cut", out = folder_ + "out" + (std::string(flags).find("type") != std::string::npos ? ".gguf" : "");
    fs::copy(builtin_, model, fs::copy_options::recursive);
    const std::string command = "exec '" HONE_PROGRAM "' quantize" + Quoted(model) + Quoted(out) + flags + " --no-measure --threads 1 --ledger off 2>" + Quoted(folder_ + "err");
    const pid_t child = e2e::Spawn(command);
    ASSERT_GT(child, 0);
    int status = 0;
    bool ended = false;
    while (!ended && !fs::exists(out + ".partial.log")) {
      ended = waitpid(child, &status, WNOHANG) == child;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    fs::resize_file(model + "/model.safetensors", 100000);
    if (!ended) waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << "a signal: " << WTERMSIG(status);
    if (WEXITSTATUS(status) != 0) {  // else all had been read
      EXPECT_EQ(WEXITSTATUS(status), 3);
      EXPECT_NE(Bytes(folder_ + "err").find("while it was read"), std::string::npos) << Bytes(folder_ + "err");
      EXPECT_FALSE(fs::exists(out));
    }
    fs::remove_all(model);
  }
}

// --format gguf, or a file's name, beside --method: the type that has so many bits.
TEST_F(Quantize, MethodsOfRoundingWriteGgufTypesOfTheirBits) {
  const auto type = [&](const std::string& flags) {
    if (Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x.gguf") + flags + " --plan --json") != 0) return Err();
    const auto json = nlohmann::json::parse(Out());
    return json["type"].get<std::string>() + " " + json["method"].get<std::string>();
  };
  const std::pair<int, const char*> types[] = {{2, "Q2_K"}, {3, "Q3_K_M"}, {4, "Q4_K_M"}, {5, "Q5_K_M"}, {6, "Q6_K"}, {8, "Q8_0"}};
  for (const auto& [bits, name] : types) {
    for (const char* method : {"rtn", "gptq"})
      EXPECT_EQ(type(std::string("--format gguf --method ") + method + " --bits " + std::to_string(bits)), name + (std::string(" ") + method));
  }
  EXPECT_EQ(type("--method rtn"), "Q4_K_M rtn");
  EXPECT_EQ(type("--method rtn --bits 6"), "Q6_K rtn");
  EXPECT_EQ(type("--method rtn --type Q4_0 --format gguf"), "Q4_0 rtn");
  EXPECT_EQ(type("--method gptq --bits 5 --chunks 2 --sensitivity inputs"), "mixed gptq");  // a budget, as ever
  EXPECT_EQ(type("--method rtn --bits 5.5 --chunks 2 --sensitivity inputs"), "mixed rtn");
  for (const char* refused : {"--format gguf --method rtn --bits 7", "--format gguf --method rtn --bits 4.5", "--format gguf --method awq", "--method mxfp4",
                                     "--method rtn --group 32", "--method rtn --asym", "--method rtn --clip mse", "--method gptq --order activation",
                                     "--type Q4_0 --smoothing 0.8", "--type Q4_0 --method gptq --format awq"}) {
    EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x.gguf") + refused + " --plan"), 2) << refused;
  }
  EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x") + "--method bcq --format gptq --plan"), 2);
  EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x") + "--method rtn --imatrix none --plan"), 2);
}

// --recipe with a folder: matrices that are kept are the original's bytes, every format's configuration names them, and the folder runs.
TEST_F(Quantize, RecipesKeepMatricesOfFolders) {
  const auto recipe = [&](const std::string& text) {
    std::ofstream(folder_ + "recipe") << text;
    return "--recipe" + Quoted(folder_ + "recipe");
  };
  const std::string lines = "# the first layer's attention, and all of the last\nmodel.layers.0.self_attn.* keep\nmodel.layers.7.* KEEP\n";
  struct Job {
    const char *method, *key, *said;
  };
  const char* const kModule = "model.layers.7.mlp.down_proj";
  for (const Job& job : {Job{"rtn --group 64", "ignore", kModule}, Job{"gptq --format gptq --group 64 --chunks 2 --chunk 64", "dynamic", "-:^model\\.layers\\.7\\.mlp\\.down_proj$"},
                         Job{"gptq --format awq --asym --group 64 --chunks 2 --chunk 64", "modules_to_not_convert", kModule},
                         Job{"nvfp4", "ignore", kModule}, Job{"nf4", "llm_int8_skip_modules", kModule}, Job{"llm-int8", "llm_int8_skip_modules", kModule},
                         Job{"hqq", "skip_modules", kModule}}) {
    SCOPED_TRACE(job.method);
    const std::string out = folder_ + "kept";
    ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(out) + "--force --no-measure --json " + recipe(lines) + " --method " + job.method), 0) << Err();
    const auto report = nlohmann::json::parse(Out());
    EXPECT_EQ(report["kept_matrices"].size(), 4 + 7);
    EXPECT_EQ(report["tensors"].size(), 8 * 7 - 11);
    const auto original = SafetensorsFile::OpenFolder(builtin_), made = SafetensorsFile::OpenFolder(out);
    ASSERT_TRUE(original && made);
    for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "model.layers.7.mlp.down_proj.weight"}) {
      const NamedTensor *before = (*original)->FindTensor(name), *after = (*made)->FindTensor(name);
      ASSERT_TRUE(before != nullptr && after != nullptr) << name;
      ASSERT_TRUE(before->view.type == after->view.type && before->view.shape == after->view.shape) << name;
      EXPECT_EQ(std::memcmp(before->view.data, after->view.data, before->view.bytes()), 0) << name;
    }
    const auto config = nlohmann::json::parse(Bytes(out + "/config.json"))["quantization_config"];
    if (fs::exists(out + "/quantize_config.json")) {
      EXPECT_EQ(nlohmann::json::parse(Bytes(out + "/quantize_config.json")), config);
    }
    EXPECT_NE(config[job.key].dump().find(nlohmann::json(job.said).dump().substr(1, std::strlen(job.said))), std::string::npos) << config.dump();
    ASSERT_EQ(Hone("run" + Quoted(out) + "-p 'one two three' -n 2 --temperature 0"), 0) << Err();
  }
  const std::pair<const char*, const char*> refused[] = {{"model.layers.0.* Q4_0", "wanted keep"}, {"nothing.* keep", "no matrix"}, {"* keep", "nothing would be quantised"},
                                                         {"*.q_proj.weight keep", "engines run them as one matrix"}, {"x", "wanted a pattern and a type"}};
  for (const auto& [text, said] : refused) {
    EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x") + "--method rtn --group 64 --plan " + recipe(text)), 3) << text;
    EXPECT_NE(Err().find(said), std::string::npos) << Err();
  }
  EXPECT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x") + "--method awq --group 64 --plan " + recipe(lines)), 2);
}

TEST_F(Quantize, WhatGgufHasNoPlaceForIsSaid) {
  const std::string made = folder_ + "w8a8";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(made) + "--method w8a8 --no-measure --ledger off"), 0) << Err();
  ASSERT_EQ(Hone("convert" + Quoted(made) + Quoted(made + ".gguf") + "--type bf16"), 0) << Err();
  EXPECT_NE(Err().find("GGUF has no place for the rounding of activations"), std::string::npos) << Err();
  ASSERT_EQ(Hone("convert" + Quoted(builtin_) + Quoted(made + ".gguf") + "--type f16 --force"), 0) << Err();
  EXPECT_EQ(Err().find("no place"), std::string::npos) << Err();
}

// Readers take every linear layer for a quantised one that the configuration does not name, so it names routers too.
TEST_F(Quantize, RoutersAreNamedAsKept) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  for (const auto& [model, router] : {std::pair<const char*, const char*>{"mixtral", "model.layers.1.block_sparse_moe.gate"},
                                      {"qwen2-moe", "model.layers.1.mlp.shared_expert_gate"}, {"qwen3-moe", "model.layers.1.mlp.gate"}}) {
    for (const auto& [method, key] : {std::pair<const char*, const char*>{"rtn --group 8", "ignore"}, {"fp8", "ignore"}, {"nf4", "llm_int8_skip_modules"},
                                      {"fp8 --format fp8", "modules_to_not_convert"},
                                      {"hqq --group 8", "skip_modules"}}) {
      SCOPED_TRACE(std::string(model) + " " + method);
      ASSERT_EQ(Hone("quantize" + Quoted(goldens + "/" + model) + Quoted(folder_ + "x") + "--force --no-measure --ledger off --method " + method), 0) << Err();
      const auto config = nlohmann::json::parse(Bytes(folder_ + "x/config.json"))["quantization_config"];
      EXPECT_NE(config[key].dump().find(router), std::string::npos) << config.dump();
      EXPECT_EQ(config[key].dump().find("experts"), std::string::npos) << config.dump();
    }
  }
}

// Types of a recipe stand, and the others are chosen so that the budget holds all the same.
TEST_F(Quantize, RecipesCountInBudgets) {
  std::ofstream(folder_ + "recipe") << "*.ffn_down.weight Q8_0\nblk.0.* F16\n";
  const auto mixed = [&](const std::string& bits, const std::string& flags) {
    return Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x.gguf") + "--sensitivity inputs --chunks 2 --no-measure --json --ledger off --bits " + bits +
                " --recipe" + Quoted(folder_ + "recipe") + flags);
  };
  ASSERT_EQ(mixed("5.6", ""), 0) << Err();
  const auto report = nlohmann::json::parse(Out());
  EXPECT_LE(report["bits_per_weight"].get<double>(), 5.6);
  EXPECT_GT(report["bits_per_weight"].get<double>(), 5.4);
  for (const auto& tensor : report["tensors"]) {
    const std::string name = tensor["name"];
    if (name.starts_with("blk.0.") && tensor["shape"].size() > 1) {
      EXPECT_EQ(tensor["to"], "F16") << name;
    } else if (name.ends_with(".ffn_down.weight")) {
      EXPECT_EQ(tensor["to"], "Q8_0") << name;
    }
  }
  EXPECT_EQ(mixed("3", " --force"), 2);
  EXPECT_NE(Err().find("beside those that are given"), std::string::npos) << Err();
  // What was chosen is there, and nothing made with it yet: that is something to go on with.
  fs::remove(folder_ + "x.gguf");
  std::ofstream(folder_ + "x.gguf.types.partial") << "* Q5_0\n";
  ASSERT_EQ(mixed("7", " --resume"), 0) << Err();
  for (const auto& tensor : nlohmann::json::parse(Out())["tensors"]) {
    if (tensor["name"] == "blk.1.attn_q.weight") {
      EXPECT_EQ(tensor["to"], "Q5_0");
    }
  }
  EXPECT_FALSE(fs::exists(folder_ + "x.gguf.types.partial"));
}

// Every plan says how long its job will take and what each matrix becomes.
TEST_F(Quantize, PlansOfFoldersEstimateTheirTime) {
  for (const char* method : {"rtn", "rtn --clip mse", "fp8", "fp8 --format fp8", "mxfp8", "nvfp4", "nf4", "llm-int8", "hqq", "gptq --chunks 2", "awq --chunks 2", "smoothquant --chunks 2"}) {
    ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(folder_ + "x") + "--plan --json --method " + method), 0) << Err();
    const auto plan = nlohmann::json::parse(Out());
    EXPECT_GT(plan["estimated_s"].get<double>(), 0) << method;
    EXPECT_FALSE(plan["tensors"][0]["to"].get<std::string>().empty()) << method;
  }
}

// Models with a shorter context than a window of text are measured on windows of theirs.
TEST_F(Quantize, ModelsOfShortContextAreMeasured) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  ASSERT_EQ(Hone("quantize" + Quoted(goldens + "/llama") + Quoted(folder_ + "x.gguf") + "--type Q8_0 --json"), 0) << Err();
  const auto quality = nlohmann::json::parse(Out())["quality"];
  ASSERT_FALSE(quality.contains("skipped")) << quality.dump();
  EXPECT_GT(quality["windows"].get<int>(), 0);
  EXPECT_GE(quality["kld"].get<double>(), 0);
}

TEST_F(Quantize, WhatCannotBeDoneHasItsExitCode) {
  const std::string out = folder_ + "x.gguf";
  const auto code = [&](const std::string& flags) { return Hone("quantize" + Quoted(builtin_) + flags); };
  EXPECT_EQ(code(Quoted(out)), 2);  // neither --type nor --method
  EXPECT_EQ(code(Quoted(out) + "--type Q4_K_X"), 2);
  EXPECT_EQ(code(Quoted(out) + "--type IQ2_XS"), 2);
  EXPECT_EQ(code(Quoted(folder_ + "x") + "--type Q4_0"), 2);  // no .gguf
  EXPECT_EQ(code(Quoted(out) + "--type Q4_0 --bits 4"), 2);   // a flag of the other half
  EXPECT_EQ(code(Quoted(folder_ + "x") + "--method gptq --format bitsandbytes"), 2);
  EXPECT_EQ(code(Quoted(folder_ + "x") + "--method fp8 --group 32"), 2);
  EXPECT_EQ(code(Quoted(folder_ + "x") + "--method fp8 --fp8-type e5m2 --format compressed-tensors"), 2);
  EXPECT_EQ(code(Quoted(folder_ + "x") + "--method mxfp8 --fp8-type e5m2"), 2);
  EXPECT_EQ(code(Quoted(out) + "--type Q8_0 --method gptq --fp8-type e5m2"), 2);
  EXPECT_EQ(code(Quoted(folder_ + "x") + "--method rtn --group 7"), 3);  // divides nothing
  EXPECT_EQ(code(Quoted(out) + "--type Q4_0 --imatrix" + Quoted(folder_ + "none")), 3);
  EXPECT_EQ(code(Quoted(out) + "--type Q4_0 --resume"), 2);  // nothing to resume
  EXPECT_EQ(code(Quoted(folder_ + "no/such/folder/x.gguf") + "--type Q4_0"), 1);
  EXPECT_FALSE(fs::exists(out));
  fs::create_directory(folder_ + "d.gguf");
  EXPECT_EQ(code(Quoted(folder_ + "d.gguf") + "--type Q4_0 --force"), 2);  // a folder, and no work before that is seen
  EXPECT_FALSE(fs::exists(folder_ + "d.gguf.partial"));
  ASSERT_EQ(code(Quoted(out) + "--type Q8_0"), 0) << Err();
  EXPECT_EQ(code(Quoted(out) + "--type Q8_0"), 2);                                            // exists
  EXPECT_EQ(Hone("quantize" + Quoted(out) + Quoted(folder_ + "y.gguf") + "--type Q4_0"), 3);  // quantised already
  EXPECT_NE(Err().find("--allow-requantize"), std::string::npos);
  EXPECT_EQ(Hone("calibrate" + Quoted(builtin_) + "-f /dev/null -o" + Quoted(folder_ + "i.gguf")), 3);
}

}  // namespace
}  // namespace hone
