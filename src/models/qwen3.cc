// Qwen3 (Yang et al. 2025): no biases, RMSNorm on every head of q and k before the rope.
#include "models/blocks.h"
#include "models/family.h"
#include "models/qwen.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {.head_width = 128}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(config.qkv_bias, json.Bool("attention_bias", false));
  config.output_bias = config.qkv_bias;
  return ReadQwenWindows(json, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.qkv_bias = GgufHas(file, "blk.0.attn_q.bias");
  config.output_bias = GgufHas(file, "blk.0.attn_output.bias");
  return {};
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int) {
  std::vector<TensorRule> rules;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  AddAttention(config, rules);
  AddNorm("attn_q_norm", "self_attn.q_norm", Dim::kHead, rules);
  AddNorm("attn_k_norm", "self_attn.k_norm", Dim::kHead, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  AddGatedFfn(config, rules);
  return rules;
}

void Layer(Step& s, const LayerWeights& w) {
  Norm(s, s.x, w.attn_norm, s.h);
  ProjectQkv(s, w, s.h);
  NormHeads(s, w);
  Rotate(s, w);
  Attend(s, w);
  Project(s, w.attn_output, s.attention, s.h);

  AddResidualAndNorm(s, s.h, w.ffn_norm, s.h);
  GatedFfn(s, w.ffn, s.h, s.y);
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kQwen3Family;
const Family kQwen3Family{
    .name = "qwen3",
    .hf_names = {"Qwen3ForCausalLM", "qwen3"},
    .gguf_names = {"qwen3"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
