// Qwen1.5-MoE and Qwen2-MoE: Qwen2 whose feed-forward is a sum of chosen experts and of one expert that every token
// takes, weighted by a sigmoid gate of its own.
#include "models/blocks.h"
#include "models/family.h"
#include "models/qwen.h"

namespace hone {
namespace {

Result<void> ReadHf(const JsonConfig& json, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadHfCommon(json, {}, config));
  HONE_RETURN_IF_ERROR(RefuseIfSet(json, "attn_logit_softcapping", config.family));
  HONE_TRY(config.qkv_bias, json.Bool("qkv_bias", true));
  HONE_TRY(config.shared_ffn_width, ReadInt(json, "shared_expert_intermediate_size", 1, kMaxFfnWidth));
  HONE_RETURN_IF_ERROR(ReadQwenExperts(json, config));
  return ReadQwenWindows(json, config);
}

Result<void> ReadGguf(const GgufFile& file, ModelConfig& config) {
  HONE_RETURN_IF_ERROR(ReadGgufCommon(file, config));
  config.qkv_bias = GgufHas(file, "blk.0.attn_q.bias");
  HONE_RETURN_IF_ERROR(ReadQwenExperts(file, config));
  config.renormalise_experts = false;  // no key tells it; the published models do not
  HONE_TRY(config.shared_ffn_width,
           ReadInt(file, GgufKey(config, "expert_shared_feed_forward_length"), 1, kMaxFfnWidth));
  return {};
}

std::vector<TensorRule> Tensors(const ModelConfig& config, int layer) {
  std::vector<TensorRule> rules;
  AddNorm("attn_norm", "input_layernorm", Dim::kWidth, rules);
  AddAttention(config, rules);
  AddNorm("ffn_norm", "post_attention_layernorm", Dim::kWidth, rules);
  if (!config.layer[layer].experts) {
    AddGatedFfn(config, rules);
    return rules;
  }
  AddExperts({.router = "mlp.gate",
              .gate = "mlp.experts.*.gate_proj",
              .up = "mlp.experts.*.up_proj",
              .down = "mlp.experts.*.down_proj"},
             rules);
  AddLinear("ffn_gate_shexp", "mlp.shared_expert.gate_proj", Dim::kSharedFfn, Dim::kWidth, false, rules);
  AddLinear("ffn_up_shexp", "mlp.shared_expert.up_proj", Dim::kSharedFfn, Dim::kWidth, false, rules);
  AddLinear("ffn_down_shexp", "mlp.shared_expert.down_proj", Dim::kWidth, Dim::kSharedFfn, false, rules);
  AddLinear("ffn_gate_inp_shexp", "mlp.shared_expert_gate", Dim::kOne, Dim::kWidth, false, rules);
  return rules;
}

void Layer(Step& s, const LayerWeights& w) {
  Norm(s, s.x, w.attn_norm, s.h);
  ProjectQkv(s, w, s.h);
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
    SharedExpert(s, w, s.h, s.y);
  } else {
    GatedFfn(s, w.ffn, s.h, s.y);
  }
  AddResidual(s, s.y);
}

}  // namespace

extern const Family kQwen2MoeFamily;
const Family kQwen2MoeFamily{
    .name = "qwen2moe",
    .hf_names = {"Qwen2MoeForCausalLM", "qwen2_moe"},
    .gguf_names = {"qwen2moe"},
    .read_hf = ReadHf,
    .read_gguf = ReadGguf,
    .layer_tensors = Tensors,
    .layer = Layer,
};

}  // namespace hone
