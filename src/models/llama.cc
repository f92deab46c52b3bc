// Llama (Touvron et al. 2023; Llama 3, 2024) and models of the same shape: Mistral with its sliding window, SmolLM, Yi.
// GGUF rows of q and k are permuted so that rope turns neighbours (2j, 2j + 1).
#include "models/blocks.h"
#include "models/config_reader.h"
#include "models/family.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(config.qkv_bias, json.Bool("attention_bias", false));
  config.output_bias = config.qkv_bias;
  HONE_TRY(config.ffn_bias, json.Bool("mlp_bias", false));
  if (config.architecture != "MistralForCausalLM" && config.architecture != "mistral") return {};
  // Mistral: every layer slides when the key is a number; null means none; its class says 4096 where the key is
  // missing.
  HONE_TRY(const int64_t window, json.Int("sliding_window", Mentions(json, "sliding_window") ? 0 : 4096));
  return ReadHfWindows(
      json, window, [](int) { return true; }, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.ropes[0].order = RopeOrder::kInterleaved;
  config.qkv_bias = GgufHas(file, "blk.0.attn_q.bias");
  config.output_bias = GgufHas(file, "blk.0.attn_output.bias");
  config.ffn_bias = GgufHas(file, "blk.0.ffn_gate.bias");
  HONE_TRY(const int window, ReadInt(file, GgufKey(config, "attention.sliding_window"), 0, INT32_MAX, 0));
  for (LayerConfig& layer : config.layer) layer.window = window;
  return {};
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  AddAttention(config, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  AddGatedFfn(config, rules);
  return rules;
}

void Layer(Step& s, const LayerWeights& w) {
  Norm(s, s.x, w.attn_norm, s.h);
  ProjectQkv(s, w, s.h);
  Rotate(s, w);
  Attend(s, w);
  Project(s, w.attn_output, s.attention, s.h);

  AddResidualAndNorm(s, s.h, w.ffn_norm, s.h);
  GatedFfn(s, w.ffn, s.h, s.y);
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kLlamaFamily;
const Family kLlamaFamily{
    .name = "llama",
    .hf_names = {"LlamaForCausalLM", "llama", "MistralForCausalLM", "mistral"},
    .gguf_names = {"llama"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .gguf_permutes_qk = true,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
