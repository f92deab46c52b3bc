// Gemma 2 (Gemma Team 2024): norms before and after each block, embeddings times sqrt(D), soft caps on scores and
// logits, a sliding window on every second layer, GELU-gated feed-forward. Hugging Face files hold w - 1 of every norm.
#include <cmath>

#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"

namespace hone {
namespace {

bool Slides(int layer) { return layer % 2 == 0; }

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json,
                                    {.head_width = 256,
                                     .tied_embeddings = true,
                                     .activation_key = "hidden_activation",
                                     .activation = "gelu_pytorch_tanh"},
                                    config));
  config.norms_store_minus_one = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  HONE_TRY(const double scalar, ReadNumber(json, "query_pre_attn_scalar", 1e-6, 1e9, 256));
  config.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  HONE_TRY(const double attention_cap,
           ReadNumber(json, "attn_logit_softcapping", 0, 1e9, Mentions(json, "attn_logit_softcapping") ? 0 : 50));
  HONE_TRY(const double logits_cap,
           ReadNumber(json, "final_logit_softcapping", 0, 1e9, Mentions(json, "final_logit_softcapping") ? 0 : 30));
  config.attention_soft_cap = static_cast<float>(attention_cap);
  config.logits_soft_cap = static_cast<float>(logits_cap);
  HONE_TRY(config.qkv_bias, json.Bool("attention_bias", false));
  config.output_bias = config.qkv_bias;
  HONE_TRY(const int64_t window, json.Int("sliding_window", Mentions(json, "sliding_window") ? 0 : 4096));
  return ReadHfWindows(json, window, Slides, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.activation = Activation::kGeluTanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  // GGUF does not hold query_pre_attn_scalar: it is the head width but in the 27B model of 46 layers, where it is D /
  // H.
  if (config.layers == 46) {
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.width) / static_cast<float>(config.heads));
  }
  HONE_TRY(const double attention_cap, ReadNumber(file, GgufKey(config, "attn_logit_softcapping"), 0, 1e9, 50));
  HONE_TRY(const double logits_cap, ReadNumber(file, GgufKey(config, "final_logit_softcapping"), 0, 1e9, 30));
  config.attention_soft_cap = static_cast<float>(attention_cap);
  config.logits_soft_cap = static_cast<float>(logits_cap);
  HONE_TRY(const int window, ReadInt(file, GgufKey(config, "attention.sliding_window"), 0, INT32_MAX, 4096));
  for (int i = 0; i < config.layers; ++i) config.layer[i].window = Slides(i) ? window : 0;
  return {};
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  const bool plus_one = config.norms_store_minus_one;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules, plus_one);
  AddAttention(config, rules);
  AddNorm("post_attention_norm", "post_attention_layernorm", Dim::kWidth, rules, plus_one);
  AddNorm("ffn_norm", "pre_feedforward_layernorm", Dim::kWidth, rules, plus_one);
  AddGatedFfn(config, rules);
  AddNorm("post_ffw_norm", "post_feedforward_layernorm", Dim::kWidth, rules, plus_one);
  return rules;
}

void Layer(Step& s, const LayerWeights& w) {
  Norm(s, s.x, w.attn_norm, s.h);
  ProjectQkv(s, w, s.h);
  Rotate(s, w);
  Attend(s, w);
  Project(s, w.attn_output, s.attention, s.h);
  Norm(s, s.h, w.post_attn_norm, s.h);

  AddResidualAndNorm(s, s.h, w.ffn_norm, s.h);
  GatedFfn(s, w.ffn, s.h, s.y);
  Norm(s, s.y, w.post_ffn_norm, s.y);
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kGemma2Family;
const Family kGemma2Family{
    .name = "gemma2",
    .hf_names = {"Gemma2ForCausalLM", "gemma2"},
    .gguf_names = {"gemma2"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
