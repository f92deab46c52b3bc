// hone calibrate and hone quantize as users run them: a killed job goes on to the same bytes, a folder and its GGUF
// form give the same file, errors have their exit codes, and the built-in model still answers.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/test_shared.h"
#include "e2e/program.h"
#include "formats/gguf.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class Quantize : public e2e::InFolder {
 protected:
  Quantize() : InFolder("quantize") {}

  const std::string builtin_ = HONE_SOURCE_DIR "/assets/builtin/main";
};

TEST_F(Quantize, AKilledJobGoesOnToTheSameBytes) {
  const std::string whole = folder_ + "whole.gguf", killed = folder_ + "killed.gguf";
  ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(whole) + "--type Q4_K_M --threads 1 --no-measure"), 0) << Err();
  // Killed later and later, until it is done before it is killed.
  int kills = 0;
  for (int after_ms = 5; after_ms < 5000; after_ms = after_ms * 3 / 2) {
    const bool resume = fs::exists(killed + ".partial.log");
    const pid_t child = fork();
    if (child == 0) {
      if (freopen("/dev/null", "w", stderr) == nullptr) _exit(126);
      execl(HONE_PROGRAM, "hone", "quantize", builtin_.c_str(), killed.c_str(), "--type", "Q4_K_M", "--threads", "1", "--no-measure",
            resume ? "--resume" : nullptr, nullptr);
      _exit(127);
    }
    ASSERT_GT(child, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      break;
    }
    ++kills;
    EXPECT_FALSE(fs::exists(killed));
  }
  EXPECT_GT(kills, 0);
  if (!fs::exists(killed)) {
    ASSERT_EQ(Hone("quantize" + Quoted(builtin_) + Quoted(killed) + "--type Q4_K_M --resume"), 0) << Err();
  }
  EXPECT_TRUE(Bytes(killed) == Bytes(whole));
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_EQ(entry.path().filename().string().find("partial"), std::string::npos) << entry.path();
  }
  ASSERT_EQ(Hone("run" + Quoted(whole) + "-p 'one two three' -n 4 --temperature 0"), 0) << Err();
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

TEST_F(Quantize, ADamagedModelLeavesNothingToResume) {
  const std::string model = folder_ + "damaged", weights = model + "/model.safetensors";
  fs::copy(builtin_, model, fs::copy_options::recursive);
  std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(fs::file_size(weights) / 4 * 2));
  file.write("\xff\x7f", 2);  // a NaN of BF16
  file.close();
  for (const std::string& flags :
       {Quoted(folder_ + "x.gguf") + "--type Q4_0", Quoted(folder_ + "x") + "--method fp8"}) {
    EXPECT_EQ(Hone("quantize" + Quoted(model) + flags), 3) << flags;
    EXPECT_NE(Err().find("is nan"), std::string::npos) << Err();
  }
  for (const auto& entry : fs::directory_iterator(folder_)) {
    EXPECT_NE(entry.path().filename().string().substr(0, 1), "x") << entry.path();
  }
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
  EXPECT_EQ(code(Quoted(folder_ + "x") + "--method rtn --group 7"), 3);  // divides nothing
  EXPECT_EQ(code(Quoted(out) + "--type Q4_0 --imatrix" + Quoted(folder_ + "none")), 3);
  EXPECT_EQ(code(Quoted(out) + "--type Q4_0 --resume"), 2);  // nothing to resume
  EXPECT_EQ(code(Quoted(folder_ + "no/such/folder/x.gguf") + "--type Q4_0"), 1);
  EXPECT_FALSE(fs::exists(out));
  ASSERT_EQ(code(Quoted(out) + "--type Q8_0"), 0) << Err();
  EXPECT_EQ(code(Quoted(out) + "--type Q8_0"), 2);                                            // exists
  EXPECT_EQ(Hone("quantize" + Quoted(out) + Quoted(folder_ + "y.gguf") + "--type Q4_0"), 3);  // quantised already
  EXPECT_NE(Err().find("--allow-requantize"), std::string::npos);
  EXPECT_EQ(Hone("calibrate" + Quoted(builtin_) + "-f /dev/null -o" + Quoted(folder_ + "i.gguf")), 3);
}

}  // namespace
}  // namespace hone
