// Loading: what is checked before anything is packed, what is said when a check fails, and what is ignored.
#include "models/model.h"

#include <gtest/gtest.h>

#include "models/family.h"
#include "models/test_checkpoint.h"
#include "models/weight_map.h"

namespace hone {
namespace {

class ModelLoad : public testing::Test {
 protected:
  Result<std::unique_ptr<Model>> Load(std::shared_ptr<const Checkpoint> checkpoint, LoadOptions options = {}) {
    return Model::Load(std::move(checkpoint),
                       {.cpu = &cpu_, .isa = Isa::kScalar, .threads = &threads_, .log = &log_, .clock = &clock_},
                       options);
  }
  std::string ErrorOf(std::shared_ptr<const Checkpoint> checkpoint) {
    const auto model = Load(std::move(checkpoint));
    return model.has_value() ? "loaded" : model.error().message;
  }

  CpuFacts cpu_ = ReadCpuFacts();
  ThreadPool threads_{2};
  Log log_{LogLevel::kOff};
  Clock clock_;
};

TEST_F(ModelLoad, LoadsAndReportsProgress) {
  uint64_t last = 0, total = 0;
  LoadOptions options{.max_rows = 8};
  options.progress = [&](uint64_t done, uint64_t all) {
    EXPECT_GE(done, last);
    last = done;
    total = all;
  };
  const auto model = Load(WriteFolder("good", kLlamaConfig, LlamaTensors()), options);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(last, total);
  uint64_t bytes = 0;
  for (const auto& [name, shape] : LlamaTensors()) bytes += shape.elements() * 4;
  EXPECT_EQ(total, bytes);
  EXPECT_GE((*model)->weight_bytes(), bytes - 10 * 16 * 4);  // all but the embedding, which stays in the file
  EXPECT_EQ((*model)->config().layers, 2);
  EXPECT_EQ((*model)->options().max_context, 64);
}

TEST_F(ModelLoad, EveryMissingTensorIsNamed) {
  const auto all = LlamaTensors();
  for (const auto& [name, shape] : all) {
    auto tensors = all;
    tensors.erase(name);
    const std::string message = ErrorOf(WriteFolder("missing", kLlamaConfig, tensors));
    EXPECT_NE(message.find(name + " is missing; wanted " + shape.ToString()), std::string::npos) << message;
  }
}

TEST_F(ModelLoad, EveryWrongShapeIsNamed) {
  const auto all = LlamaTensors();
  for (const auto& [name, shape] : all) {
    auto tensors = all;
    tensors[name] = shape.rank() == 1 ? Shape{15} : Shape{shape[0], shape[1] + 1};
    const std::string message = ErrorOf(WriteFolder("shape", kLlamaConfig, tensors));
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find(tensors[name].ToString()), std::string::npos) << message;
    EXPECT_NE(message.find(shape.ToString()), std::string::npos) << message;
  }
}

TEST_F(ModelLoad, AnIntegerTensorIsNoWeight) {
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  const std::string message = ErrorOf(WriteFolder("type", kLlamaConfig, LlamaTensors(), {{name, DType::kI32}}));
  EXPECT_NE(message.find(name + " is of type I32"), std::string::npos) << message;
}

TEST_F(ModelLoad, NoWeightsIsAnError) {
  const std::string message = ErrorOf(WriteFolder("empty", kLlamaConfig));
  EXPECT_NE(message.find("has no weights"), std::string::npos) << message;
}

Result<WeightMap> MapOf(const Checkpoint& checkpoint) {
  HONE_TRY(const Family* family, FindFamily(checkpoint));
  HONE_TRY(const ModelConfig config, ReadModelConfig(checkpoint));
  return WeightMap::Make(checkpoint, *family, config);
}

TEST_F(ModelLoad, UnknownTensorsAreListedAndKnownLeftoversAreNot) {
  auto tensors = LlamaTensors();
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = Shape{4};
  tensors["model.layers.0.self_attn.q_proj.bias"] = Shape{16};
  const auto checkpoint = WriteFolder("unused", kLlamaConfig, tensors);
  const auto map = MapOf(*checkpoint);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  EXPECT_EQ(map->unused(), std::vector<std::string>{"model.layers.0.self_attn.q_proj.bias"});
  EXPECT_EQ(ErrorOf(checkpoint), "loaded");
}

TEST_F(ModelLoad, BaseModelsWithoutTheirPrefix) {
  std::map<std::string, Shape> tensors;
  for (const auto& [name, shape] : LlamaTensors())
    tensors[name.rfind("model.", 0) == 0 ? name.substr(6) : name] = shape;
  EXPECT_EQ(ErrorOf(WriteFolder("prefix", kLlamaConfig, tensors)), "loaded");
}

TEST_F(ModelLoad, CanonicalNamesSplitFusedTensors) {
  const char config[] = R"({"architectures": ["Phi3ForCausalLM"], "num_hidden_layers": 1, "hidden_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 24, "vocab_size": 10,
    "max_position_embeddings": 64, "tie_word_embeddings": true})";
  const auto checkpoint = WriteFolder("fused", config,
                                      {{"model.embed_tokens.weight", Shape{10, 16}},
                                       {"model.norm.weight", Shape{16}},
                                       {"model.layers.0.input_layernorm.weight", Shape{16}},
                                       {"model.layers.0.post_attention_layernorm.weight", Shape{16}},
                                       {"model.layers.0.self_attn.qkv_proj.weight", Shape{32, 16}},
                                       {"model.layers.0.self_attn.o_proj.weight", Shape{16, 16}},
                                       {"model.layers.0.mlp.gate_up_proj.weight", Shape{48, 16}},
                                       {"model.layers.0.mlp.down_proj.weight", Shape{16, 24}}});
  const auto map = MapOf(*checkpoint);
  ASSERT_TRUE(map.has_value()) << map.error().message;
  const TensorView whole = checkpoint->FindTensor("model.layers.0.self_attn.qkv_proj.weight")->view;
  EXPECT_EQ(map->Find("blk.0.attn_q.weight")->view.data, whole.data);
  EXPECT_EQ(map->Find("blk.0.attn_k.weight")->view.data, whole.data + 16 * 16 * 4);
  EXPECT_EQ(map->Find("blk.0.attn_v.weight")->view.data, whole.data + 24 * 16 * 4);
  EXPECT_EQ(map->Find("blk.0.attn_v.weight")->view.shape, (Shape{8, 16}));
  EXPECT_EQ(map->Find("blk.0.ffn_up.weight")->view.shape, (Shape{24, 16}));
  EXPECT_EQ(map->Find("output.weight"), nullptr);  // tied
  EXPECT_EQ(map->Find("blk.1.attn_q.weight"), nullptr);
}

}  // namespace
}  // namespace hone
