// A folder of a family that nobody has heard of, by every method that needs no run of the model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "base/random.h"
#include "base/test_runtime.h"
#include "compress/folder/folder_linears.h"
#include "compress/folder/kept_modules.h"
#include "compress/folder/quantize_folder.h"
#include "compress/test_golden.h"
#include "models/quantized/quantized_folder.h"

namespace hone {
namespace {

const char kConfig[] = R"({"architectures": ["ZebraForConditionalGeneration"], "model_type": "zebra_vl", "tie_word_embeddings": true,
  "text_config": {"hidden_size": 64, "vocab_size": 256}})";

class UnknownFamily : public RuntimeTest {
 protected:
  // In two shards or more: a decoder of two layers, one with experts in stacks, some state, an image tower and what stands beside.
  static std::string Write() {
    std::vector<std::vector<uint16_t>> data;
    std::vector<NamedTensor> tensors;
    data.reserve(64);
    Rng rng(5);
    const auto add = [&](const std::string& name, Shape shape) {
      data.emplace_back(shape.elements());
      for (uint16_t& x : data.back()) x = F32ToBf16(static_cast<float>(rng.Uniform() - rng.Uniform()));
      tensors.push_back({name, {DType::kBF16, shape, reinterpret_cast<const std::byte*>(data.back().data())}});
    };
    add("model.language_model.embed_tokens.weight", Shape{256, 64});
    add("model.language_model.norm.weight", Shape{64});
    for (const std::string layer : {"model.language_model.layers.0.", "model.language_model.layers.1."}) {
      add(layer + "input_norm.weight", Shape{64}), add(layer + "attn.wq.weight", Shape{64, 64}), add(layer + "attn.wk.weight", Shape{32, 64});
      add(layer + "attn.wv.weight", Shape{32, 64}), add(layer + "attn.wo.weight", Shape{64, 64}), add(layer + "attn.wq.bias", Shape{64});
    }
    const std::string first = "model.language_model.layers.0.", second = "model.language_model.layers.1.";
    add(first + "mlp.gate_proj.weight", Shape{96, 64}), add(first + "mlp.up_proj.weight", Shape{96, 64});
    add(first + "mlp.down_proj.weight", Shape{64, 96});
    add(first + "mixer.conv1d.weight", Shape{64, 1, 4}), add(first + "mixer.A_log", Shape{64, 16}), add(first + "mixer.dt_proj.weight", Shape{64, 4});
    add(second + "moe.router.weight", Shape{4, 64}), add(second + "moe.shared_expert_gate.weight", Shape{1, 64});
    add(second + "moe.experts.w1.weight", Shape{4, 96, 64}), add(second + "moe.experts.down.weight", Shape{4, 64, 96});
    add(second + "moe.experts.gate_up_proj", Shape{4, 64, 192});
    add(second + "shared_head.weight", Shape{256, 64});
    add("model.visual.patch_embed.proj.weight", Shape{64, 3, 2, 2}), add("model.visual.blocks.0.attn.qkv.weight", Shape{192, 64});
    add("model.multi_modal_projector.linear_1.weight", Shape{64, 64}), add("mtp.layers.0.proj.weight", Shape{64, 128});
    const std::string folder = TestPath("unknown_family");
    std::filesystem::remove_all(folder);
    HONE_CHECK(WriteSafetensorsFolder(folder, tensors, {{"format", "pt"}}, 100'000).has_value());
    HONE_CHECK(std::filesystem::exists(folder + "/model.safetensors.index.json"));
    std::ofstream(folder + "/config.json") << kConfig;
    return folder;
  }
  static std::set<std::string> Linears() {
    std::set<std::string> names;
    for (const std::string layer : {"model.language_model.layers.0.", "model.language_model.layers.1."}) {
      for (const char* name : {"attn.wq", "attn.wk", "attn.wv", "attn.wo"}) names.insert(layer + name + ".weight");
    }
    for (const char* name : {"gate_proj", "up_proj", "down_proj"}) names.insert(std::string("model.language_model.layers.0.mlp.") + name + ".weight");
    for (const char* e : {"0", "1", "2", "3"}) {
      for (const char* name : {".w1", ".down"}) names.insert(std::string("model.language_model.layers.1.moe.experts.") + e + name + ".weight");
    }
    return names;
  }
  static std::string Bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
};

TEST_F(UnknownFamily, NamesAndShapesSayWhatIsLinear) {
  const auto checkpoint = Checkpoint::Open(Write());
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  const auto found = FindFolderLinears(**checkpoint);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NE(found->not_run.find("\"ZebraForConditionalGeneration\" is not supported"), std::string::npos) << found->not_run;
  std::set<std::string> names;
  std::map<std::string, std::string> inputs;
  for (const FolderLinear& linear : found->linears) names.insert(linear.name), inputs[linear.name] = linear.input;
  EXPECT_EQ(names, Linears());
  const std::string first = "model.language_model.layers.0.", second = "model.language_model.layers.1.";
  EXPECT_EQ(inputs.at(first + "attn.wq.weight"), inputs.at(first + "attn.wv.weight"));
  EXPECT_EQ(inputs.at(first + "mlp.gate_proj.weight"), inputs.at(first + "mlp.up_proj.weight"));
  EXPECT_NE(inputs.at(first + "attn.wq.weight"), inputs.at(second + "attn.wq.weight"));
  EXPECT_NE(inputs.at(first + "attn.wo.weight"), inputs.at(first + "attn.wq.weight"));
  EXPECT_NE(inputs.at(second + "moe.experts.0.w1.weight"), inputs.at(second + "moe.experts.1.w1.weight"));
  const std::map<std::string, std::string> why(found->passed_over.begin(), found->passed_over.end());
  const std::map<std::string, std::string> wanted = {
      {"model.language_model.embed_tokens.weight", "an embedding"},
      {first + "mixer.conv1d.weight", "no matrix"},
      {first + "mixer.A_log", "no linear layer by its name"},
      {first + "mixer.dt_proj.weight", "less than 16 rows or columns"},
      {second + "moe.router.weight", "a router"},
      {second + "moe.shared_expert_gate.weight", "a router"},
      {second + "moe.experts.gate_up_proj", "experts in one tensor that does not say which of its sides is the input"},
      {second + "shared_head.weight", "an output"},
      {"model.visual.patch_embed.proj.weight", "no matrix"},
      {"model.visual.blocks.0.attn.qkv.weight", "not of the decoder: a tower for images or sound"},
      {"model.multi_modal_projector.linear_1.weight", "not of the decoder: a tower for images or sound"},
      {"mtp.layers.0.proj.weight", "a layer for several tokens ahead"}};
  EXPECT_EQ(why, wanted);
}

TEST_F(UnknownFamily, EveryMethodWritesWhatReadsBackAndGoesOnAfterAStop) {
  const auto checkpoint = Checkpoint::Open(Write());
  ASSERT_TRUE(checkpoint);
  const LinearScheme schemes[] = {{"rtn", "compressed-tensors", 4, 32, true}, {"rtn", "compressed-tensors", 3, 0, false},
                                  {"rtn", "gptq", 4, 32, true},               {"rtn", "awq", 4, 32, false},
                                  {"w8a8", "compressed-tensors"},             {"fp8", "compressed-tensors"},
                                  {"mxfp4", "compressed-tensors"},            {"nvfp4", "compressed-tensors"},
                                  {"nf4", "bitsandbytes"},                    {"fp4", "bitsandbytes"},
                                  {"llm-int8", "bitsandbytes"},               {"hqq", "hqq", 4, 32, false},
                                  {"mxfp8", "compressed-tensors"},            {"fp8", "fp8"}};
  for (const LinearScheme& scheme : schemes) {
    SCOPED_TRACE(scheme.method + " " + scheme.format);
    const std::string out = TestPath("unknown_out"), stopped = TestPath("unknown_stopped");
    for (const std::string& path : {out, stopped}) std::filesystem::remove_all(path);
    const auto format = MakeLinearFormat(scheme);
    ASSERT_TRUE(format);
    const auto plan = PlanFolder(**checkpoint, **format);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto report = QuantizeFolder(**checkpoint, **format, scheme, *plan, out, {}, runtime_);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_LT(report->overall_error, 0.3);

    const auto back = Checkpoint::Open(out);
    ASSERT_TRUE(back) << back.error().message;
    const auto folder = QuantizedFolder::Make(**back);
    ASSERT_TRUE(folder) << folder.error().message;
    std::set<std::string> taken;
    for (const FolderTensor& tensor : plan->tensors) {
      taken.insert(tensor.tensor);
      const auto matrix = folder->Find(tensor.name, tensor.rows, tensor.columns);
      ASSERT_TRUE(matrix && *matrix != nullptr) << tensor.name << (matrix ? "" : matrix.error().message);
      std::vector<float> w(tensor.rows * tensor.columns);
      (*matrix)->Decode(0, tensor.rows, w.data());
      double error = 0, power = 0;
      for (size_t i = 0; i < w.size(); ++i) {
        const double x = Bf16ToF32(tensor.view.as<uint16_t>()[i]);
        error += (w[i] - x) * (w[i] - x), power += x * x;
      }
      EXPECT_LT(std::sqrt(error / power), 0.3) << tensor.name;  // of another matrix: 1.4
    }
    EXPECT_EQ(plan->tensors.size(), Linears().size());
    const std::string config = Bytes(out + "/config.json");
    for (const NamedTensor& tensor : (*checkpoint)->tensors()) {
      const NamedTensor* kept = (*back)->FindTensor(tensor.name);
      if (taken.count(tensor.name) > 0) {
        EXPECT_TRUE(kept == nullptr || kept->view.type != DType::kBF16) << tensor.name;
        continue;
      }
      ASSERT_NE(kept, nullptr) << tensor.name;
      ASSERT_EQ(kept->view.bytes(), tensor.view.bytes());
      EXPECT_EQ(std::memcmp(kept->view.data, tensor.view.data, tensor.view.bytes()), 0) << tensor.name;
    }
    // Readers learn which layers are as they were. (AWQ, and GPTQ's patterns, write names in their own way.)
    for (const char* module : {"router", "linear_1", "qkv"}) EXPECT_NE(config.find(module), std::string::npos) << module;

    int calls = 0;
    const auto broken = QuantizeFolder(**checkpoint, **format, scheme, *plan, stopped,
                                       {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < 7; }}, runtime_);
    ASSERT_FALSE(broken);
    const auto resumed = QuantizeFolder(**checkpoint, **format, scheme, *plan, stopped, {.resume = true}, runtime_);
    ASSERT_TRUE(resumed) << resumed.error().message;
    EXPECT_GT(resumed->resumed_tensors, 0u);
    EXPECT_EQ(Bytes(stopped + "/model.safetensors"), Bytes(out + "/model.safetensors"));
  }
}

// Names are whatever the file says: they are in the configuration, the logs and patterns as they are in the file.
TEST_F(UnknownFamily, NamesMayHoldAnything) {
  std::vector<NamedTensor> tensors;
  const Tensor wide(DType::kF32, Shape{64, 64}), narrow(DType::kF32, Shape{4, 64});
  const char* odd[] = {"q", "a\"b", "a\\d", "a\nb", "\x01", "a b", "a,b", "a+b(c)[d]*{2}|$^?", "\u00fc\u4e2d", "", "\"]}"};
  for (const char* name : odd) {
    tensors.push_back({fmt::format("layers.0.{}.weight", name), wide.view()});
    tensors.push_back({fmt::format("layers.1.{}.gate.weight", name), narrow.view()});  // kept, and named in the configuration
  }
  const std::string folder = WriteModelFolder("odd_names", kConfig, tensors), out = TestPath("odd_out"), stopped = TestPath("odd_stopped");
  const auto checkpoint = Checkpoint::Open(folder);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  for (const LinearScheme& scheme : {LinearScheme{"rtn", "compressed-tensors", 4, 32, true}, LinearScheme{"rtn", "gptq", 4, 32, true},
                                     LinearScheme{"rtn", "awq", 4, 32, false}, LinearScheme{"fp8", "fp8"}, LinearScheme{"llm-int8", "bitsandbytes"},
                                     LinearScheme{"hqq", "hqq", 4, 32, false}}) {
    SCOPED_TRACE(scheme.method + " " + scheme.format);
    for (const std::string& path : {out, stopped}) std::filesystem::remove_all(path);
    const auto format = MakeLinearFormat(scheme);
    ASSERT_TRUE(format);
    const auto plan = PlanFolder(**checkpoint, **format);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->tensors.size(), std::size(odd));
    const auto report = QuantizeFolder(**checkpoint, **format, scheme, *plan, out, {}, runtime_);
    ASSERT_TRUE(report) << report.error().message;
    const std::string text = Bytes(out + "/config.json");
    const auto config = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(config.is_object()) << text;
    const std::string all = config.dump();
    if (scheme.format == "gptq") {
      for (const auto& [pattern, what] : config["quantization_config"]["dynamic"].items()) {
        const std::regex fits(pattern.substr(2));  // after "-:"
        int modules = 0;
        for (const char* name : odd) modules += std::regex_search(fmt::format("layers.1.{}.gate", name), fits);
        EXPECT_EQ(modules, 1) << pattern;
      }
      EXPECT_EQ(config["quantization_config"]["dynamic"].size(), std::size(odd));
    } else {
      for (const char* name : odd) {
        const std::string quoted = nlohmann::json(fmt::format("layers.1.{}.gate", name)).dump();
        EXPECT_NE(all.find(quoted), std::string::npos) << quoted << all;
      }
    }
    int calls = 0;
    const auto broken = QuantizeFolder(**checkpoint, **format, scheme, *plan, stopped,
                                       {.progress = [&](const char*, uint64_t, uint64_t) { return calls++ < 7; }}, runtime_);
    ASSERT_FALSE(broken);
    const auto resumed = QuantizeFolder(**checkpoint, **format, scheme, *plan, stopped, {.resume = true}, runtime_);
    ASSERT_TRUE(resumed) << resumed.error().message;
    EXPECT_GT(resumed->resumed_tensors, 0u);
    EXPECT_EQ(Bytes(stopped + "/model.safetensors"), Bytes(out + "/model.safetensors"));
  }
}

// Two matrices that become one name, or a part of a result that is there already: said by the plan, before any work.
TEST_F(UnknownFamily, NoNameIsMadeTwice) {
  const Tensor matrix(DType::kF32, Shape{64, 64}), stack(DType::kF32, Shape{2, 64, 64});
  const struct {
    const char *name, *method, *format;
  } cases[] = {{"layers.0.experts.1.w1.weight", "fp8", "compressed-tensors"}, {"layers.0.wq.weight_scale", "fp8", "compressed-tensors"},
               {"layers.0.wq.weight_scale_inv", "fp8", "fp8"},                {"layers.0.wq.weight.absmax", "nf4", "bitsandbytes"},
               {"layers.0.wq.qweight", "rtn", "gptq"},                        {"layers.0.wq.W_q", "hqq", "hqq"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    const auto checkpoint = Checkpoint::Open(WriteModelFolder("twice", kConfig, {{"layers.0.wq.weight", matrix.view()},
                                                                                 {"layers.0.experts.w1.weight", stack.view()},
                                                                                 {c.name, matrix.view()}}));
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    const auto format = MakeLinearFormat({c.method, c.format, 4, 32, std::string(c.method) != "hqq"});
    ASSERT_TRUE(format);
    const auto plan = PlanFolder(**checkpoint, **format);
    ASSERT_FALSE(plan);
    for (const char* said : {c.name, "would both be called", "'PATTERN keep'"})
      EXPECT_NE(plan.error().message.find(said), std::string::npos) << plan.error().message;
  }
}

TEST_F(UnknownFamily, RecipesKeepMoreAndNeverHalfAStack) {
  const auto checkpoint = Checkpoint::Open(Write());
  ASSERT_TRUE(checkpoint);
  const auto keep = ReadKeptMatrices("*.layers.0.attn.* keep\n*experts.*.down.* keep\n", "recipe", **checkpoint);
  ASSERT_TRUE(keep) << keep.error().message;
  EXPECT_EQ(keep->size(), 8u);
  const auto format = MakeLinearFormat({"fp8", "compressed-tensors"});
  ASSERT_TRUE(format);
  const auto plan = PlanFolder(**checkpoint, **format, *keep);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->tensors.size(), Linears().size() - 8);
  const auto half = ReadKeptMatrices("*experts.2.down.* keep\n", "recipe", **checkpoint);
  ASSERT_FALSE(half);
  EXPECT_NE(half.error().message.find("they lie in one tensor, so keep both"), std::string::npos) << half.error().message;
  const auto fused = ReadKeptMatrices("*.layers.0.attn.wk.* keep\n", "recipe", **checkpoint);
  ASSERT_FALSE(fused);
  EXPECT_NE(fused.error().message.find("engines run them as one matrix"), std::string::npos) << fused.error().message;
}

TEST_F(UnknownFamily, WhatNeedsARunIsRefusedByName) {
  const auto checkpoint = Checkpoint::Open(Write());
  ASSERT_TRUE(checkpoint);
  const auto needed = NeedsARun(**checkpoint, "--method gptq");
  ASSERT_FALSE(needed);
  for (const char* part : {"ZebraForConditionalGeneration", "--method gptq needs what hone knows of a family", "--method rtn, w8a8"})
    EXPECT_NE(needed.error().message.find(part), std::string::npos) << needed.error().message;
  EXPECT_TRUE(NeedsARun(**Checkpoint::Open(HONE_SOURCE_DIR "/assets/builtin/draft"), "--method gptq"));
  // GPT-2's matrices lie the other way round: rounding them by rows of the file would be wrong.
  std::vector<Tensor> data;
  for (const Shape& shape : {Shape{96, 64}, Shape{64, 192}, Shape{64, 256}}) data.emplace_back(DType::kF32, shape);
  const auto gpt2 = Checkpoint::Open(WriteModelFolder("gpt2", R"({"model_type": "gpt2"})", {{"wte.weight", data[0].view()},
                                                                                           {"h.0.attn.c_attn.weight", data[1].view()},
                                                                                           {"h.0.mlp.c_fc.weight", data[2].view()}}));
  const auto format = MakeLinearFormat({"fp8", "compressed-tensors"});
  ASSERT_TRUE(gpt2 && format);
  const auto plan = PlanFolder(**gpt2, **format);
  ASSERT_FALSE(plan);
  EXPECT_NE(plan.error().message.find("no linear layers to quantise; what is kept:"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().message.find("h.0.attn.c_attn.weight: input by output (Conv1D)"), std::string::npos) << plan.error().message;
  // A configuration that says nothing is an error as ever.
  const auto nameless = Checkpoint::Open(WriteModelFolder("nameless", "{}", (*checkpoint)->tensors()));
  ASSERT_TRUE(nameless);
  EXPECT_FALSE(FindFolderLinears(**nameless));
}

}  // namespace
}  // namespace hone
