// Shapes against published counts, bytes against published files, the worked examples of docs/plan.md, predictions
// against closed forms, and bad input.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/test_shared.h"
#include "kernels/attention/kv_view.h"
#include "measure/plan/deployment.h"
#include "measure/plan/read_shape.h"

namespace hone {
namespace {

const ModelShape& PublicShape(const char* name) { return *FindPublicShape(name); }

Deployment Plan(const char* shape, const char* format, const char* card, int count) {
  Deployment d;
  d.shape = PublicShape(shape);
  d.format = *FindWeightFormat(format);
  d.kv = *FindKvFormat("f16");
  d.hardware = *FindCard(card);
  d.hardware.count = count;
  d.efficiency = AssumedEfficiency(d.hardware);
  d.step_tokens = 2048;
  return d;
}

TEST(ModelShapeTest, ParametersAsTheModelsFilesCountThem) {
  // Elements of all tensors of the published checkpoints.
  const std::pair<const char*, int64_t> published[] = {
      {"llama-2-7b", 6738415616},       {"llama-2-13b", 13015864320},     {"llama-2-70b", 68976648192},
      {"llama-3-8b", 8030261248},       {"llama-3-70b", 70553706496},     {"llama-3.1-405b", 405853388800},
      {"llama-3.2-1b", 1235814400},     {"llama-3.2-3b", 3212749824},     {"mistral-7b", 7241732096},
      {"mixtral-8x7b", 46702792704},    {"qwen2.5-0.5b", 494032768},      {"qwen2.5-7b", 7615616512},
      {"qwen2.5-72b", 72706203648},     {"qwen3-0.6b", 596049920},        {"qwen3-8b", 8190735360},
      {"qwen3-30b-a3b", 30532122624},   {"gemma-2-2b", 2614341888},       {"gemma-2-9b", 9241705984},
      {"gemma-3-1b", 999885952},        {"phi-3-mini", 3821079552},       {"smollm2-135m", 134515008},
      {"deepseek-v2-lite", 15706484224}, {"deepseek-v3", 671026419200},   {"mamba-2.8b", 2768345600},
      {"mamba2-2.7b", 2702599680},      {"jamba-v0.1", 51570323328}};
  for (const auto& [name, count] : published) EXPECT_EQ(CountParameters(PublicShape(name)).total(), count) << name;
  EXPECT_NEAR(ActiveParameters(PublicShape("mixtral-8x7b")) / 1e9, 12.9, 0.2);  // as its report says
  EXPECT_NEAR(ActiveParameters(PublicShape("deepseek-v3")) / 1e9, 37, 0.5);
}

TEST(ModelShapeTest, CachedBytesATokenAsTheDeepSeekReportComparesThem) {
  const KvFormat& bf16 = *FindKvFormat("bf16");
  EXPECT_EQ(KvTokenBytes(PublicShape("deepseek-v3"), bf16), 70272);
  EXPECT_EQ(KvTokenBytes(PublicShape("qwen2.5-72b"), bf16), 327680);
  EXPECT_EQ(KvTokenBytes(PublicShape("llama-3.1-405b"), bf16), 516096);
  EXPECT_EQ(KvTokenBytes(PublicShape("llama-2-7b"), bf16), 524288);
  EXPECT_EQ(KvTokenBytes(PublicShape("mamba-2.8b"), bf16), 0);
  // int8 of hone: a byte a number and a 4-byte scale a head and token, as kernels/attention/kv_view.h lays them out.
  const ModelShape& llama = PublicShape("llama-3.2-1b");
  EXPECT_EQ(KvTokenBytes(llama, *FindKvFormat("int8")),
            llama.layers * hone::KvTokenBytes(KvType::kI8, llama.kv_heads, llama.head_width));
}

TEST(ModelShapeTest, WindowsAndStates) {
  const ModelShape& gemma = PublicShape("gemma-3-27b");
  const KvFormat& bf16 = *FindKvFormat("bf16");
  const double layer = 2.0 * 16 * 128 * 2;  // bytes a token
  EXPECT_EQ(KvBytes(gemma, bf16, 1000), 62 * layer * 1000);
  EXPECT_NEAR(KvBytes(gemma, bf16, 32768), layer * (10.0 * 32768 + 52 * 1024), 1);
  // Mamba-2.8b: 64 layers of [5120][16] and three columns of convolution, F32, whatever the length.
  EXPECT_EQ(StateBytes(PublicShape("mamba-2.8b")), 64 * (5120 * 16 + 5120 * 3) * 4.0);
  EXPECT_EQ(StateBytes(PublicShape("llama-2-7b")), 0);
  EXPECT_GT(StateBytes(PublicShape("jamba-v0.1")), 0);
}

TEST(StoredFormatsTest, SizesAsPublishedFiles) {
  // Llama-2-7B in GGUF: gigabytes of the files that people share.
  const std::pair<const char*, double> files[] = {{"q8_0", 7.16}, {"q6_k", 5.53},   {"q5_k_m", 4.78}, {"q4_k_m", 4.08},
                                                  {"q4_0", 3.83}, {"q3_k_m", 3.30}};
  for (const auto& [name, gb] : files) {
    const double bytes = BytesOfWeights(PublicShape("llama-2-7b"), *FindWeightFormat(name)).total();
    EXPECT_NEAR(bytes / 1e9, gb, 0.015 * gb) << name;
  }
  // Llama-3-8B, GiB as the quantiser's own table lists them.
  const std::pair<const char*, double> listed[] = {{"q8_0", 7.96}, {"q6_k", 6.14}, {"q4_k_m", 4.58}, {"q2_k", 2.96}};
  for (const auto& [name, gib] : listed) {
    const double bytes = BytesOfWeights(PublicShape("llama-3-8b"), *FindWeightFormat(name)).total();
    EXPECT_NEAR(bytes / (1 << 30), gib, 0.02 * gib) << name;
  }
  EXPECT_EQ(FindWeightFormat("Q4_K_M"), FindWeightFormat("q4_k_m"));
  EXPECT_EQ(FindWeightFormat("q4"), nullptr);
}

TEST(CardsTest, Llama70bOfSixteenBitsIs140Gigabytes) {
  const Deployment d = Plan("llama-2-70b", "f16", "a100-80g", 2);
  EXPECT_NEAR(BytesOfWeights(d.shape, d.format).total() / 1e9, 138, 0.5);
  EXPECT_EQ(CountCards(d).weights_only, 2);
  EXPECT_EQ(CountCards(d).tensor, 2);
  EXPECT_TRUE(AccountMemory(d).fits());
  const CardCount small = CountCards(Plan("llama-2-70b", "f16", "rtx-3090", 1));
  EXPECT_EQ(small.weights_only, 6);  // six hold the weights alone; a tenth of each is kept free, and 8 KV heads
  EXPECT_EQ(small.layers, 7);        // do not divide into 6 or 7
  EXPECT_EQ(small.tensor, 8);
  EXPECT_EQ(small.tensor_counts, (std::vector<int>{1, 2, 4, 8, 16, 32, 64}));
}

TEST(CardsTest, AHundredMillisecondsATokenOnTwoCards) {
  // Both cards reading at once would need 34 ms. Cards that take turns, which is what a model split by layers does for
  // one sequence, need 68 ms at the full roof; at two thirds of the roof, as eager code reaches, a hundred.
  Deployment d = Plan("llama-2-70b", "f16", "a100-80g", 2);
  const Prediction tensor = Predict(d);
  EXPECT_NEAR(tensor.tpot_limit_s, 0.034, 0.001);
  d.split = Split::kLayers;
  EXPECT_NEAR(Predict(d).tpot_limit_s, 0.068, 0.001);
  d.efficiency.read_share = 2.0 / 3;
  EXPECT_NEAR(Predict(d).tpot_s, 0.1, 0.005);
  EXPECT_EQ(Predict(d).decode.bound(), Bound::kWeights);
}

TEST(PredictionTest, ClosedForms) {
  Deployment d = Plan("llama-2-7b", "f16", "a100-80g", 1);
  d.efficiency = {1, 1, 1, 0, 0, "the roof"};
  d.input = 1000, d.output = 0;
  // Decode: all but the embedding, and a thousand cached tokens and the new one.
  const StepTime decode = PredictStep(d, 1, 1, 1000);
  const double weights = BytesOfWeights(d.shape, d.format).total() - 32000.0 * 4096 * 2;
  EXPECT_NEAR(decode.read_s, (weights + 1001 * 524288.0) / 2039e9, 1e-9);
  EXPECT_NEAR(decode.flops, 2.0 * 6607343616 + 32 * 4.0 * 32 * 128 * 1001, 1e6);
  // A long prompt: two operations a parameter and token, attention on top.
  const Prediction prompt = Predict(d);
  EXPECT_NEAR(prompt.ttft_s, prompt.prefill.flops / 312e12, 1e-6);
  const double linear = 2.0 * (6607343616.0 - 32000.0 * 4096) * 1000 + 2.0 * 32000 * 4096;
  EXPECT_NEAR(prompt.prefill.flops, linear + 32 * 4.0 * 4096 * 1000 * 1001 / 2, 1e9);
  EXPECT_EQ(prompt.prefill.bound(), Bound::kCompute);
  // Many sequences at long contexts read more cache than weights.
  EXPECT_EQ(PredictStep(d, 64, 1, 4000).bound(), Bound::kKv);
  // Of experts, one token reads two of eight, many tokens all.
  const Deployment mixtral = Plan("mixtral-8x7b", "f16", "a100-80g", 2);
  const WeightAccount bytes = BytesOfWeights(mixtral.shape, mixtral.format);
  EXPECT_NEAR(bytes.ReadBy(mixtral.shape, 1), bytes.total() - bytes.embedding - 0.75 * bytes.experts, 1e6);
  EXPECT_NEAR(bytes.ReadBy(mixtral.shape, 64), bytes.total() - bytes.embedding, 1e6);
}

TEST(AccountTest, MostSequencesFillWhatIsLeft) {
  Deployment d = Plan("llama-2-7b", "f16", "rtx-3090", 1);
  d.context = 4096;
  const MemoryAccount account = AccountMemory(d);
  const double left = 24e9 * 0.9 - account.weights.total() - account.activation_bytes;
  EXPECT_EQ(account.most_sequences, static_cast<int64_t>(left / (4096 * 524288.0)));
  EXPECT_EQ(account.most_sequences, 3);
  d.kv = *FindKvFormat("int8");
  EXPECT_EQ(AccountMemory(d).most_sequences, 7);
  d.hardware.memory_bytes = 12e9;
  EXPECT_EQ(AccountMemory(d).most_sequences, 0);
  EXPECT_FALSE(AccountMemory(d).fits());
}

TEST(ReadShapeTest, ConfigsOfOtherArchitectures) {
  const auto read = [](const std::string& text) {
    const auto json = JsonConfig::Parse(text, "config.json");
    EXPECT_TRUE(json);
    return ShapeOfJson(*json);
  };
  const auto deepseek = read(R"({"model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "num_attention_heads": 128, "num_key_value_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
    "max_position_embeddings": 163840, "n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "n_shared_experts": 1, "first_k_dense_replace": 3, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128, "v_head_dim": 128})");
  ASSERT_TRUE(deepseek) << deepseek.error().message;
  EXPECT_EQ(CountParameters(*deepseek).total() + 58 * 256, CountParameters(PublicShape("deepseek-v3")).total());
  const auto mamba = read(R"({"model_type": "mamba", "num_hidden_layers": 64, "hidden_size": 2560, "vocab_size": 50280,
    "intermediate_size": 5120, "state_size": 16, "conv_kernel": 4, "time_step_rank": 160})");
  ASSERT_TRUE(mamba) << mamba.error().message;
  EXPECT_EQ(CountParameters(*mamba).total(), 2768345600);
  const auto jamba = read(R"({"model_type": "jamba", "num_hidden_layers": 32, "hidden_size": 4096, "vocab_size": 65536,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_experts": 16,
    "num_experts_per_tok": 2, "attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2,
    "expert_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 256,
    "max_position_embeddings": 262144, "tie_word_embeddings": false})");
  ASSERT_TRUE(jamba) << jamba.error().message;
  EXPECT_EQ(CountParameters(*jamba).total(), 51570323328);
  const auto gemma = read(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
    "num_hidden_layers": 26, "hidden_size": 1152, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
    "intermediate_size": 6912, "vocab_size": 262144, "sliding_window": 512, "sliding_window_pattern": 6,
    "max_position_embeddings": 32768}})");
  ASSERT_TRUE(gemma) << gemma.error().message;
  EXPECT_EQ(CountParameters(*gemma).total(), 999885952);
  EXPECT_EQ(gemma->windowed_layers, 22);
}

// Layers with a window, as each architecture says it (or leaves it to its code).
TEST(ReadShapeTest, WindowsOfEveryKind) {
  struct Case {
    const char* keys;
    int windowed;
  };
  for (const auto& [keys, windowed] : {Case{R"("model_type": "mistral", "sliding_window": 512)", 12}, Case{R"("model_type": "mistral", "sliding_window": null)", 0},
                                       Case{R"("model_type": "mistral")", 0}, Case{R"("model_type": "phi3", "sliding_window": 2047)", 12},
                                       Case{R"("model_type": "starcoder2", "sliding_window": 4096)", 12}, Case{R"("model_type": "gemma2", "sliding_window": 512)", 6},
                                       Case{R"("model_type": "gemma3_text", "sliding_window": 512)", 10},
                                       Case{R"("model_type": "gemma3_text", "sliding_window": 512, "sliding_window_pattern": 4)", 9},
                                       Case{R"("model_type": "cohere2", "sliding_window": 512, "sliding_window_pattern": 4)", 9},
                                       Case{R"("model_type": "qwen2", "sliding_window": 512, "max_window_layers": 8)", 0},
                                       Case{R"("model_type": "qwen2", "sliding_window": 512, "use_sliding_window": true, "max_window_layers": 8)", 4},
                                       Case{R"("model_type": "qwen2", "sliding_window": 512, "use_sliding_window": true)", 0},
                                       Case{R"("model_type": "qwen3", "sliding_window": 512, "use_sliding_window": false, "max_window_layers": 2)", 0},
                                       Case{R"("model_type": "gpt_oss", "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])", 2}}) {
    const auto json = JsonConfig::Parse(std::string(R"({"num_hidden_layers": 12, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 99, )") + keys + "}", "config.json");
    ASSERT_TRUE(json) << keys;
    const auto shape = ShapeOfJson(*json);
    ASSERT_TRUE(shape) << keys << shape.error().message;
    EXPECT_EQ(shape->windowed_layers, windowed) << keys;
  }
}

TEST(ReadShapeTest, ErrorsNameTheKey) {
  const auto message = [](const char* text) {
    const auto shape = ShapeOfJson(*JsonConfig::Parse(text, "config.json"));
    return shape ? std::string("no error") : shape.error().message;
  };
  EXPECT_NE(message(R"({"hidden_size": 8})").find("num_hidden_layers"), std::string::npos);
  EXPECT_NE(message(R"({"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 9, "num_attention_heads": 2,
                        "num_key_value_heads": 4})").find("num_key_value_heads is 4"), std::string::npos);
  EXPECT_NE(message(R"({"num_hidden_layers": 2, "hidden_size": 8, "vocab_size": 9, "num_attention_heads": 8,
                        "num_key_value_heads": 3})").find("8 query heads cannot share 3"), std::string::npos);
  EXPECT_NE(message(R"({"num_hidden_layers": -2, "hidden_size": 8})").find("-2"), std::string::npos);
  const auto unknown = PlannedFromName("llama-3.1-8c");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, ErrorCode::kNotFound);
  EXPECT_NE(unknown.error().message.find("llama-3.1-8b"), std::string::npos);
}

TEST(HardwareTest, SizesRatesAndNonsense) {
  EXPECT_EQ(*ParseBytes("--memory", "80GB"), 80e9);
  EXPECT_EQ(*ParseBytes("--memory", "24 GiB"), 24.0 * (1 << 30));
  EXPECT_EQ(*ParseBytes("--memory", "512M"), 512e6);
  EXPECT_EQ(*ParseRate("--bandwidth", "2TB/s"), 2e12);
  EXPECT_EQ(*ParseOps("--compute", "312T"), 312e12);
  EXPECT_EQ(*ParseOps("--compute", "1.5TFLOPS"), 1.5e12);
  for (const char* bad : {"", "GB", "-3GB", "80 apples", "80GB/s", "nan", "inf", "1e999GB"}) {
    const auto parsed = ParseBytes("--memory", bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
    EXPECT_NE(parsed.error().message.find("--memory"), std::string::npos);
  }
  EXPECT_EQ(FindCard("A100-80G")->memory_bytes, 80e9);
  EXPECT_EQ(FindCard("a100-80"), nullptr);
}

}  // namespace
}  // namespace hone
