// Input of every awkward shape through every way of quantising: experts stacked into tensors of three dimensions, rows that
// blocks do not divide, shards that an older save left behind; and plans, which refuse what the job itself would.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/test_shared.h"
#include "e2e/program.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace hone {
namespace {

namespace fs = std::filesystem;

class QuantizeInputs : public e2e::InFolder {
 protected:
  QuantizeInputs() : InFolder("quantize_inputs") {}

  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) names.insert(entry.path().string());
    return names;
  }

  // A copy of a golden model with experts; those without a tokenizer have the vocabulary of the one that is put beside them.
  std::string Model(const std::string& goldens, const std::string& name) const {
    const std::string model = folder_ + name;
    fs::create_directory(model);
    for (const char* file : {"config.json", "model.safetensors"}) fs::copy(goldens + "/" + name + "/" + file, model + "/" + file);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"}) fs::copy(goldens + "/llama/" + file, model + "/" + file);
    return model;
  }

  const std::string draft_ = HONE_SOURCE_DIR "/assets/builtin/draft";
};

// Relative error that rounding to a type may cost; a row out of place costs about 1.4.
double MostError(const std::string& type) {
  if (type[0] == 'Q' || type[0] == 'I') {
    const char bits = type[type.find('Q') + 1];
    return bits == '2' ? 0.45 : bits == '3' ? 0.25 : bits == '4' ? 0.13 : bits == '5' ? 0.07 : bits == '6' ? 0.04 : 0.01;
  }
  return type == "MXFP4" ? 0.2 : type == "TQ2_0" ? 0.8 : 0.005;
}

// Widths of 16, 32, 48 and 64 in the files of these models: most types have to fall back somewhere.
TEST_F(QuantizeInputs, StackedExpertsOfOddWidthsGoEveryWay) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  const std::string recipe = folder_ + "recipe", text = " --chunk 32 --chunks 8 ";
  std::ofstream(recipe) << "*_exps.weight F16\n*ffn_down_exps.weight BF16\n";
  for (const char* name : {"mixtral", "qwen3-moe"}) {
    const std::string gguf = folder_ + name + ".gguf", imatrix = folder_ + name + ".imatrix", out = folder_ + "out.gguf";
    ASSERT_EQ(Hone("convert" + Quoted(Model(goldens, name)) + Quoted(gguf)), 0) << Err();
    ASSERT_EQ(Hone("calibrate" + Quoted(gguf) + "-f " HONE_SOURCE_DIR "/assets/calibration/sample.txt -o" + Quoted(imatrix) + text), 0) << Err();
    for (const std::string& flags :
         {std::string("--type Q8_0"), std::string("--type Q4_0"), std::string("--type Q5_1"), std::string("--type Q4_K_M"),
          std::string("--type Q6_K"), std::string("--type IQ4_NL"), std::string("--type MXFP4_MOE"), "--type Q2_K --imatrix" + Quoted(imatrix),
          "--type Q3_K_M --imatrix" + Quoted(imatrix), "--type IQ4_XS --imatrix" + Quoted(imatrix), "--type Q4_0 --method gptq" + text,
          "--type Q5_K_M --method gptq" + text, "--bits 15.5" + text, "--bits 15.5 --method gptq --sensitivity inputs" + text,
          "--type Q8_0 --recipe" + Quoted(recipe), "--type Q8_0 --method gptq --recipe" + Quoted(recipe) + text}) {
      SCOPED_TRACE(std::string(name) + " " + flags);
      ASSERT_EQ(Hone("quantize" + Quoted(gguf) + Quoted(out) + flags + " --no-measure --force --json"), 0) << Err();
      const auto report = nlohmann::json::parse(Out());
      int stacked = 0, changed = 0;
      for (const auto& tensor : report["tensors"]) {
        stacked += tensor["shape"].size() == 3;
        changed += tensor["from"] != tensor["to"];
        if (tensor["from"] == tensor["to"]) continue;
        EXPECT_LT(tensor["relative_error"].get<double>(), MostError(tensor["to"])) << tensor;
      }
      EXPECT_EQ(stacked, 6);  // gate, up and down of two layers
      EXPECT_GT(changed, 10);
      EXPECT_EQ(Hone("run" + Quoted(out) + "-p one -n 2 --temperature 0"), 0) << Err();
    }
  }
}

// A folder method sees experts as matrices of their own, whichever of them the text reached.
TEST_F(QuantizeInputs, ExpertsOfAFolderGoEveryWay) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  const std::string text = " --chunk 32 --chunks 8 ";
  for (const char* name : {"mixtral", "qwen3-moe"}) {
    const std::string model = Model(goldens, name);
    for (const std::string& flags : std::vector<std::string>{
             "--method rtn --group 16", "--method rtn --bits 8 --asym --group 16", "--method gptq --group 16" + text,
             "--method gptq --group 16 --true-sequential" + text, "--method awq --format compressed-tensors --group 16" + text,
             "--method smoothquant" + text, "--method w8a8", "--method fp8", "--method nvfp4", "--method nf4", "--method llm-int8",
             "--method hqq --group 16"}) {
      SCOPED_TRACE(std::string(name) + " " + flags);
      const std::string out = folder_ + "out";
      ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(out) + flags + " --no-measure --force --json"), 0) << Err();
      const auto report = nlohmann::json::parse(Out());
      int experts = 0;
      for (const auto& tensor : report["tensors"]) {
        experts += tensor["name"].get<std::string>().find(".experts.") != std::string::npos;
        EXPECT_LT(tensor["relative_error"].get<double>(), 0.3) << tensor;
      }
      EXPECT_GE(experts, 2 * 3 * 4);
      EXPECT_EQ(Hone("run" + Quoted(out) + "-p one -n 2 --temperature 0"), 0) << Err();
    }
  }
}

// Tensors that hone has no use for (layers for several tokens ahead, a tower for images) are never lost silently.
TEST_F(QuantizeInputs, TensorsWithoutAUseAreSaid) {
  HONE_NEED_SHARED(llama, "goldens/models/llama");
  const std::string model = folder_ + "model", extra = "model.layers.9.eh_proj";
  const auto whole = SafetensorsFile::OpenFolder(llama);
  ASSERT_TRUE(whole);
  std::vector<NamedTensor> tensors = (*whole)->tensors();
  tensors.push_back(*(*whole)->FindTensor("model.layers.0.self_attn.q_proj.weight"));
  tensors.back().name = extra + ".weight";
  ASSERT_TRUE(WriteSafetensorsFolder(model, tensors, {{"format", "pt"}}, 1 << 30));
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) fs::copy(llama + "/" + file, model + "/" + file);
  const std::string out = folder_ + "out";
  for (const std::string& command : {"quantize" + Quoted(model) + Quoted(out) + "--method rtn --group 8 --no-measure --json",
                                     "quantize" + Quoted(model) + Quoted(out + ".gguf") + "--type Q8_0 --no-measure --json",
                                     "convert" + Quoted(model) + Quoted(out + ".gguf") + "--force"}) {
    ASSERT_EQ(Hone(command), 0) << Err();
    const char* become = command.find(".gguf") == std::string::npos ? "are copied as they are: " : "are left out: ";
    EXPECT_NE(Err().find(become + extra), std::string::npos) << command << Err();
    if (command.find("--json") != std::string::npos) {
      EXPECT_NE(nlohmann::json::parse(Out())["warnings"].dump().find(extra), std::string::npos) << Out();
    }
  }
  EXPECT_NE(Bytes(out + "/config.json").find("\"" + extra + "\""), std::string::npos);
  const auto made = SafetensorsFile::OpenFolder(out);
  ASSERT_TRUE(made);
  EXPECT_NE((*made)->FindTensor(extra + ".weight"), nullptr);
}

// Too little text: GPTQ's and AWQ's experts that it did not reach are rounded and listed by name, and a budget says what it was chosen by.
TEST_F(QuantizeInputs, ExpertsThatSawLittleAreListed) {
  HONE_NEED_SHARED(goldens, "goldens/models");
  const std::string model = Model(goldens, "mixtral"), text = " --chunk 16 --chunks 1 --no-measure --json ";
  for (const char* method : {"gptq", "awq --format compressed-tensors"}) {
    ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(folder_ + "few") + "--force --group 16 --method " + method + text), 0) << Err();
    const std::string warnings = nlohmann::json::parse(Out())["calibration_warnings"].dump();
    EXPECT_NE(warnings.find("block_sparse_moe.experts."), std::string::npos) << method << " " << warnings;
    EXPECT_NE(warnings.find("rounded to nearest"), std::string::npos) << method << " " << warnings;
    EXPECT_EQ(warnings.find("self_attn.q_proj.weight: few tokens"), std::string::npos) << warnings;
  }
  ASSERT_EQ(Hone("quantize" + Quoted(model) + Quoted(folder_ + "few.gguf") + "--force --size 1MiB" + text), 0) << Err();
  EXPECT_NE(Err().find("saw fewer tokens than they have columns"), std::string::npos) << Err();
}

TEST_F(QuantizeInputs, StaleShardsAreSaid) {
  HONE_NEED_SHARED(llama, "goldens/models/llama");
  const std::string model = folder_ + "model", shards = model + "/model-0000", text = HONE_SOURCE_DIR "/assets/calibration/sample.txt";
  const auto whole = SafetensorsFile::OpenFolder(llama);
  ASSERT_TRUE(whole);
  ASSERT_TRUE(WriteSafetensorsFolder(model, (*whole)->tensors(), {{"format", "pt"}}, 60000));
  for (const char* file : {"config.json", "tokenizer.json", "tokenizer_config.json"}) fs::copy(llama + "/" + file, model + "/" + file);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(model)) count += entry.path().filename().string().starts_with("model-");
  ASSERT_GE(count, 3);
  ASSERT_LT(count, 10);
  const std::string last = std::to_string(count) + "-of-0000" + std::to_string(count) + ".safetensors", stale = "model-00099-of-00099.safetensors";
  const std::string commands[] = {"quantize" + Quoted(model) + Quoted(folder_ + "a.gguf") + "--type Q8_0 --no-measure --force",
                                  "quantize" + Quoted(model) + Quoted(folder_ + "b") + "--method rtn --group 8 --no-measure --force",
                                  "quantize" + Quoted(model) + Quoted(folder_ + "c") + "--method rtn --group 8 --plan",
                                  "convert" + Quoted(model) + Quoted(folder_ + "d.gguf") + "--force",
                                  "calibrate" + Quoted(model) + "-f" + Quoted(text) + "--chunk 32 --chunks 2 -o" + Quoted(folder_ + "e"),
                                  "inspect" + Quoted(model), "run" + Quoted(model) + "-p one -n 1"};
  for (const std::string& command : commands) {
    ASSERT_EQ(Hone(command), 0) << Err();
    EXPECT_EQ(Err().find(stale), std::string::npos) << Err();
  }
  fs::copy(shards + last, model + "/" + stale);
  for (const std::string& command : commands) {
    ASSERT_EQ(Hone(command), 0) << Err();
    EXPECT_NE(Err().find(stale + " is not"), std::string::npos) << command << "\n" << Err();
  }
  // A shard of another save under a name of the index, and one that is missing.
  const std::string first = "1" + last.substr(1);
  fs::copy(shards + last, shards + first, fs::copy_options::overwrite_existing);
  for (const std::string& command : commands) {
    EXPECT_NE(Hone(command), 0);
    EXPECT_NE(Err().find("tensor '"), std::string::npos) << Err();
  }
  fs::remove(shards + first);
  for (const std::string& command : commands) {
    EXPECT_NE(Hone(command), 0);
    EXPECT_NE(Err().find("missing from the folder: model-0000" + first), std::string::npos) << Err();
  }
}

// What cannot work is refused by --plan, whatever the method, and leaves nothing.
TEST_F(QuantizeInputs, PlansRefuseWhatCannotWork) {
  const std::string gguf = folder_ + "in.gguf", text = folder_ + "text", empty = folder_ + "empty", some = folder_ + "some";
  ASSERT_EQ(Hone("convert" + Quoted(draft_) + Quoted(gguf)), 0) << Err();
  std::ofstream(text) << "one two three four five six seven eight nine ten eleven twelve thirteen\n";
  std::ofstream empty_file(empty);
  struct Way {
    const char* flags;
    bool folder, grouped, calibrated;
  };
  const Way ways[] = {{"--type Q4_K_M", false, false, false}, {"--type Q4_0 --method gptq", false, false, true}, {"--bits 6", false, false, true},
                      {"--method rtn", true, true, false}, {"--method gptq", true, true, true},
                      {"--method awq", true, true, true}, {"--method hqq", true, true, false},
                      {"--method smoothquant", true, false, true}, {"--method w8a8", true, false, false},
                      {"--method fp8", true, false, false}, {"--method fp8 --fp8-type e5m2", true, false, false},
                      {"--method mxfp8", true, false, false}, {"--method mxfp4", true, false, false},
                      {"--method nvfp4", true, false, false}, {"--method nf4", true, false, false},
                      {"--method fp4", true, false, false}, {"--method llm-int8", true, false, false}};
  const auto quantised = folder_ + "quantised";
  ASSERT_EQ(Hone("quantize" + Quoted(draft_) + Quoted(quantised) + "--method rtn --group 32 --no-measure"), 0) << Err();
  const std::set<std::string> before = Files();
  for (const Way& way : ways) {
    SCOPED_TRACE(way.flags);
    const std::string out = Quoted(folder_ + (way.folder ? "x" : "x.gguf"));
    const std::string flags = std::string(way.flags) + " --plan " + (way.calibrated ? "--chunk 16 --chunks 2 " : "");
    const auto refused = [&](const std::string& in, const std::string& to, const std::string& more, const char* said) {
      EXPECT_NE(Hone("quantize" + Quoted(in) + to + flags + more), 0) << more;
      EXPECT_NE(Err().find(said), std::string::npos) << more << "\n" << Err();
    };
    ASSERT_EQ(Hone("quantize" + Quoted(draft_) + out + flags), 0) << Err();
    EXPECT_NE(Out().find("memory: "), std::string::npos) << Out();
    // No disk, no such folder, no memory, no model, a model that is quantised already.
    refused(draft_, way.folder ? " /proc/x " : " /proc/x.gguf ", "", "0 MiB are free");
    refused(draft_, Quoted(folder_ + "none/" + (way.folder ? "x" : "x.gguf")), "", "No such file");
    refused(draft_, out, "--memory 1K", "would do");
    refused(folder_ + "none", out, "", "none");
    refused(quantised, out, "", "quantised already");
    if (way.folder) refused(gguf, out, "", "Hugging Face folder");
    if (way.grouped) refused(draft_, out, "--group 24", "24");
    if (way.calibrated) {
      refused(draft_, out, "--calibration" + Quoted(folder_ + "none"), "none");
      refused(draft_, out, "--calibration" + Quoted(empty), "calibration needs text");
    }
  }
  EXPECT_EQ(Files(), before);
}

TEST_F(QuantizeInputs, CalibratedMethodsSayWhatTheyRead) {
  const std::string one = folder_ + "one";
  std::ofstream(one) << "a";
  for (const char* method : {"gptq --group 64", "awq --group 64", "smoothquant"}) {
    const std::string quantize = "quantize" + Quoted(draft_) + Quoted(folder_ + "x") + "--no-measure --force --json --method " + method;
    ASSERT_EQ(Hone(quantize + " --chunk 500 --chunks 3"), 0) << Err();
    nlohmann::json report = nlohmann::json::parse(Out());
    EXPECT_EQ(report["calibration"]["tokens"], 1500) << report["calibration"];
    EXPECT_EQ(report["calibration"]["chunks"], 3);
    EXPECT_NE(Err().find("calibration: 1500 tokens in 3 chunks"), std::string::npos) << Err();
    ASSERT_EQ(Hone(quantize + " --calibration" + Quoted(one)), 0) << Err();
    report = nlohmann::json::parse(Out());
    EXPECT_EQ(report["calibration"]["tokens"], 1) << report["calibration"];
    ASSERT_FALSE(report["calibration_warnings"].empty());
    EXPECT_NE(Err().find(report["calibration_warnings"][0].get<std::string>()), std::string::npos) << Err();
  }
}

// A program that was copied away from its assets.
TEST_F(QuantizeInputs, AMissingSampleIsNamed) {
  fs::create_directory(folder_ + "bin");
  fs::copy(HONE_PROGRAM, folder_ + "bin/hone");
  const std::string said = folder_ + "said";
  for (const char* flags : {"x --method gptq", "x --method awq", "x --method smoothquant", "x.gguf --type Q4_0 --method gptq", "x.gguf --bits 6"}) {
    const std::string line = "cd" + Quoted(folder_) + "&& HONE_LEDGER=off HONE_ASSETS=none bin/hone quantize" + Quoted(draft_) + flags + " --plan 2>said";
    EXPECT_NE(std::system(line.c_str()), 0);
    EXPECT_NE(Bytes(said).find("calibration sample"), std::string::npos) << Bytes(said);
    EXPECT_NE(Bytes(said).find("--calibration"), std::string::npos) << Bytes(said);
  }
}

}  // namespace
}  // namespace hone
