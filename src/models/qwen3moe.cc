// Qwen3-MoE (Yang et al. 2025): Qwen3 whose feed-forward is a choice of experts: softmax over all, the best are taken
// and, where norm_topk_prob says so, their weights renormalised. Layers in mlp_only_layers stay dense.
#include "models/blocks.h"
#include "models/family.h"
#include "models/qwen.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(config.qkv_bias, json.Bool("attention_bias", false));
  config.output_bias = config.qkv_bias;
  HONE_RETURN_IF_ERROR(ReadQwenExperts(json, config));
  return ReadQwenWindows(json, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  return ReadQwenExperts(file, config);  // no key tells norm_topk_prob; all published models renormalise
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int layer) {
  std::vector<TensorRule> rules;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  AddAttention(config, rules);
  AddNorm("attn_q_norm", "self_attn.q_norm", Dim::kHead, rules);
  AddNorm("attn_k_norm", "self_attn.k_norm", Dim::kHead, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  if (config.layer[layer].experts) {
    AddExperts({.router = "mlp.gate",
                .gate = "mlp.experts.*.gate_proj",
                .up = "mlp.experts.*.up_proj",
                .down = "mlp.experts.*.down_proj"},
               rules);
  } else {
    AddGatedFfn(config, rules);
  }
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
  if (w.config->experts) {
    Experts(s, w,
            {.experts = s.config.experts,
             .chosen = s.config.experts_per_token,
             .renormalise = s.config.renormalise_experts},
            s.h, s.y);
  } else {
    GatedFfn(s, w.ffn, s.h, s.y);
  }
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kQwen3MoeFamily;
const Family kQwen3MoeFamily{
    .name = "qwen3moe",
    .hf_names = {"Qwen3MoeForCausalLM", "qwen3_moe"},
    .gguf_names = {"qwen3moe"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
