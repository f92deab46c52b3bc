// Gemma 3 (Gemma Team 2025), text: Gemma 2 without score caps, with RMSNorm on every head of q and k, and with five
// local layers (sliding window, rope base 10000) to each global one (rope base 1e6, possibly scaled).
#include <cmath>

#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"
#include "models/gguf_export.h"

namespace hone {
namespace {

constexpr int kGlobal = 0, kLocal = 1;  // indices of ropes

Result<void> ReadHfRopes(const JsonConfig& json, ModelConfig& config) {
  HONE_TRY(const double local_theta, ReadNumber(json, "rope_local_base_freq", 1e-6, 1e15, 10000));
  RopeConfig local;
  local.theta = local_theta;
  local.rotary_width = config.head_width;
  // transformers 5: rope_parameters has one object a layer type. ReadHfCommon has read full_attention.
  if (json.IsObject("rope_parameters")) {
    HONE_TRY(const JsonConfig parameters, json.Object("rope_parameters"));
    if (parameters.IsObject("sliding_attention")) {
      HONE_TRY(const JsonConfig sliding, parameters.Object("sliding_attention"));
      HONE_TRY(local, ReadHfRope(json, &sliding, local_theta, config));
    }
  }
  config.ropes.push_back(std::move(local));
  return {};
}

void SetLayerRopes(ModelConfig& config) {
  for (LayerConfig& layer : config.layer) layer.rope = layer.window > 0 ? kLocal : kGlobal;
}

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json,
                                    {.rope_theta = 1e6,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .context = 131072,
                                     .head_width = 256,
                                     .tied_embeddings = true,
                                     .activation_key = "hidden_activation",
                                     .activation = "gelu_pytorch_tanh"},
                                    config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_RETURN_IF_ERROR(ReadHfRopes(json, config));
  config.norms_store_minus_one = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  HONE_TRY(const double scalar, ReadNumber(json, "query_pre_attn_scalar", 1e-6, 1e9, 256));
  config.attention_scale = static_cast<float>(1 / std::sqrt(scalar));
  HONE_TRY(const double logits_cap, ReadNumber(json, "final_logit_softcapping", 0, 1e9, 0));
  config.logits_soft_cap = static_cast<float>(logits_cap);
  HONE_TRY(config.qkv_bias, json.Bool("attention_bias", false));
  config.output_bias = config.qkv_bias;
  HONE_TRY(const int pattern, ReadInt(json, "sliding_window_pattern", 1, INT32_MAX, 6));
  HONE_TRY(const int64_t window, json.Int("sliding_window", Mentions(json, "sliding_window") ? 0 : 4096));
  HONE_RETURN_IF_ERROR(ReadHfWindows(
      json, window, [](int) { return true; }, config));
  if (!json.Has("layer_types")) {
    for (int i = 0; i < config.layers; ++i) {
      if ((i + 1) % pattern == 0) config.layer[i].window = 0;
    }
  }
  SetLayerRopes(config);
  return {};
}

// Which layers slide: a number n (every n-th is global; 6 where absent), or an array with one entry a layer.
Result<std::vector<bool>> ReadGgufPattern(const GgufFile& file, const ModelConfig& config) {
  const std::string key = GgufKey(config, "attention.sliding_window_pattern");
  std::vector<bool> slides(config.layers);
  const GgufValue* value = file.Find(key);
  if (value != nullptr && value->type == GgufType::kArray) {
    HONE_TRY(const std::vector<int64_t> entries, file.Ints(key));
    if (entries.size() != slides.size())
      return InvalidInput(file.path() + ": " + key + " does not have one entry a layer");
    for (size_t i = 0; i < slides.size(); ++i) slides[i] = entries[i] != 0;
    return slides;
  }
  HONE_TRY(const int pattern, ReadInt(file, key, 1, INT32_MAX, 6));
  for (int i = 0; i < config.layers; ++i) slides[i] = (i + 1) % pattern != 0;
  return slides;
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.activation = Activation::kGeluTanh;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  // GGUF does not hold query_pre_attn_scalar: it is the head width but in the 27B model of 62 layers, where it is D /
  // H.
  if (config.layers == 62) {
    config.attention_scale = 1 / std::sqrt(static_cast<float>(config.width) / static_cast<float>(config.heads));
  }
  RopeConfig local;
  local.rotary_width = config.ropes[kGlobal].rotary_width;
  HONE_TRY(local.theta, ReadNumber(file, GgufKey(config, "rope.freq_base_swa"), 1e-6, 1e15, 10000));
  config.ropes.push_back(std::move(local));
  HONE_TRY(const double logits_cap, ReadNumber(file, GgufKey(config, "final_logit_softcapping"), 0, 1e9, 0));
  config.logits_soft_cap = static_cast<float>(logits_cap);
  HONE_TRY(const int window, ReadInt(file, GgufKey(config, "attention.sliding_window"), 0, INT32_MAX, 0));
  HONE_TRY(const std::vector<bool> slides, ReadGgufPattern(file, config));
  for (int i = 0; i < config.layers; ++i) config.layer[i].window = slides[i] ? window : 0;
  SetLayerRopes(config);
  return {};
}

void WriteGguf(const ModelConfig& config, GgufMetadata& metadata) {
  metadata.emplace_back(GgufKey(config, "rope.freq_base_swa"), GgufF32(config.ropes[kLocal].theta));
  // Layer i is global when (i + 1) % pattern is 0: the first global layer tells the pattern.
  uint64_t pattern = 1;
  while (pattern < config.layer.size() && config.layer[pattern - 1].window > 0) ++pattern;
  metadata.emplace_back(GgufKey(config, "attention.sliding_window_pattern"), GgufU32(pattern));
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  const bool plus_one = config.norms_store_minus_one;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules, plus_one);
  AddAttention(config, rules);
  AddNorm("attn_q_norm", "self_attn.q_norm", Dim::kHead, rules, plus_one);
  AddNorm("attn_k_norm", "self_attn.k_norm", Dim::kHead, rules, plus_one);
  AddNorm("post_attention_norm", "post_attention_layernorm", Dim::kWidth, rules, plus_one);
  AddNorm("ffn_norm", "pre_feedforward_layernorm", Dim::kWidth, rules, plus_one);
  AddGatedFfn(config, rules);
  AddNorm("post_ffw_norm", "post_feedforward_layernorm", Dim::kWidth, rules, plus_one);
  return rules;
}

void Layer(Step& s, const LayerWeights& w) {
  Norm(s, s.x, w.attn_norm, s.h);
  ProjectQkv(s, w, s.h);
  NormHeads(s, w);
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

extern const Family kGemma3Family;
const Family kGemma3Family{
    .name = "gemma3",
    .hf_names = {"Gemma3ForCausalLM", "gemma3_text", "Gemma3ForConditionalGeneration", "gemma3"},
    .gguf_names = {"gemma3"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .write_gguf = WriteGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
