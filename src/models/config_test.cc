// Reading configurations: the odd forms found on the hub, and hostile ones. Each refusal must name what is wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/config_reader.h"
#include "models/family.h"
#include "models/model.h"
#include "models/test_checkpoint.h"

namespace hone {
namespace {

// A complete configuration with `changes` made: key to JSON text; an empty text removes the key.
std::string Json(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> all = {{"architectures", "[\"LlamaForCausalLM\"]"},
                                            {"model_type", "\"llama\""},
                                            {"num_hidden_layers", "3"},
                                            {"hidden_size", "64"},
                                            {"num_attention_heads", "4"},
                                            {"num_key_value_heads", "2"},
                                            {"intermediate_size", "96"},
                                            {"vocab_size", "100"},
                                            {"max_position_embeddings", "256"},
                                            {"rms_norm_eps", "1e-5"},
                                            {"rope_theta", "5000"}};
  for (const auto& [key, value] : changes) all[key] = value;
  std::string json = "{";
  for (const auto& [key, value] : all) {
    if (!value.empty()) json += (json.size() > 1 ? ", \"" : "\"") + key + "\": " + value;
  }
  return json + "}";
}

Result<ModelConfig> Read(const std::map<std::string, std::string>& changes) {
  return ReadModelConfig(*WriteFolder("config", Json(changes)));
}

std::map<std::string, std::string> As(const std::string& architecture,
                                      std::map<std::string, std::string> changes = {}) {
  changes["architectures"] = "[\"" + architecture + "\"]";
  return changes;
}

TEST(HfConfig, PlainLlama) {
  const auto config = Read({});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->architecture, "LlamaForCausalLM");
  EXPECT_EQ(config->layers, 3);
  EXPECT_EQ(config->width, 64);
  EXPECT_EQ(config->heads, 4);
  EXPECT_EQ(config->kv_heads, 2);
  EXPECT_EQ(config->head_width, 16);
  EXPECT_EQ(config->ffn_width, 96);
  EXPECT_EQ(config->vocab, 100);
  EXPECT_EQ(config->context, 256);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-5f);
  EXPECT_FALSE(config->tied_embeddings);
  ASSERT_EQ(config->ropes.size(), 1u);
  EXPECT_EQ(config->ropes[0].theta, 5000);
  EXPECT_EQ(config->ropes[0].rotary_width, 16);
  EXPECT_EQ(config->ropes[0].order, RopeOrder::kHalf);
  EXPECT_FLOAT_EQ(config->attention_scale, 0.25f);
  EXPECT_EQ(config->kv_bytes_per_token(2), 2u * 3 * 2 * 16 * 2);
}

TEST(HfConfig, AbsentKeysTakeTheClassDefaults) {
  auto config = Read({{"num_key_value_heads", ""}, {"rope_theta", ""}, {"rms_norm_eps", ""}, {"architectures", ""}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->ropes[0].theta, 10000);
  EXPECT_FLOAT_EQ(config->norm_eps, 1e-6f);
  config = Read(As("Gemma2ForCausalLM", {{"head_dim", "16"}}));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->activation, Activation::kGeluTanh);
  EXPECT_EQ(config->attention_soft_cap, 50);
  EXPECT_EQ(config->logits_soft_cap, 30);
  EXPECT_FLOAT_EQ(config->embedding_scale, 8);
  EXPECT_FLOAT_EQ(config->attention_scale, 1.0f / 16);
}

TEST(HfConfig, VocabularyComesFromTheEmbeddingWhereAbsent) {
  const auto checkpoint =
      WriteFolder("vocab", Json({{"vocab_size", ""}}), {{"model.embed_tokens.weight", Shape{77, 64}}});
  const auto config = ReadModelConfig(*checkpoint);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->vocab, 77);
}

std::vector<int> Windows(const ModelConfig& config) {
  std::vector<int> windows;
  for (const LayerConfig& layer : config.layer) windows.push_back(layer.window);
  return windows;
}

TEST(HfConfig, WindowsByFamily) {
  using V = std::vector<int>;
  struct {
    std::map<std::string, std::string> changes;
    V windows;
  } cases[] = {
      {{{"sliding_window", "9"}}, V{0, 0, 0}},  // Llama has no such key
      {As("MistralForCausalLM", {{"sliding_window", "9"}}), V{9, 9, 9}},
      {As("MistralForCausalLM", {{"sliding_window", "null"}}), V{0, 0, 0}},
      {As("MistralForCausalLM"), V{4096, 4096, 4096}},
      {As("MixtralForCausalLM", {{"sliding_window", "null"}}), V{0, 0, 0}},
      {As("Phi3ForCausalLM", {{"sliding_window", "9"}}), V{9, 9, 9}},
      {As("Qwen2ForCausalLM", {{"sliding_window", "9"}}), V{0, 0, 0}},
      {As("Qwen2ForCausalLM", {{"sliding_window", "9"}, {"use_sliding_window", "true"}, {"max_window_layers", "1"}}),
       V{0, 9, 9}},
      {As("Qwen3ForCausalLM", {{"sliding_window", "9"},
                               {"use_sliding_window", "true"},
                               {"layer_types", R"(["sliding_attention", "full_attention", "sliding_attention"])"}}),
       V{9, 0, 9}},
      {As("Gemma2ForCausalLM", {{"sliding_window", "9"}}), V{9, 0, 9}},
      {As("Gemma3ForCausalLM", {{"sliding_window", "9"}, {"sliding_window_pattern", "2"}}), V{9, 0, 9}},
      {As("Gemma3ForCausalLM",
          {{"sliding_window", "9"}, {"layer_types", R"(["full_attention", "sliding_attention", "full_attention"])"}}),
       V{0, 9, 0}},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(Json(one.changes));
    const auto config = Read(one.changes);
    ASSERT_TRUE(config.has_value()) << config.error().message;
    EXPECT_EQ(Windows(*config), one.windows);
  }
}

TEST(HfConfig, RopeScalingInAllItsForms) {
  auto config = Read({{"rope_scaling", R"({"type": "linear", "factor": 4.0})"}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->ropes[0].scaling, RopeScaling::kLinear);
  EXPECT_EQ(config->ropes[0].factor, 4);

  config = Read({{"rope_theta", ""}, {"rope_parameters", R"({"rope_type": "default", "rope_theta": 123.0})"}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->ropes[0].scaling, RopeScaling::kNone);
  EXPECT_EQ(config->ropes[0].theta, 123);

  config = Read({{"rope_scaling", R"({"type": "yarn", "factor": 40, "original_max_position_embeddings": 64,
                                      "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 16, "truncate": false})"}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_DOUBLE_EQ(config->ropes[0].attention_factor, 1);
  EXPECT_EQ(config->ropes[0].beta_fast, 16);
  EXPECT_FALSE(config->ropes[0].truncate);

  config = Read(As("Phi3ForCausalLM",
                   {{"partial_rotary_factor", "0.5"},
                    {"original_max_position_embeddings", "32"},
                    {"rope_scaling", R"({"type": "su", "short_factor": [1,1,1,1], "long_factor": [1,2,3,4]})"}}));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->ropes[0].scaling, RopeScaling::kLongRope);
  EXPECT_EQ(config->ropes[0].rotary_width, 8);
  EXPECT_EQ(config->ropes[0].factor, 8);
}

TEST(HfConfig, Gemma3HasTwoRopes) {
  auto config = Read(As("Gemma3ForCausalLM", {{"rope_local_base_freq", "7000"},
                                              {"sliding_window_pattern", "3"},
                                              {"rope_scaling", R"({"rope_type": "linear", "factor": 8})"}}));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  ASSERT_EQ(config->ropes.size(), 2u);
  EXPECT_EQ(config->ropes[config->layer[0].rope].theta, 7000);
  EXPECT_EQ(config->ropes[config->layer[0].rope].scaling, RopeScaling::kNone);
  EXPECT_EQ(config->ropes[config->layer[2].rope].theta, 5000);
  EXPECT_EQ(config->ropes[config->layer[2].rope].scaling, RopeScaling::kLinear);

  // transformers 5.
  config =
      Read(As("Gemma3ForCausalLM", {{"rope_theta", ""},
                                    {"sliding_window_pattern", "3"},
                                    {"rope_parameters",
                                     R"({"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1000000},
          "sliding_attention": {"rope_type": "default", "rope_theta": 9000}})"}}));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->ropes[config->layer[0].rope].theta, 9000);
  EXPECT_EQ(config->ropes[config->layer[2].rope].theta, 1e6);
  EXPECT_EQ(config->ropes[config->layer[2].rope].factor, 8);
}

TEST(HfConfig, TextPartOfAMultimodalModel) {
  const auto checkpoint =
      WriteFolder("multimodal", R"({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024, "vocab_size": 262208},
    "vision_config": {"hidden_size": 1152}})");
  const auto config = ReadModelConfig(*checkpoint);
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->heads, 8);
  EXPECT_EQ(config->kv_heads, 4);
  EXPECT_EQ(config->head_width, 256);
  EXPECT_EQ(config->context, 131072);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->layer[5].window, 0);
  EXPECT_EQ(config->layer[6].window, 1024);
}

TEST(HfConfig, ExpertsAndDenseLayers) {
  const auto config = Read(As("Qwen3MoeForCausalLM", {{"num_experts", "8"},
                                                      {"num_experts_per_tok", "2"},
                                                      {"moe_intermediate_size", "24"},
                                                      {"mlp_only_layers", "[1]"},
                                                      {"norm_topk_prob", "true"}}));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_TRUE(config->layer[0].experts);
  EXPECT_FALSE(config->layer[1].experts);
  EXPECT_TRUE(config->layer[2].experts);
  EXPECT_TRUE(config->renormalise_experts);
  EXPECT_EQ(config->expert_ffn_width, 24);
}

TEST(HfConfig, ExpertsOfNoLayerAreForgotten) {
  const auto config = Read(As("Qwen3MoeForCausalLM", {{"num_experts", "4096"},
                                                      {"num_experts_per_tok", "4096"},
                                                      {"moe_intermediate_size", "2000000"},
                                                      {"mlp_only_layers", "[0, 1, 2]"}}));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->experts, 0);
  EXPECT_EQ(config->experts_per_token, 0);
  EXPECT_EQ(config->expert_ffn_width, 0);
}

struct Refusal {
  std::map<std::string, std::string> changes;
  ErrorCode code;
  std::string says;  // a part of the message
};

TEST(HfConfig, RefusesByName) {
  constexpr ErrorCode kBad = ErrorCode::kInvalidInput, kNo = ErrorCode::kUnsupported;
  const Refusal cases[] = {
      {{{"hidden_size", "0"}}, kBad, "hidden_size is 0"},
      {{{"hidden_size", "-64"}}, kBad, "hidden_size is -64"},
      {{{"hidden_size", "1e18"}}, kBad, "hidden_size"},
      {{{"hidden_size", "\"64\""}}, kBad, "hidden_size"},
      {{{"hidden_size", "64.5"}}, kBad, "hidden_size"},
      {{{"hidden_size", ""}}, kBad, "hidden_size is missing"},
      {{{"hidden_size", "NaN"}}, kBad, "hidden_size"},
      {{{"num_hidden_layers", "1000000000"}}, kBad, "num_hidden_layers is 1000000000"},
      {{{"num_attention_heads", "128"}}, kBad, "head_dim"},
      {{{"num_key_value_heads", "3"}}, kBad, "3 key/value heads"},
      {{{"num_key_value_heads", "0"}}, kBad, "num_key_value_heads is 0"},
      {{{"head_dim", "100000"}}, kBad, "head_dim is 100000"},
      {{{"head_dim", "15"}}, kBad, "rotary width is 15"},
      {{{"vocab_size", "99999999999"}}, kBad, "vocab_size"},
      {{{"vocab_size", ""}}, kBad, "vocab_size is missing"},
      {{{"max_position_embeddings", "-1"}}, kBad, "max_position_embeddings is -1"},
      {{{"rms_norm_eps", "NaN"}}, kBad, "rms_norm_eps"},
      {{{"rms_norm_eps", "-1"}}, kBad, "rms_norm_eps is -1"},
      {{{"rms_norm_eps", "Infinity"}}, kBad, "rms_norm_eps"},
      {{{"rope_theta", "0"}}, kBad, "rope_theta is 0"},
      {{{"rope_theta", "-Infinity"}}, kBad, "rope_theta"},
      {{{"hidden_act", "\"relu\""}}, kNo, "hidden_act is \"relu\""},
      {{{"tie_word_embeddings", "3"}}, kBad, "tie_word_embeddings"},
      {{{"rope_scaling", R"({"type": "dynamic", "factor": 2})"}}, kNo, "\"dynamic\""},
      {{{"rope_scaling", R"({"type": "linear"})"}}, kBad, "no factor"},
      {{{"rope_scaling", R"({"type": "linear", "factor": 0})"}}, kBad, "factor is 0"},
      {{{"rope_scaling", R"({"type": "linear", "factor": NaN})"}}, kBad, "factor"},
      {{{"rope_scaling", "7"}}, kBad, "rope_scaling"},
      {{{"rope_scaling", R"({"type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4})"}},
       kBad,
       "high_freq_factor"},
      {{{"rope_scaling", R"({"type": "longrope", "short_factor": [1], "long_factor": [1]})"}},
       kBad,
       "short_factor has 1 numbers; wanted 8"},
      {{{"rope_scaling",
         R"({"type": "longrope", "short_factor": [1,1,1,1,1,1,1,0], "long_factor": [1,1,1,1,1,1,1,1]})"}},
       kBad,
       "factor is 0"},
      {{{"partial_rotary_factor", "2"}}, kBad, "partial_rotary_factor is 2"},
      {{{"attn_logit_softcapping", "50.0"}}, kNo, "attn_logit_softcapping"},
      {{{"quantization_config", R"({"quant_method": "quark", "bits": 4})"}}, kNo, "\"quark\""},
      {{{"quantization_config", R"({"quant_method": "awq", "version": "gemv"})"}}, kNo, "\"gemv\""},
      {{{"quantization_config", R"({"quant_method": "gptq", "checkpoint_format": "marlin"})"}}, kNo, "\"marlin\""},
      {As("MistralForCausalLM", {{"sliding_window", "-4"}}), kBad, "sliding_window is -4"},
      {As("MistralForCausalLM", {{"sliding_window", "4"}, {"layer_types", R"(["full_attention"])"}}), kBad,
       "layer_types has 1"},
      {As("MistralForCausalLM",
          {{"sliding_window", "4"}, {"layer_types", R"(["full_attention", "linear_attention", "full_attention"])"}}),
       kNo, "linear_attention"},
      {As("MixtralForCausalLM", {{"num_local_experts", "2"}, {"num_experts_per_tok", "3"}}), kBad,
       "num_experts_per_tok is 3"},
      {As("MixtralForCausalLM", {{"num_local_experts", "0"}}), kBad, "num_local_experts is 0"},
      {As("MixtralForCausalLM", {{"num_local_experts", "99999"}}), kBad, "num_local_experts is 99999"},
      {As("MixtralForCausalLM", {{"num_local_experts", "100"}, {"num_experts_per_tok", "65"}}), kBad,
       "65 of 100 experts"},
      {As("Gemma2ForCausalLM", {{"query_pre_attn_scalar", "0"}}), kBad, "query_pre_attn_scalar is 0"},
      {As("GraniteForCausalLM", {{"logits_scaling", "0"}}), kBad, "logits_scaling is 0"},
      {As("MambaForCausalLM"), kNo, "known families: llama, mixtral"},
      {{{"architectures", "[]"}, {"model_type", "\"rwkv\""}}, kNo, "\"rwkv\""},
      {{{"architectures", ""}, {"model_type", ""}}, kBad, "model_type"},
  };
  for (const Refusal& one : cases) {
    SCOPED_TRACE(Json(one.changes));
    const auto config = Read(one.changes);
    ASSERT_FALSE(config.has_value());
    EXPECT_EQ(config.error().code, one.code) << config.error().message;
    EXPECT_NE(config.error().message.find(one.says), std::string::npos) << config.error().message;
    EXPECT_NE(config.error().message.find("config.json"), std::string::npos) << config.error().message;
  }
}

// GGUF.

GgufMetadata Metadata(const std::string& architecture, const GgufMetadata& changes = {}) {
  GgufMetadata all = {{"general.architecture", GgufText(architecture)}};
  const auto add = [&](const std::string& key, GgufValue value) { all.emplace_back(architecture + "." + key, value); };
  add("block_count", GgufInt(3));
  add("context_length", GgufInt(256));
  add("embedding_length", GgufInt(64));
  add("feed_forward_length", GgufInt(96));
  add("attention.head_count", GgufInt(4));
  add("attention.head_count_kv", GgufInt(2));
  add("attention.layer_norm_rms_epsilon", GgufFloat(1e-5));
  add("vocab_size", GgufInt(100));
  for (const auto& [key, value] : changes) {
    const std::string name =
        key.rfind("general.", 0) == 0 || key.rfind("tokenizer.", 0) == 0 ? key : architecture + "." + key;
    const auto there = std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.first == name; });
    if (there == all.end()) {
      all.emplace_back(name, value);
    } else {
      there->second = value;
    }
  }
  return all;
}

Result<ModelConfig> ReadGguf(const std::string& architecture, const GgufMetadata& changes = {}) {
  return ReadModelConfig(*WriteGgufFile("gguf", Metadata(architecture, changes)));
}

TEST(GgufConfig, FamiliesAndTheirConventions) {
  auto config = ReadGguf("llama");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->family, "llama");
  EXPECT_EQ(config->head_width, 16);
  EXPECT_EQ(config->ropes[0].order, RopeOrder::kInterleaved);
  EXPECT_EQ(config->ropes[0].theta, 10000);
  EXPECT_TRUE(config->tied_embeddings);  // no output.weight

  config = ReadGguf("llama", {{"expert_count", GgufInt(4)}, {"expert_used_count", GgufInt(2)}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->family, "mixtral");
  EXPECT_EQ(config->expert_ffn_width, 96);
  EXPECT_TRUE(config->layer[2].experts);

  config = ReadGguf("qwen2", {{"rope.scaling.type", GgufText("yarn")},
                              {"rope.scaling.factor", GgufFloat(4)},
                              {"rope.scaling.original_context_length", GgufInt(64)}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->ropes[0].order, RopeOrder::kHalf);
  EXPECT_EQ(config->ropes[0].scaling, RopeScaling::kYarn);
  EXPECT_EQ(config->ropes[0].original_context, 64);
  EXPECT_TRUE(config->qkv_bias);

  config = ReadGguf("gemma3", {{"attention.sliding_window", GgufInt(12)},
                               {"rope.freq_base", GgufFloat(1e6)},
                               {"attention.sliding_window_pattern", GgufInt(2)},
                               {"attention.key_length", GgufInt(24)},
                               {"attention.value_length", GgufInt(24)}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(Windows(*config), (std::vector<int>{12, 0, 12}));
  EXPECT_EQ(config->head_width, 24);
  EXPECT_EQ(config->ropes[config->layer[0].rope].theta, 10000);
  EXPECT_EQ(config->ropes[config->layer[1].rope].theta, 1e6);
  EXPECT_FALSE(config->norms_store_minus_one);

  config = ReadGguf("gemma3",
                    {{"attention.sliding_window", GgufInt(12)},
                     {"attention.sliding_window_pattern", GgufValue{.type = GgufType::kArray,
                                                                    .element_type = GgufType::kBool,
                                                                    .value = std::vector<bool>{false, true, true}}}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(Windows(*config), (std::vector<int>{0, 12, 12}));

  // Gemma 2 27B scales by D / H, the others by the head width.
  config = ReadGguf(
      "gemma2",
      {{"block_count", GgufInt(46)}, {"attention.key_length", GgufInt(4)}, {"attention.value_length", GgufInt(4)}});
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_FLOAT_EQ(config->attention_scale, 0.25f);
}

TEST(GgufConfig, VocabularyFromKeyOrTokens) {
  GgufMetadata metadata =
      Metadata("llama", {{"tokenizer.ggml.tokens", GgufValue{.type = GgufType::kArray,
                                                             .element_type = GgufType::kString,
                                                             .value = std::vector<std::string>{"a", "b", "c"}}}});
  std::erase_if(metadata, [](const auto& entry) { return entry.first == "llama.vocab_size"; });
  const auto config = ReadModelConfig(*WriteGgufFile("tokens", metadata));
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->vocab, 3);
}

TEST(GgufConfig, RefusesByName) {
  constexpr ErrorCode kBad = ErrorCode::kInvalidInput, kNo = ErrorCode::kUnsupported;
  struct {
    std::string architecture;
    GgufMetadata changes;
    ErrorCode code;
    std::string says;
  } cases[] = {
      {"mamba", {}, kNo, "architecture \"mamba\" is not supported"},
      {"llama", {{"block_count", GgufInt(0)}}, kBad, "llama.block_count is 0"},
      {"llama", {{"embedding_length", GgufInt(4000000000)}}, kBad, "llama.embedding_length is 4000000000"},
      {"llama", {{"attention.head_count_kv", GgufInt(3)}}, kBad, "3 key/value heads"},
      {"llama", {{"attention.head_count", GgufText("4")}}, kBad, "llama.attention.head_count"},
      {"llama", {{"attention.key_length", GgufInt(8)}, {"attention.value_length", GgufInt(16)}}, kNo, "values 16"},
      {"llama", {{"rope.dimension_count", GgufInt(32)}}, kBad, "rotary width is 32"},
      {"llama", {{"rope.freq_base", GgufFloat(NAN)}}, kBad, "rope.freq_base"},
      {"llama", {{"rope.scaling.type", GgufText("ntk")}}, kNo, "\"ntk\""},
      {"llama", {{"rope.scaling.type", GgufText("longrope")}}, kBad, "rope_factors_short.weight"},
      {"llama", {{"expert_count", GgufInt(4)}, {"expert_used_count", GgufInt(5)}}, kBad, "expert_used_count is 5"},
      {"llama", {{"attention.layer_norm_rms_epsilon", GgufFloat(-1)}}, kBad, "layer_norm_rms_epsilon is -1"},
      {"granite", {{"logit_scale", GgufFloat(0)}}, kBad, "logit_scale is 0"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.architecture + ": " + one.says);
    const auto config = ReadGguf(one.architecture, one.changes);
    ASSERT_FALSE(config.has_value());
    EXPECT_EQ(config.error().code, one.code) << config.error().message;
    EXPECT_NE(config.error().message.find(one.says), std::string::npos) << config.error().message;
    EXPECT_NE(config.error().message.find("model.gguf"), std::string::npos) << config.error().message;
  }
}

TEST(Families, HaveDistinctNames) {
  std::map<std::string_view, int> names, hf_names;
  for (const Family* family : Families()) {
    EXPECT_EQ(names[family->name]++, 0) << family->name;
    for (const std::string_view name : family->hf_names) EXPECT_EQ(hf_names[name]++, 0) << name;
    EXPECT_FALSE(family->gguf_names.empty());
    EXPECT_TRUE(family->read_hf && family->read_gguf && family->layer_tensors && family->layer);
  }
}

}  // namespace
}  // namespace hone
