// hone quantize on a folder of a family that hone does not run: what it writes, what it says of it, what it refuses and how.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/random.h"
#include "e2e/program.h"
#include "formats/safetensors.h"
#include "tensor/float16.h"

namespace hone {
namespace {

class UnknownFamilyCommand : public e2e::InFolder {
 protected:
  UnknownFamilyCommand() : InFolder("unknown_family") {
    std::vector<std::vector<uint16_t>> data;
    std::vector<NamedTensor> tensors;
    data.reserve(16);
    Rng rng(1);
    const auto add = [&](const char* name, Shape shape) {
      data.emplace_back(shape.elements());
      for (uint16_t& x : data.back()) x = F32ToBf16(static_cast<float>(rng.Uniform() - rng.Uniform()));
      tensors.push_back({name, {DType::kBF16, shape, reinterpret_cast<const std::byte*>(data.back().data())}});
    };
    add("model.embed_tokens.weight", Shape{96, 64}), add("model.layers.0.norm.weight", Shape{64});
    add("model.layers.0.attn.wqkv.weight", Shape{128, 64}), add("model.layers.0.attn.wo.weight", Shape{64, 64});
    add("model.layers.0.moe.router.weight", Shape{4, 64}), add("model.layers.0.moe.experts.w1.weight", Shape{4, 64, 64});
    add("vision_tower.layers.0.fc.weight", Shape{64, 64});
    HONE_CHECK(WriteSafetensorsFolder(model_, tensors, {{"format", "pt"}}, 20'000).has_value());
    std::ofstream(model_ + "/config.json") << R"({"architectures": ["ZebraForCausalLM"], "model_type": "zebra"})";
    std::ofstream(model_ + "/tokenizer_config.json") << "{}";
  }

  const std::string model_ = folder_ + "model", out_ = folder_ + "out";
};

TEST_F(UnknownFamilyCommand, IsQuantisedByEveryMethodThatNeedsNoRun) {
  for (const char* flags : {"rtn --group 32", "rtn --format gptq --group 32", "rtn --format awq --group 32", "rtn --bits 8 --asym --group 32",
                            "rtn --clip mse --group 32", "w8a8", "w8a8 --per-tensor", "fp8", "mxfp4", "nvfp4", "nf4", "fp4", "llm-int8",
                            "hqq --group 32"}) {
    SCOPED_TRACE(flags);
    ASSERT_EQ(Hone("quantize" + Quoted(model_) + Quoted(out_) + "--method " + flags + " --force --json"), 0) << Err();
    const auto report = nlohmann::json::parse(Out());
    EXPECT_EQ(report["tensors"].size(), 6u);
    for (const auto& tensor : report["tensors"]) EXPECT_LT(tensor["relative_error"].get<double>(), 0.3) << tensor;
    EXPECT_NE(report["not_run"].get<std::string>().find("ZebraForCausalLM"), std::string::npos);
    EXPECT_EQ(report["passed_over"].size(), 3u);
    EXPECT_EQ(report["quality"]["skipped"], "hone cannot run this model");
    for (const char* said : {"hone cannot run this model (", "ZebraForCausalLM", "6 linear layers were found by the names", "'PATTERN keep'",
                             "quality not measured: hone cannot run this model", "kept, a router: model.layers.0.moe.router.weight",
                             "kept, not of the decoder: a tower for images or sound: vision_tower.layers.0.fc.weight"})
      EXPECT_NE(Err().find(said), std::string::npos) << said << "\n" << Err();
    EXPECT_TRUE(std::filesystem::exists(out_ + "/tokenizer_config.json"));
    EXPECT_FALSE(std::filesystem::exists(out_ + "/model.safetensors.index.json"));
  }
  // With the tower's name in a recipe it could not be taken; a layer's can be kept.
  const std::string recipe = folder_ + "recipe";
  std::ofstream(recipe) << "*.attn.wo.* keep\n";
  ASSERT_EQ(Hone("quantize" + Quoted(model_) + Quoted(out_) + "--method fp8 --plan --recipe" + Quoted(recipe)), 0) << Err();
  for (const char* said : {"model.layers.0.attn.wo.weight", "model.layers.0.moe.experts.3.w1.weight", "kept: an embedding", "kept: a router",
                           "5 linear layers were found by the names"})
    EXPECT_NE(Out().find(said), std::string::npos) << said << "\n" << Out();
}

TEST_F(UnknownFamilyCommand, WhatNeedsARunIsRefusedInOneLine) {
  for (const std::string& flags : {Quoted(out_) + "--method gptq", Quoted(out_) + "--method awq", Quoted(out_) + "--method smoothquant",
                                   Quoted(out_) + "--method fp8 --kv-scheme fp8", Quoted(out_ + ".gguf") + "--type Q4_K_M",
                                   Quoted(out_ + ".gguf") + "--bits 4.5", Quoted(out_ + ".gguf") + "--method gptq"}) {
    SCOPED_TRACE(flags);
    EXPECT_NE(Hone("quantize" + Quoted(model_) + flags), 0);
    for (const char* said : {"architecture \"ZebraForCausalLM\" is not supported", "needs what hone knows of a family", "--method rtn, w8a8, fp8"})
      EXPECT_NE(Err().find(said), std::string::npos) << Err();
    EXPECT_EQ(std::count(Err().begin(), Err().end(), '\n'), 1) << Err();
    EXPECT_FALSE(std::filesystem::exists(out_) || std::filesystem::exists(out_ + ".gguf"));
  }
}

}  // namespace
}  // namespace hone
