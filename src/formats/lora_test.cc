// LoraFile: what a good adapter gives, and what is said of those that are none. Numbers: tests/golden/adapter_golden_test.cc.
#include "formats/lora.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "formats/test_bytes.h"

namespace hone {
namespace {

using Shapes = std::map<std::string, Shape>;

class Lora : public testing::Test {
 protected:
  static constexpr char kQ[] = "base_model.model.model.layers.0.self_attn.q_proj";

  static Shapes Pair(const std::string& module = kQ, int64_t rank = 2, int64_t in = 4, int64_t out = 6) {
    return {{module + ".lora_A.weight", Shape{rank, in}}, {module + ".lora_B.weight", Shape{out, rank}}};
  }
  // A PEFT folder; `more` are members of its configuration that come after the usual ones.
  std::string Peft(const Shapes& shapes, const std::string& more = "") {
    folder_.Write("adapter_config.json", R"({"peft_type":"LORA","r":2,"lora_alpha":8,"bias":"none","use_dora":false,"loftq_config":{},)"
                                         R"("rank_pattern":{},"alpha_pattern":{},"modules_to_save":null)" + (more.empty() ? "" : "," + more) + "}");
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape] : shapes) tensors.push_back({name, {DType::kF32, shape, reinterpret_cast<const std::byte*>(zeros_.data())}});
    EXPECT_TRUE(WriteSafetensors(folder_ / "adapter_model.safetensors", tensors, {}).has_value());
    return folder_.path();
  }
  using Metadata = std::vector<std::pair<std::string, GgufValue>>;
  static Metadata Good() {
    return {{"general.type", GgufValue::String("adapter")},
            {"general.architecture", GgufValue::String("llama")},
            {"adapter.type", GgufValue::String("lora")},
            {"adapter.lora.alpha", GgufValue::F32(8)}};
  }
  std::string Gguf(const Shapes& shapes, const Metadata& metadata = Good()) {
    std::vector<NamedTensor> tensors;
    for (const auto& [name, shape] : shapes) tensors.push_back({name, {DType::kF32, shape, reinterpret_cast<const std::byte*>(zeros_.data())}});
    EXPECT_TRUE(WriteGguf(folder_ / "adapter.gguf", {.metadata = metadata, .tensors = tensors}).has_value());
    return folder_ / "adapter.gguf";
  }
  static Shapes GgufPair(const std::string& weight = "blk.0.attn_q.weight") {
    return {{weight + ".lora_a", Shape{2, 4}}, {weight + ".lora_b", Shape{6, 2}}};
  }
  std::shared_ptr<const LoraFile> Open(const std::string& path) {
    auto file = LoraFile::Open(path);
    EXPECT_TRUE(file.has_value()) << file.error().message;
    return file.has_value() ? *file : nullptr;
  }

  const std::vector<float> zeros_ = std::vector<float>(200);
  const TempFolder folder_;
};

TEST_F(Lora, ReadsBothForms) {
  const auto peft = Open(Peft(Pair()));
  ASSERT_NE(peft, nullptr);
  EXPECT_FALSE(peft->is_gguf());
  ASSERT_EQ(peft->pairs().size(), 1u);
  EXPECT_EQ(peft->pairs()[0].target, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_EQ(peft->pairs()[0].rank(), 2);
  EXPECT_EQ(peft->pairs()[0].scale, 4);
  const auto gguf = Open(Gguf(GgufPair()));
  ASSERT_NE(gguf, nullptr);
  EXPECT_TRUE(gguf->is_gguf());
  EXPECT_EQ(gguf->architecture(), "llama");
  EXPECT_EQ(gguf->pairs()[0].target, "blk.0.attn_q.weight");
  EXPECT_EQ(gguf->pairs()[0].scale, 4);
  Metadata none = Good();
  none[3].second = GgufValue::F32(0);
  EXPECT_EQ(Open(Gguf(GgufPair(), none))->pairs()[0].scale, 1);
}

TEST_F(Lora, ScalesByPatternsAndSquareRoots) {
  EXPECT_FLOAT_EQ(Open(Peft(Pair(), R"("use_rslora":true)"))->pairs()[0].scale, 8 / std::sqrt(2.0f));
  for (const char* key : {"q_proj", "self_attn.q_proj", "model.layers.0.self_attn.q_proj", "^model.layers.0.self_attn.q_proj"}) {
    EXPECT_EQ(Open(Peft(Pair(), R"("alpha_pattern":{")" + std::string(key) + R"(":1})"))->pairs()[0].scale, 0.5f) << key;
  }
  for (const char* key : {"proj", "_proj", "^q_proj", "k_proj", "layers.0"}) {
    EXPECT_EQ(Open(Peft(Pair(), R"("alpha_pattern":{")" + std::string(key) + R"(":1})"))->pairs()[0].scale, 4) << key;
  }
  EXPECT_EQ(Open(Peft(Pair(kQ, 4), R"("rank_pattern":{"q_proj":4})"))->pairs()[0].scale, 2);
}

TEST_F(Lora, ContentIdsFollowTheContent) {
  const std::string id = Open(Peft(Pair()))->ContentId();
  EXPECT_EQ(Open(Peft(Pair()))->ContentId(), id);
  EXPECT_NE(Open(Peft(Pair(), R"("use_rslora":true)"))->ContentId(), id);
  EXPECT_NE(Open(Peft(Pair("base_model.model.model.layers.1.self_attn.q_proj")))->ContentId(), id);
  EXPECT_NE(Open(Peft(Pair(kQ, 2, 6, 4)))->ContentId(), id);
}

TEST_F(Lora, KindsThatAreMoreThanPairs) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("use_dora":true)", "use_dora"},
      {R"("modules_to_save":["lm_head"])", "modules_to_save"},
      {R"("bias":"all")", "bias"},
      {R"("lora_bias":true)", "lora_bias"},
      {R"("fan_in_fan_out":true)", "fan_in_fan_out"},
      {R"("layer_replication":[[0,4]])", "layer_replication"},
      {R"("trainable_token_indices":{"embed":[1]})", "trainable_token_indices"},
      {R"("target_parameters":["x"])", "target_parameters"},
      {R"("alora_invocation_tokens":[1,2])", "alora_invocation_tokens"},
      {R"("use_qalora":true)", "use_qalora"},
      {R"("use_something_new":true)", "use_something_new"},
      {R"("new_config":{"a":1})", "new_config"},
      {R"("peft_type":"IA3")", "IA3"},
      {R"("alpha_pattern":{".*q_proj":1})", "regular expression"},
      {R"("alpha_pattern":{"q_proj":1,"self_attn.q_proj":2})", "several keys"},
      {R"("alpha_pattern":{"q_proj":"x"})", "q_proj"},
      {R"("r":3)", "rank of model.layers.0.self_attn.q_proj is 3"},
      {R"("rank_pattern":{"q_proj":3})", "is 3"},
      {R"("lora_alpha":"x")", "lora_alpha"},
      {R"("lora_alpha":1e39)", "scale"},
  };
  for (const auto& [more, says] : cases) EXPECT_ERROR(LoraFile::Open(Peft(Pair(), more)), says);
}

TEST_F(Lora, TensorsThatBelongToNoPair) {
  const auto with = [&](const std::string& name, Shape shape) {
    Shapes shapes = Pair();
    shapes[name] = shape;
    return LoraFile::Open(Peft(shapes));
  };
  EXPECT_ERROR(with("base_model.model.model.norm.weight", Shape{4}), "model.norm.weight");
  EXPECT_ERROR(with(std::string(kQ) + ".lora_magnitude_vector", Shape{6}), "DoRA");
  EXPECT_ERROR(with("base_model.model.model.embed_tokens.lora_embedding_A", Shape{2, 9}), "embedding");
  EXPECT_ERROR(with("base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight", Shape{2, 4}), "only one of the two");
  EXPECT_ERROR(LoraFile::Open(Peft({})), "no tensors");
  EXPECT_TRUE(LoraFile::Open(Peft({{std::string(kQ) + ".lora_A.default.weight", Shape{2, 4}},
                                   {std::string(kQ) + ".lora_B.default.weight", Shape{6, 2}}})));
  Shapes gguf = GgufPair();
  gguf["output_norm.weight"] = Shape{4};
  EXPECT_ERROR(LoraFile::Open(Gguf(gguf)), "output_norm.weight");
  EXPECT_ERROR(LoraFile::Open(Gguf({{"blk.0.attn_q.weight.lora_a", Shape{2, 4}}})), "only one of the two");
  EXPECT_ERROR(LoraFile::Open(Gguf({{"e.lora_a", Shape{3, 2, 4}}, {"e.lora_b", Shape{3, 6, 2}}})), "each expert");
}

TEST_F(Lora, ShapesThatAreNoPair) {
  const auto shapes = [&](Shape a, Shape b) {
    return LoraFile::Open(Peft({{std::string(kQ) + ".lora_A.weight", a}, {std::string(kQ) + ".lora_B.weight", b}}));
  };
  EXPECT_ERROR(shapes(Shape{2, 4}, Shape{6, 3}), "lora_B");
  EXPECT_ERROR(shapes(Shape{2}, Shape{6, 2}), "lora_A");
  EXPECT_ERROR(shapes(Shape{0, 4}, Shape{6, 0}), "lora_A");
  EXPECT_ERROR(shapes(Shape{2, 4}, Shape{12}), "lora_B");
}

TEST_F(Lora, FilesThatAreNoAdapter) {
  const auto changed = [&](size_t i, GgufValue value) {
    Metadata metadata = Good();
    metadata[i].second = std::move(value);
    return LoraFile::Open(Gguf(GgufPair(), metadata));
  };
  EXPECT_ERROR(changed(0, GgufValue::String("model")), "wanted an adapter");
  EXPECT_ERROR(changed(2, GgufValue::String("control_vector")), "control_vector");
  EXPECT_ERROR(changed(3, GgufValue::String("8")), "adapter.lora.alpha");
  EXPECT_ERROR(changed(3, GgufValue::F32(INFINITY)), "finite");
  Metadata activated = Good();
  activated.emplace_back("adapter.alora.invocation_tokens", GgufValue::U32s({1}));
  EXPECT_ERROR(LoraFile::Open(Gguf(GgufPair(), activated)), "activated");
  EXPECT_ERROR(LoraFile::Open(folder_ / "nothing.gguf"), "nothing.gguf");
  const TempFolder empty;
  EXPECT_ERROR(LoraFile::Open(empty.path()), "adapter_config.json");
  Peft(Pair());
  EXPECT_ERROR(LoraFile::Open(folder_ / "adapter_model.safetensors"), "give the folder");
  std::filesystem::remove(folder_ / "adapter_model.safetensors");
  EXPECT_ERROR(LoraFile::Open(folder_.path()), "adapter_model.safetensors");
  folder_.Write("adapter_model.bin", "x");
  EXPECT_ERROR(LoraFile::Open(folder_.path()), "pickle");
}

}  // namespace
}  // namespace hone
