// Adapters that do not fit a model: each is refused with a reason, and nothing is loaded. That those which fit are right:
// tests/golden/adapter_golden_test.cc.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "models/low_rank.h"
#include "models/model.h"
#include "models/test_checkpoint.h"

namespace hone {
namespace {

constexpr char kConfig[] =
    R"({"architectures":["LlamaForCausalLM"],"hidden_size":8,"intermediate_size":16,"num_hidden_layers":1,"num_attention_heads":2,)"
    R"("num_key_value_heads":1,"vocab_size":10,"max_position_embeddings":64,"rms_norm_eps":1e-5,"tie_word_embeddings":true})";

class AdapterTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string layer = "model.layers.0.";
    const auto checkpoint = WriteFolder("adapter_base", kConfig,
                                        {{"model.embed_tokens.weight", Shape{10, 8}},
                                         {"model.norm.weight", Shape{8}},
                                         {layer + "input_layernorm.weight", Shape{8}},
                                         {layer + "post_attention_layernorm.weight", Shape{8}},
                                         {layer + "self_attn.q_proj.weight", Shape{8, 8}},
                                         {layer + "self_attn.k_proj.weight", Shape{4, 8}},
                                         {layer + "self_attn.v_proj.weight", Shape{4, 8}},
                                         {layer + "self_attn.o_proj.weight", Shape{8, 8}},
                                         {layer + "mlp.gate_proj.weight", Shape{16, 8}},
                                         {layer + "mlp.up_proj.weight", Shape{16, 8}},
                                         {layer + "mlp.down_proj.weight", Shape{8, 16}}});
    auto model = Model::Load(checkpoint, {.cpu = &cpu_, .threads = &threads_, .log = &log_, .clock = &clock_}, {.max_rows = 8});
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = std::move(*model);
  }

  // A PEFT folder of one pair.
  Result<std::shared_ptr<const Adapter>> Peft(const std::string& module, int64_t in, int64_t out, float value = 0.5f,
                                              DType type = DType::kF32) {
    const std::string folder = FreshFolder("adapter_peft");
    std::ofstream(folder + "/adapter_config.json") << R"({"peft_type":"LORA","r":2,"lora_alpha":2})";
    Tensor a(type, Shape{2, in}), b(type, Shape{out, 2});
    if (type == DType::kF32) std::fill_n(a.as<float>(), 2 * in, 0.25f), std::fill_n(b.as<float>(), 2 * out, value);
    const auto written = WriteSafetensors(folder + "/adapter_model.safetensors",
                                          {{"base_model.model." + module + ".lora_A.weight", a.view()},
                                           {"base_model.model." + module + ".lora_B.weight", b.view()}}, {});
    EXPECT_TRUE(written.has_value());
    return model_->LoadAdapter(folder);
  }
  Result<std::shared_ptr<const Adapter>> Gguf(const std::string& architecture, const std::string& weight) {
    Tensor a(DType::kF32, Shape{2, 8}), b(DType::kF32, Shape{8, 2});
    const std::string path = FreshFolder("adapter_gguf") + "/a.gguf";
    const auto written = WriteGguf(path, {.metadata = {{"general.type", GgufText("adapter")},
                                                       {"general.architecture", GgufText(architecture)},
                                                       {"adapter.type", GgufText("lora")},
                                                       {"adapter.lora.alpha", GgufFloat(2)}},
                                          .tensors = {{weight + ".lora_a", a.view()}, {weight + ".lora_b", b.view()}}});
    EXPECT_TRUE(written.has_value());
    return model_->LoadAdapter(path);
  }
  static void ExpectRefused(const Result<std::shared_ptr<const Adapter>>& result, const std::string& says) {
    ASSERT_FALSE(result.has_value()) << says;
    EXPECT_NE(result.error().message.find(says), std::string::npos) << result.error().message;
  }

  CpuFacts cpu_ = ReadCpuFacts();
  Log log_{LogLevel::kOff};
  Clock clock_;
  ThreadPool threads_{1};
  std::unique_ptr<Model> model_;
};

constexpr char kQ[] = "model.layers.0.self_attn.q_proj";

TEST_F(AdapterTest, OneThatFits) {
  const auto adapter = Peft(kQ, 8, 8);
  ASSERT_TRUE(adapter.has_value()) << adapter.error().message;
  const AdapterInfo& info = (*adapter)->info();
  EXPECT_EQ(info.model, model_.get());
  EXPECT_EQ(info.rank, 2);
  EXPECT_EQ(info.matrices, 1);
  EXPECT_GT(info.bytes, 0u);
  EXPECT_EQ(info.content_id.size(), 32u);
  EXPECT_EQ((*Peft(kQ, 8, 8))->info().content_id, info.content_id);
  EXPECT_NE((*Peft(kQ, 8, 8, 0.75f))->info().content_id, info.content_id);
  EXPECT_TRUE(Gguf("llama", "blk.0.attn_q.weight").has_value());
  EXPECT_TRUE(Peft("lm_head", 8, 10).has_value()) << "the output, also where it shares its weights with the embedding";
}

TEST_F(AdapterTest, OtherShapes) {
  ExpectRefused(Peft(kQ, 16, 8), "is for a weight [8, 16]; this model's is [8, 8]");
  ExpectRefused(Peft(kQ, 8, 16), "is for a weight [16, 8]");
  ExpectRefused(Peft("lm_head", 8, 11), "lm_head");
}

TEST_F(AdapterTest, WeightsThatTheModelLacks) {
  ExpectRefused(Peft("model.layers.1.self_attn.q_proj", 8, 8), "model.layers.1.self_attn.q_proj");
  ExpectRefused(Peft("model.layers.0.self_attn.Wqkv", 8, 8), "Wqkv");
  ExpectRefused(Peft("transformer.layers.0.self_attn.q_proj", 8, 8), "transformer");
  ExpectRefused(Peft("model.layers.0.input_layernorm", 8, 8), "input_layernorm");
  ExpectRefused(Peft("model.layers.0.mlp.experts.3.w1", 8, 16), "experts");
  ExpectRefused(Peft("model.embed_tokens", 8, 10), "embedding");
  ExpectRefused(Gguf("llama", "blk.7.attn_q.weight"), "blk.7.attn_q.weight");
  ExpectRefused(Gguf("llama", "token_embd.weight"), "embedding");
}

TEST_F(AdapterTest, OfAnotherArchitecture) { ExpectRefused(Gguf("qwen3", "blk.0.attn_q.weight"), "architecture \"qwen3\""); }

TEST_F(AdapterTest, NumbersThatAreNone) {
  ExpectRefused(Peft(kQ, 8, 8, NAN), "not finite");
  ExpectRefused(Peft(kQ, 8, 8, -INFINITY), "not finite");
  ExpectRefused(Peft(kQ, 8, 8, 0, DType::kI32), "type");
  ExpectRefused(model_->LoadAdapter("/no/such/adapter"), "/no/such/adapter");
}

TEST(AdapterRows, NeighboursWithTheSameAdapterStandTogether) {
  const LowRankAdapter one({}, {}), two({}, {});
  const std::vector<int32_t> tokens(12), wanted{0, 3, 4, 6, 7, 11};
  std::vector<SequenceRows> sequences;
  const auto add = [&](int rows, const Adapter* adapter) {
    const int first = sequences.empty() ? 0 : sequences.back().first_row + sequences.back().rows;
    sequences.push_back({.first_row = first, .rows = rows, .adapter = adapter});
  };
  add(3, &one), add(1, &one), add(2, nullptr), add(0, &two), add(1, &one), add(4, &two), add(1, &two);
  std::vector<AdapterRows> rows;
  const auto expect = [&](std::vector<AdapterRows> expected) {
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].adapter, expected[i].adapter) << i;
      EXPECT_EQ(rows[i].first, expected[i].first) << i;
      EXPECT_EQ(rows[i].rows, expected[i].rows) << i;
    }
  };
  FindAdapterRows({tokens, sequences, wanted}, false, &rows);
  expect({{&one, 0, 4}, {&one, 6, 1}, {&two, 7, 5}});
  FindAdapterRows({tokens, sequences, wanted}, true, &rows);
  expect({{&one, 0, 2}, {&one, 3, 1}, {&two, 4, 2}});
}

}  // namespace
}  // namespace hone
